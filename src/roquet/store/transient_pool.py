"""Buffers between appends and the file.

Owns ``transientStorePoolSize`` buffers of one segment each. An append goes to memory that belongs
to no file; a commit thread writes it out. That keeps appends clear of page-cache write-back, but
what was not committed is lost when the process is killed, as the promise table says.
"""

from __future__ import annotations

from roquet.runtime import memory
from roquet.runtime.files import Files, Mapping


class TransientStorePool:
    """Free buffers; memory is allocated only as they are written to."""

    def __init__(self, files: Files, *, count: int, size_bytes: int) -> None:
        """Create ``count`` buffers of ``size_bytes``."""
        self._free = [files.map_anonymous(size_bytes) for _ in range(count)]
        self._size_bytes = size_bytes

    @property
    def available(self) -> int:
        """How many buffers are free."""
        return len(self._free)

    def borrow(self) -> Mapping | None:
        """A zeroed buffer, ``None`` if all are in use."""
        return self._free.pop() if self._free else None

    def give_back(self, buffer: Mapping) -> None:
        """Return a buffer whose bytes are all committed."""
        memory.discard(memory.address_of(buffer), self._size_bytes)
        self._free.append(buffer)
