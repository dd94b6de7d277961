"""What the driver of a stream does when queues come, go and shrink; no cluster is asked."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from roquet.errors import DataLost, SparkOptionError, SparkSchemaError
from roquet.model.message_queue import MessageQueue
from roquet.runtime.clock import ManualClock
from roquet.spark.broker import stream
from roquet.spark.broker.offsets import QueueOffsets, from_json, to_json
from roquet.spark.broker.planning import Sample
from roquet.spark.broker.read_options import ReadOptions, read_options
from roquet.spark.broker.reader import RangePartition
from roquet.spark.broker.stream import BrokerStreamReader
from roquet.spark.schema import COLUMNS, struct_type

A, B, C = (MessageQueue("T", "a", number) for number in range(3))
ALL = ReadAllAvailable()


class FakeCluster:
    """Queues with a beginning and an end."""

    ends: dict[MessageQueue, tuple[int, int]]
    absent: frozenset[MessageQueue]

    def __init__(self, options: ReadOptions) -> None:
        del options

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def queues(self, *, known: object = ()) -> list[MessageQueue]:
        del known
        return sorted(set(self.ends) - self.absent)

    async def first_offsets(self, queues: list[MessageQueue]) -> QueueOffsets:
        return {queue: self.ends[queue][0] for queue in queues}

    async def latest_offsets(self, queues: list[MessageQueue]) -> QueueOffsets:
        return {queue: self.ends[queue][1] for queue in queues}

    async def offsets_at(self, times_ms: dict[MessageQueue, int]) -> QueueOffsets:
        return {queue: min(time_ms, self.ends[queue][1]) for queue, time_ms in times_ms.items()}

    async def probe(self, queue: MessageQueue, queue_offset: int) -> None:
        pass

    async def sample(self, places: dict[MessageQueue, int]) -> dict[MessageQueue, Sample]:
        found = {}
        for queue, place in places.items():
            upto = min(place + 4, self.ends[queue][1])
            size_bytes = sum(self.size_bytes(offset) for offset in range(place, upto))
            found[queue] = Sample(upto - place, size_bytes)
        return found

    @staticmethod
    def size_bytes(offset: int) -> int:
        return 100 + offset


class Driver:
    """A reader on queues that a test moves."""

    def __init__(self, **options: str) -> None:
        self.clock = ManualClock()
        given = read_options({"namesrv": "127.0.0.1:1", "subscribe": "T", **options})
        self.reader = BrokerStreamReader(given, struct_type(COLUMNS), clock=self.clock)
        _drivers.append(self.reader)

    def advance(self, start: QueueOffsets, limit: ReadLimit = ALL) -> QueueOffsets:
        return from_json(self.reader.latestOffset(to_json(start), limit))

    def ranges(self, start: QueueOffsets, end: QueueOffsets) -> list[tuple[MessageQueue, int, int]]:
        found = []
        for each in self.reader.partitions(to_json(start), to_json(end)):
            assert isinstance(each, RangePartition)
            found.append((each.wanted.queue, each.wanted.start_offset, each.wanted.end_offset))
        return found


_drivers: list[BrokerStreamReader] = []


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeCluster]]:
    class Made(FakeCluster):
        pass

    Made.ends = {A: (0, 10), B: (5, 20)}
    Made.absent = frozenset()
    monkeypatch.setattr(stream, "Cluster", Made)
    # An error that leaves the reader changes it; see roquet.spark.plain_errors.
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    yield Made
    while _drivers:
        _drivers.pop().stop()


@pytest.mark.usefixtures("cluster")
def test_where_a_query_begins() -> None:
    def begin(**options: str) -> QueueOffsets:
        return from_json(Driver(**options).reader.initialOffset())

    assert begin() == {A: 10, B: 20}
    assert begin(startingOffsets="earliest") == {A: 0, B: 5}
    assert begin(startingOffsets='{"T":{"a":{"0":3,"1":-1}}}') == {A: 3, B: 20}
    assert begin(startingTimestamp="7") == {A: 7, B: 7}
    with pytest.raises(DataLost, match=r"queue 1 of T on a lacks 2 messages \(3 to 4\)"):
        begin(startingOffsets='{"T":{"a":{"0":3,"1":3}}}')
    with pytest.raises(DataLost, match="they are not there yet"):
        begin(startingOffsets='{"T":{"a":{"0":11,"1":5}}}')
    given = {"startingOffsets": '{"T":{"a":{"0":11,"1":3}}}', "failOnDataLoss": "false"}
    assert begin(**given) == {A: 10, B: 5}
    late = {"startingTimestamp": "99", "startingOffsetsByTimestampStrategy": "error"}
    with pytest.raises(SparkOptionError, match="starting time is after the last message"):
        begin(**late)


def test_a_new_queue_is_entered_first_and_then_read(cluster: type[FakeCluster]) -> None:
    driver = Driver()
    cluster.ends = {**cluster.ends, C: (0, 7)}
    start = {A: 10, B: 15}
    end = driver.advance(start)
    assert end == {A: 10, B: 20, C: 0}
    assert driver.ranges(start, end) == [(B, 15, 20)]
    again = driver.advance(end)
    assert again == {A: 10, B: 20, C: 7}
    assert driver.ranges(end, again) == [(C, 0, 7)]


def test_a_new_queue_that_was_cut_is_a_loss(cluster: type[FakeCluster]) -> None:
    cluster.ends = {**cluster.ends, C: (4, 7)}
    with pytest.raises(DataLost, match=r"queue 2 of T on a lacks 4 messages \(0 to 3\)"):
        Driver().advance({A: 10, B: 20})
    assert Driver(failOnDataLoss="false").advance({A: 10, B: 20})[C] == 4


def test_a_queue_that_is_gone_keeps_its_offset(
    cluster: type[FakeCluster], caplog: pytest.LogCaptureFixture
) -> None:
    cluster.absent = frozenset({B})
    with pytest.raises(DataLost, match="no longer has queue 1 of T on a") as caught:
        Driver().advance({A: 5, B: 15})
    assert "Is its broker down?" in (caught.value.hint or "")
    driver = Driver(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert driver.advance({A: 5, B: 15}) == {A: 10, B: 15}
        assert driver.advance({A: 10, B: 15}) == {A: 10, B: 15}
    assert caplog.text.count("continues without it") == 1
    cluster.absent = frozenset()
    assert driver.advance({A: 10, B: 15}) == {A: 10, B: 20}


@pytest.mark.usefixtures("cluster")
def test_a_queue_that_is_shorter_begins_anew() -> None:
    with pytest.raises(DataLost, match=r"queue 0 of T on a lacks 90 messages \(10 to 99\)"):
        Driver().advance({A: 100, B: 20})
    driver = Driver(failOnDataLoss="false")
    end = driver.advance({A: 100, B: 20})
    assert end == {A: 0, B: 20}
    assert driver.ranges({A: 100, B: 20}, end) == []
    assert driver.advance(end) == {A: 10, B: 20}


@pytest.mark.usefixtures("cluster")
def test_what_retention_took_is_said_before_tasks_run() -> None:
    with pytest.raises(DataLost, match=r"queue 1 of T on a lacks 3 messages \(2 to 4\)"):
        Driver().ranges({A: 0, B: 2}, {A: 10, B: 20})
    found = Driver(failOnDataLoss="false").ranges({A: 0, B: 2}, {A: 10, B: 20})
    assert found == [(A, 0, 10), (B, 2, 20)]


def test_available_now_ends_where_it_was_begun(cluster: type[FakeCluster]) -> None:
    driver = Driver(maxOffsetsPerTrigger="10", minOffsetsPerTrigger="5")
    limit = driver.reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    driver.reader.prepareForTriggerAvailableNow()
    cluster.ends = {A: (0, 50), B: (5, 99), C: (0, 7)}
    at = {A: 0, B: 5}
    counts = []
    while (end := driver.advance(at, limit)) != at:
        counts.append(sum(end.values()) - sum(at.values()))
        at = end
    assert at == {A: 10, B: 20}
    assert counts == [10, 10, 5]


def test_available_now_reads_a_queue_that_came_since_the_last_run(
    cluster: type[FakeCluster],
) -> None:
    cluster.ends = {**cluster.ends, C: (0, 7)}
    driver = Driver()
    driver.reader.prepareForTriggerAvailableNow()
    first = driver.advance({A: 10, B: 20})
    second = driver.advance(first)
    assert (first[C], second[C]) == (0, 7)
    assert driver.advance(second) == second


def test_a_batch_waits_for_its_minimum_until_it_waited_too_long(
    cluster: type[FakeCluster],
) -> None:
    driver = Driver(minOffsetsPerTrigger="10", maxTriggerDelay="5s")
    limit = driver.reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    at = driver.advance({A: 0, B: 5}, limit)
    assert at == {A: 10, B: 20}
    cluster.ends = {A: (0, 13), B: (5, 20)}
    assert driver.advance(at, limit) == at
    # All there is means all there is.
    assert driver.advance(at, ALL) == {A: 13, B: 20}
    driver.clock.advance(5_000)
    assert driver.advance(at, limit) == {A: 13, B: 20}


@pytest.mark.usefixtures("cluster")
def test_both_limits_count() -> None:
    driver = Driver(minOffsetsPerTrigger="2", maxOffsetsPerTrigger="5")
    limit = driver.reader.getDefaultReadLimit()
    at = driver.advance({A: 0, B: 5}, limit)
    assert sum(at.values()) == 10
    assert driver.advance({A: 10, B: 19}, limit) == {A: 10, B: 19}


def test_a_batch_has_about_so_many_bytes(cluster: type[FakeCluster]) -> None:
    cluster.ends = {A: (0, 1000), B: (0, 500), C: (0, 0)}
    driver = Driver(maxBytesPerTrigger="20k")
    limit = driver.reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(20 << 10)
    driver.reader.prepareForTriggerAvailableNow()
    at = {A: 0, B: 0, C: 0}
    sizes = []
    while (end := driver.advance(at, limit)) != at:
        read = [range(at[queue], end[queue]) for queue in at]
        sizes.append(sum(cluster.size_bytes(offset) for each in read for offset in each))
        at = end
    assert at == {A: 1000, B: 500, C: 0}
    assert all(abs(size - (20 << 10)) < 3 << 10 for size in sizes[:-1]), sizes


def test_a_message_larger_than_the_limit_is_a_batch(cluster: type[FakeCluster]) -> None:
    cluster.ends = {A: (0, 3)}
    driver = Driver(maxBytesPerTrigger="1", maxOffsetsPerTrigger="2")
    limit = driver.reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(2)
    assert driver.advance({A: 0}, limit) == {A: 1}
    assert driver.advance({A: 3}, limit) == {A: 3}
    # The smaller of the two limits counts.
    wide = Driver(maxBytesPerTrigger="1g", maxOffsetsPerTrigger="2")
    assert wide.advance({A: 0}, limit) == {A: 2}
    assert wide.advance({A: 0}) == {A: 3}


@pytest.mark.usefixtures("cluster")
def test_the_latest_offsets_are_reported() -> None:
    driver = Driver()
    assert driver.reader.reportLatestOffset() is None
    driver.advance({A: 0, B: 5}, ReadMaxRows(1))
    assert driver.reader.reportLatestOffset() == {"T": {"a": {"0": 10, "1": 20}}}
    driver.reader.stop()
    driver.reader.stop()


def test_a_column_that_is_not_there_is_refused() -> None:
    given = read_options({"namesrv": "127.0.0.1:1", "subscribe": "T"})
    with pytest.raises(SparkSchemaError, match="no column '_corrupt'"):
        BrokerStreamReader(given, struct_type(["topic", "_corrupt"]))
