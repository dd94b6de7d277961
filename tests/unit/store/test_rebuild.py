"""Queues and index built from the log: like the originals, or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from roquet.errors import StoreDamaged, StoreError, StoreLocked
from roquet.format.consume_queue import UNIT_BYTES
from roquet.model.delay_level import DelayLevels
from roquet.model.message import BrokerMessage
from roquet.model.topic import SCHEDULE_TOPIC
from roquet.runtime.clock import ManualClock
from roquet.runtime.failpoint import installed
from roquet.runtime.files import Files
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.inspect.rebuild import (
    TEMPORARY,
    RebuildResult,
    plan_rebuild,
    rebuild,
    remove_tree,
)
from roquet.store.inspect.report import Report
from roquet.store.inspect.verify import verify
from roquet.store.store_lock import StoreLock
from roquet.storefiles.view import StoreView
from tests.unit.store.lock_holder import lock_held
from tests.unit.store.synthetic import NOW_MS, SyntheticStore, flip_bit

SEGMENT_BYTES = 2048


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


def run(
    root: Path,
    into: Path | None = None,
    *,
    slots: int | None = None,
    entries: int | None = None,
    delay_levels: DelayLevels | None = None,
) -> RebuildResult:
    with StoreView(Files(), root, delay_levels=delay_levels) as view:
        plan = plan_rebuild(view, into=into, index_slots=slots, index_entries=entries)
        return rebuild(view, plan, ManualClock(NOW_MS))


def check(root: Path) -> Report:
    with StoreView(Files(), root) as view:
        return verify(view, ManualClock(NOW_MS))


def content(root: Path, *, without: str = "") -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and (not without or without not in path.parts)
    }


def test_into_another_directory(store: SyntheticStore, tmp_path: Path) -> None:
    before = content(store.root)
    result = run(store.root, tmp_path / "new")
    assert content(store.root) == before
    assert (result.records, result.queues, result.faults) == (30, 4, [])
    assert content(tmp_path / "new" / "consumequeue") == content(store.root / "consumequeue")
    for name in ("commitlog", "config", "checkpoint"):
        source = store.root / name
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, tmp_path / "new" / name)
    assert check(tmp_path / "new").faults == []


@pytest.mark.parametrize("lost", [["consumequeue"], ["index"], ["consumequeue", "index"]])
def test_in_place(store: SyntheticStore, lost: list[str]) -> None:
    """Missing directories come back; nothing else in the store changes."""
    queues = content(store.root / "consumequeue")
    others = {
        name: data
        for name, data in content(store.root).items()
        if not name.startswith(("consumequeue", "index"))
    }
    for name in lost:
        shutil.rmtree(store.root / name)
    result = run(store.root, slots=store.slots, entries=store.entries)
    assert (result.plan.index_slots, result.plan.index_entries) == (store.slots, store.entries)
    assert check(store.root).faults == []
    if "consumequeue" in lost:
        assert result.plan.consume_queue_file_bytes == 6_000_000
    else:
        assert content(store.root / "consumequeue") == queues
    after = content(store.root)
    assert {name: after[name] for name in others} == others
    assert not (store.root / TEMPORARY).exists()


def test_in_place_repairs_what_verify_found(store: SyntheticStore) -> None:
    queue = store.root / "consumequeue" / "Orders" / "1" / f"{0:020d}"
    flip_bit(queue, 3 * UNIT_BYTES + 5, 2)
    flip_bit(next(iter(sorted((store.root / "index").iterdir()))), 60, 1)
    assert not check(store.root).ok
    result = run(store.root)
    assert result.plan.in_place
    assert result.plan.replaces == [str(store.root / "consumequeue"), str(store.root / "index")]
    assert (result.plan.index_slots, result.plan.index_entries) == (store.slots, store.entries)
    assert check(store.root).faults == []


def test_twice_is_the_same(store: SyntheticStore) -> None:
    run(store.root)
    once = content(store.root)
    run(store.root)
    assert content(store.root) == once


# -- refusals: nothing is changed ---------------------------------------------------------------


def refused(store: SyntheticStore, error: type[Exception], into: Path | None = None) -> Exception:
    before = content(store.root)
    with pytest.raises(error) as caught:
        run(store.root, into)
    assert content(store.root) == before
    assert not (store.root / TEMPORARY).exists()
    return caught.value


def test_in_place_needs_a_sound_log(store: SyntheticStore) -> None:
    flip_bit(store.root / "commitlog" / f"{0:020d}", store.placed[4].physical_offset + 90, 0)
    error = refused(store, StoreDamaged)
    assert isinstance(error, StoreDamaged)
    assert f"record at {store.placed[4].physical_offset}" in (error.detail or "")
    assert "--into" in (error.hint or "")


@pytest.mark.parametrize("byte", [15, 25, 37], ids=["queueId", "queueOffset", "sysFlag"])
def test_in_place_needs_plausible_offsets(store: SyntheticStore, byte: int) -> None:
    """A record whose queue offset is in doubt must not get an entry at a wrong one."""
    flip_bit(store.root / "commitlog" / f"{0:020d}", store.placed[4].physical_offset + byte, 2)
    refused(store, StoreDamaged)


def test_in_place_needs_all_segments(store: SyntheticStore) -> None:
    (store.root / "commitlog" / f"{SEGMENT_BYTES:020d}").unlink()
    refused(store, StoreDamaged)


def test_in_place_needs_the_lock(store: SyntheticStore) -> None:
    before = content(store.root)
    with StoreView(Files(), store.root) as view:
        plan = plan_rebuild(view, into=None)
        with lock_held(store.root), pytest.raises(StoreLocked):
            rebuild(view, plan, ManualClock(NOW_MS))
    assert content(store.root) == before


def test_the_lock_is_held_while_it_runs_and_free_afterwards(store: SyntheticStore) -> None:
    def look(name: str) -> None:
        with pytest.raises(StoreLocked):
            StoreLock(Files(), store.root).acquire()
        seen.append(name)

    seen: list[str] = []
    with installed(look):
        run(store.root)
    assert "rebuild.built" in seen
    lock = StoreLock(Files(), store.root)
    lock.acquire()
    lock.release()


def test_targets_that_cannot_be_used(store: SyntheticStore, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    for into in (tmp_path / "full", tmp_path / "full" / "file", store.root / "new", store.root):
        refused(store, StoreError, into)
    assert not (store.root / "new").exists()


def test_queues_in_rocksdb(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store")
    store.put()
    root = store.write(with_queues=False)
    (root / "consumequeue_r").mkdir()
    refused(store, StoreError)


def test_index_files_that_reveal_nothing(store: SyntheticStore) -> None:
    for path in (store.root / "index").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    refused(store, StoreError)
    run(store.root, slots=store.slots, entries=store.entries)
    assert check(store.root).faults == []


# -- a bad log into another directory -----------------------------------------------------------


def test_into_another_directory_omits_bad_records(store: SyntheticStore, tmp_path: Path) -> None:
    bad = store.placed[4]
    flip_bit(store.root / "commitlog" / f"{0:020d}", bad.physical_offset + 90, 0)
    result = run(store.root, tmp_path / "new")
    assert result.records == 29
    assert result.faults[0].physical_offset == bad.physical_offset


def test_a_torn_tail_after_a_crash_is_no_obstacle(store: SyntheticStore) -> None:
    path = max((store.root / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    position = store.log_end % SEGMENT_BYTES
    data[position : position + 60] = store.log[:60]
    path.write_bytes(data)
    refused(store, StoreDamaged)
    (store.root / "abort").write_text("1")
    assert run(store.root).records == 30
    assert (store.root / "abort").exists()
    assert check(store.root).faults == []


# -- what must not be lost ----------------------------------------------------------------------


def test_a_queue_whose_messages_have_expired_keeps_its_offset(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store", segment_bytes=SEGMENT_BYTES)
    for number in range(25):
        store.put("Old", 0, unique_key=f"old{number}")
    for number in range(25):
        store.put("New", 0, unique_key=f"new{number}")
    root = store.write()
    expired = [p for p in store.placed if p.topic == "Old"][-1].physical_offset // SEGMENT_BYTES
    for number in range(expired + 1):
        (root / "commitlog" / f"{number * SEGMENT_BYTES:020d}").unlink()
    old = content(root / "consumequeue" / "Old")
    result = run(root)
    assert result.carried_queues == 1
    assert content(root / "consumequeue" / "Old") == old
    report = check(root)
    assert report.faults == []


def test_a_recreated_topic_gets_its_present_life(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store")
    for number in range(6):
        store.put("Again", 0, unique_key=f"old{number}")
    store.next_queue_offsets.clear()
    for number in range(3):
        store.put("Again", 0, unique_key=f"new{number}")
    root = store.write()
    path = root / "consumequeue" / "Again" / "0" / f"{0:020d}"
    present = path.read_bytes()[: 3 * UNIT_BYTES].ljust(store.queue_file_bytes, b"\0")
    path.write_bytes(present)
    run(root)
    assert path.read_bytes() == present
    shutil.rmtree(root / "consumequeue")
    run(root)
    assert path.read_bytes()[: store.queue_file_bytes] == present


def test_a_lone_new_start_without_a_queue_to_confirm_it(tmp_path: Path) -> None:
    """One record at offset 0 may be a new topic or a flipped bit: refuse."""
    store = SyntheticStore(tmp_path / "store")
    for number in range(6):
        store.put("Again", 0, unique_key=f"old{number}")
    store.next_queue_offsets.clear()
    store.put("Again", 0, unique_key="new")
    store.write(with_queues=False)
    refused(store, StoreDamaged)


def test_light_queues(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store")
    for number in range(3):
        more = {
            "INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b",
            "INNER_MULTI_QUEUE_OFFSET": f"{number},{number}",
        }
        store.put(unique_key=f"id{number}", more=more)
    root = store.write()
    run(root)
    report = check(root)
    assert report.faults == []
    assert report.counts.queue_entries == 9


def test_delay_levels_that_are_not_the_brokers(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store")
    for number in range(4):
        store.put(SCHEDULE_TOPIC, 0, unique_key=f"id{number}", more={"DELAY": "1"})
    root = store.write()
    before = content(root)
    with pytest.raises(StoreError, match="other delay levels"):
        run(root, delay_levels=DelayLevels("7s"))
    assert content(root) == before
    run(root)
    assert content(root / "consumequeue") == {
        name.removeprefix("consumequeue/"): data
        for name, data in before.items()
        if name.startswith("consumequeue/")
    }


def test_a_broker_continues_after_a_rebuild(store: SyntheticStore) -> None:
    """Queues continue where they were, and keys are found."""
    shutil.rmtree(store.root / "consumequeue")
    shutil.rmtree(store.root / "index")
    run(store.root, slots=store.slots, entries=store.entries)
    config = MessageStoreConfig(
        commit_log_file_bytes=SEGMENT_BYTES,
        index_slots=store.slots,
        index_entries=store.entries,
        disk_max_used_percent=100,
        disk_warning_percent=100,
        disk_clean_forcibly_percent=100,
    )
    opened = DefaultMessageStore(store.root, config, clock=ManualClock(NOW_MS))
    opened.load()
    opened.start(threads=False)
    try:
        found = opened.reader.query_message("Orders", "k7", 32, 0, NOW_MS)
        assert len(found.records) == 1
        own = [p for p in store.placed if (p.topic, p.queue_id) == ("Orders", 1)]
        result = opened.put_message(BrokerMessage("Orders", 1, b"one more"))
        assert result.is_ok
        assert result.append is not None
        assert result.append.queue_offset == len(own)
    finally:
        opened.shutdown()
    report = check(store.root)
    assert report.faults == []
    assert report.counts.records == 31


# -- interruptions ------------------------------------------------------------------------------


class PowerCut(BaseException):
    """Nothing runs after this, not even clean-up."""


@pytest.mark.parametrize(
    "point", ["rebuild.built", "rebuild.swapped.consumequeue", "rebuild.swapped.index"]
)
def test_a_crash_leaves_the_old_or_the_new(
    store: SyntheticStore, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = store.root / "consumequeue" / "Orders" / "1" / f"{0:020d}"
    flip_bit(queue, 3 * UNIT_BYTES + 5, 2)
    old = content(store.root / "consumequeue")

    def cut(name: str) -> None:
        if name == point:
            monkeypatch.setattr(
                "roquet.store.inspect.rebuild.remove_tree", lambda *_arguments: None
            )
            raise PowerCut

    with installed(cut), pytest.raises(PowerCut):
        run(store.root)
    monkeypatch.undo()
    if point == "rebuild.built":
        assert content(store.root / "consumequeue") == old
    else:
        assert check(store.root).faults == []
    assert (store.root / TEMPORARY).exists()
    run(store.root)
    assert check(store.root).faults == []
    assert not (store.root / TEMPORARY).exists()


def test_the_disk_fills_up(store: SyntheticStore, tmp_path: Path) -> None:
    class FullFiles(Files):
        left = 20

        def allocate(self, fd: int, size_bytes: int) -> None:
            self._take()
            super().allocate(fd, size_bytes)

        def truncate(self, fd: int, size_bytes: int) -> None:
            self._take()
            super().truncate(fd, size_bytes)

        def _take(self) -> None:
            self.left -= 1
            if self.left <= 0:
                raise OSError(28, "No space left on device")

    before = content(store.root)
    for left in range(1, 9):
        for into in (None, tmp_path / "new"):
            files = FullFiles()
            files.left = left
            with StoreView(files, store.root) as view:
                plan = plan_rebuild(view, into=into)
                with pytest.raises(OSError, match="No space left"):
                    rebuild(view, plan, ManualClock(NOW_MS))
            assert content(store.root) == before
            assert not (tmp_path / "new").exists()


def test_remove_tree(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_text("x")
    remove_tree(Files(), tmp_path / "a")
    assert not (tmp_path / "a").exists()
    remove_tree(Files(), tmp_path / "a")
