"""The files of a segmented directory.

Owns the rules: every file is named by its start in 20 digits, all have one size, and each begins
where the one before it ends. Breaking a rule does not stop a reader; it is remembered as a
:class:`StoreDamaged` to be shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from roquet.errors import StoreDamaged

FILE_NAME_DIGITS = 20


def file_name(start_offset: int) -> str:
    """Name of the file that starts at an offset."""
    return f"{start_offset:0{FILE_NAME_DIGITS}d}"


def is_file_name(name: str) -> bool:
    """Whether a name can be that of such a file."""
    return len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdecimal()


@dataclass(frozen=True, slots=True)
class FilePart:
    """One file of a segmented directory."""

    path: Path
    start: int
    size_bytes: int

    @property
    def end(self) -> int:
        """Where the next file begins."""
        return self.start + self.size_bytes


@dataclass(frozen=True, slots=True)
class Parts:
    """The files of a segmented directory in order, their common size, and what breaks the rules."""

    files: list[FilePart]
    size_bytes: int
    problems: list[StoreDamaged]


def arrange_parts(directory: Path, listed: Iterable[tuple[str, int]]) -> Parts:
    """The files of a segmented directory.

    The common size is the one that most files have. A file of another size is kept, so that its
    part can still be read; one whose name is no number is left out.

    Args:
        directory: Where they are.
        listed: Their names in order, each with its length.
    """
    found: list[FilePart] = []
    problems: list[StoreDamaged] = []
    for name, size_bytes in listed:
        path = directory / name
        if is_file_name(name):
            found.append(FilePart(path, int(name), size_bytes))
            continue
        problems.append(
            StoreDamaged(
                f"{path} has a wrong name",
                detail="a file here is named by its start offset in 20 digits",
                hint="move files that do not belong to the store out of its directory",
            )
        )
    if found and found[-1].size_bytes == 0:
        found.pop()  # a file made just before a crash; brokers remove it too
    size_bytes = _common_size(found)
    problems += _order_problems(found, size_bytes)
    return Parts([part for part in found if part.size_bytes > 0], size_bytes, problems)


def _common_size(parts: list[FilePart]) -> int:
    counts = Counter(part.size_bytes for part in parts if part.size_bytes > 0)
    return max(counts, key=lambda size: (counts[size], size), default=0)


def _order_problems(parts: list[FilePart], size_bytes: int) -> Iterator[StoreDamaged]:
    """What is wrong with sizes, names and sequence."""
    before: FilePart | None = None
    for part in parts:
        if part.size_bytes != size_bytes:
            yield StoreDamaged(
                f"{part.path} has a wrong size",
                detail=f"{part.size_bytes} bytes, the others have {size_bytes}",
                hint="restore the file from a copy; it may have been cut while it was copied",
            )
        elif part.start % size_bytes:
            yield StoreDamaged(
                f"{part.path} has a wrong name",
                detail=f"{part.start} is no multiple of the file size {size_bytes}",
                hint="restore the file's own name",
            )
        if before is not None and part.start != before.start + size_bytes:
            yield StoreDamaged(
                f"files are missing in {part.path.parent}",
                detail=f"{before.path.name} is followed by {part.path.name}",
                hint=f"restore {file_name(before.start + size_bytes)}, or move older files away",
            )
        before = part
