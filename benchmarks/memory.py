"""Memory as a machine has it that has been up for long: none of it is free.

Owns :class:`Ballast`. A virtual machine may have memory that its host does not back yet, or took
back because it was free; the first touch of such a page costs more than to store a message, and
whichever side gets more of them loses. So before each load the free memory is filled with the page
cache of a file without content. What the brokers then need is taken from there, already backed.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from types import TracebackType
from typing import Self

MADV_POPULATE_READ = 22  # Linux 5.14
STEP_BYTES = 256 << 20
LEFT_FREE_BYTES = 1 << 30


class Ballast:
    """A file whose page cache fills free memory.

    Args:
        folder: Where the file is; it takes no room there.
    """

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
        self._bytes = 0

    def fill(self) -> None:
        """Fill what is free now; does nothing where the kernel cannot."""
        while _free_bytes() > LEFT_FREE_BYTES + STEP_BYTES:
            os.ftruncate(self._fd, self._bytes + STEP_BYTES)
            with mmap.mmap(
                self._fd, STEP_BYTES, mmap.MAP_SHARED, mmap.PROT_READ, offset=self._bytes
            ) as part:
                self._bytes += STEP_BYTES
                try:
                    part.madvise(MADV_POPULATE_READ)
                except OSError:
                    return

    def close(self) -> None:
        """Give the memory back."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _free_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) << 10
    return 0
