"""The search for cyclic garbage in a server."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from roquet.runtime.garbage import GROWN_BYTES, SHRUNK_BLOCKS, ReclaimableMemory, settle

FEW = 100_000
MANY = FEW + 10 * SHRUNK_BLOCKS
SMALL = 20 << 20


class Canary:
    """An object whose end can be observed."""


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_objects_from_the_start_are_not_searched_again() -> None:
    settle()
    assert gc.get_freeze_count() > 0
    assert len(gc.get_objects()) < gc.get_freeze_count()


def test_many_new_objects_do_not_start_a_full_search() -> None:
    settle()
    full = gc.get_stats()[2]["collections"]
    kept = [[number] for number in range(300_000)]
    assert gc.get_stats()[2]["collections"] == full
    assert len(kept) == 300_000


class Process:
    """A process with a given number of objects and amount of memory."""

    def __init__(self) -> None:
        self.blocks = FEW
        self.used_bytes = SMALL
        self.reclaimable = ReclaimableMemory(
            count_blocks=lambda: self.blocks, count_bytes=lambda: self.used_bytes
        )

    def look(self, blocks: int, used_bytes: int = SMALL) -> bool:
        self.blocks, self.used_bytes = blocks, used_bytes
        return self.reclaimable.is_seen()


def test_memory_is_returned_when_many_objects_were_freed() -> None:
    process = Process()
    assert not process.look(FEW)
    assert not process.look(MANY)
    assert not process.look(MANY - SHRUNK_BLOCKS + 1)
    assert process.look(MANY - SHRUNK_BLOCKS)


def test_the_rest_of_a_flood_that_shrinks_slowly_is_returned_too() -> None:
    process = Process()
    process.look(MANY)
    assert process.look(FEW + 2_000)
    assert process.look(FEW)
    assert not process.look(FEW)
    assert not process.look(FEW - 2_000)


def test_a_flood_between_two_checks_is_detected_by_its_memory() -> None:
    process = Process()
    assert not process.look(FEW)
    assert not process.look(FEW, SMALL + GROWN_BYTES - 1)
    assert process.look(FEW, SMALL + GROWN_BYTES)


def test_memory_used_by_new_objects_is_not_returned() -> None:
    process = Process()
    assert not process.look(MANY, SMALL + 10 * GROWN_BYTES)


def test_memory_that_cannot_be_returned_is_tried_a_few_times() -> None:
    process = Process()
    looks = [process.look(FEW, SMALL + 2 * GROWN_BYTES) for _ in range(100)]
    assert [number for number, is_seen in enumerate(looks) if is_seen] == [0, 2, 5, 9]


def test_a_repeated_flood_is_detected_again() -> None:
    process = Process()
    flooded = SMALL + 4 * GROWN_BYTES
    assert process.look(FEW, flooded)
    assert not process.look(FEW, SMALL)
    assert process.look(FEW, flooded)


def test_more_memory_than_could_not_be_returned_is_detected() -> None:
    process = Process()
    kept = SMALL + 2 * GROWN_BYTES
    for _ in range(100):
        process.look(FEW, kept)
    assert not process.look(FEW, kept + GROWN_BYTES - 1)
    assert process.look(FEW, kept + GROWN_BYTES)


def test_objects_that_python_keeps_for_later_are_freed() -> None:
    process = Process()
    process.look(MANY)
    kept: list[object] = []
    kept.append(kept)
    there = Canary()
    kept.append(there)
    freed = weakref.ref(there)
    del kept, there
    assert process.look(FEW)
    assert freed() is None
