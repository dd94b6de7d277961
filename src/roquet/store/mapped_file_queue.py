"""The segments of the CommitLog, oldest first.

Owns the list of :class:`MappedFile` and the rule that segments have one size and follow each
other without a gap. The list is replaced, never changed in place, so that a reader thread that
took it keeps a whole one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from roquet.errors import StoreDamaged
from roquet.runtime.files import Files
from roquet.store.mapped_file import FILE_NAME_DIGITS, MappedFile, file_name


def segment_starts(files: Files, root: Path, *, size_bytes: int) -> list[int]:
    """Start offsets of the segments in a directory; anything unexpected there is an error.

    Empty files at the end are creations that a crash cut short: they do not count, and the next
    creation of that name replaces them.
    """
    starts: list[int] = []
    names = files.list_dir(root)
    while names and names[-1].isdecimal() and files.size_bytes(root / names[-1]) == 0:
        names.pop()
    for name in names:
        if len(name) != FILE_NAME_DIGITS or not name.isdecimal():
            raise StoreDamaged(
                f"{root / name} is not a segment",
                detail="a segment's name is its start offset in 20 digits",
                hint="move files that do not belong to the store out of its directory",
            )
        length = files.size_bytes(root / name)
        if length != size_bytes:
            raise StoreDamaged(
                f"{root / name} has a wrong size",
                detail=f"{length} bytes where {size_bytes} are configured",
                hint="set the file size to what wrote the store, or restore the file",
            )
        starts.append(int(name))
    for before, after in pairwise(starts):
        if after != before + size_bytes:
            raise StoreDamaged(
                f"segments are missing in {root}",
                detail=f"{file_name(before)} is followed by {file_name(after)}",
                hint=f"restore {file_name(before + size_bytes)}, or move the older files away",
            )
    if starts and starts[0] % size_bytes:
        raise StoreDamaged(
            f"{root / file_name(starts[0])} has a wrong name",
            detail=f"{starts[0]} is no multiple of the segment size {size_bytes}",
            hint="restore the file's own name",
        )
    return starts


class MappedFileQueue:
    """All segments of the log."""

    def __init__(self, files: Files, root: Path, *, size_bytes: int) -> None:
        """Keep segments of ``size_bytes`` in ``root``."""
        self._files = files
        self.root = root
        self.size_bytes = size_bytes
        self.segments: list[MappedFile] = []

    def load(self) -> None:
        """Open what is there; nothing is changed on disk."""
        opened: list[MappedFile] = []
        try:
            for start in segment_starts(self._files, self.root, size_bytes=self.size_bytes):
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
        """The segment appends go to."""
        return self.segments[-1] if self.segments else None

    @property
    def min_offset(self) -> int:
        """Physical offset of the oldest byte."""
        return self.segments[0].start_offset if self.segments else 0

    @property
    def max_offset(self) -> int:
        """Physical offset behind the last byte that is readable with all before it."""
        segments = self.segments
        index = len(segments) - 1
        while index > 0 and segments[index - 1].read_limit < self.size_bytes:
            index -= 1
        return segments[index].start_offset + segments[index].read_limit if segments else 0

    @property
    def max_wrote_offset(self) -> int:
        """Physical offset behind the last appended byte."""
        last = self.last
        return last.start_offset + last.wrote if last else 0

    def find(self, physical_offset: int) -> MappedFile | None:
        """The segment that holds an offset."""
        segments = self.segments
        if not segments or physical_offset < segments[0].start_offset:
            return None
        index = (physical_offset - segments[0].start_offset) // self.size_bytes
        return segments[index] if index < len(segments) else None

    def add(self, segment: MappedFile) -> None:
        """Append a fresh segment."""
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

    def truncate(self, physical_offset: int) -> None:
        """Erase everything from an offset on, on disk, newest segment first.

        Newest first, because a crash in between must leave a log without a gap. The oldest
        segment stays even when it is emptied: offsets go on from there, never from 0 again.
        """
        while len(self.segments) > 1 and self.segments[-1].start_offset >= physical_offset:
            dropped = self.segments[-1]
            self.segments = self.segments[:-1]
            dropped.destroy()
            self._files.sync_dir(self.root)
        last = self.last
        if last is not None and physical_offset < last.end_offset:
            last.cut(max(physical_offset - last.start_offset, 0))

    def close(self, *, each: Callable[[MappedFile], None] | None = None) -> None:
        """Close all segments, after ``each`` has been called on every one."""
        for segment in self.segments:
            if each is not None:
                each(segment)
            segment.close()
        self.segments = []

    def destroy(self) -> None:
        """Delete all segments."""
        segments, self.segments = self.segments, []
        for segment in segments:
            segment.destroy()
        self._files.remove_dir(self.root)
