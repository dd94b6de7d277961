"""Memory as on a machine with a long uptime: none of it is free.

Owns :class:`Ballast`. A virtual machine may have memory that its host does not back yet, or took
back because it was free; the first touch of such a page costs more than storing a message, and the
side that gets more of them loses. So before each load free memory is filled with the page cache of
a file, which is kept until the end; the brokers then take their memory from there, already backed.
The file is sparse and has no name: it takes no disk space, which brokers look at before they accept
a message, and it is gone when the process ends in whatever way.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Self

MADV_POPULATE_READ = 22  # Linux 5.14
STEP_BYTES = 256 << 20
LEFT_FREE_BYTES = 1 << 30


def steps_to_fill(free_bytes: int) -> int:
    """How many steps fill free memory and leave the kernel some.

    Example:
        >>> steps_to_fill(8 << 30), steps_to_fill(1 << 30), steps_to_fill(0)
        (28, 0, 0)
    """
    return max(free_bytes - LEFT_FREE_BYTES, 0) // STEP_BYTES


class Ballast:
    """A file whose page cache fills free memory.

    Args:
        folder: Where the file is.
    """

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
        self._bytes = 0

    def fill(self) -> int:
        """Fill the free memory, and return how many bytes it took."""
        began = self._bytes
        # What is free may stay so where a control group limits the page cache.
        for _ in range(steps_to_fill(free_bytes())):
            if not steps_to_fill(free_bytes()):
                break
            os.ftruncate(self._fd, self._bytes + STEP_BYTES)
            with mmap.mmap(
                self._fd, STEP_BYTES, mmap.MAP_SHARED, mmap.PROT_READ, offset=self._bytes
            ) as part:
                self._bytes += STEP_BYTES
                _populate(part)
        return self._bytes - began

    def close(self) -> None:
        """Release the memory."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _populate(part: mmap.mmap) -> None:
    try:
        part.madvise(MADV_POPULATE_READ)
    except OSError:  # an older kernel
        for offset in range(0, len(part), mmap.PAGESIZE):
            part[offset]


def free_bytes() -> int:
    """The free memory."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) << 10
    return 0
