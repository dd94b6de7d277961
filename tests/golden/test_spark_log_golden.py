"""Stores of Apache RocketMQ 5.4.0 as rows: each equals what Roquet's own reader finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.runtime.files import Files
from roquet.spark.log.store_files import open_log
from tests.golden.records import log_records
from tests.unit.spark.log.kit import rows, stored_rows, task_rows, without


@pytest.fixture
def store(golden_data: Path, golden_store_name: str) -> Path:
    return golden_data / golden_store_name


def test_every_row_equals_the_stores_record(store: Path) -> None:
    found = rows(store, brokerName="broker-a", checkCrc="true")
    assert len(found) > 100
    assert {row["brokerName"] for row in found} == {"broker-a"}
    assert [without(row, "brokerName") for row in found] == stored_rows(store)


@pytest.mark.parametrize("split_bytes", ["1024", "5000", "20k"])
def test_splits_are_exact(store: Path, split_bytes: str) -> None:
    tasks = task_rows(store, maxSplitBytes=split_bytes, columns="physicalOffset")
    assert len(tasks) > 1
    assert all(tasks)
    found = [row["physicalOffset"] for task in tasks for row in task]
    assert found == [record.physical_offset for record in log_records(store)]


def test_the_log_ends_where_its_records_end(store: Path) -> None:
    log = open_log(Files(), [str(store)])
    assert log.end_offset == max(record.end_offset for record in log_records(store))
    bare = open_log(Files(), [str(part.path) for part in log.segments])
    assert bare.queues == {}
    assert bare.end_offset == log.end_offset


def test_a_segment_alone_gives_the_same_rows(store: Path) -> None:
    segment = store / "commitlog" / "00000000000000000000"
    assert rows(segment) == rows(store)
