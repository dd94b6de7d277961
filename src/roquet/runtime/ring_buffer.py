"""The last rows of a series of numbers, in one block of memory.

Owns :class:`RingBuffer`. Samples that are kept for minutes would, as objects, be scattered among
other objects of their time. Python returns memory in pieces of a megabyte, so a few samples taken
during a flood of requests would keep most of the flood's memory allocated.
"""

from __future__ import annotations

from array import array

__all__ = ["RingBuffer"]

_MAX = (1 << 63) - 1
_MIN = -(1 << 63)


class RingBuffer:
    """A fixed number of rows of 64-bit integers; a new row replaces the oldest one.

    Args:
        rows_max: How many rows are kept.
        columns: How many numbers a row has.

    Example:
        >>> ring = RingBuffer(rows_max=2, columns=2)
        >>> for number in range(3):
        ...     ring.append(number, number * 10)
        >>> len(ring), ring.get(0, 1), ring.get(1, 1)
        (2, 20, 10)
    """

    __slots__ = ("_cells", "_columns", "_rows_max", "_taken")

    def __init__(self, rows_max: int, columns: int) -> None:
        self._rows_max = rows_max
        self._columns = columns
        # One row more, so that a reader in another thread never meets the row that is written.
        self._cells = array("q", bytes(8 * (rows_max + 1) * columns))
        self._taken = 0

    def __len__(self) -> int:
        return min(self._taken, self._rows_max)

    @property
    def is_full(self) -> bool:
        """Whether the next row replaces one."""
        return self._taken >= self._rows_max

    def append(self, *row: int) -> None:
        """Add a row; numbers beyond 64 bits are clamped."""
        try:
            cells = array("q", row)
        except OverflowError:
            cells = array("q", (min(max(value, _MIN), _MAX) for value in row))
        first = self._taken % (self._rows_max + 1) * self._columns
        self._cells[first : first + self._columns] = cells
        self._taken += 1

    def get(self, back: int, column: int) -> int:
        """A number of a row, counted back from the last one."""
        row = (self._taken - 1 - back) % (self._rows_max + 1)
        return self._cells[row * self._columns + column]
