"""Cases that once went wrong or easily could: damage, ghosts, gaps, races, half-done recoveries."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.errors import StoreDamaged
from roquet.format.consume_queue import UNIT_BYTES
from roquet.format.file_parts import file_name
from roquet.model import sys_flag as flags
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Mapping
from roquet.store.commit_log import CommitLog
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.mapped_file import MappedFile
from roquet.testing.files import FaultyFiles, HookedFiles, QuickFiles, RecordingFiles
from tests.crash import harness
from tests.crash.harness import ASYNC, SYNC, Driver, Ledger, Sent, small_config

SEGMENT = 1 << 14


def plain(ledger: Ledger, size: int = 200, queue_id: int = 0, *, keys: bool = True) -> Sent:
    """A message of exactly one size in exactly one queue."""
    ledger.numbers += 1
    number = f"{ledger.numbers:08d}"
    properties = {"KEYS": f"key{number}"} if keys else {}
    return Sent("Orders", queue_id, f"{number}:".encode() + b"x" * size, properties)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def drivers(root: Path) -> Iterator[Driver]:
    yield from driver_for(root, small_config(SYNC, segment_bytes=SEGMENT))


def driver_for(root: Path, config: MessageStoreConfig) -> Iterator[Driver]:
    files = QuickFiles()
    driver = Driver(root, config, files, ManualClock())
    driver.open(root, files)
    yield driver
    driver.abandon()


def send(driver: Driver, count: int, *, size: int = 200, queues: int = 1) -> list[Sent]:
    """Send and flush; returns what was sent."""
    entries = [plain(driver.ledger, size, number % queues) for number in range(count)]
    driver.put(entries)
    driver.store.flusher.flush_all()
    driver.note_safe()
    return entries


def flip(path: Path, position: int) -> None:
    """Change one bit."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def start_of(driver: Driver, number: int) -> int:
    """Where the record of the message with that number (from 0) starts."""
    return driver.ledger.sent[number - 1].end_offset if number else 0


# -- damage is refused, and nothing is changed ---------------------------------------------------


@pytest.mark.parametrize("queues", [1, 3])
@pytest.mark.parametrize("number", [0, 3, 10])
def test_damage_after_a_clean_exit_is_refused(
    drivers: Driver, root: Path, number: int, queues: int
) -> None:
    for _ in range(12):
        send(drivers, 1, queues=queues)
    at = start_of(drivers, number)
    drivers.store.shutdown()
    flip(root / "commitlog" / file_name(0), at + 120)
    before = harness.digest(root)
    with pytest.raises(StoreDamaged, match="damaged"):
        drivers.open(root, QuickFiles())
    assert harness.digest(root) == before


@pytest.mark.parametrize("queues", [1, 3])
@pytest.mark.parametrize("number", [0, 3, 10])
def test_damage_of_what_was_flushed_before_a_crash_is_refused(
    drivers: Driver, root: Path, tmp_path: Path, number: int, queues: int
) -> None:
    for _ in range(12):
        send(drivers, 1, queues=queues)
        drivers.clock.advance(10)
    at = start_of(drivers, number)
    drivers.clock.advance(61_000)
    drivers.flush_logics()
    crashed = harness.copy_tree(root, tmp_path / "crashed")
    flip(crashed / "commitlog" / file_name(0), at + 120)
    before = harness.digest(crashed)
    with pytest.raises(StoreDamaged, match="damaged"):
        Driver(crashed, drivers.config, QuickFiles(), drivers.clock).open(crashed, QuickFiles())
    assert harness.digest(crashed) == before


def test_flushed_records_without_queue_entries_are_not_cut_away(
    drivers: Driver, root: Path, tmp_path: Path
) -> None:
    """The checkpoint knows how far the log was on disk, even when no queue tells."""
    for _ in range(12):
        send(drivers, 1)
        drivers.clock.advance(10)
    at = start_of(drivers, 5)
    drivers.clock.advance(61_000)
    drivers.flush_logics()
    crashed = harness.copy_tree(root, tmp_path / "crashed")
    shutil.rmtree(crashed / "consumequeue")
    flip(crashed / "commitlog" / file_name(0), at + 120)
    before = harness.digest(crashed)
    with pytest.raises(StoreDamaged):
        Driver(crashed, drivers.config, QuickFiles(), drivers.clock).open(crashed, QuickFiles())
    assert harness.digest(crashed) == before


def test_expired_records_are_not_missed(root: Path, tmp_path: Path) -> None:
    """The mark speaks of records that retention deleted; behind them nothing was ever flushed."""
    config = small_config(ASYNC, segment_bytes=SEGMENT, reserved_hours=1)
    driver = Driver(root, config, QuickFiles(), ManualClock())
    driver.open(root, QuickFiles())
    send(driver, 3)
    while len(driver.store.commit_log.queue.segments) < 2:
        driver.store.flusher.flush_all()
        driver.clock.advance(61_000)
        driver.flush_logics()
        driver.put([plain(driver.ledger, 3000)])
    driver.put([plain(driver.ledger, 3000)])
    sure = driver.ledger.sure = len(driver.ledger.sent) - 2
    os.utime(root / "commitlog" / file_name(0), (0, 0))
    driver.store.commit_log.flushed_offset = SEGMENT
    driver.clock.advance(61_000)
    driver.flush_logics()
    driver.housekeeping()
    assert driver.store.commit_log.min_offset == SEGMENT
    crashed = harness.copy_tree(root, tmp_path / "crashed")
    driver.abandon()
    log = crashed / "commitlog" / file_name(SEGMENT)
    log.write_bytes(bytes(512) + log.read_bytes()[512:])
    assert harness.recover(crashed, config, driver.clock, driver.ledger) == sure


# -- ghosts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("replace_with", [1, 2, 3])
def test_no_ghost_behind_a_cut(
    drivers: Driver, root: Path, tmp_path: Path, replace_with: int
) -> None:
    """Old records behind the cut stay dead when new ones reach exactly up to them."""
    send(drivers, 10)
    at = start_of(drivers, 6)
    crashed = harness.copy_tree(root, tmp_path / "crashed")
    with (crashed / "commitlog" / file_name(0)).open("r+b") as file:
        file.seek(at)
        file.write(bytes(8))  # the page with the head of record 6 was not written
    drivers.ledger.sure = 0
    second = Driver(crashed, drivers.config, QuickFiles(), drivers.clock)
    second.open(crashed, QuickFiles())
    assert harness.check_store(second.store, drivers.ledger) == 6
    second.ledger = Ledger(drivers.ledger.sent[:6], sure=6, numbers=100)
    for _ in range(replace_with):
        send(second, 1)
    assert second.ledger.sent[6].end_offset == drivers.ledger.sent[6].end_offset
    killed = harness.copy_tree(crashed, tmp_path / "killed")
    second.abandon()
    second.ledger.sure = len(second.ledger.sent)
    assert harness.recover(killed, drivers.config, drivers.clock, second.ledger) == 6 + replace_with


# -- segments and queue files that do not fit ------------------------------------------------------


@pytest.mark.parametrize(
    "left", ["empty", "short", "whole", "empty-then-whole", "gap", "short-then-gap"]
)
def test_segments_made_ahead_and_never_used_do_no_harm(
    drivers: Driver, root: Path, tmp_path: Path, left: str
) -> None:
    send(drivers, 10)
    crashed = harness.copy_tree(root, tmp_path / "crashed")
    log = crashed / "commitlog"
    sizes = {
        "empty": (0,),
        "short": (4096,),
        "whole": (SEGMENT,),
        "empty-then-whole": (0, SEGMENT),
        "gap": (None, SEGMENT),
        "short-then-gap": (4096, None, SEGMENT),
    }[left]
    for number, size in enumerate(sizes, start=1):
        if size is not None:
            (log / file_name(number * SEGMENT)).write_bytes(bytes(size))
    assert harness.recover(crashed, drivers.config, drivers.clock, drivers.ledger) == 10


def test_a_segment_with_content_behind_a_gap_is_refused(drivers: Driver, root: Path) -> None:
    while len(drivers.store.commit_log.queue.segments) < 4:
        send(drivers, 5)
    drivers.abandon()
    (root / "commitlog" / file_name(SEGMENT)).unlink()
    before = harness.digest(root)
    with pytest.raises(StoreDamaged, match="missing"):
        drivers.open(root, QuickFiles())
    assert harness.digest(root) == before


def test_a_short_segment_with_content_is_refused(drivers: Driver, root: Path) -> None:
    send(drivers, 10)
    drivers.abandon()
    path = root / "commitlog" / file_name(0)
    os.truncate(path, SEGMENT // 2)
    before = harness.digest(root)
    with pytest.raises(StoreDamaged, match="size"):
        drivers.open(root, QuickFiles())
    assert harness.digest(root) == before


@pytest.mark.parametrize("is_ext", [False, True])
def test_a_queue_file_whose_length_was_never_synced(
    root: Path,
    tmp_path: Path,
    is_ext: bool,  # noqa: FBT001
) -> None:
    """The file behind it may have reached the disk all the same."""
    config = small_config(ASYNC, segment_bytes=SEGMENT, ext=is_ext)
    driver = Driver(root, config, QuickFiles(), ManualClock())
    driver.open(root, QuickFiles())
    send(driver, 250, size=10)
    crashed = harness.copy_tree(root, tmp_path / "crashed")
    driver.abandon()
    names = ["consumequeue", "consumequeue_ext"][: 1 + is_ext]
    for name in names:
        lost = sorted((crashed / name / "Orders" / "0").iterdir())
        assert len(lost) > 2
        os.truncate(lost[1], 0)
    assert harness.recover(crashed, config, driver.clock, driver.ledger) == 250


def test_units_of_a_queue_that_lost_its_entries_go(root: Path, tmp_path: Path) -> None:
    """Their files must not be written over and found again by a later recovery."""
    config = small_config(ASYNC, segment_bytes=SEGMENT, ext=True)
    driver = Driver(root, config, QuickFiles(), ManualClock())
    driver.open(root, QuickFiles())
    send(driver, 40, size=10)
    crashed = harness.copy_tree(root, tmp_path / "crashed")
    driver.abandon()
    shutil.rmtree(crashed / "consumequeue")
    log = crashed / "commitlog" / file_name(0)
    log.write_bytes(log.read_bytes()[: start_of(driver, 3)].ljust(SEGMENT, b"\0"))
    ledger = Ledger(driver.ledger.sent)
    assert harness.recover(crashed, config, driver.clock, ledger) == 3
    units = sorted((crashed / "consumequeue_ext" / "Orders" / "0").iterdir())
    assert [path.name for path in units] == [file_name(0)]
    first = harness.digest(crashed)
    harness.recover(crashed, config, driver.clock, ledger)
    assert harness.digest(crashed) == first


@pytest.mark.parametrize("size", [0, 40])
@pytest.mark.parametrize("count", [0, 3])
def test_a_checkpoint_whose_length_was_never_synced(
    drivers: Driver, root: Path, tmp_path: Path, count: int, size: int
) -> None:
    if count:
        send(drivers, count)
    crashed = harness.copy_tree(root, tmp_path / "crashed")
    os.truncate(crashed / "checkpoint", size)
    assert harness.recover(crashed, drivers.config, drivers.clock, drivers.ledger) == count
    assert (crashed / "checkpoint").stat().st_size == 4096


HIGH = (1 << 33) // SEGMENT * SEGMENT


def torn_queue(root: Path, tmp_path: Path) -> tuple[Driver, Path, Path]:
    """A crashed store whose offsets need more than four bytes, with its log and a queue file.

    Entries 0 to 19 were synced, and the checkpoint says so; 20 to 28 were not, so that an entry
    of them that lies over a sector boundary may have lost the upper half of its offset.
    """
    config = small_config(ASYNC, segment_bytes=SEGMENT, index=False)
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / file_name(HIGH)).write_bytes(bytes(SEGMENT))
    driver = Driver(root, config, QuickFiles(), ManualClock())
    driver.open(root, QuickFiles())
    assert driver.store.commit_log.min_offset == HIGH
    send(driver, 20, size=10)
    while len(driver.store.commit_log.queue.segments) < 2:
        driver.put([plain(driver.ledger, 3000, queue_id=1)])
    driver.clock.advance(61_000)
    driver.store.flusher.flush_all()
    driver.flush_logics()
    driver.clock.advance(5000)
    driver.put([plain(driver.ledger, 10, queue_id=1)])
    driver.store.flusher.flush_all()
    driver.clock.advance(61_000)
    driver.flush_logics()
    send(driver, 9, size=10)
    assert driver.store.checkpoint.recovery_timestamp_ms > 0
    crashed = harness.copy_tree(root, tmp_path / "crashed")
    driver.abandon()
    queue_file = crashed / "consumequeue" / "Orders" / "0" / file_name(0)
    return driver, crashed / "commitlog" / file_name(HIGH + SEGMENT), queue_file


def lose_upper_half(data: bytearray, number: int) -> None:
    """What an entry is when only the sector with its later bytes was written."""
    data[number * UNIT_BYTES : number * UNIT_BYTES + 4] = bytes(4)


@pytest.mark.parametrize("is_rest_lost", [False, True])
@pytest.mark.parametrize("number", range(20, 29))
def test_a_torn_queue_entry(root: Path, tmp_path: Path, number: int, is_rest_lost: bool) -> None:  # noqa: FBT001
    driver, _, queue_file = torn_queue(root, tmp_path)
    data = bytearray(queue_file.read_bytes())
    lose_upper_half(data, number)
    if is_rest_lost:
        data[(number + 1) * UNIT_BYTES :] = bytes(len(data) - (number + 1) * UNIT_BYTES)
    queue_file.write_bytes(data)
    ledger = driver.ledger
    kept = harness.recover(tmp_path / "crashed", driver.config, driver.clock, ledger)
    assert kept == len(ledger.sent)


@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize("number", range(20, 29))
def test_a_torn_queue_entry_of_a_lost_record(
    root: Path,
    tmp_path: Path,
    number: int,
    is_alone: bool,  # noqa: FBT001
) -> None:
    """The queue's page reached the disk in part, the log's page not at all."""
    driver, log, queue_file = torn_queue(root, tmp_path)
    lost = len(driver.ledger.sent) - 9
    cut = start_of(driver, lost) - HIGH - SEGMENT
    log.write_bytes(log.read_bytes()[:cut].ljust(SEGMENT, b"\0"))
    data = bytearray(queue_file.read_bytes())
    for entry in range(20, number if is_alone else 20):
        data[entry * UNIT_BYTES : (entry + 1) * UNIT_BYTES] = bytes(UNIT_BYTES)
    lose_upper_half(data, number)
    data[(number + 1) * UNIT_BYTES :] = bytes(len(data) - (number + 1) * UNIT_BYTES)
    queue_file.write_bytes(data)
    ledger = Ledger(driver.ledger.sent, sure=lost)
    kept = harness.recover(tmp_path / "crashed", driver.config, driver.clock, ledger)
    assert kept == lost


# -- recovery that does not come to its end --------------------------------------------------------


class Killed(BaseException):
    """The end of the process."""


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
    """Somebody removed the queues to have them rebuilt, and the rebuild was killed half-way."""
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
    """Not even when the last records have no queue entry, so that no queue tells of them."""
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


def test_a_power_cut_while_old_files_go_leaves_no_gap(root: Path, tmp_path: Path) -> None:
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


def test_a_queue_goes_on_when_its_records_are_gone(root: Path, tmp_path: Path) -> None:
    """Only its entries tell where, so they must be on disk before the records go."""
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


# -- marks that speak of too much ------------------------------------------------------------------


def test_a_new_segment_between_two_looks_of_the_flusher_is_not_taken_for_synced(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer goes on while a thread gathers what to sync."""
    config = small_config(SYNC, segment_bytes=SEGMENT)
    files = RecordingFiles(root)
    driver = Driver(root, config, files, ManualClock())
    driver.open(root, files)
    send(driver, 1)
    driver.put([plain(driver.ledger)])
    is_racing = True
    max_offset = CommitLog.max_offset

    def racing(log: CommitLog) -> int:
        nonlocal is_racing
        if is_racing:
            is_racing = False
            while len(log.queue.segments) < 2:
                driver.submit([plain(driver.ledger, 3000)])
            driver.store.finish_burst()
        return int(max_offset.__get__(log))

    with monkeypatch.context() as patch:
        patch.setattr(CommitLog, "max_offset", property(racing))
        driver.store.flusher._flush_round()
    driver.note_safe()
    image = tmp_path / "image"
    files.image(AllOld(), image)
    driver.abandon()
    files.release()
    harness.recover(image, config, driver.clock, driver.ledger)


class AllOld(random.Random):
    """Of everything that was not synced nothing reached the disk."""

    def random(self) -> float:
        return 0.9999

    def randrange(self, *_: object, **__: object) -> int:
        return 0


def test_a_clock_that_stands_still_vouches_for_no_index_file(root: Path, tmp_path: Path) -> None:
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


def test_an_expired_index_file_does_not_pass_its_trust_on(root: Path, tmp_path: Path) -> None:
    """The next file ended in the same millisecond, but was never synced."""
    config = small_config(ASYNC, segment_bytes=SEGMENT, index_entries=20, reserved_hours=1)
    files = RecordingFiles(root)
    driver = Driver(root, config, files, ManualClock())
    driver.open(root, files)
    send(driver, 20, size=700)
    assert len(driver.store.commit_log.queue.segments) == 2
    driver.store._flush_logics(thorough=True)
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


def test_the_mark_of_the_log_speaks_of_committed_records_only(root: Path, tmp_path: Path) -> None:
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


def test_a_segment_left_sparse_by_another_broker_gets_blocks_before_it_is_written(
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


def test_no_segment_is_mapped_before_it_has_blocks(root: Path) -> None:
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
