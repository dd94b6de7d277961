from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
)

from roquet.errors import DataLost, SparkOptionError
from roquet.spark.log.source import RocketMQLogSource
from roquet.spark.log.stream import RocketMQLogStreamReader
from roquet.spark.schema import struct_type
from tests.unit.spark.log.kit import Row, mixed_messages, plain_rows, stored_rows, write_store
from tests.unit.store.kit import NOW_MS, SEGMENT_BYTES, opened, put


def stream(path: Path, **options: str) -> RocketMQLogStreamReader:
    source = RocketMQLogSource({"path": str(path), **{k.lower(): v for k, v in options.items()}})
    reader: RocketMQLogStreamReader = source.streamReader(
        struct_type(["physicalOffset", "topic", "storeSize"])
    )
    return reader


def read(reader: RocketMQLogStreamReader, start: dict[str, int], end: dict[str, int]) -> list[Row]:
    """The rows of a micro-batch, its tasks sent around as Spark does."""
    copy = pickle.loads(pickle.dumps(reader))  # noqa: S301
    tasks = pickle.loads(pickle.dumps(reader.partitions(start, end)))  # noqa: S301
    return [row for task in tasks for row in plain_rows(copy.read(task))]


def offsets(found: list[Row]) -> list[Any]:
    return [row["physicalOffset"] for row in found]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_store(tmp_path, mixed_messages(200), step_ms=10)
    return tmp_path


@pytest.mark.parametrize(
    ("limit", "batches"),
    [
        (ReadAllAvailable(), 1),
        (ReadMaxRows(60), 4),
        (ReadMaxRows(1), 200),
        (ReadMaxFiles(1), 5),
        (ReadMaxBytes(SEGMENT_BYTES * 10), 1),
        (ReadMaxBytes(1), 200),
    ],
)
def test_batches_follow_the_limit_and_each_other(
    store: Path, limit: ReadLimit, batches: int
) -> None:
    reader = stream(store)
    start = reader.initialOffset()
    found, count = [], 0
    while (end := reader.latestOffset(start, limit)) != start:
        rows = read(reader, start, end)
        assert rows == read(reader, start, end), "the same two offsets give the same rows"
        if isinstance(limit, ReadMaxRows):
            assert len(rows) <= limit.max_rows
        if isinstance(limit, ReadMaxBytes):
            assert len(rows) == 1 or sum(row["storeSize"] for row in rows) <= limit.max_bytes
        found += rows
        count += 1
        start = end
    assert offsets(found) == offsets(stored_rows(store))
    assert count == batches
    assert reader.reportLatestOffset() == start
    assert reader.partitions(start, start) == []


def test_a_stream_follows_a_store_that_grows(tmp_path: Path) -> None:
    reader = stream(tmp_path, startingOffsets="latest", topics="T1")
    with opened(tmp_path) as store:
        put(store, *mixed_messages(9))
        start = reader.initialOffset()
        assert reader.latestOffset(start, ReadAllAvailable()) == start
        put(store, *mixed_messages(100))
        end = reader.latestOffset(start, ReadAllAvailable())
        found = read(reader, start, end)
        assert {row["topic"] for row in found} == {"T1"}
        assert len(found) == 33
        assert end == {"physicalOffset": store.commit_log.wrote_offset}


def test_what_comes_later_waits_for_the_next_run(tmp_path: Path) -> None:
    reader = stream(tmp_path, maxOffsetsPerTrigger="30")
    with opened(tmp_path) as store:
        put(store, *mixed_messages(50))
        reader.prepareForTriggerAvailableNow()
        put(store, *mixed_messages(50))
        limit = reader.getDefaultReadLimit()
        assert limit == ReadMaxRows(30)
        start = reader.initialOffset()
        counts = []
        while (end := reader.latestOffset(start, limit)) != start:
            counts.append(len(read(reader, start, end)))
            start = end
        assert counts == [30, 20]
        assert reader.reportLatestOffset()["physicalOffset"] > start["physicalOffset"]


def test_the_limit_of_the_options_is_the_default(store: Path) -> None:
    assert stream(store).getDefaultReadLimit() == ReadAllAvailable()
    assert stream(store, maxBytesPerTrigger="1m").getDefaultReadLimit() == ReadMaxBytes(1 << 20)


def test_both_limits_of_the_options_hold(store: Path) -> None:
    reader = stream(store, maxOffsetsPerTrigger="60", maxBytesPerTrigger="4k")
    start = reader.initialOffset()
    found = read(reader, start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    assert 1 < len(found) < 60
    assert sum(row["storeSize"] for row in found) <= 4096
    reader = stream(store, maxOffsetsPerTrigger="2", maxBytesPerTrigger="4k")
    assert len(read(reader, start, reader.latestOffset(start, reader.getDefaultReadLimit()))) == 2


def test_a_stream_starts_at_a_time(store: Path) -> None:
    reader = stream(store, startingTimestamp=str(NOW_MS + 1500))
    start = reader.initialOffset()
    found = read(reader, start, reader.latestOffset(start, ReadAllAvailable()))
    assert offsets(found) == offsets(stored_rows(store)[150:])


def test_segments_removed_before_they_were_read_are_named(store: Path) -> None:
    min((store / "commitlog").iterdir()).unlink()
    start, end = {"physicalOffset": 0}, {"physicalOffset": SEGMENT_BYTES * 2}
    with pytest.raises(DataLost, match="no longer has physical offset 0"):
        stream(store).partitions(start, end)
    found = read(stream(store, failOnDataLoss="false"), start, end)
    assert found[0]["physicalOffset"] == SEGMENT_BYTES


def test_a_stream_has_no_end(store: Path) -> None:
    reader = pickle.loads(pickle.dumps(stream(store, endingTimestamp="2026-01-01")))  # noqa: S301
    offset = {"physicalOffset": 0}
    for ask in (
        reader.initialOffset,
        reader.prepareForTriggerAvailableNow,
        lambda: reader.latestOffset(offset, ReadAllAvailable()),
        lambda: reader.partitions(offset, offset),
        lambda: reader.read(InputPartition(None)),
    ):
        with pytest.raises(SparkOptionError, match="has no end"):
            ask()
