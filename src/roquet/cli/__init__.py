"""The ``roquet`` command: one module per sub-command, loaded on demand.

Owns the command line and its output. It may import every package; nothing imports it.
"""
