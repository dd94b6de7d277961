"""Reading from brokers as a stream: ``spark.readStream.format("rocketmq")``.

Owns the stream reader. While a query runs, Spark keeps one reader in a process on the driver; tasks
get copies that only read.

Invariants:

* A batch depends only on its two offsets and the options, so a batch that is repeated after a
  failure has the same tasks with the same messages.
* A queue that appears later first enters the offsets at its beginning and is read from the next
  batch on, so the checkpoint records where it began.
* An unreachable queue is waited for, never dropped: its offset stays in the checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from roquet.errors import DataLost
from roquet.model.message_queue import MessageQueue
from roquet.runtime.clock import Clock, SystemClock
from roquet.spark.broker.cluster import Cluster
from roquet.spark.broker.offsets import (
    OffsetsJson,
    QueueOffsets,
    from_json,
    named,
    queue_text,
    to_json,
)
from roquet.spark.broker.planning import (
    Loss,
    QueueRange,
    limited,
    losses,
    lost,
    must_wait,
    offsets_within,
    pending,
)
from roquet.spark.broker.positions import QueueBounds, start_offsets
from roquet.spark.broker.read_options import ReadOptions
from roquet.spark.broker.reader import partitions_of, read_range
from roquet.spark.options import LATEST
from roquet.spark.plain_errors import plain_errors
from roquet.spark.schema import COLUMNS, asked_columns

__all__ = ["BrokerStreamReader"]

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_SAMPLED_QUEUES_MAX = 16


class BrokerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads queues as they grow.

    Args:
        options: What to read, and how.
        schema: The columns.
        clock: The time.

    Raises:
        SparkSchemaError: There is no such column.
    """

    def __init__(
        self, options: ReadOptions, schema: StructType, *, clock: Clock | None = None
    ) -> None:
        asked_columns(schema, tuple(COLUMNS))
        self._options = options
        self._schema = schema
        self._driver = _Driver(options, clock or SystemClock())

    def initialOffset(self) -> OffsetsJson:
        """Return the start offsets of a new query."""
        with plain_errors():
            return to_json(self._driver.run(self._driver.begin()))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit in the options; Spark takes only one, so the maximum wins."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: OffsetsJson, limit: ReadLimit) -> OffsetsJson:
        """Return the end of the next batch."""
        with plain_errors():
            at = from_json(start)
            return to_json(self._driver.run(self._driver.advance(at, limit)))

    def reportLatestOffset(self) -> OffsetsJson | None:
        """Return the ends of the queues when the last batch was planned."""
        latest = self._driver.latest
        return to_json(latest) if latest else None

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query at the current ends of the queues."""
        with plain_errors():
            self._driver.run(self._driver.fix_end())

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> Sequence[InputPartition]:
        """Return the tasks of a batch."""
        with plain_errors():
            at, upto = from_json(start), from_json(end)
            ranges = [
                QueueRange(queue, at[queue], offset)
                for queue, offset in upto.items()
                if offset > at.get(queue, offset)
            ]
            if ranges and self._options.fail_on_data_loss:
                self._driver.run(self._driver.check(ranges))
            return partitions_of(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        return read_range(self._options, self._schema, partition)

    def stop(self) -> None:
        """Close the client at the end of the query."""
        self._driver.close()


class _Driver:
    """The reader's state on the driver; never started in the copy that a task gets."""

    def __init__(self, options: ReadOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._runner: asyncio.Runner | None = None
        self._cluster: Cluster | None = None
        self._target: QueueOffsets | None = None
        self._absent: frozenset[MessageQueue] = frozenset()
        self._last_batch_ns: int | None = None
        self._is_probed = False
        self.latest: QueueOffsets = {}

    # ----------------------------------------------------------------------- life and death

    def run(self, work: Coroutine[object, object, _T]) -> _T:
        """Run a coroutine on the driver's event loop."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.get_loop().run_until_complete(work)

    def close(self) -> None:
        """Close the client and the loop."""
        runner, self._runner = self._runner, None
        if runner is not None:
            if self._cluster is not None:
                runner.get_loop().run_until_complete(self._cluster.close())
                self._cluster = None
            runner.close()

    async def _opened(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options)
            await self._cluster.start()
        return self._cluster

    # ------------------------------------------------------------------------------- offsets

    async def begin(self) -> QueueOffsets:
        """Return the start offsets of a new query.

        Raises:
            SparkOptionError: The options do not fit the queues.
            DataLost: The offsets do not exist, and ``failOnDataLoss`` is on.
        """
        cluster = await self._opened()
        ends = await QueueBounds.of(cluster, await cluster.queues())
        start = await start_offsets(cluster, self._options, ends, default=LATEST)
        self.latest = ends.latest
        gaps = losses(
            [QueueRange(queue, at, ends.latest[queue]) for queue, at in sorted(start.items())],
            ends.first,
            ends.latest,
        ) + [
            Loss(queue, ends.latest[queue], at, "they are not there yet")
            for queue, at in sorted(start.items())
            if at > ends.latest[queue]
        ]
        if gaps and self._options.fail_on_data_loss:
            raise lost(gaps)
        return {
            queue: min(max(at, ends.first[queue]), ends.latest[queue])
            for queue, at in start.items()
        }

    async def fix_end(self) -> None:
        """Fix the end of the query at the current ends of the queues."""
        cluster = await self._opened()
        self._target = await cluster.latest_offsets(await cluster.queues())

    async def advance(self, start: Mapping[MessageQueue, int], limit: ReadLimit) -> QueueOffsets:
        """Return the end of the batch from ``start`` on.

        Raises:
            DataLost: A queue is gone or shorter than what was read, and ``failOnDataLoss`` is on.
        """
        cluster = await self._opened()
        queues = await cluster.queues(known=set(start) - self._absent)
        self._note_absent(set(start).difference(queues))
        present = [queue for queue in queues if queue in start]
        self.latest = await cluster.latest_offsets(present)
        await self._probe(cluster, start)
        end = await self._reset(cluster, start, dict(self.latest))
        if self._target is not None:
            end = {
                queue: max(min(offset, self._target.get(queue, 0)), min(start[queue], offset))
                for queue, offset in end.items()
            }
        end = await self._within_limits(cluster, start, end, limit)
        fresh = [queue for queue in queues if queue not in start]
        if fresh and self._target is not None:
            fresh = [queue for queue in fresh if queue in self._target]
        if fresh:
            end |= await self._enter(cluster, fresh)
        return {**start, **end}

    def _note_absent(self, gone: set[MessageQueue]) -> None:
        new = gone - self._absent
        self._absent = frozenset(gone)
        if not new:
            return
        text = f"The cluster no longer has {named(new)}"
        if self._options.fail_on_data_loss:
            raise DataLost(
                f"{text}.",
                hint="Is its broker down? Start the query again when it is back, or set "
                "failOnDataLoss to false to continue without it.",
            )
        log.warning("%s; the query continues without it until it is back", text)

    async def _probe(self, cluster: Cluster, start: Mapping[MessageQueue, int]) -> None:
        """Check once that a broker accepts pulls of this group with this filter."""
        for queue, offset in self.latest.items():
            if not self._is_probed and offset > start[queue]:
                await cluster.probe(queue, start[queue])
                self._is_probed = True

    async def _reset(
        self, cluster: Cluster, start: Mapping[MessageQueue, int], end: QueueOffsets
    ) -> QueueOffsets:
        """Restart queues that are shorter than what was already read from them."""
        shorter = [queue for queue, offset in end.items() if offset < start[queue]]
        if not shorter:
            return end
        found = [
            Loss(
                queue,
                end[queue],
                start[queue],
                f"the queue ends at {end[queue]}, it may have been recreated",
            )
            for queue in shorter
        ]
        if self._options.fail_on_data_loss:
            raise lost(found)
        for each in found:
            log.warning("%s; the query restarts it from its beginning", each)
        return end | await cluster.first_offsets(shorter)

    async def _enter(self, cluster: Cluster, fresh: Sequence[MessageQueue]) -> QueueOffsets:
        """Return the start offsets of new queues."""
        first = await cluster.first_offsets(fresh)
        found = [
            Loss(queue, 0, offset, "the queue is new, and they were deleted before it was read")
            for queue, offset in first.items()
            if offset > 0
        ]
        if found and self._options.fail_on_data_loss:
            raise lost(found)
        for queue in fresh:
            log.info("The query reads %s from %d on", queue_text(queue), first[queue])
        return first

    async def _within_limits(
        self,
        cluster: Cluster,
        start: Mapping[MessageQueue, int],
        end: QueueOffsets,
        limit: ReadLimit,
    ) -> QueueOffsets:
        if isinstance(limit, ReadAllAvailable):
            return end
        least = self._options.min_offsets_per_trigger
        if isinstance(limit, ReadMinRows):
            least = limit.min_rows
        now_ns = self._clock.monotonic_ns()
        if least is not None and self._target is None and self._last_batch_ns is not None:
            waited_ms = (now_ns - self._last_batch_ns) // 1_000_000
            delay_ms = self._options.max_trigger_delay_ms
            if must_wait(pending(start, end), least, waited_ms=waited_ms, max_delay_ms=delay_ms):
                return {queue: start[queue] for queue in end}
        if pending(start, end) or self._last_batch_ns is None:
            self._last_batch_ns = now_ns
        most = self._options.max_offsets_per_trigger
        if isinstance(limit, ReadMaxRows):
            most = limit.max_rows
        if most is not None:
            end = limited(start, end, most)
        most_bytes = self._options.max_bytes_per_trigger
        return end if most_bytes is None else await _limited_bytes(cluster, start, end, most_bytes)

    async def check(self, ranges: Sequence[QueueRange]) -> None:
        """Check that the messages of the ranges still exist, before any task runs.

        Raises:
            DataLost: Some are missing, and ``failOnDataLoss`` is on.
        """
        cluster = await self._opened()
        first = await cluster.first_offsets([each.queue for each in ranges])
        found = losses(ranges, first, {each.queue: each.end_offset for each in ranges})
        if found:
            raise lost(found)


async def _limited_bytes(
    cluster: Cluster, start: Mapping[MessageQueue, int], end: QueueOffsets, max_bytes: int
) -> QueueOffsets:
    """Return the end of a batch of about ``max_bytes``.

    Brokers do not say how large messages are, so some are looked at: at the beginning of the
    longest queues, and where the batch would end according to those.
    """
    backlog = {
        queue: offset - start[queue]
        for queue, offset in end.items()
        if offset > start.get(queue, offset)
    }
    longest = sorted(backlog, key=lambda queue: (-backlog[queue], queue))[:_SAMPLED_QUEUES_MAX]
    first = await cluster.sample({queue: start[queue] for queue in longest})
    samples = {queue: [sample] for queue, sample in first.items()}
    most = offsets_within(start, end, samples, max_bytes)
    if most is None:
        return end
    tentative = limited(start, end, most)
    places = {
        queue: tentative[queue] - first[queue].offsets
        for queue in longest
        if start[queue] + 2 * first[queue].offsets <= tentative[queue]
    }
    for queue, sample in (await cluster.sample(places)).items():
        samples[queue].append(sample)
    most = offsets_within(start, end, samples, max_bytes)
    return end if most is None else limited(start, end, most)
