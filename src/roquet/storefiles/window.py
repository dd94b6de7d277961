"""The bytes of one segment, a window at a time.

Owns the memory of a reader: one reused buffer, however long the segment is. Bytes are read, not
mapped, so that a failing disk is an error and not the end of the process, and so that a task needs
little memory.
"""

from __future__ import annotations

from roquet.errors import DataLost, StoreError
from roquet.format.record_layout import RECORD_BYTES_MIN
from roquet.format.segment_files import Segment
from roquet.runtime.files import Files
from roquet.storefiles.closeable import Closeable

WINDOW_BYTES = 4 << 20


class Window(Closeable):
    """Part of a segment in memory; use it in a ``with`` block.

    Attributes:
        base: Physical offset of the first byte of ``view``.
        view: The bytes.
        limit: Physical offset beyond which bytes are read only on request.
    """

    def __init__(self, files: Files, segment: Segment, *, limit: int | None = None) -> None:
        """Open a segment, whose file must exist.

        Args:
            files: Access to the disk.
            segment: The file.
            limit: Physical offset beyond which bytes are read only on request.
        """
        self.segment = segment
        self.limit = segment.end if limit is None else limit
        self.base = segment.start
        self._files = files
        try:
            self._fd = files.open(segment.path)
        except FileNotFoundError:
            raise DataLost(
                f"The segment {segment.path} is gone.",
                detail=f"physical offsets {segment.start} to {segment.end}",
                hint="The broker removed it after the query was planned: read a later range, or"
                " set failOnDataLoss to false.",
            ) from None
        except OSError as error:
            raise _unreadable(segment, error) from None
        self._buffer = memoryview(bytearray())
        self.view = self._buffer

    def close(self) -> None:
        """Close the file."""
        self._files.close(self._fd)

    def load(self, physical_offset: int, size_bytes: int = 1) -> None:
        """Move the window to an offset and fill it with at least ``size_bytes``, or all there is.

        Raises:
            DataLost: The file ends before the segment does.
            StoreError: It cannot be read.
        """
        rest = self.segment.end - physical_offset
        wanted = min(max(size_bytes, min(WINDOW_BYTES, self.limit - physical_offset)), rest)
        if wanted > len(self._buffer):
            self._buffer = memoryview(bytearray(wanted))
        position = physical_offset - self.segment.start
        try:
            count = self._files.read_into(self._fd, self._buffer[:wanted], position)
        except OSError as error:
            raise _unreadable(self.segment, error) from None
        if count < wanted:
            raise DataLost(
                f"The segment {self.segment.path} is shorter than it was.",
                detail=f"{position + count} of {self.segment.size_bytes} bytes exist",
                hint="It was truncated after the query was planned: plan it again.",
            )
        self.base = physical_offset
        self.view = self._buffer[:count]

    def has(self, physical_offset: int, size_bytes: int) -> bool:
        """Whether a range is in the window."""
        position = physical_offset - self.base
        return position >= 0 and position + size_bytes <= len(self.view)

    def need(self, physical_offset: int, size_bytes: int) -> memoryview:
        """Bytes from an offset on; fewer than requested only at the end of the segment."""
        if not self.has(physical_offset, size_bytes):
            self.load(physical_offset, size_bytes)
        position = physical_offset - self.base
        return self.view[position : position + size_bytes]


def claimed_bytes(window: Window, offset: int) -> int:
    """The size that the record at an offset states, or enough bytes to read it."""
    head = window.view[offset - window.base :][:4]
    return int.from_bytes(head, "big") if len(head) == 4 else RECORD_BYTES_MIN


def _unreadable(segment: Segment, error: OSError) -> StoreError:
    return StoreError(
        f"The segment {segment.path} cannot be read.",
        detail=error.strerror or str(error),
        hint="The file must be readable, with Spark by every executor: check its permissions.",
    )
