"""``verify`` names the record and the field of every contradiction, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from roquet.format.consume_queue import UNIT, UNIT_BYTES
from roquet.model import sys_flag as flags
from tests.unit.store.protection import SHOWS_AS, UNPROTECTED
from tests.unit.store.synthetic import STEP_MS, SyntheticStore, flip_bit
from tests.unit.store.verify_kit import SEGMENT_BYTES, check, fill, named, segment_of


@pytest.fixture
def store(tmp_path: Path) -> SyntheticStore:
    made = SyntheticStore(tmp_path / "store", segment_bytes=SEGMENT_BYTES)
    fill(made)
    return made


def test_a_sound_store_has_no_fault(store: SyntheticStore) -> None:
    report = check(store.root)
    assert report.faults == []
    assert report.notes == []
    assert report.ok
    assert report.counts.records == report.counts.queue_entries == 24
    assert report.counts.index_entries == 72
    assert report.counts.segments == 3


# -- what only looks wrong ----------------------------------------------------------------------


def tear(store: SyntheticStore) -> int:
    """Write half a record after the end, as a crash may leave it; returns its offset."""
    record = bytes(store.log[: store.placed[0].size_bytes])
    path = max((store.root / "commitlog").iterdir())
    position = store.log_end % SEGMENT_BYTES
    data = bytearray(path.read_bytes())
    data[position : position + 100] = record[:100]
    path.write_bytes(data)
    return store.log_end


def test_a_torn_tail_is_a_note_after_a_crash_and_a_fault_otherwise(store: SyntheticStore) -> None:
    offset = tear(store)
    report = check(store.root)
    assert [(f.physical_offset, f.field) for f in report.faults] == [(offset, "propertiesLength")]
    (store.root / "abort").write_text("1")
    report = check(store.root)
    assert report.ok
    assert [(note.kind, note.physical_offset) for note in report.notes] == [("tail", offset)]
    assert report.counts.records == 24


def test_damage_before_good_records_is_a_fault_even_after_a_crash(store: SyntheticStore) -> None:
    (store.root / "abort").write_text("1")
    path, start = segment_of(store, store.placed[20])
    flip_bit(path, start + 90, 0)
    report = check(store.root)
    assert [(f.physical_offset, f.field) for f in report.faults] == [
        (store.placed[20].physical_offset, "bodyCRC")
    ]


def test_a_closed_store_must_not_lose_its_last_record(store: SyntheticStore) -> None:
    last = store.placed[-1]
    path, start = segment_of(store, last)
    data = bytearray(path.read_bytes())
    data[start : start + last.size_bytes] = bytes(last.size_bytes)
    path.write_bytes(data)
    report = check(store.root)
    assert named(report, last)[0].queue_offset == last.queue_offset
    (store.root / "abort").write_text("1")
    assert "physicMsgTimestamp" in [fault.field for fault in check(store.root).faults]
    (store.root / "checkpoint").unlink()
    (store.root / "index" / max((store.root / "index").iterdir()).name).unlink()
    crashed = check(store.root)
    assert crashed.ok
    assert [note.kind for note in crashed.notes] == ["stale", "checkpoint"]


def test_entries_that_a_crash_kept_from_being_written(store: SyntheticStore) -> None:
    last = [p for p in store.placed if (p.topic, p.queue_id) == ("Orders", 1)][-1]
    path = store.root / "consumequeue" / "Orders" / "1" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[last.queue_offset * UNIT_BYTES :] = bytes(len(data) - last.queue_offset * UNIT_BYTES)
    path.write_bytes(data)
    assert [f.detail for f in named(check(store.root), last)] == [
        f"entry {last.queue_offset} is missing"
    ]
    (store.root / "abort").write_text("1")
    report = check(store.root)
    assert report.ok
    assert [note.kind for note in report.notes] == ["lag"]


def test_expired_head(tmp_path: Path) -> None:
    """Entries of records older than the oldest segment are no faults, in queue and index."""
    store = SyntheticStore(tmp_path / "store", segment_bytes=SEGMENT_BYTES)
    fill(store, 40)
    gone = sorted((store.root / "commitlog").iterdir())[:2]
    for path in gone:
        path.unlink()
    report = check(store.root)
    assert report.faults == []
    expired = [p for p in store.placed if p.physical_offset < 2 * SEGMENT_BYTES]
    assert report.counts.expired_entries == len(expired)
    assert report.counts.records == 40 - len(expired)


def test_fillers_at_the_head_of_a_queue(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store", start_offset=8 * 4096)
    store.next_queue_offsets["Orders", 0] = 23
    for number in range(5):
        store.put(unique_key=f"id{number}")
    root = store.write()
    head = root / "consumequeue" / "Orders" / "0" / f"{20 * UNIT_BYTES:020d}"
    assert head.read_bytes()[:UNIT_BYTES] == UNIT.pack(0, 0x7FFFFFFF, 0)
    assert check(root).faults == []


def test_a_topic_that_was_deleted_and_recreated(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store")
    for number in range(6):
        store.put("Again", 0, unique_key=f"old{number}")
    store.next_queue_offsets.clear()
    for number in range(3):
        store.put("Again", 0, unique_key=f"new{number}")
    report = check(store.write())
    # The builder leaves entries 3 to 5 of the former life; a broker removes the whole queue.
    assert {f.queue_offset for f in report.faults} <= {3, 4, 5}
    path = store.root / "consumequeue" / "Again" / "0" / f"{0:020d}"
    data = path.read_bytes()[: 3 * UNIT_BYTES]
    path.write_bytes(data.ljust(store.queue_file_bytes, b"\0"))
    report = check(store.root)
    assert report.faults == []
    assert [note.kind for note in report.notes] == ["restart"]


def test_a_topic_that_was_deleted(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store")
    for number in range(4):
        store.put("Gone" if number % 2 else "Here", 0, unique_key=f"id{number}")
    root = store.write()
    queue = root / "consumequeue" / "Gone"
    for path in (queue / "0").iterdir():
        path.unlink()
    (queue / "0").rmdir()
    queue.rmdir()
    report = check(root)
    assert [(f.topic, f.queue_offset, f.detail) for f in report.faults] == [
        ("Gone", 0, "entries 0 to 1 are missing")
    ]
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"Here":{}}}')
    report = check(root)
    assert report.faults == []
    assert [note.kind for note in report.notes] == ["deleted"]


def test_prepared_and_rolled_back_records_have_no_entries(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store")
    store.put(unique_key="a")
    store.put(unique_key="b", sys_flag=flags.TRANSACTION_PREPARED)
    store.put(unique_key="", sys_flag=flags.TRANSACTION_ROLLBACK)
    store.put(unique_key="c")
    assert check(store.write()).faults == []


def test_light_queues(tmp_path: Path) -> None:
    """A record that is dispatched to further queues holds its offsets in them."""
    store = SyntheticStore(tmp_path / "store")
    for number in range(3):
        more = {
            "INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b",
            "INNER_MULTI_QUEUE_OFFSET": f"{number},{number}",
        }
        store.put(unique_key=f"id{number}", more=more)
    root = store.write()
    for name in ("%LMQ%a", "%LMQ%b"):
        queue = root / "consumequeue" / name / "0"
        queue.mkdir(parents=True)
        source = root / "consumequeue" / "Orders" / "0" / f"{0:020d}"
        (queue / source.name).write_bytes(source.read_bytes())
    assert check(root).faults == []
    flip_bit(root / "consumequeue" / "%LMQ%b" / "0" / f"{0:020d}", 2 * UNIT_BYTES + 7, 0)
    report = check(root)
    assert [(f.topic, f.queue_offset, f.field) for f in report.faults] == [
        ("%LMQ%b", 2, "physicalOffset")
    ]


def test_v2_records_and_long_topics(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store")
    for number in range(4):
        store.put("%RETRY%" + "g" * 200, 0, unique_key=f"id{number}", v2=True)
    root = store.write()
    assert check(root).faults == []
    path, start = segment_of(store, store.placed[2])
    flip_bit(path, start + 85, 3)
    assert named(check(root), store.placed[2]) != []


# -- time ---------------------------------------------------------------------------------------


def test_a_store_newer_than_the_clock_is_reported_once(store: SyntheticStore) -> None:
    now_ms = store.placed[9].store_timestamp_ms
    report = check(store.root, now_ms=now_ms)
    times = [f for f in report.faults if f.field == "storeTimestamp"]
    assert [f.physical_offset for f in times] == [store.placed[10].physical_offset]
    assert "so are the 13 records after it" in times[0].detail


def test_a_clock_that_was_set_back_is_reported_once(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store")
    for number in range(10):
        if number == 5:
            store.time_ms -= 100 * STEP_MS
        store.put(body=b"%d" % number)
    report = check(store.write())
    assert [(f.physical_offset, f.field) for f in report.faults] == [
        (store.placed[5].physical_offset, "storeTimestamp")
    ]


# -- files --------------------------------------------------------------------------------------


def test_a_missing_segment(store: SyntheticStore) -> None:
    sorted((store.root / "commitlog").iterdir())[1].unlink()
    report = check(store.root)
    file_faults = [f for f in report.faults if f.field == "file"]
    assert len(file_faults) == 1
    assert "is followed by" in file_faults[0].detail
    assert report.counts.records == len(
        [p for p in store.placed if p.physical_offset // SEGMENT_BYTES != 1]
    )


def test_a_cut_segment(store: SyntheticStore) -> None:
    path = sorted((store.root / "commitlog").iterdir())[1]
    path.write_bytes(path.read_bytes()[:1000])
    report = check(store.root)
    assert any(f.field == "file" and "wrong size" in f.detail for f in report.faults)
    whole = [p for p in store.placed if not 2048 + 1000 < p.end_offset <= 2 * SEGMENT_BYTES]
    assert report.counts.records == len(whole)


def test_a_segment_under_a_wrong_name(store: SyntheticStore) -> None:
    path = max((store.root / "commitlog").iterdir())
    path.rename(path.with_name(f"{5000:020d}"))
    report = check(store.root)
    assert any("not a multiple of the file size" in f.detail for f in report.faults)


def test_an_unknown_file_among_the_segments(store: SyntheticStore) -> None:
    (store.root / "commitlog" / "notes.txt").write_text("hello")
    report = check(store.root)
    assert [f.field for f in report.faults] == ["file"]
    assert "notes.txt has a wrong name" in report.faults[0].detail


def test_queues_that_are_missing_altogether_are_reported_once(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store")
    for number in range(4):
        store.put(unique_key=f"id{number}")
    report = check(store.write(with_queues=False))
    assert [f.detail for f in report.faults] == ["there is no ConsumeQueue at all"]


def test_queues_in_rocksdb_are_not_compared(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store")
    store.put(unique_key="id")
    root = store.write(with_queues=False)
    (root / "consumequeue_r").mkdir()
    report = check(root)
    assert report.ok
    assert [note.kind for note in report.notes] == ["unchecked"]


@pytest.mark.parametrize("content", ["", "{", '{"a":1}}', "\0\0\0\0"])
@pytest.mark.parametrize("has_backup", [False, True])
def test_unreadable_config(store: SyntheticStore, content: str, *, has_backup: bool) -> None:
    path = store.root / "config" / "topics.json"
    if has_backup:
        (store.root / "config" / "topics.json.bak").write_bytes(path.read_bytes())
    path.write_text(content)
    report = check(store.root)
    assert [(f.file, f.field) for f in report.faults] == [("config/topics.json", "json")]
    assert ("the backup can be read" in report.faults[0].detail) == has_backup


def test_checkpoint(store: SyntheticStore) -> None:
    path = store.root / "checkpoint"
    data = path.read_bytes()
    path.write_bytes(data[:100])
    assert [(f.file, f.field) for f in check(store.root).faults] == [("checkpoint", "file")]
    path.write_bytes(b"\x7f" + data[1:])
    assert [f.field for f in check(store.root).faults] == ["physicMsgTimestamp"]
    path.unlink()
    report = check(store.root)
    assert report.ok
    assert [note.kind for note in report.notes] == ["checkpoint"]


def test_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    report = check(tmp_path / "store")
    assert report.ok
    assert report.counts.records == 0


def test_every_listed_fault_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roquet.store.inspect.report.FAULTS_LISTED_MAX", 3)
    store = SyntheticStore(tmp_path / "store", segment_bytes=SEGMENT_BYTES)
    fill(store)
    for place in range(0, 20, 2):
        path, start = segment_of(store, store.placed[place])
        flip_bit(path, start + 90, 0)
    report = check(store.root)
    assert len(report.faults) == 3
    assert report.counts.faults >= 10


def test_the_page_has_the_same_table() -> None:
    """docs/internals/verify.md lists every field of a record, and the same ones as unprotected."""
    page = Path(__file__).parents[3] / "docs" / "internals" / "verify.md"
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page.read_text("utf-8"), re.MULTILINE)
    assert {name for name, _ in rows} == set(SHOWS_AS) | UNPROTECTED
    assert {name for name, revealed_by in rows if revealed_by == "nothing"} == UNPROTECTED
