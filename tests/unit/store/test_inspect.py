"""Opening, walking, summarizing and dumping a store from outside."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roquet.errors import NotAStore
from roquet.format.commit_log import MAGIC_V1, DispatchRequest, RecordFault
from roquet.format.derived import QueueKey
from roquet.format.index_file import file_size
from roquet.model import sys_flag as flags
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.store.inspect.dump import Dump, Selection, to_dumped
from roquet.store.inspect.index_files import IndexFileView, open_index_files
from roquet.store.inspect.info import StoreInfo, gather_info
from roquet.store.inspect.layout import read_parts
from roquet.store.inspect.verify import verify
from roquet.store.inspect.view import StoreView
from roquet.store.inspect.walk import Damage, LogWalk, Tail
from roquet.store.store_lock import StoreLock
from tests.unit.store.synthetic import NOW_MS, Placed, SyntheticStore, flip_bit

SEGMENT_BYTES = 2048


class ReadOnlyFiles(Files):
    """Fails every call that could change the disk."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        assert not write
        assert not create
        return super().open(path)

    def _refuse(self, *_arguments: object, **_options: object) -> None:
        pytest.fail("a reader changed the disk")

    make_dirs = allocate = truncate = write_at = rename = unlink = _refuse
    remove_dir = write_file = zero_range = data_sync = sync_dir = _refuse
    lock = _refuse  # type: ignore[assignment]


def fill(store: SyntheticStore, count: int = 30) -> Path:
    for number in range(count):
        store.put(
            "Orders" if number % 3 else "Parts",
            number % 2,
            f"body {number}".encode(),
            tags=f"Tag{number % 4}",
            keys=f"k{number} group{number % 5}",
            unique_key=f"7F0000010001{number:020X}",
        )
    return store.write()


@pytest.fixture
def store(tmp_path: Path) -> SyntheticStore:
    made = SyntheticStore(tmp_path / "store", segment_bytes=SEGMENT_BYTES)
    fill(made)
    return made


@pytest.fixture
def view(store: SyntheticStore) -> Iterator[StoreView]:
    with StoreView(ReadOnlyFiles(), store.root) as opened:
        yield opened


@contextmanager
def lock_held(root: Path) -> Iterator[int]:
    """Another process holds the lock of a store; yields its id."""
    program = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+b'); "
        "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0); "
        "print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(root / "lock")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            assert process.stdout.readline() == b"locked\n"
            yield process.pid
        finally:
            process.stdin.close()
            process.wait()


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
def test_what_is_no_store(store: SyntheticStore, place: str, hint: str) -> None:
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


def test_a_look_does_not_take_the_lock(store: SyntheticStore) -> None:
    with StoreView(Files(), store.root), lock_held(store.root):
        pass


def test_a_look_from_the_process_that_runs_the_store_keeps_its_lock(store: SyntheticStore) -> None:
    """To close a descriptor of a file gives up the locks a process has on it, so none is opened."""
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


def test_parts_of_a_directory(tmp_path: Path) -> None:
    for start, size in ((0, 100), (100, 100), (300, 100), (400, 50), (500, 0)):
        (tmp_path / f"{start:020d}").write_bytes(bytes(size))
    (tmp_path / "stray").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    parts = read_parts(Files(), tmp_path)
    assert [part.start for part in parts.files] == [0, 100, 300, 400]
    assert parts.size_bytes == 100
    messages = [problem.message for problem in parts.problems]
    assert len(messages) == 3
    assert "stray has a wrong name" in messages[0]
    assert "files are missing" in messages[1]
    assert "wrong size" in messages[2]
    assert all(problem.detail and problem.hint for problem in parts.problems)


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


def test_few_segments_are_mapped_at_a_time(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store", segment_bytes=512)
    fill(store, 60)
    with StoreView(ReadOnlyFiles(), store.root) as view:
        assert len(view.segments) > 20
        assert len(list(LogWalk(view, on_damage=refuse).records())) == 60
        assert len(view._mapped) <= 8


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
        found = view.next_record(second.physical_offset, view.max_offset)
        assert found is not None
        assert found.physical_offset == third.physical_offset
        last = view.last_record(0)
        assert last is not None
        assert last.physical_offset == third.physical_offset


def refuse(damage: Damage) -> None:
    pytest.fail(f"no damage is expected: {damage}")


def walked(root: Path) -> tuple[list[int], list[Damage], Tail | None]:
    damages: list[Damage] = []
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
    """What is being written now, and entries still to come, are no faults."""
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


def test_a_bad_record_of_a_running_store_is_told(store: SyntheticStore) -> None:
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
        assert view.map_segment(0) is None
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
def test_slots_are_told_by_the_file(tmp_path: Path, slots: int, entries: int) -> None:
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


def test_what_is_no_index_file(store: SyntheticStore) -> None:
    (store.root / "index" / "readme").write_text("x")
    (store.root / "index" / "20991231235959999").write_bytes(bytes(43))
    (store.root / "index" / "20991231235959998").write_bytes(b"")
    _, strangers = open_index_files(Files(), store.root / "index")
    assert len(strangers) == 3


# -- info ---------------------------------------------------------------------------------------


def info_of(root: Path, now_ms: int = NOW_MS) -> StoreInfo:
    with StoreView(ReadOnlyFiles(), root) as view:
        return gather_info(view, ManualClock(now_ms))


def test_info(store: SyntheticStore) -> None:
    info = info_of(store.root)
    assert (info.state, info.lock_holder) == ("clean", None)
    assert (info.min_physical_offset, info.max_physical_offset) == (0, store.log_end)
    assert info.segment_bytes == SEGMENT_BYTES
    assert info.segments[0].first_store_timestamp == store.placed[0].store_timestamp_ms
    assert info.segments[-1].last_physical_offset == store.placed[-1].physical_offset
    assert {topic.topic: topic.message_count for topic in info.topics} == {
        "Orders": 20,
        "Parts": 10,
    }
    queue = next(q for q in info.queues if (q.topic, q.queue_id) == ("Parts", 0))
    own = [p for p in store.placed if (p.topic, p.queue_id) == ("Parts", 0)]
    assert (queue.min_queue_offset, queue.max_queue_offset) == (0, len(own))
    assert queue.min_physical_offset == own[0].physical_offset
    assert queue.max_physical_offset == own[-1].physical_offset
    assert sum(file.entry_count for file in info.index_files) == 90
    assert info.checkpoint is not None
    assert info.checkpoint.physic_msg_timestamp == store.time_ms
    assert [file.name for file in info.config_files] == ["topics.json"]
    assert info.total_bytes == sum(p.stat().st_size for p in store.root.rglob("*") if p.is_file())
    assert (info.problems, info.warnings) == ([], [])


def test_info_of_a_store_with_an_expired_head(store: SyntheticStore) -> None:
    (store.root / "commitlog" / f"{0:020d}").unlink()
    info = info_of(store.root)
    own = [p for p in store.placed if (p.topic, p.queue_id) == ("Orders", 1)]
    left = [p for p in own if p.physical_offset >= SEGMENT_BYTES]
    queue = next(q for q in info.queues if (q.topic, q.queue_id) == ("Orders", 1))
    assert (queue.min_queue_offset, queue.max_queue_offset) == (left[0].queue_offset, len(own))
    assert queue.min_physical_offset == left[0].physical_offset


def test_info_tells_what_is_wrong(store: SyntheticStore) -> None:
    (store.root / "commitlog" / "stray").write_bytes(b"")
    (store.root / "index" / "stray").write_bytes(b"")
    config = store.root / "config"
    (config / "topics.json.bak").write_bytes((config / "topics.json").read_bytes())
    (config / "topics.json").write_text("{")
    (config / "delayOffset.json").write_text("{")
    info = info_of(store.root, now_ms=store.placed[0].store_timestamp_ms)
    messages = [problem.message for problem in info.problems]
    assert len(messages) == 4
    assert all(problem.detail and problem.hint for problem in info.problems)
    hints = {problem.message: problem.hint for problem in info.problems}
    assert "falls back to topics.json.bak" in (hints["config/topics.json cannot be read"] or "")
    assert "no backup" in (hints["config/delayOffset.json cannot be read"] or "")
    assert len(info.warnings) == 1
    assert "clock" in info.warnings[0]


def test_info_of_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    info = info_of(tmp_path)
    assert (info.segments, info.queues, info.index_files, info.checkpoint) == ([], [], [], None)
    assert (info.min_physical_offset, info.max_physical_offset) == (0, 0)


# -- dump ---------------------------------------------------------------------------------------


def dumped(root: Path, selection: Selection) -> tuple[list[int], list[str], str]:
    warnings: list[str] = []
    with StoreView(ReadOnlyFiles(), root) as view:
        dump = Dump(view, selection, warnings.append)
        offsets = [message.physical_offset for message in dump.messages()]
        assert dump.damage_count == len(warnings)
        return offsets, warnings, dump.way


def chosen(store: SyntheticStore, admits: object) -> list[int]:
    assert callable(admits)
    return [placed.physical_offset for placed in store.placed if admits(placed)]


def test_dump_of_everything(store: SyntheticStore) -> None:
    offsets, warnings, way = dumped(store.root, Selection())
    assert offsets == [placed.physical_offset for placed in store.placed]
    assert (warnings, way) == ([], "walk")


def test_dump_filters(store: SyntheticStore) -> None:
    low, high = store.placed[9], store.placed[21]
    cases: list[tuple[Selection, object]] = [
        (Selection(topics=frozenset({"Parts"})), lambda p: p.topic == "Parts"),
        (Selection(topics=frozenset({"Parts", "Orders"})), lambda _: True),
        (Selection(queue_id=1), lambda p: p.queue_id == 1),
        (
            Selection(from_physical_offset=low.physical_offset),
            lambda p: p.physical_offset >= low.physical_offset,
        ),
        (
            Selection(to_physical_offset=high.physical_offset),
            lambda p: p.physical_offset <= high.physical_offset,
        ),
        (
            Selection(from_ms=low.store_timestamp_ms, to_ms=high.store_timestamp_ms),
            lambda p: low.store_timestamp_ms <= p.store_timestamp_ms <= high.store_timestamp_ms,
        ),
        (Selection(from_queue_offset=2, to_queue_offset=4), lambda p: 2 <= p.queue_offset <= 4),
        (Selection(limit=0), lambda _: False),
    ]
    for selection, admits in cases:
        offsets, warnings, way = dumped(store.root, selection)
        assert offsets == chosen(store, admits), selection
        assert (warnings, way) == ([], "walk")
    assert dumped(store.root, Selection(limit=7))[0] == [
        p.physical_offset for p in store.placed[:7]
    ]


def test_dump_through_the_queue(store: SyntheticStore) -> None:
    selection = Selection(
        topics=frozenset({"Orders"}), queue_id=1, from_queue_offset=3, to_queue_offset=6
    )

    def admits(placed: Placed) -> bool:
        key = (placed.topic, placed.queue_id)
        return key == ("Orders", 1) and 3 <= placed.queue_offset <= 6

    offsets, warnings, way = dumped(store.root, selection)
    assert (offsets, warnings, way) == (chosen(store, admits), [], "consumequeue")
    (store.root / "commitlog" / f"{0:020d}").unlink()
    offsets, warnings, _ = dumped(store.root, selection)
    assert offsets == [o for o in chosen(store, admits) if o >= SEGMENT_BYTES]
    assert warnings == []


def test_dump_goes_without_a_queue_it_cannot_trust(store: SyntheticStore) -> None:
    selection = Selection(topics=frozenset({"Orders"}), queue_id=1, from_queue_offset=3)
    expected = dumped(store.root, selection)[0]
    (store.root / "consumequeue" / "Orders" / "1" / "stray").write_bytes(b"")
    offsets, _, way = dumped(store.root, selection)
    assert (offsets, way) == (expected, "walk")


def test_dump_by_key(store: SyntheticStore) -> None:
    orders = frozenset({"Orders"})
    for key, numbers in (("k8", [8]), ("group3", [3, 8, 13, 18, 23, 28]), ("nobody", [])):
        selection = Selection(topics=orders, key=key)
        offsets, warnings, way = dumped(store.root, selection)
        expected = [
            store.placed[number].physical_offset
            for number in numbers
            if store.placed[number].topic == "Orders"
        ]
        assert (offsets, warnings, way) == (expected, [], "index")
    unique = f"7F0000010001{10:020X}"
    assert dumped(store.root, Selection(key=unique)) == (
        [store.placed[10].physical_offset],
        [],
        "walk",
    )


def test_dump_by_key_where_the_index_ends_early(store: SyntheticStore) -> None:
    """What the index does not reach is read from the log."""
    names = sorted((store.root / "index").iterdir())
    names[-1].unlink()
    selection = Selection(topics=frozenset({"Orders"}), key="group3")
    offsets, warnings, way = dumped(store.root, selection)
    assert way == "index"
    assert warnings == []
    assert offsets == [
        store.placed[n].physical_offset
        for n in (8, 13, 23, 28)
        if store.placed[n].topic == "Orders"
    ]


def test_dump_by_key_without_a_usable_index(store: SyntheticStore) -> None:
    selection = Selection(topics=frozenset({"Orders"}), key="group3")
    expected = dumped(store.root, selection)[0]
    index = sorted((store.root / "index").iterdir())
    data = index[0].read_bytes()
    for number in range(1, 20):
        flip_bit(index[0], 40 + 4 * store.slots + 20 * number + 19, 5)
    offsets, warnings, way = dumped(store.root, selection)
    assert (offsets, way) == (expected, "walk")
    index[0].write_bytes(data)
    for path in index:
        path.unlink()
    assert dumped(store.root, selection) == (expected, [], "walk")
    assert len(warnings) <= 1


def test_dump_over_damage(store: SyntheticStore) -> None:
    bad = store.placed[4]
    flip_bit(store.root / "commitlog" / f"{0:020d}", bad.physical_offset + 90, 0)
    offsets, warnings, _ = dumped(store.root, Selection())
    assert offsets == [p.physical_offset for p in store.placed if p != bad]
    assert len(warnings) == 1
    assert f"bad record at {bad.physical_offset}" in warnings[0]
    selection = Selection(
        topics=frozenset({bad.topic}),
        queue_id=bad.queue_id,
        from_queue_offset=bad.queue_offset,
        to_queue_offset=bad.queue_offset,
    )
    offsets, warnings, way = dumped(store.root, selection)
    assert (offsets, way) == ([], "consumequeue")
    assert "no good record" in warnings[0]


def test_dumped_fields(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store")
    body = zlib.compress(b"text" * 20)
    store.put(body=body, tags="T", keys="a b", unique_key="ID", sys_flag=flags.COMPRESSED)
    store.put(body="grüße".encode())
    with StoreView(ReadOnlyFiles(), store.write()) as view:
        first, second = (to_dumped(m) for m in Dump(view, Selection(), pytest.fail).messages())
    assert (first.body_encoding, second.body_encoding) == ("base64", "utf-8")
    assert second.body == "grüße"
    assert (first.tags, first.keys, first.msg_id) == ("T", ["a", "b"], "ID")
    assert (first.born_host, first.store_host) == ("127.0.0.1:10911", "127.0.0.1:10911")
    assert first.offset_msg_id == "7F00000100002A9F0000000000000000"
    assert first.sys_flag == flags.COMPRESSED
    assert first.store_timestamp - first.born_timestamp == 5


def test_a_view_that_is_closed_has_no_file_open(store: SyntheticStore) -> None:
    def opened() -> list[str]:
        found = (each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink())
        return [str(each) for each in found if each.is_relative_to(store.root)]

    with StoreView(Files(), store.root) as view:
        index_files, _ = view.open_index()
        assert index_files
        segment = view.map_segment(0)
        assert segment is not None
        part = segment.view[:4]
        assert len(opened()) == 1 + len(index_files)
    # What somebody still has stays readable.
    assert bytes(part) == store.root.joinpath("commitlog", f"{0:020d}").read_bytes()[:4]
    assert len(opened()) == 1
    part.release()
    del segment
    assert opened() == []
