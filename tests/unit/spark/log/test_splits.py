from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from roquet.errors import DataLost, SparkOptionError
from roquet.runtime.files import Files
from roquet.spark.log import store_files
from roquet.spark.log.splits import plan
from roquet.spark.log.store_files import open_log
from tests.unit.spark.log.kit import (
    mixed_messages,
    rows,
    stored_rows,
    task_rows,
    tasks_of,
    write_store,
)
from tests.unit.store.kit import NOW_MS, SEGMENT_BYTES, message

STEP_MS = 10


@pytest.fixture(scope="module")
def queued(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("queued")
    write_store(store, mixed_messages(300), step_ms=STEP_MS)
    return store


@pytest.fixture(scope="module")
def bare(queued: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same log without its queues."""
    store = tmp_path_factory.mktemp("bare")
    shutil.copytree(queued / "commitlog", store / "commitlog")
    return store


@pytest.fixture(params=["queued", "bare"])
def store(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


def offsets(found: list[dict[str, object]]) -> list[object]:
    return [row["physicalOffset"] for row in found]


@pytest.mark.parametrize("split_bytes", [1024, 1500, 4000, SEGMENT_BYTES, 3 * SEGMENT_BYTES + 5])
def test_every_record_belongs_to_one_task(store: Path, split_bytes: int) -> None:
    tasks = task_rows(store, maxSplitBytes=str(split_bytes), columns="physicalOffset")
    assert all(tasks)
    assert offsets([row for task in tasks for row in task]) == offsets(stored_rows(store))
    sizes = [
        sum(part.size_bytes for part in task)
        for task in tasks_of(store, maxSplitBytes=str(split_bytes))
    ]
    assert max(sizes) < split_bytes + 2000


@pytest.mark.parametrize("tasks_min", [1, 2, 7, 40])
def test_there_are_as_many_tasks_as_asked_for(store: Path, tasks_min: int) -> None:
    tasks = task_rows(store, minPartitions=str(tasks_min), columns="physicalOffset")
    assert len(tasks) == tasks_min
    assert offsets([row for task in tasks for row in task]) == offsets(stored_rows(store))


@pytest.mark.parametrize(
    ("first", "last"), [(0, 300), (1, 2), (150, 151), (37, 299), (299, 300), (100, 100), (-5, 400)]
)
@pytest.mark.parametrize("shift_ms", [0, 1])
def test_a_time_range_is_exact_and_reads_little_else(
    store: Path, first: int, last: int, shift_ms: int
) -> None:
    begin, end = NOW_MS + first * STEP_MS + shift_ms, NOW_MS + last * STEP_MS + shift_ms
    options = {"startingTimestamp": str(begin), "endingTimestamp": str(end)}
    wanted = [row for row in stored_rows(store) if begin <= row["storeTimestamp"] // 1000 < end]
    found = rows(store, **options, columns="physicalOffset,storeSize")
    assert offsets(found) == offsets(wanted)
    read_bytes = sum(part.size_bytes for task in tasks_of(store, **options) for part in task)
    ends_of_segments = 4 * 500
    assert read_bytes <= sum(row["storeSize"] for row in wanted) + ends_of_segments


def test_a_query_starts_and_ends_at_records(store: Path) -> None:
    all_rows = stored_rows(store)
    begin, end = all_rows[40]["physicalOffset"], all_rows[170]["physicalOffset"]
    found = rows(store, startingOffsets=str(begin), endingOffsets=str(end))
    assert offsets(found) == offsets(all_rows[40:170])
    assert rows(store, startingOffsets="latest") == []
    assert len(rows(store, startingOffsets="earliest", endingOffsets="latest")) == 300


def test_an_offset_inside_of_a_record_is_refused(store: Path) -> None:
    with pytest.raises(SparkOptionError, match=r"'startingOffsets' .* where no record starts"):
        rows(store, startingOffsets="7")
    with pytest.raises(SparkOptionError, match="where no record starts"):
        rows(store, endingOffsets=str(1 << 40))


def test_offsets_that_are_gone_are_an_error_or_passed_over(bare: Path, tmp_path: Path) -> None:
    shutil.copytree(bare / "commitlog", tmp_path / "commitlog")
    min((tmp_path / "commitlog").iterdir()).unlink()
    with pytest.raises(DataLost, match="no longer has physical offset 0") as caught:
        rows(tmp_path, startingOffsets="0")
    assert caught.value.detail == f"{SEGMENT_BYTES} bytes are gone, it starts at {SEGMENT_BYTES}"
    found = rows(tmp_path, startingOffsets="0", failOnDataLoss="false")
    assert found[0]["physicalOffset"] == SEGMENT_BYTES


def test_a_segment_removed_after_planning_is_an_error_or_passed_over(
    bare: Path, tmp_path: Path
) -> None:
    from roquet.spark.log.reading import LogReader, ReadRules
    from roquet.spark.schema import arrow_schema, struct_type
    from tests.unit.spark.log.kit import plain_rows

    shutil.copytree(bare / "commitlog", tmp_path / "commitlog")
    planned = tasks_of(tmp_path)
    min((tmp_path / "commitlog").iterdir()).unlink()
    schema = arrow_schema(struct_type(["physicalOffset"]))
    with pytest.raises(DataLost, match="is gone"):
        plain_rows(LogReader(schema, ReadRules()).batches(planned[0]))
    left = plain_rows(LogReader(schema, ReadRules(fail_on_data_loss=False)).batches(planned[0]))
    assert left[0]["physicalOffset"] == SEGMENT_BYTES


def test_cuts_do_not_depend_on_queues_that_have_little(tmp_path: Path) -> None:
    """Files of queues are made for many entries at once, so their length tells nothing."""
    few = [message(b"x", topic=f"Few{number}") for number in range(40)]
    many = [message(bytes(150), topic="Many") for _ in range(300)]
    write_store(tmp_path, [*few, *many])
    tasks = tasks_of(tmp_path, maxSplitBytes="4000")
    sizes = [sum(part.size_bytes for part in task) for task in tasks]
    assert max(sizes) < 4600
    shutil.rmtree(tmp_path / "consumequeue" / "Many")
    bare = [
        sum(part.size_bytes for part in task) for task in tasks_of(tmp_path, maxSplitBytes="4000")
    ]
    assert max(bare) < 4600


def test_a_small_range_asks_no_queue(queued: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(Files(), [str(queued)])
    end = log.end_offset
    fresh = open_log(Files(), [str(queued)])
    monkeypatch.setattr(store_files, "queues_below", None)
    assert len(plan(fresh, 0, end)) == 1
