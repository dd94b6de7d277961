"""Spark: every topic, live or on disk, is a DataFrame.

Owns two data sources, ``rocketmq`` (through name server and brokers) and ``rocketmq-log`` (a store
directory, no broker), and the pipelines that stand on them. Nothing outside of this package
imports Spark, Arrow or numpy; this module itself does so only when asked to register.

Example:
    Read a store, with a session that is there already::

        import roquet.spark

        roquet.spark.register(spark)
        orders = spark.read.format("rocketmq-log").option("topics", "Orders").load("/data/store")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SOURCES", "register"]

SOURCES: dict[str, tuple[str, str]] = {
    "rocketmq": ("roquet.spark.broker.source", "RocketMQSource"),
    "rocketmq-log": ("roquet.spark.log.source", "RocketMQLogSource"),
}
"""By format name: the module and the class of a data source."""


def register(spark: SparkSession) -> None:
    """Make the formats ``rocketmq`` and ``rocketmq-log`` known to a session.

    Executors import this package too: it must be installed where they run, or be sent along.

    Args:
        spark: The session; to register again changes nothing.
    """
    for module, name in SOURCES.values():
        spark.dataSource.register(getattr(import_module(module), name))
