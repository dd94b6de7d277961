"""Messages as workers read them, from the files of a store or through the brokers of a cluster.

Owns one face for both, for pipelines that do their work in workers. A feed is made on the driver
and travels to the workers with what they do; its parts are what one worker reads at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from roquet.client.options import ClientOptions
from roquet.spark.broker.connect import connect_options
from roquet.spark.broker.read_options import ReadOptions, read_options
from roquet.spark.broker.reader import BrokerReader, RangePartition, read_range
from roquet.spark.jobs.inputs import ALL, Wanted, read_log
from roquet.spark.log.log_options import LogOptions, read_log_options
from roquet.spark.log.planning import Task, batch_tasks
from roquet.spark.log.reading import LogReader
from roquet.spark.plain_errors import plain_errors
from roquet.spark.schema import CORRUPT_COLUMN, arrow_schema, struct_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "ClusterFeed",
    "Feed",
    "LogFeed",
    "Part",
    "Source",
    "cluster_options",
    "open_feed",
    "read_source",
    "source_name",
]

Source: TypeAlias = str | ClientOptions
"""A store directory, or how a cluster is reached."""

Part: TypeAlias = Task | InputPartition
"""What one worker reads at a time."""


class Feed(Protocol):
    """Where messages come from."""

    @property
    def is_by_queue(self) -> bool:
        """Whether no queue is in several parts."""

    def parts(self, count_min: int = 1) -> list[Part]:
        """Fix what is read: on the driver, once.

        Args:
            count_min: How many parts there are to be at least, if there are as many messages.
        """

    def batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        """The messages of a part: in a worker."""

    def counts(self, parts: Sequence[Part]) -> dict[str, int] | None:
        """By topic: how many messages there are, if that is known without reading them."""


@dataclass(frozen=True)
class LogFeed:
    """The files of a store; bytes that are no message are rows with the column ``_corrupt``."""

    options: LogOptions
    is_by_queue: ClassVar[bool] = False

    def parts(self, count_min: int = 1) -> list[Part]:
        """As of :class:`Feed`."""
        return list(batch_tasks(replace(self.options, tasks_min=count_min)))

    def batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        """As of :class:`Feed`."""
        assert not isinstance(part, InputPartition)
        schema = arrow_schema(struct_type([*self.options.columns, CORRUPT_COLUMN]))
        with plain_errors():
            yield from LogReader(schema, self.options.rules).batches(part)

    def counts(self, parts: Sequence[Part]) -> dict[str, int] | None:
        """As of :class:`Feed`: a log must be read."""
        del parts
        return None


@dataclass(frozen=True)
class ClusterFeed:
    """Queues of brokers; each is one part, and is read in order."""

    options: ReadOptions
    is_by_queue: ClassVar[bool] = True

    def parts(self, count_min: int = 1) -> list[Part]:
        """As of :class:`Feed`: a queue is one part, however many are wanted."""
        del count_min
        return list(BrokerReader(self.options, struct_type(self.options.columns)).partitions())

    def batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        """As of :class:`Feed`."""
        assert isinstance(part, InputPartition)
        return read_range(self.options, struct_type(self.options.columns), part)

    def counts(self, parts: Sequence[Part]) -> dict[str, int] | None:
        """As of :class:`Feed`: brokers say the ends of their queues."""
        found: dict[str, int] = {}
        for part in parts:
            if isinstance(part, RangePartition):
                topic = part.wanted.queue.topic
                found[topic] = found.get(topic, 0) + part.wanted.count
        return found


def open_feed(
    source: Source,
    wanted: Wanted = ALL,
    *,
    columns: Sequence[str],
    pattern: str | None = None,
    keys: Sequence[str] = (),
    is_sparse: bool = False,
) -> Feed:
    """Make a feed.

    Args:
        source: What to read.
        wanted: Which messages; of a cluster, topics must be named.
        columns: The columns that are decoded.
        pattern: What the names of topics match, if none are named; for stores only.
        keys: Only messages with one of these keys or ids; for stores only.
        is_sparse: Whether topics have few of a log's messages, which are then found by their
            queues, not in the order of the log.

    Raises:
        SparkOptionError: What is wanted cannot be asked for.
    """
    named = {"columns": ",".join(columns)}
    if isinstance(source, ClientOptions):
        return ClusterFeed(read_options({**cluster_options(source, wanted), **named}))
    given = {"path": source, **named, **wanted.log_options()}
    if pattern is not None and not wanted.topics:
        given["subscribePattern"] = pattern
    if keys:
        given["keys"] = ",".join(keys)
    if is_sparse:
        given["useQueues"] = "true"
    return LogFeed(read_log_options(given))


def cluster_options(client: ClientOptions, wanted: Wanted) -> dict[str, str]:
    """What is wanted of a cluster, as options of ``rocketmq``."""
    options = wanted.log_options()
    options["subscribe"] = options.pop("topics", "")
    return {**connect_options(client), **options}


def read_source(
    spark: SparkSession, source: Source, wanted: Wanted, *, columns: Sequence[str]
) -> DataFrame:
    """The messages of a store or a cluster as a DataFrame, with only some columns."""
    if not isinstance(source, ClientOptions):
        return read_log(spark, source, wanted, columns=columns)
    options = {**cluster_options(source, wanted), "columns": ",".join(columns)}
    return spark.read.format("rocketmq").options(**options).load()


def source_name(source: Source) -> str:
    """What a report calls it."""
    if isinstance(source, ClientOptions):
        return ";".join(source.namesrv_addresses)
    return source
