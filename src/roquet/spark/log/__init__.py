"""The data source ``rocketmq-log``: the files of a store, read without a broker.

From a directory to batches: finds the segments and the end of the log (``store_files``), splits
them into tasks (``splits``), decodes bytes to columns (``decoder``), makes rows of damaged bytes
(``corrupt``), and has the two readers (``source``, ``stream``).
"""
