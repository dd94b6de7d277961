"""Spark: every topic, live or on disk, is a DataFrame.

Owns the data sources ``rocketmq`` (through name server and brokers), ``rocketmq-log`` (a store
directory, no broker) and ``rocketmq-lake`` (what was archived), and the pipelines built on them.
Nothing outside this package imports Spark, Arrow or numpy; this module does so only in
:func:`register` and when a pipeline (:data:`PIPELINES`) is first used.

Example:
    Read a store in an existing session::

        import roquet.spark

        roquet.spark.register(spark)
        orders = spark.read.format("rocketmq-log").option("topics", "Orders").load("/data/store")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from roquet.spark.jobs.archive import archive
    from roquet.spark.jobs.audit import audit
    from roquet.spark.jobs.capacity import capacity
    from roquet.spark.jobs.compact import compact
    from roquet.spark.jobs.dlq import list_letters, replay_letters, show_letters
    from roquet.spark.jobs.export import export
    from roquet.spark.jobs.follow import archive_topics, follow
    from roquet.spark.jobs.inputs import Wanted
    from roquet.spark.jobs.lag import lag
    from roquet.spark.jobs.lake import read_lake
    from roquet.spark.jobs.reads import read_log, read_topics
    from roquet.spark.jobs.rebuild import rebuild
    from roquet.spark.jobs.replay import replay
    from roquet.spark.jobs.stats import stats
    from roquet.spark.jobs.table_archive import archive_table, read_table, tiered_table
    from roquet.spark.jobs.table_verify import verify_table
    from roquet.spark.jobs.tier import tier, tiered
    from roquet.spark.jobs.trace import trace
    from roquet.spark.jobs.verify import verify

__all__ = [
    "PIPELINES",
    "SOURCES",
    "Wanted",
    "archive",
    "archive_table",
    "archive_topics",
    "audit",
    "capacity",
    "compact",
    "export",
    "follow",
    "lag",
    "list_letters",
    "read_lake",
    "read_log",
    "read_table",
    "read_topics",
    "rebuild",
    "register",
    "replay",
    "replay_letters",
    "show_letters",
    "stats",
    "tier",
    "tiered",
    "tiered_table",
    "trace",
    "verify",
    "verify_table",
]

SOURCES: dict[str, tuple[str, str]] = {
    "rocketmq": ("roquet.spark.broker.source", "RocketMQSource"),
    "rocketmq-log": ("roquet.spark.log.source", "RocketMQLogSource"),
    "rocketmq-lake": ("roquet.spark.lake.source", "RocketMQLakeSource"),
}
"""Maps a format name to the module and class of its data source."""

PIPELINES: dict[str, str] = {
    "Wanted": "inputs",
    "archive": "archive",
    "archive_table": "table_archive",
    "archive_topics": "follow",
    "audit": "audit",
    "capacity": "capacity",
    "compact": "compact",
    "export": "export",
    "follow": "follow",
    "lag": "lag",
    "list_letters": "dlq",
    "read_lake": "lake",
    "read_log": "reads",
    "read_table": "table_archive",
    "read_topics": "reads",
    "rebuild": "rebuild",
    "replay": "replay",
    "replay_letters": "dlq",
    "show_letters": "dlq",
    "stats": "stats",
    "tier": "tier",
    "tiered": "tier",
    "tiered_table": "table_archive",
    "trace": "trace",
    "verify": "verify",
    "verify_table": "table_verify",
}
"""Maps a pipeline to its module in ``roquet.spark.jobs``, which is imported on first use."""


def __getattr__(name: str) -> object:
    if name not in PIPELINES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"roquet.spark.jobs.{PIPELINES[name]}"), name)


def register(spark: SparkSession) -> None:
    """Register the formats of :data:`SOURCES` with a session.

    Executors import this package too: it must be installed there or shipped with the job. A Spark
    Connect server that has the package knows the formats by itself; for such a session this does
    nothing.

    Args:
        spark: The session. A format that it knows already, by its Python environment or by an
            earlier call, is left as it is: Spark warns of a second registration.
    """
    if not hasattr(spark, "sparkContext"):
        # Sources that a client registers run in a folder of its session, where executors do not
        # find an archive that the server shipped.
        return
    in_jvm: Any = spark._jsparkSession  # noqa: SLF001 - nothing else says what is registered
    known = in_jvm.sessionState().dataSourceManager()
    for format_name, (module, name) in SOURCES.items():
        if not known.dataSourceExists(format_name):
            spark.dataSource.register(getattr(import_module(module), name))
