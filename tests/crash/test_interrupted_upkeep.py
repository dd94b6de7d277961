"""Upkeep that fails or does not finish: recoveries, deletions, marks, housekeeping."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from roquet.format.segment_files import file_name
from roquet.model import sys_flag as flags
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Mapping
from roquet.store.commit_log import CommitLog
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.mapped_file import MappedFile
from roquet.testing.files import FaultyFiles, HookedFiles, QuickFiles, RecordingFiles
from tests.crash import harness
from tests.crash.damage_kit import SEGMENT, driver_for, plain, send
from tests.crash.harness import ASYNC, SYNC, Driver, Ledger, small_config


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def drivers(root: Path) -> Iterator[Driver]:
    yield from driver_for(root, small_config(SYNC, segment_bytes=SEGMENT))


# -- recovery that does not finish -----------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


class KillingFiles(HookedFiles):
    """Ends the process before the n-th write to a queue file."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def before(self, name: str, path: Path) -> None:
        if name == "write_at" and path.parent.parent.parent.name == "consumequeue":
            self.left -= 1
            if self.left == 0:
                raise Killed


@pytest.mark.parametrize("at", range(1, 5))
def test_a_rebuild_after_a_clean_exit_may_be_killed(
    drivers: Driver, root: Path, tmp_path: Path, at: int
) -> None:
    """The queues were removed to be rebuilt, and the rebuild was killed half-way."""
    send(drivers, 20, queues=4)
    drivers.store.shutdown()
    shutil.rmtree(root / "consumequeue")
    store = DefaultMessageStore(root, drivers.config, files=KillingFiles(at), clock=drivers.clock)
    with pytest.raises(Killed):
        store.load()
    killed = harness.copy_tree(root, tmp_path / "killed")
    ledger = Ledger(drivers.ledger.sent, sure=20)
    assert harness.recover(killed, drivers.config, drivers.clock, ledger) == 20


def test_a_clean_restart_changes_nothing(drivers: Driver, root: Path) -> None:
    """Not even when the last records have no queue entry, so that no queue knows of them."""
    send(drivers, 3)
    last = plain(drivers.ledger)
    last.sys_flag = flags.TRANSACTION_PREPARED
    drivers.put([last])
    drivers.store.shutdown()
    states = [harness.digest(root)]
    for _ in range(3):
        drivers.open(root, QuickFiles())
        drivers.store.shutdown()
        states.append(harness.digest(root))
    assert states[1] == states[2] == states[3]
    del states[0]["checkpoint"], states[1]["checkpoint"]  # recovery notes the log's last record
    assert states[0] == states[1]


# -- the order of deletions ------------------------------------------------------------------------


def test_a_power_cut_during_deletion_leaves_no_gap(root: Path, tmp_path: Path) -> None:
    config = small_config(ASYNC, segment_bytes=SEGMENT, reserved_hours=1, ext=True)
    images = 0
    driver: Driver

    def on_call(_: int, name: str, __: Path) -> None:
        nonlocal images
        if name in {"unlink", "sync_dir"} and is_cleaning:
            files.image(random.Random(images), tmp_path / f"image{images}")
            images += 1

    is_cleaning = False
    files = RecordingFiles(root, on_call=on_call)
    driver = Driver(root, config, files, ManualClock())
    driver.open(root, files)
    while len(driver.store.commit_log.queue.segments) < 10:
        send(driver, 10, size=300)
    driver.clock.advance(61_000)
    driver.flush_logics()
    for path in sorted((root / "commitlog").iterdir())[:8]:
        os.utime(path, (0, 0))
    is_cleaning = True
    driver.clock.advance(10_001)
    driver.housekeeping()
    assert driver.store.commit_log.min_offset == 8 * SEGMENT
    driver.abandon()
    files.release()
    assert images > 20
    for number in range(images):
        image = tmp_path / f"image{number}"
        harness.recover(image, config, driver.clock, driver.ledger)
        shutil.rmtree(image)


def test_a_queue_continues_at_its_offset_after_its_records_expired(
    root: Path, tmp_path: Path
) -> None:
    """Only its entries hold the offset, so they must be on disk before the records are deleted."""
    config = small_config(ASYNC, segment_bytes=SEGMENT, reserved_hours=1)
    files = RecordingFiles(root)
    driver = Driver(root, config, files, ManualClock())
    driver.open(root, files)
    send(driver, 3, size=10)
    while len(driver.store.commit_log.queue.segments) < 4:
        driver.put([plain(driver.ledger, 3000, queue_id=1)])
        driver.store.flusher.flush_all()
    for path in (root / "commitlog").iterdir():
        os.utime(path, (0, 0))
    for _ in range(2):
        driver.clock.advance(10_001)
        driver.housekeeping()
        image = tmp_path / "image"
        files.image(AllOld(), image)
        harness.recover(image, config, driver.clock, driver.ledger, then=three_were_there)
        shutil.rmtree(image)
        driver.clock.advance(61_000)
        driver.flush_logics()
    assert driver.store.commit_log.min_offset > 0, "nothing was deleted"
    driver.abandon()
    files.release()


def three_were_there(store: DefaultMessageStore) -> None:
    queue = store.queues.find("Orders", 0)
    assert queue is not None
    assert queue.next_queue_offset == 3


# -- marks that cover too much --------------------------------------------------------------------


def test_a_segment_added_during_a_flush_is_not_taken_for_synced(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer continues while a thread gathers what to sync."""
    config = small_config(SYNC, segment_bytes=SEGMENT)
    files = RecordingFiles(root)
    driver = Driver(root, config, files, ManualClock())
    driver.open(root, files)
    send(driver, 1)
    driver.put([plain(driver.ledger)])

    def race() -> None:
        while len(driver.store.commit_log.queue.segments) < 2:
            driver.submit([plain(driver.ledger, 3000)])
        driver.store.finish_burst()

    with monkeypatch.context() as patch:
        patch.setattr(driver.store.flusher, "_log", RacingLog(driver.store.commit_log, race))
        driver.store.flusher._flush_round()
    driver.note_safe()
    image = tmp_path / "image"
    files.image(AllOld(), image)
    driver.abandon()
    files.release()
    harness.recover(image, config, driver.clock, driver.ledger)


class RacingLog:
    """A log whose writer continues when its end is first read."""

    def __init__(self, log: CommitLog, race: Callable[[], None]) -> None:
        self.__dict__.update(log=log, race=race, is_racing=True)

    @property
    def max_offset(self) -> int:
        if self.is_racing:
            self.__dict__["is_racing"] = False
            self.race()
        return int(self.log.max_offset)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the log has
        return getattr(self.log, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.log, name, value)


class AllOld(random.Random):
    """Nothing that was not synced reached the disk."""

    def random(self) -> float:
        return 0.9999

    def randrange(self, *_: object, **__: object) -> int:
        return 0


def test_a_stopped_clock_makes_no_index_file_trusted(root: Path, tmp_path: Path) -> None:
    """Files that fill up within the millisecond of the checkpoint's mark are not trusted."""
    config = small_config(ASYNC, segment_bytes=SEGMENT, index_entries=8)
    files = RecordingFiles(root)
    driver = Driver(root, config, files, ManualClock())
    driver.open(root, files)
    for _ in range(6):
        send(driver, 5, size=10)
        driver.clock.advance(61_000)
        driver.flush_logics()
        driver.clock.set(1_700_000_000_000)
        send(driver, 7, size=10)
        driver.abandon()
        ledger = driver.ledger
        driver.open(root, files)
        assert harness.check_store(driver.store, ledger) == len(ledger.sent)
        send(driver, 6, size=10)
        for number in range(4):
            image = tmp_path / "image"
            files.image(random.Random(number), image, by_sector=True)
            harness.recover(image, config, driver.clock, ledger.copy())
            shutil.rmtree(image)
    driver.abandon()
    files.release()


def test_an_expired_index_file_does_not_make_the_next_one_trusted(
    root: Path, tmp_path: Path
) -> None:
    """The next file ended in the same millisecond, but was never synced."""
    config = small_config(ASYNC, segment_bytes=SEGMENT, index_entries=20, reserved_hours=1)
    files = RecordingFiles(root)
    driver = Driver(root, config, files, ManualClock())
    driver.open(root, files)
    send(driver, 20, size=700)
    assert len(driver.store.commit_log.queue.segments) == 2
    driver.store.upkeep.flush_logics(thorough=True)
    send(driver, 19, size=700)
    assert driver.store.index is not None
    assert [file.is_full for file in driver.store.index.index_files] == [True, True, False]
    os.utime(root / "commitlog" / file_name(0), (0, 0))
    driver.clock.advance(10_001)
    driver.housekeeping()
    assert driver.store.commit_log.min_offset == SEGMENT
    for number in range(12):
        image = tmp_path / "image"
        files.image(random.Random(number), image, by_sector=True)
        harness.recover(image, config, driver.clock, driver.ledger)
        shutil.rmtree(image)
    driver.abandon()
    files.release()


def test_the_checkpoint_of_the_log_covers_committed_records_only(
    root: Path, tmp_path: Path
) -> None:
    """With a transient pool, records wait in memory while others are synced."""
    config = small_config(ASYNC, segment_bytes=SEGMENT, pool=True)
    files = RecordingFiles(root)
    driver = Driver(root, config, files, ManualClock())
    driver.open(root, files)
    send(driver, 5)
    driver.clock.advance(5000)
    driver.put([plain(driver.ledger) for _ in range(5)])
    driver.store.flusher._commit(least_pages=0)
    driver.clock.advance(5000)
    driver.put([plain(driver.ledger) for _ in range(20)])
    driver.store.flusher._flush(least_pages=0)
    driver.store.flusher._commit(least_pages=0)
    driver.flush_logics()
    driver.note_safe()
    for number in range(12):
        image = tmp_path / "image"
        files.image(random.Random(number), image, by_sector=True)
        harness.recover(image, config, driver.clock, driver.ledger)
        shutil.rmtree(image)
    driver.abandon()
    files.release()


# -- errors in the background ----------------------------------------------------------------------


def test_housekeeping_survives_an_error(root: Path) -> None:
    config = small_config(SYNC, segment_bytes=SEGMENT, reserved_hours=1)
    for fail_at in range(1, 99):
        files = FaultyFiles()
        place = root.with_name(f"store{fail_at}")
        driver = Driver(place, config, files, ManualClock())
        driver.open(place, files)
        while len(driver.store.commit_log.queue.segments) < 4:
            send(driver, 20)
        driver.clock.advance(61_000)
        driver.flush_logics()
        for path in (place / "commitlog").iterdir():
            os.utime(path, (0, 0))
        driver.clock.advance(10_001)
        files.fail_at = len(files.calls) + fail_at
        driver.housekeeping()
        files.heal()
        driver.clock.advance(10_001)
        driver.housekeeping()
        assert len(driver.store.commit_log.queue.segments) == 1
        driver.store.shutdown()
        harness.recover(place, config, driver.clock, driver.ledger)
        if files.failed is None:
            break
    assert 30 < fail_at < 98


def test_a_sparse_segment_of_another_broker_is_allocated_before_it_is_written(
    drivers: Driver, root: Path
) -> None:
    """A mapped write into a hole on a full disk would kill the process."""
    send(drivers, 3)
    drivers.store.shutdown()
    path = root / "commitlog" / file_name(0)
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.truncate(len(data.rstrip(b"\0")))
        file.truncate(SEGMENT)
    assert path.stat().st_blocks * 512 < SEGMENT
    drivers.open(root, QuickFiles())
    send(drivers, 1)
    assert path.stat().st_blocks * 512 >= SEGMENT


def test_no_segment_is_mapped_before_it_is_allocated(root: Path) -> None:
    order: list[str] = []

    class Watching(QuickFiles):
        def allocate(self, fd: int, size_bytes: int) -> None:
            order.append("allocate")
            super().allocate(fd, size_bytes)

        def map(self, fd: int, size_bytes: int, *, write: bool) -> Mapping:
            order.append("map")
            return super().map(fd, size_bytes, write=write)

    root.mkdir()
    MappedFile.create(Watching(), root / file_name(0), start_offset=0, size_bytes=4096).close()
    assert order == ["allocate", "map"]
