"""File formats, one module each, with the byte layout as a table.

Packs values of ``roquet.model`` into bytes and unpacks them; never opens a file. Imports
``roquet.model``; the store, replication and the Spark pipelines import it.
"""
