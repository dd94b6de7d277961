"""The JSON bodies of requests and responses as typed values.

One module a family of requests; ``codec`` converts, ``register`` owns the one body that is not
plain JSON, ``table`` says which code has which bodies. Names are upstream's. Settings that are
also kept in files are values of ``roquet.model``.

Sets of Java are lists here: their order on the wire means nothing, and is kept.
"""
