"""The ``roquet`` command: one module a sub-command, loaded when it is called.

Owns what people type and read. It may import every package; nothing imports it.
"""
