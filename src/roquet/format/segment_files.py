"""The files of a segmented directory.

Owns the rules: every file is named by its start in 20 digits, all have one size, and each begins
where the one before it ends. A broken rule does not stop a reader; it is recorded as a
:class:`StoreDamaged` to report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from roquet.errors import StoreDamaged

FILE_NAME_DIGITS = 20
LOST_AND_FOUND = "lost+found"
"""What ext4 itself keeps at the top of a disk; a directory of the store may be one."""


def file_name(start_offset: int) -> str:
    """Name of the file that starts at an offset."""
    return f"{start_offset:0{FILE_NAME_DIGITS}d}"


def is_file_name(name: str) -> bool:
    """Whether such a file can have this name."""
    return len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdecimal()


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of a segmented directory."""

    path: Path
    start: int
    size_bytes: int

    @property
    def end(self) -> int:
        """Where the next file begins."""
        return self.start + self.size_bytes


@dataclass(frozen=True, slots=True)
class SegmentList:
    """The files of a segmented directory in order, their common size, and what breaks the rules."""

    files: list[Segment]
    size_bytes: int
    problems: list[StoreDamaged]


def arrange_segments(directory: Path, listed: Iterable[tuple[str, int]]) -> SegmentList:
    """The files of a segmented directory.

    The common size is the one that most files have. A file of another size is kept, so that its
    segment can still be read; one whose name is not a number is skipped.

    Args:
        directory: Where they are.
        listed: Their names in order, each with its length.
    """
    found: list[Segment] = []
    problems: list[StoreDamaged] = []
    for name, size_bytes in listed:
        path = directory / name
        if is_file_name(name):
            found.append(Segment(path, int(name), size_bytes))
            continue
        problems.append(
            StoreDamaged(
                f"{path} has a wrong name",
                detail="a file here is named by its start offset in 20 digits",
                hint="move files that do not belong to the store out of its directory",
            )
        )
    if found and found[-1].size_bytes == 0:
        found.pop()  # created just before a crash; brokers remove it too
    size_bytes = _common_size(found)
    problems += _order_problems(found, size_bytes)
    return SegmentList(
        [segment for segment in found if segment.size_bytes > 0], size_bytes, problems
    )


def _common_size(segments: list[Segment]) -> int:
    counts = Counter(segment.size_bytes for segment in segments if segment.size_bytes > 0)
    return max(counts, key=lambda size: (counts[size], size), default=0)


def _order_problems(segments: list[Segment], size_bytes: int) -> Iterator[StoreDamaged]:
    """What is wrong with sizes, names and sequence."""
    before: Segment | None = None
    for segment in segments:
        if segment.size_bytes != size_bytes:
            yield StoreDamaged(
                f"{segment.path} has a wrong size",
                detail=f"{segment.size_bytes} bytes, the others have {size_bytes}",
                hint="restore the file from a copy; it may have been cut while it was copied",
            )
        elif segment.start % size_bytes:
            yield StoreDamaged(
                f"{segment.path} has a wrong name",
                detail=f"{segment.start} is not a multiple of the file size {size_bytes}",
                hint="restore the file's own name",
            )
        if before is not None and segment.start != before.start + size_bytes:
            yield StoreDamaged(
                f"files are missing in {segment.path.parent}",
                detail=f"{before.path.name} is followed by {segment.path.name}",
                hint=f"restore {file_name(before.start + size_bytes)}, or move the older files out",
            )
        before = segment
