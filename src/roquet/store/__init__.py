"""The message store: commit log, consume queues, index, flushing, recovery and retention.

Owns the files of a store directory. Knows neither sockets nor event loops: one thread calls it,
and its own threads (flush, allocation) return results as values. Imports ``roquet.model``,
``roquet.format`` and ``roquet.runtime``; replication, the broker and the commands import it.
"""
