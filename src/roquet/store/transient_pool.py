"""Buffers that stand between appends and the file.

Owns ``transientStorePoolSize`` buffers of one segment each. An append goes to memory that belongs
to no file; a commit thread writes it out. That keeps appends clear of page-cache write-back, at a
price named in the promise table: what was not committed is lost when the process is killed.
"""

from __future__ import annotations

from roquet.runtime import memory
from roquet.runtime.files import Files, Mapping


class TransientStorePool:
    """Free buffers; memory is taken only as they are written to."""

    def __init__(self, files: Files, *, count: int, size_bytes: int) -> None:
        """Make ``count`` buffers of ``size_bytes``."""
        self._free = [files.map_anonymous(size_bytes) for _ in range(count)]
        self._size_bytes = size_bytes

    @property
    def available(self) -> int:
        """How many buffers are free."""
        return len(self._free)

    def borrow(self) -> Mapping | None:
        """A buffer of zeros, ``None`` when all are in use."""
        return self._free.pop() if self._free else None

    def give_back(self, buffer: Mapping) -> None:
        """Return a buffer whose bytes are all committed."""
        memory.discard(memory.address_of(buffer), self._size_bytes)
        self._free.append(buffer)
