"""The JSON bodies of requests and responses as typed values.

One module per family of requests; ``codec`` converts, ``register`` owns the one body that is not
plain JSON, ``table`` says which code has which bodies. Names are upstream's. Settings that are also
kept in files are values of ``roquet.model``.

Java's sets are lists here; their order on the wire means nothing, but is kept.
"""
