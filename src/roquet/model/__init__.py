"""Values without I/O: messages, properties, identifiers, flags, topics.

Nothing here reads a clock, a file or a socket. Every other package may import it; it imports only
``roquet.errors``.
"""
