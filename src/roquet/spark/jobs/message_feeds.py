"""Feeds workers with messages, from the files of a store or through the brokers of a cluster.

Owns one interface for both, for pipelines that work on executors. A feed is created on the driver
and sent to the workers; a part is what one worker reads at a time.
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
"""A store directory, or the connection to a cluster."""

Part: TypeAlias = Task | InputPartition
"""What one worker reads at a time."""


class Feed(Protocol):
    """Where messages come from."""

    is_by_queue: ClassVar[bool]
    """Whether each queue is in one part only."""

    def parts(self, count_min: int = 1) -> list[Part]:
        """Plan the parts; called once, on the driver.

        Args:
            count_min: The minimum number of parts, if there are that many messages.
        """
        ...

    def batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Read the messages of a part; called in a worker."""
        ...

    def counts(self, parts: Sequence[Part]) -> dict[str, int] | None:
        """Return the number of messages by topic, if known without reading them."""
        ...


@dataclass(frozen=True)
class LogFeed:
    """Reads the files of a store; damaged bytes are rows with the column ``_corrupt``."""

    options: LogOptions
    is_by_queue: ClassVar[bool] = False

    def parts(self, count_min: int = 1) -> list[Part]:
        """See :class:`Feed`."""
        return list(batch_tasks(replace(self.options, tasks_min=count_min)))

    def batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        """See :class:`Feed`."""
        assert not isinstance(part, InputPartition)
        schema = arrow_schema(struct_type([*self.options.columns, CORRUPT_COLUMN]))
        with plain_errors():
            yield from LogReader(schema, self.options.rules).batches(part)

    def counts(self, parts: Sequence[Part]) -> dict[str, int] | None:
        """Return ``None``: the log would have to be read."""
        del parts
        return None


@dataclass(frozen=True)
class ClusterFeed:
    """Reads queues through brokers; each queue is one part and is read in order."""

    options: ReadOptions
    is_by_queue: ClassVar[bool] = True

    def parts(self, count_min: int = 1) -> list[Part]:
        """Return one part for each queue, regardless of ``count_min``."""
        del count_min
        return list(BrokerReader(self.options, struct_type(self.options.columns)).partitions())

    def batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        """See :class:`Feed`."""
        assert isinstance(part, InputPartition)
        return read_range(self.options, struct_type(self.options.columns), part)

    def counts(self, parts: Sequence[Part]) -> dict[str, int] | None:
        """Return the number of messages by topic, from the ends of the queues."""
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
    """Create a feed.

    Args:
        source: What to read.
        wanted: Which messages; for a cluster, topics must be named.
        columns: The columns to decode.
        pattern: A pattern for topic names, if none are given; for stores only.
        keys: Only messages with one of these keys or ids; for stores only.
        is_sparse: Whether the topics have few of the log's messages, which are then found
            through their queues, not in the order of the log.

    Raises:
        SparkOptionError: The selection is invalid.
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
    """Return the selection as options of ``rocketmq``."""
    options = wanted.log_options()
    options["subscribe"] = options.pop("topics", "")
    return {**connect_options(client), **options}


def read_source(
    spark: SparkSession, source: Source, wanted: Wanted, *, columns: Sequence[str]
) -> DataFrame:
    """Read the messages of a store or a cluster as a DataFrame, with only some columns."""
    if not isinstance(source, ClientOptions):
        return read_log(spark, source, wanted, columns=columns)
    options = {**cluster_options(source, wanted), "columns": ",".join(columns)}
    return spark.read.format("rocketmq").options(**options).load()


def source_name(source: Source) -> str:
    """Return the name of the source in reports."""
    if isinstance(source, ClientOptions):
        return ";".join(source.namesrv_addresses)
    return source
