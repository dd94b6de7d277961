"""Tuning of Python's garbage collector in a server.

Owns :func:`settle` and :class:`ReclaimableMemory`. By default Python examines all objects each time
their number has grown by a quarter: with a hundred thousand held pulls that blocks the server for a
tenth of a second. A server frees its memory by reference counts; cyclic garbage is found among
young objects, or after half a million more of them.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

from roquet.runtime.memory import anonymous_bytes

__all__ = ["ReclaimableMemory", "settle"]

_THRESHOLDS = (1_000, 10, 50)
"""How many new objects trigger a young collection, and how many of those an older one."""

SHRUNK_BLOCKS = 50_000
"""A drop by this many objects is worth some work: a few megabytes."""

GROWN_BYTES = 4 << 20
"""So is a growth by this much memory without more objects in it."""

_STEADY_BLOCKS = SHRUNK_BLOCKS // 5
"""The number of objects in a busy server fluctuates by this much."""

_REST_BLOCKS = 1_000
"""After a large drop, a further one of this size still belongs to it."""

_TRIES_MAX = 4
"""How often the same memory is returned, each time after more checks: at first it may not have
settled, and memory that a steady load takes again each time is not worth more."""

_SEARCHED_BLOCKS_MAX = 300_000
"""With this many objects, a full collection takes some ten milliseconds."""


def settle() -> None:
    """Exclude the objects of a started server from later collections, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


class ReclaimableMemory:
    """Tells when memory is worth returning to the system, as after a flood of clients.

    There are two signs: Python has far fewer objects than at an earlier check, or it has as many as
    at the last one but more memory than before, if the flood came and went between two checks.

    Args:
        count_blocks: Returns how many objects Python has.
        count_bytes: Returns how much memory the process has.

    Example:
        >>> reclaimable = ReclaimableMemory(count_bytes=lambda: 0)
        >>> reclaimable.is_seen()
        False
        >>> many = [bytearray() for _ in range(2 * SHRUNK_BLOCKS)]
        >>> reclaimable.is_seen()
        False
        >>> del many
        >>> reclaimable.is_seen(), reclaimable.is_seen()
        (True, False)
    """

    def __init__(
        self,
        *,
        count_blocks: Callable[[], int] = sys.getallocatedblocks,
        count_bytes: Callable[[], int] = anonymous_bytes,
    ) -> None:
        self._count_blocks = count_blocks
        self._count_bytes = count_bytes
        self._most_blocks = self._last_blocks = count_blocks()
        self._least_bytes = count_bytes()
        self._tries = 0
        self._looks_to_skip = 0
        self._was_shrinking = False

    def is_seen(self) -> bool:
        """Whether there is memory to return; to be called periodically.

        If so, objects that Python caches, and cyclic garbage, are freed: each of them would keep
        the memory around it.
        """
        blocks = self._count_blocks()
        enough = _REST_BLOCKS if self._was_shrinking else SHRUNK_BLOCKS
        self._was_shrinking = blocks <= self._most_blocks - enough
        is_held = self._is_memory_held(self._count_bytes(), blocks)
        self._last_blocks = blocks
        if not (self._was_shrinking or is_held):
            self._most_blocks = max(blocks, self._most_blocks)
            return False
        if blocks <= _SEARCHED_BLOCKS_MAX:
            gc.collect()
        self._most_blocks = self._last_blocks = self._count_blocks()
        return True

    def _is_memory_held(self, used_bytes: int, blocks: int) -> bool:
        """Whether there is more memory than before, but no more objects than at the last check."""
        if used_bytes < self._least_bytes + GROWN_BYTES:
            self._least_bytes = min(used_bytes, self._least_bytes)
            self._tries = self._looks_to_skip = 0
            return False
        if blocks > self._last_blocks + _STEADY_BLOCKS:
            return False
        if self._looks_to_skip:
            self._looks_to_skip -= 1
            return False
        if self._tries == _TRIES_MAX:
            self._least_bytes = used_bytes
            return False
        self._tries += 1
        self._looks_to_skip = self._tries
        return True
