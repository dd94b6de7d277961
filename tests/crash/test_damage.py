"""Cases that once went wrong or easily could: damage, ghosts, gaps, races, half-done recoveries."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.errors import StoreDamaged
from roquet.format.consume_queue import UNIT_BYTES
from roquet.format.segment_files import file_name
from roquet.runtime.clock import ManualClock
from roquet.testing.files import QuickFiles
from tests.crash import harness
from tests.crash.damage_kit import SEGMENT, driver_for, flip, plain, send, start_of
from tests.crash.harness import ASYNC, SYNC, Driver, Ledger, small_config


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def drivers(root: Path) -> Iterator[Driver]:
    yield from driver_for(root, small_config(SYNC, segment_bytes=SEGMENT))


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
def test_damage_to_flushed_records_is_refused_after_a_crash(
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


def test_flushed_records_without_queue_entries_are_not_truncated(
    drivers: Driver, root: Path, tmp_path: Path
) -> None:
    """The checkpoint knows how far the log was on disk, even if no queue does."""
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


def test_expired_records_are_not_taken_for_lost(root: Path, tmp_path: Path) -> None:
    """The mark covers records that retention deleted; nothing after them was ever flushed."""
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
def test_no_ghost_records_after_a_truncation(
    drivers: Driver, root: Path, tmp_path: Path, replace_with: int
) -> None:
    """Old records after the cut stay dead when new ones reach exactly up to them."""
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
def test_unused_preallocated_segments_are_harmless(
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


def test_a_segment_with_content_after_a_gap_is_refused(drivers: Driver, root: Path) -> None:
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
    """The file after it may have reached the disk all the same."""
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


def test_ext_units_of_lost_queue_entries_are_removed(root: Path, tmp_path: Path) -> None:
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
