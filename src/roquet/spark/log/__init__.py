"""The data source ``rocketmq-log``: the files of a store, read without a broker.

Owns the way from a directory to batches: which segments there are and where they end
(``store_files``), how they are cut into tasks (``splits``), how bytes become columns (``decoder``),
what damaged bytes become (``corrupt``), and the two readers (``source``, ``stream``).
"""
