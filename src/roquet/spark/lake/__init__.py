"""The data source ``rocketmq-lake``: messages that ``archive`` wrote, wherever the lake is.

Reads through the file systems of ``archive`` itself, so that Spark needs none for S3 and the like.
From an address to batches: chooses files by their manifests (``planning``), skips those without a
matching row (``pruning``, ``bloom``) and reads the others (``reading``).
"""
