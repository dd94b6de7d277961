"""Fuzzing of everything that reads bytes of a peer: ``python -m fuzz --help``."""
