"""Makes the format ``rocketmq-lake`` known to every Spark session without a word.

A package of its own, because Spark takes one source from each; see ``pyspark_rocketmq``.
"""

from contextlib import suppress

__all__ = ["DefaultSource"]

with suppress(ImportError):
    from roquet.spark.lake.source import RocketMQLakeSource as DefaultSource
