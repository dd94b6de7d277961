from __future__ import annotations

from pathlib import Path

import pytest

from roquet.errors import CorruptRecord, DataLost, SparkOptionError
from roquet.spark.log import queue_reading
from roquet.spark.log.queue_reading import QueueRange
from tests.unit.spark.log.kit import Row, mixed_messages, rows, task_rows, tasks_of, write_store
from tests.unit.store.kit import NOW_MS, SEGMENT_BYTES, message, opened, put

STEP_MS = 10


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_store(tmp_path, mixed_messages(300), step_ms=STEP_MS)
    return tmp_path


def in_log_order(found: list[Row]) -> list[Row]:
    return sorted(found, key=lambda row: int(row["physicalOffset"]))


@pytest.mark.parametrize(
    "options",
    [
        {"topics": "T1"},
        {"topics": "T0,T2", "queueIds": "1,3"},
        {"subscribePattern": "T.", "keys": "key-77"},
        {
            "topics": "T2",
            "startingTimestamp": str(NOW_MS + 701),
            "endingTimestamp": str(NOW_MS + 2000),
        },
        {"topics": "T1", "startingTimestamp": str(NOW_MS)},
        {"topics": "Nobody"},
    ],
)
@pytest.mark.parametrize("split", [{}, {"maxSplitBytes": "1500"}, {"minPartitions": "9"}])
def test_queues_lead_to_the_rows_that_the_log_has(
    store: Path, options: dict[str, str], split: dict[str, str]
) -> None:
    scanned = rows(store, **options)
    by_queue = task_rows(store, useQueues="true", **options, **split)
    assert in_log_order([row for task in by_queue for row in task]) == scanned
    parts = [part for task in tasks_of(store, useQueues="true", **options) for part in task]
    assert all(isinstance(part, QueueRange) for part in parts)
    if split and scanned and "keys" not in options:
        assert len(by_queue) > 2


def test_small_buffers_and_windows_change_nothing(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = rows(store, topics="T1", useQueues="true")
    monkeypatch.setattr(queue_reading, "GATHER_BYTES", 300)
    monkeypatch.setattr(queue_reading, "RUN_BYTES_MAX", 500)
    monkeypatch.setattr(queue_reading, "_UNITS_AT_ONCE", 2)
    assert rows(store, topics="T1", useQueues="true") == wanted


def test_a_queue_that_starts_late_has_fillers(tmp_path: Path) -> None:
    write_store(tmp_path, mixed_messages(200))
    min((tmp_path / "commitlog").iterdir()).unlink()
    (tmp_path / "roquet-manifest.json").unlink()
    with opened(tmp_path) as running:
        put(running, *mixed_messages(20))
    scanned = rows(tmp_path, topics="T1")
    found = rows(tmp_path, topics="T1", useQueues="true")
    assert in_log_order(found) == scanned


def test_what_a_crash_left_is_scanned(store: Path) -> None:
    (store / "abort").write_text("1")
    parts = [part for task in tasks_of(store, topics="T1", useQueues="true") for part in task]
    assert not any(isinstance(part, QueueRange) for part in parts)
    assert len(rows(store, topics="T1", useQueues="true")) == 100


def test_a_running_store_is_read_to_its_newest_entry(tmp_path: Path) -> None:
    with opened(tmp_path) as running:
        put(running, *mixed_messages(30), message(b"last", topic="T1", queue_id=9))
        found = rows(tmp_path, topics="T1", useQueues="true")
        assert len(found) == 11
        assert found[-1]["body"] == b"last"


def test_damage_that_an_entry_points_to_is_told(store: Path) -> None:
    offset = rows(store, topics="T1")[5]["physicalOffset"]
    start = offset - offset % SEGMENT_BYTES
    segment = store / "commitlog" / f"{start:020d}"
    good = segment.read_bytes()
    columns = "physicalOffset,_corrupt"
    for at, field in ((0, "totalSize"), (4, "magic"), (28, "physicalOffset"), (88, "bodyCRC")):
        data = bytearray(good)
        data[offset - start + at] ^= 0x01
        segment.write_bytes(data)
        found = rows(store, topics="T1", useQueues="true", checkCrc="true", columns=columns)
        assert len(found) == 100
        assert [
            (row["physicalOffset"], row["_corrupt"].split(": ")[1])
            for row in found
            if row["_corrupt"]
        ] == [(offset, field)]
        dropped = rows(store, topics="T1", useQueues="true", checkCrc="true", mode="DROPMALFORMED")
        assert len(dropped) == 99
        with pytest.raises(CorruptRecord, match=f"damaged at physical offset {offset}"):
            rows(store, topics="T1", useQueues="true", checkCrc="true", mode="FAILFAST")


def test_an_entry_with_a_wrong_size_is_told(store: Path) -> None:
    newest = max((store / "consumequeue" / "T1" / "1").iterdir())
    data = bytearray(newest.read_bytes())
    data[11] ^= 0x01
    newest.write_bytes(data)
    found = rows(store, topics="T1", useQueues="true", columns="_corrupt")
    told = [row["_corrupt"] for row in found if row["_corrupt"]]
    assert len(told) == 1
    assert told[0].split(": ")[1] == "totalSize"


def test_files_that_are_gone_are_an_error_or_passed_over(store: Path) -> None:
    from roquet.spark.log.reading import LogReader, ReadRules
    from roquet.spark.schema import arrow_schema, struct_type
    from tests.unit.spark.log.kit import plain_rows

    (task,) = tasks_of(store, topics="T1", useQueues="true")
    min((store / "commitlog").iterdir()).unlink()
    schema = arrow_schema(struct_type(["physicalOffset"]))
    with pytest.raises(DataLost, match="is gone"):
        plain_rows(LogReader(schema, ReadRules()).batches(task))
    patient = LogReader(schema, ReadRules(fail_on_data_loss=False))
    left = {row["physicalOffset"] for row in plain_rows(patient.batches(task))}
    assert min(left) >= SEGMENT_BYTES
    for path in (store / "consumequeue" / "T1").rglob("0*"):
        if path.is_file():
            path.unlink()
    assert plain_rows(patient.batches(task)) == []
    with pytest.raises(DataLost, match=r"queue file .* is gone"):
        plain_rows(LogReader(schema, ReadRules()).batches(task))


def test_all_topics_are_read_from_the_log(store: Path) -> None:
    with pytest.raises(SparkOptionError, match="'useQueues' of rocketmq-log needs topics"):
        rows(store, useQueues="true")
