"""The segments of the CommitLog, oldest first.

Owns the list of :class:`MappedFile` and the rule that segments have one size and follow each
other without a gap. The list is replaced, never changed in place, so that a reader thread keeps a
consistent one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from roquet.errors import StoreDamaged
from roquet.format.segment_files import FILE_NAME_DIGITS, LOST_AND_FOUND, file_name
from roquet.runtime.files import Files, Mapping
from roquet.store.mapped_file import MappedFile

_LOOK_BYTES = 1 << 20


def _names_in(files: Files, root: Path) -> list[str]:
    """Names in a directory of segments, sorted, without what a file system keeps there."""
    return [name for name in files.list_dir(root) if name != LOST_AND_FOUND]


def segment_starts(files: Files, root: Path, *, size_bytes: int) -> list[int]:
    """Start offsets of the segments in a directory; anything unexpected there is an error.

    Files at the end that do not fit and hold only zeros were being created when a process crashed,
    or were allocated ahead before their predecessor: they do not count, and the next creation of
    that name replaces them.
    """
    names = _names_in(files, root)
    good, fault = _good_files(files, root, names, size_bytes)
    if fault is not None and not all(
        _is_unused(files, root / other, size_bytes) for other in names[good:]
    ):
        raise fault
    return [int(name) for name in names[:good]]


def torn_starts(files: Files, root: Path, *, size_bytes: int) -> tuple[list[int], int]:
    """Like :func:`segment_starts`, for derived files after an unclean exit.

    Returns:
        All starts, and how many of them come before the first file that is too short. Its length
        was never synced, so neither were its entries nor those after them: all of these files
        have to be deleted.
    """
    names = _names_in(files, root)
    good, fault = _good_files(files, root, names, size_bytes)
    if fault is not None and (
        not all(_is_name(other) for other in names)
        or files.size_bytes(root / names[good]) >= size_bytes
    ):
        raise fault
    return [int(name) for name in names], good


def _good_files(
    files: Files, root: Path, names: list[str], size_bytes: int
) -> tuple[int, StoreDamaged | None]:
    """How many files come before the first that does not fit, and what is wrong with that one."""
    for number, name in enumerate(names):
        previous = int(names[number - 1]) if number else None
        fault = _fault(files, root / name, previous=previous, size_bytes=size_bytes)
        if fault is not None:
            return number, fault
    return len(names), None


def _is_name(name: str) -> bool:
    return len(name) == FILE_NAME_DIGITS and name.isdecimal()


def _fault(
    files: Files, path: Path, *, previous: int | None, size_bytes: int
) -> StoreDamaged | None:
    """Why a file cannot be the segment that follows the one which starts at ``previous``."""
    if not _is_name(path.name):
        return StoreDamaged(
            f"{path} is not a segment",
            detail="a segment's name is its start offset in 20 digits",
            hint="move files that do not belong to the store out of its directory",
        )
    length = files.size_bytes(path)
    if length != size_bytes:
        return StoreDamaged(
            f"{path} has a wrong size",
            detail=f"{length} bytes where {size_bytes} are configured",
            hint="set the file size with which the store was written, or restore the file",
        )
    start = int(path.name)
    if previous is not None and start != previous + size_bytes:
        return StoreDamaged(
            f"segments are missing in {path.parent}",
            detail=f"{file_name(previous)} is followed by {path.name}",
            hint=f"restore {file_name(previous + size_bytes)}; 'roquet store rebuild' rebuilds "
            "queues, and with --accept-loss gives up older segments that were moved elsewhere",
        )
    if start % size_bytes:
        return StoreDamaged(
            f"{path} has a wrong name",
            detail=f"{start} is not a multiple of the segment size {size_bytes}",
            hint="restore the file's own name",
        )
    return None


def _is_unused(files: Files, path: Path, size_bytes: int) -> bool:
    """Whether a file has the name of a segment, is no longer than one, and holds only zeros."""
    if not _is_name(path.name):
        return False
    fd = files.open(path)
    try:
        length = files.length(fd)
        return length <= size_bytes and not any(
            files.read_at(fd, _LOOK_BYTES, position).strip(b"\0")
            for position in range(0, length, _LOOK_BYTES)
        )
    finally:
        files.close(fd)


class MappedFileQueue:
    """All segments of the log."""

    def __init__(self, files: Files, root: Path, *, size_bytes: int) -> None:
        """Keep segments of ``size_bytes`` in ``root``.

        ``has_buffers`` is set if segments may have transient buffers: then not only the last of
        them may be partly readable.
        """
        self._files = files
        self.root = root
        self.size_bytes = size_bytes
        self.segments: list[MappedFile] = []
        self.has_buffers = False
        self._unused: list[Path] = []

    def load(self) -> None:
        """Open existing segments; nothing is changed on disk."""
        opened: list[MappedFile] = []
        starts = segment_starts(self._files, self.root, size_bytes=self.size_bytes)
        names = _names_in(self._files, self.root)[len(starts) :]
        self._unused = [self._files.inside(self.root, name) for name in names]
        try:
            for start in starts:
                path = self._files.inside(self.root, file_name(start))
                opened.append(
                    MappedFile.load(
                        self._files, path, start_offset=start, size_bytes=self.size_bytes
                    )
                )
        except BaseException:
            for segment in opened:
                segment.close()
            raise
        self.segments = opened

    @property
    def first(self) -> MappedFile | None:
        """The oldest segment."""
        return self.segments[0] if self.segments else None

    @property
    def last(self) -> MappedFile | None:
        """The segment that appends go to."""
        return self.segments[-1] if self.segments else None

    @property
    def min_offset(self) -> int:
        """Physical offset of the oldest byte."""
        return self.segments[0].start_offset if self.segments else 0

    @property
    def max_offset(self) -> int:
        """Physical offset after the last byte up to which everything is readable."""
        segments = self.segments
        if self.has_buffers:
            for segment in segments:
                if segment.read_limit < self.size_bytes:
                    return segment.start_offset + segment.read_limit
        return segments[-1].start_offset + segments[-1].read_limit if segments else 0

    def max_wrote_offset(self) -> int:
        """Physical offset after the last appended byte; a method, which compiled code calls."""
        if not self.segments:
            return 0
        last = self.segments[-1]
        return last.start_offset + last.wrote

    def find(self, physical_offset: int) -> MappedFile | None:
        """The segment that holds an offset."""
        segments = self.segments
        if not segments:
            return None
        first = segments[0]
        if physical_offset < first.start_offset:
            return None
        index = (physical_offset - first.start_offset) // self.size_bytes
        return segments[index] if index < len(segments) else None

    def add(self, segment: MappedFile) -> None:
        """Add a new segment."""
        expected = self.segments[-1].end_offset if self.segments else segment.start_offset
        assert segment.start_offset == expected, "a segment does not follow its neighbour"
        self.segments = [*self.segments, segment]

    def drop_oldest(self, count: int) -> list[MappedFile]:
        """Take the oldest segments out of the list; the caller destroys them. Never the last."""
        count = min(count, len(self.segments) - 1)
        if count <= 0:
            return []
        dropped, self.segments = self.segments[:count], self.segments[count:]
        return dropped

    def put_back(self, segment: MappedFile) -> None:
        """Undo :meth:`drop_oldest` for a segment that could not be deleted."""
        assert segment.end_offset == self.min_offset, "a segment does not precede its neighbour"
        self.segments = [segment, *self.segments]

    def remove_unused(self) -> None:
        """Delete what :meth:`load` skipped, newest first, so that there is never a gap."""
        while self._unused:
            self._files.unlink(self._unused[-1])
            self._files.sync_dir(self.root)
            self._unused.pop()

    def truncate(
        self, physical_offset: int, give_back: Callable[[Mapping], object] | None = None
    ) -> None:
        """Erase everything from an offset on, on disk, newest segment first.

        Newest first, because a crash in between must leave a log without a gap. The oldest
        segment stays even if it is emptied: offsets continue from there, never from 0 again.
        ``give_back`` gets the transient buffers of segments that go.
        """
        while len(self.segments) > 1 and self.segments[-1].start_offset >= physical_offset:
            dropped = self.segments[-1]
            self.segments = self.segments[:-1]
            buffer, dropped.write_buffer = dropped.write_buffer, None
            if buffer is not None and give_back is not None:
                give_back(buffer)
            dropped.destroy()
            self._files.sync_dir(self.root)
        last = self.last
        if last is not None and physical_offset < last.end_offset:
            last.cut(max(physical_offset - last.start_offset, 0))

    def clear(self) -> None:
        """Delete a single segment that holds nothing, so that the log may begin elsewhere."""
        (segment,), self.segments = self.segments, []
        segment.destroy()
        self._files.sync_dir(self.root)

    def sync_names(self) -> None:
        """Make the names of all segments durable."""
        if self.segments:
            self._files.sync_dir(self.root)

    def close(self, *, each: Callable[[MappedFile], None] | None = None) -> None:
        """Close all segments, after ``each`` has been called on every one."""
        segments, self.segments = self.segments, []
        with ExitStack() as stack:
            for segment in segments:
                if each is not None:
                    each(segment)
                stack.callback(segment.close)

    def destroy(self) -> None:
        """Delete all segments."""
        segments, self.segments = self.segments, []
        for segment in segments:
            segment.destroy()
        self._files.remove_dir(self.root)
