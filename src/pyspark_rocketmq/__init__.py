"""Makes the format ``rocketmq`` known to every Spark session without a word.

Spark imports each package whose name starts with ``pyspark_`` and registers the ``DefaultSource``
that it finds. Where something that the source needs is missing there is none, because an error here
would stop the sources of others too.
"""

from contextlib import suppress

__all__ = ["DefaultSource"]

with suppress(ImportError):
    from roquet.spark.broker.source import RocketMQSource as DefaultSource
