"""The last rows of a series of numbers."""

from __future__ import annotations

import gc
import sys

import pytest

from roquet.runtime.ring_buffer import RingBuffer


def test_the_oldest_row_goes() -> None:
    ring = RingBuffer(3, 2)
    assert (len(ring), ring.is_full) == (0, False)
    for number in range(7):
        ring.append(number, -number)
    assert (len(ring), ring.is_full) == (3, True)
    assert [(ring.get(back, 0), ring.get(back, 1)) for back in range(3)] == [
        (6, -6),
        (5, -5),
        (4, -4),
    ]


def test_rows_take_no_objects() -> None:
    ring = RingBuffer(1_000, 3)
    ring.append(1 << 40, 1 << 41, 1 << 42)
    gc.disable()
    try:
        before = sys.getallocatedblocks()
        for number in range(1_000):
            ring.append(number << 40, number << 41, number << 42)
        assert sys.getallocatedblocks() - before < 100
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("value", "kept"), [(1 << 63, (1 << 63) - 1), (-(1 << 70), -(1 << 63)), (5, 5)]
)
def test_numbers_that_are_too_long_are_cut(value: int, kept: int) -> None:
    ring = RingBuffer(2, 2)
    ring.append(1, value)
    assert (ring.get(0, 0), ring.get(0, 1)) == (1, kept)
