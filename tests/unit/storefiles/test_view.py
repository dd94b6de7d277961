"""A store seen from outside: its files, records, queues and index files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.errors import NotAStore
from roquet.format.commit_log import DispatchRequest, RecordFault
from roquet.format.derived import QueueKey
from roquet.format.index_file import file_size
from roquet.format.record_layout import MAGIC_V1
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.store.inspect.verify import verify
from roquet.store.store_lock import StoreLock
from roquet.storefiles.damage import next_record
from roquet.storefiles.index_files import IndexFileView, open_index_files
from roquet.storefiles.layout import read_segments
from roquet.storefiles.view import StoreView
from roquet.storefiles.walk import BadRecord, LogWalk, Tail
from roquet.storefiles.window import Window
from tests.unit.store.lock_holder import lock_held
from tests.unit.store.synthetic import NOW_MS, SyntheticStore, flip_bit
from tests.unit.storefiles.kit import SEGMENT_BYTES, ReadOnlyFiles, fill


@pytest.fixture
def store(tmp_path: Path) -> SyntheticStore:
    made = SyntheticStore(tmp_path / "store", segment_bytes=SEGMENT_BYTES)
    fill(made)
    return made


@pytest.fixture
def view(store: SyntheticStore) -> Iterator[StoreView]:
    with StoreView(ReadOnlyFiles(), store.root) as opened:
        yield opened


# -- opening ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "hint"),
    [
        ("nowhere", "the one with commitlog in it"),
        ("a-file", "the one with commitlog in it"),
        ("empty", "the one with commitlog in it"),
        ("store/commitlog", "give the directory above it"),
        ("home", "did you mean"),
    ],
)
def test_folders_that_are_not_a_store(store: SyntheticStore, place: str, hint: str) -> None:
    base = store.root.parent
    (base / "a-file").write_text("x")
    (base / "empty").mkdir()
    (base / "home" / "store" / "commitlog").mkdir(parents=True)
    with pytest.raises(NotAStore) as caught:
        StoreView(ReadOnlyFiles(), base / place)
    assert hint in (caught.value.hint or "")


def test_links_to_the_store_and_to_its_log(store: SyntheticStore) -> None:
    base = store.root.parent
    (store.root / "commitlog").rename(base / "elsewhere")
    (store.root / "commitlog").symlink_to(base / "elsewhere")
    (base / "link").symlink_to(store.root)
    with StoreView(ReadOnlyFiles(), base / "link") as view:
        report = verify(view, ManualClock(NOW_MS))
        assert report.faults == []
        flip_bit(view.segments[0].path, 90, 0)
    with StoreView(ReadOnlyFiles(), base / "link") as view:
        (fault,) = verify(view, ManualClock(NOW_MS)).faults
        assert fault.file == f"commitlog/{0:020d}"


def test_state(store: SyntheticStore) -> None:
    with StoreView(ReadOnlyFiles(), store.root) as view:
        assert (view.is_running, view.crashed, view.lock_holder) == (False, False, None)
    (store.root / "abort").write_text("1")
    with StoreView(ReadOnlyFiles(), store.root) as view:
        assert (view.is_running, view.crashed) == (False, True)
    with lock_held(store.root) as holder, StoreView(ReadOnlyFiles(), store.root) as view:
        assert (view.is_running, view.crashed, view.lock_holder) == (True, False, holder)


def test_viewing_does_not_take_the_lock(store: SyntheticStore) -> None:
    with StoreView(Files(), store.root), lock_held(store.root):
        pass


def test_viewing_from_the_process_that_runs_the_store_keeps_its_lock(store: SyntheticStore) -> None:
    """Closing a descriptor of a file releases the process's locks on it, so none is opened."""
    lock = StoreLock(Files(), store.root)
    lock.acquire()
    try:
        with StoreView(ReadOnlyFiles(), store.root) as view:
            assert (view.is_running, view.lock_holder) == (True, os.getpid())
        with pytest.raises(AssertionError), lock_held(store.root):
            pass
    finally:
        lock.release()
    with lock_held(store.root):
        pass


def test_segments_of_a_directory(tmp_path: Path) -> None:
    for start, size in ((0, 100), (100, 100), (300, 100), (400, 50), (500, 0)):
        (tmp_path / f"{start:020d}").write_bytes(bytes(size))
    (tmp_path / "stray").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    segments = read_segments(Files(), tmp_path)
    assert [each.start for each in segments.files] == [0, 100, 300, 400]
    assert segments.size_bytes == 100
    messages = [problem.message for problem in segments.problems]
    assert len(messages) == 3
    assert "stray has a wrong name" in messages[0]
    assert "files are missing" in messages[1]
    assert "wrong size" in messages[2]
    assert all(problem.detail and problem.hint for problem in segments.problems)


# -- records ------------------------------------------------------------------------------------


def test_records_by_offset(store: SyntheticStore, view: StoreView) -> None:
    for placed in store.placed:
        found = view.check_at(placed.physical_offset)
        assert isinstance(found, DispatchRequest)
        assert found.queue_offset == placed.queue_offset
        assert view.message_at(placed.physical_offset).store_size == placed.size_bytes
    assert isinstance(view.check_at(1), RecordFault)
    assert isinstance(view.check_at(-1), RecordFault)
    assert isinstance(view.check_at(view.max_offset), RecordFault)


def test_few_segments_are_open_at_a_time(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store", segment_bytes=512)
    fill(store, 60)
    with StoreView(ReadOnlyFiles(), store.root) as view:
        assert len(view.segments) > 20
        assert len(list(LogWalk(view, on_damage=refuse).records())) == 60
        for placed in store.placed:
            assert view.record_at(placed.physical_offset) is not None
        assert len(view._windows) <= 8


def test_the_last_record_of_each_segment(store: SyntheticStore, view: StoreView) -> None:
    for number, part in enumerate(view.segments):
        expected = [p for p in store.placed if part.start <= p.physical_offset < part.end][-1]
        found = view.last_record(number)
        assert found is not None
        assert found.physical_offset == expected.physical_offset


def test_bytes_in_a_body_are_not_taken_for_a_record(tmp_path: Path) -> None:
    """Neither a lone magic number nor a whole copy of another record misleads the search."""
    store = SyntheticStore(tmp_path / "store")
    first = store.put(body=b"plain")
    copy = bytes(store.log[first.physical_offset : first.end_offset])
    second = store.put(body=b"xxxx" + MAGIC_V1.to_bytes(4, "big") + b"yyyy" + copy)
    third = store.put(body=b"plain")
    root = store.write()
    flip_bit(root / "commitlog" / f"{0:020d}", second.physical_offset, 0)
    with StoreView(ReadOnlyFiles(), root) as view:
        with Window(view.files, view.segments[0]) as window:
            found = next_record(window, second.physical_offset + 1, view.max_offset)
        assert found == third.physical_offset
        last = view.last_record(0)
        assert last is not None
        assert last.physical_offset == third.physical_offset


def refuse(damage: BadRecord) -> None:
    pytest.fail(f"no damage is expected: {damage}")


def walked(root: Path) -> tuple[list[int], list[BadRecord], Tail | None]:
    damages: list[BadRecord] = []
    with StoreView(ReadOnlyFiles(), root) as view:
        walk = LogWalk(view, on_damage=damages.append)
        offsets = [record.physical_offset for record in walk.records()]
    return offsets, damages, walk.tail


def test_a_walk_over_garbage(store: SyntheticStore) -> None:
    path = store.root / "commitlog" / f"{0:020d}"
    bad = store.placed[3:6]
    data = bytearray(path.read_bytes())
    data[bad[0].physical_offset : bad[-1].end_offset] = b"garbage!" * 200
    path.write_bytes(data[:SEGMENT_BYTES])
    offsets, damages, tail = walked(store.root)
    expected = [p.physical_offset for p in store.placed if p.physical_offset >= SEGMENT_BYTES]
    assert offsets == [p.physical_offset for p in store.placed[:3]] + expected
    assert damages[0].start == bad[0].physical_offset
    assert damages[-1].end == expected[0]
    assert [d.named.queue_offset for d in damages[:3] if d.named] == [p.queue_offset for p in bad]
    assert tail is not None
    assert (tail.physical_offset, tail.is_zero) == (store.log_end, True)


def test_a_walk_without_queues_finds_the_next_record_by_its_magic(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store", segment_bytes=SEGMENT_BYTES)
    for number in range(20):
        store.put(body=b"%d" % number)
    root = store.write(with_queues=False)
    bad = store.placed[7]
    flip_bit(root / "commitlog" / f"{0:020d}", bad.physical_offset + 86, 1)
    offsets, damages, _ = walked(root)
    assert offsets == [p.physical_offset for p in store.placed if p != bad]
    assert [(d.start, d.end, d.named) for d in damages] == [
        (bad.physical_offset, bad.end_offset, None)
    ]


def test_a_log_that_fills_its_last_segment(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store", segment_bytes=1024)
    while store.log_end < 1024:
        store.put(body=bytes(100))
    store.log = store.log[:1024]
    store.placed.pop()
    store.next_queue_offsets["Orders", 0] -= 1
    offsets, damages, tail = walked(store.write())
    assert len(offsets) == len(store.placed)
    assert (damages, tail) == ([], None)


# -- a store that runs --------------------------------------------------------------------------


def test_a_running_store_is_checked_up_to_its_finished_records(store: SyntheticStore) -> None:
    """Records being written, and entries still to come, are no faults."""
    last = store.placed[-1]
    path = (
        store.root / "commitlog" / f"{last.physical_offset // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
    )
    data = bytearray(path.read_bytes())
    position = store.log_end % SEGMENT_BYTES
    data[position : position + 60] = store.log[:60]
    path.write_bytes(data)
    (store.root / "abort").write_text("1")
    queue = store.root / "consumequeue" / last.topic / str(last.queue_id)
    with (queue / max(p.name for p in queue.iterdir())).open("r+b") as file:
        file.seek(last.queue_offset * 20 % 200)
        file.write(bytes(20))
    with lock_held(store.root), StoreView(ReadOnlyFiles(), store.root) as view:
        assert view.stable_end() == store.log_end
        report = verify(view, ManualClock(NOW_MS))
    assert report.faults == []
    assert [note.kind for note in report.notes] == ["lag"]
    assert report.counts.records == 30


def test_a_bad_record_of_a_running_store_is_reported(store: SyntheticStore) -> None:
    """Even the newest: its queue knows that it was finished."""
    last = store.placed[-1]
    path = (
        store.root / "commitlog" / f"{last.physical_offset // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
    )
    flip_bit(path, last.physical_offset % SEGMENT_BYTES + 90, 0)
    with lock_held(store.root), StoreView(ReadOnlyFiles(), store.root) as view:
        report = verify(view, ManualClock(NOW_MS))
    assert {(f.physical_offset, f.field) for f in report.faults} == {
        (last.physical_offset, "bodyCRC")
    }


def test_segments_that_retention_deletes_meanwhile(store: SyntheticStore) -> None:
    with lock_held(store.root), StoreView(ReadOnlyFiles(), store.root) as view:
        (store.root / "commitlog" / f"{0:020d}").unlink()
        assert view.bytes_at(0, 4) == b""
        walk = LogWalk(view, on_damage=refuse, end=view.stable_end())
        offsets = [record.physical_offset for record in walk.records()]
    assert offsets == [
        p.physical_offset for p in store.placed if p.physical_offset >= SEGMENT_BYTES
    ]


# -- queues and index ---------------------------------------------------------------------------


def test_queues_by_physical_offset(store: SyntheticStore, view: StoreView) -> None:
    low, high = store.placed[5].physical_offset, store.placed[15].physical_offset
    found = view.entries_between(low, high)
    assert [entry.unit.physical_offset for entry in found] == [
        p.physical_offset for p in store.placed[5:15]
    ]
    queue = view.queues[QueueKey("Orders", 1)]
    count = len([p for p in store.placed if (p.topic, p.queue_id) == ("Orders", 1)])
    assert queue.written_end() == queue.nonzero_end() == count
    assert queue.unit(-1) is None
    assert queue.unit(10_000) is None


@pytest.mark.parametrize(
    ("slots", "entries"), [(1, 50), (2, 7), (11, 40), (97, 200), (100, 200), (1000, 12)]
)
def test_slots_are_derived_from_the_file(tmp_path: Path, slots: int, entries: int) -> None:
    store = SyntheticStore(tmp_path / "store", slots=slots, entries=entries)
    root = fill(store, 9)
    files, strangers = open_index_files(Files(), root / "index")
    assert strangers == []
    assert files
    assert {file.slots for file in files} == {slots}
    assert {file.entry_capacity for file in files} == {entries}


def test_an_empty_index_file_takes_the_slots_of_its_neighbour(store: SyntheticStore) -> None:
    path = store.root / "index" / "20991231235959999"
    path.write_bytes(bytes(file_size(store.slots, store.entries)))
    alone = IndexFileView(Files(), path)
    assert (alone.infer_slots(), alone.count) == (0, 0)
    files, _ = open_index_files(Files(), store.root / "index")
    assert [file.slots for file in files] == [store.slots] * len(files)


def test_malformed_index_files(store: SyntheticStore) -> None:
    (store.root / "index" / "readme").write_text("x")
    (store.root / "index" / "20991231235959999").write_bytes(bytes(43))
    (store.root / "index" / "20991231235959998").write_bytes(b"")
    _, strangers = open_index_files(Files(), store.root / "index")
    assert len(strangers) == 3


def test_a_closed_view_has_no_file_open(store: SyntheticStore) -> None:
    def opened() -> list[str]:
        found = (each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink())
        return [str(each) for each in found if each.is_relative_to(store.root)]

    with StoreView(Files(), store.root) as view:
        index_files, _ = view.open_index()
        assert index_files
        assert view.bytes_at(0, 4) == store.root.joinpath("commitlog", f"{0:020d}").read_bytes()[:4]
        assert len(opened()) == 1 + len(index_files)
    assert opened() == []
