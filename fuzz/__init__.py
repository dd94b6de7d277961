"""Fuzzing of everything that reads bytes from a peer: ``python -m fuzz --help``."""
