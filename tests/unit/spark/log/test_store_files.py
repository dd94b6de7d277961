from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from roquet.errors import NotAStore, StoreError
from roquet.format.consume_queue import UNIT_BYTES
from roquet.runtime.files import Files
from roquet.spark.log.store_files import open_log
from tests.unit.spark.log.kit import mixed_messages, rows, stored_messages, stored_rows, write_store
from tests.unit.store.kit import SEGMENT_BYTES, message, open_store, opened, put


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_store(tmp_path / "store", mixed_messages(200))
    return tmp_path / "store"


def end_of(path: Path) -> int:
    return open_log(Files(), [str(path)]).end_offset


def last_end(store: Path) -> int:
    *_, last = stored_messages(store)
    return last.physical_offset + last.store_size


def test_a_closed_store_ends_with_its_last_record(store: Path) -> None:
    log = open_log(Files(), [str(store)])
    assert len(log.segments) > 3
    assert len(log.queues) == 12
    assert log.end_offset == last_end(store)


def test_the_directory_of_the_log_is_its_store(store: Path) -> None:
    log = open_log(Files(), [f"file://{store}/commitlog"])
    assert log.root == store
    assert log.end_offset == last_end(store)


def test_without_queues_the_end_is_found_by_walking(store: Path) -> None:
    end = end_of(store)
    shutil.rmtree(store / "consumequeue")
    assert end_of(store) == end


def test_queues_that_lag_behind_do_not_hide_records(store: Path) -> None:
    end = end_of(store)
    for queue in sorted((store / "consumequeue").glob("*/*")):
        newest = max(queue.iterdir())
        newest.write_bytes(bytes(newest.stat().st_size))
    assert end_of(store) == end


def test_a_segment_made_ahead_is_no_end(store: Path) -> None:
    newest = max((store / "commitlog").iterdir())
    ahead = newest.with_name(f"{int(newest.name) + SEGMENT_BYTES:020d}")
    ahead.write_bytes(bytes(SEGMENT_BYTES))
    end = end_of(store)
    assert end == last_end(store)
    shutil.rmtree(store / "consumequeue")
    assert end_of(store) == end


def test_what_a_running_store_has_not_confirmed_is_not_read(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, *mixed_messages(20))
        limit = store.confirm_offset
        store.set_confirm_offset(limit)
        put(store, *mixed_messages(5))
        assert store.commit_log.wrote_offset > limit
        assert end_of(tmp_path) == limit
        assert len(rows(tmp_path)) == 20
        store.set_confirm_offset(None)
        put(store, message())
        assert len(rows(tmp_path)) == 26


def test_a_running_store_ends_where_consumers_are(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, *mixed_messages(50))
        assert end_of(tmp_path) == store.commit_log.wrote_offset
        before = rows(tmp_path)
        put(store, message(b"later"))
        assert rows(tmp_path)[:-1] == before


def test_the_lock_of_this_process_survives_the_look_at_it(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, message())
        assert end_of(tmp_path) > 0
        with pytest.raises(StoreError, match="in use"):
            open_store(tmp_path)


def test_an_empty_store_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert rows(tmp_path) == []
    with opened(tmp_path / "new"):
        pass
    assert rows(tmp_path / "new") == []


def test_a_store_whose_head_was_removed_starts_later(store: Path) -> None:
    whole = stored_rows(store)
    oldest = min((store / "commitlog").iterdir())
    oldest.unlink()
    log = open_log(Files(), [str(store)])
    assert log.start_offset == SEGMENT_BYTES
    found = rows(store, columns="physicalOffset", maxSplitBytes="2000")
    kept = [row["physicalOffset"] for row in whole if row["physicalOffset"] >= SEGMENT_BYTES]
    assert [row["physicalOffset"] for row in found] == kept


def test_segments_are_read_by_any_name(store: Path, tmp_path: Path) -> None:
    second = sorted((store / "commitlog").iterdir())[1]
    shutil.copy(second, tmp_path / "copy.bin")
    found = rows(tmp_path / "copy.bin", columns="physicalOffset")
    assert [row["physicalOffset"] for row in found] == [
        row["physicalOffset"]
        for row in stored_rows(store)
        if SEGMENT_BYTES <= row["physicalOffset"] < 2 * SEGMENT_BYTES
    ]


def test_an_entry_that_points_behind_the_log_is_not_believed(store: Path) -> None:
    end = end_of(store)
    queue = min((store / "consumequeue").glob("*/*"))
    newest = max(queue.iterdir())
    data = bytearray(newest.read_bytes())
    count = sum(any(data[at : at + UNIT_BYTES]) for at in range(0, len(data), UNIT_BYTES))
    at = (count - 1) * UNIT_BYTES
    data[at : at + 8] = (1 << 40).to_bytes(8, "big")
    newest.write_bytes(data)
    assert end_of(store) == end


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("nowhere", "does not exist", "store directory"),
        ("other", "has no commitlog", "the one with commitlog in it"),
        ("home", "has no commitlog", "Did you mean .*home/store"),
        ("home/store/config", "has no commitlog", "Did you mean .*home/store"),
        ("text.txt", "not a segment of a commit log", "20 digits"),
        ("strange", "has no segments", "20 digits"),
    ],
)
def test_what_is_no_store_is_refused_in_one_sentence(
    tmp_path: Path, name: str, message: str, hint: str
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "home" / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "home" / "store" / "config").mkdir()
    (tmp_path / "text.txt").write_text("not a log\n" * 20)
    (tmp_path / "strange" / "commitlog").mkdir(parents=True)
    (tmp_path / "strange" / "commitlog" / "notes").touch()
    with pytest.raises(NotAStore, match=message) as caught:
        open_log(Files(), [str(tmp_path / name)])
    assert "\n" not in caught.value.message
    assert re.search(hint, caught.value.hint or "")


def test_segments_that_overlap_are_refused(store: Path) -> None:
    first, second = sorted((store / "commitlog").iterdir())[:2]
    second.rename(second.with_name(f"{int(first.name) + 100:020d}"))
    with pytest.raises(NotAStore, match="overlap"):
        open_log(Files(), [str(store)])


def test_other_file_systems_are_refused() -> None:
    with pytest.raises(NotAStore, match="not a path of this machine"):
        open_log(Files(), ["hdfs://host/store"])
