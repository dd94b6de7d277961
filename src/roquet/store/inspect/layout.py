"""The directory of a store: which files belong to it, and what is wrong with them.

Owns the names below the root and the rules of a segmented directory: every file is named by its
start in 20 digits, all have one size, and each begins where the one before it ends. Breaking a
rule does not stop a reader; it is remembered as a :class:`StoreDamaged` to be shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from roquet.errors import NotAStore, StoreDamaged
from roquet.runtime.files import Files
from roquet.store.mapped_file import FILE_NAME_DIGITS, file_name

COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
CONSUME_QUEUE_EXT = "consumequeue_ext"
BATCH_CONSUME_QUEUE = "batchconsumequeue"
ROCKSDB_CONSUME_QUEUE = "consumequeue_r"
INDEX = "index"
CONFIG = "config"
CHECKPOINT = "checkpoint"
ABORT = "abort"
LOCK = "lock"


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


def locate(files: Files, path: Path) -> Path:
    """The root of the store at ``path``; anything else there raises :class:`NotAStore`."""
    root = path.resolve()
    if not files.exists(root):
        raise NotAStore(
            f"{path} does not exist",
            hint="give the store directory of a broker, the one with commitlog in it",
        )
    if not files.is_dir(root):
        raise NotAStore(
            f"{path} is not a directory",
            hint="give the store directory of a broker, the one with commitlog in it",
        )
    if files.is_dir((root / COMMIT_LOG).resolve()):
        return root
    hint = "give the store directory of a broker, the one with commitlog in it"
    if root.name == COMMIT_LOG:
        hint = f"give the directory above it: {path.parent}"
    elif files.is_dir(root / "store" / COMMIT_LOG):
        hint = f"did you mean {path / 'store'}?"
    raise NotAStore(f"{path} is not a message store", detail="it has no commitlog", hint=hint)


def read_parts(files: Files, directory: Path) -> Parts:
    """The files of a segmented directory.

    The common size is the one that most files have. A file of another size is kept, so that its
    part can still be read; one whose name is no number is left out.
    """
    found: list[FilePart] = []
    problems: list[StoreDamaged] = []
    for name in files.list_dir(directory):
        path = directory / name
        if files.is_dir(path):
            continue
        if len(name) != FILE_NAME_DIGITS or not (name.isascii() and name.isdecimal()):
            problems.append(
                StoreDamaged(
                    f"{path} has a wrong name",
                    detail="a file here is named by its start offset in 20 digits",
                    hint="move files that do not belong to the store out of its directory",
                )
            )
            continue
        try:
            found.append(FilePart(path, int(name), files.size_bytes(path)))
        except FileNotFoundError:
            continue  # a running broker removed it after the listing
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


def queue_directories(files: Files, base: Path) -> Iterator[tuple[str, int, Path]]:
    """Topic, queue id and directory of every queue below ``base``, in order."""
    for topic in files.list_dir(base):
        if not files.is_dir(base / topic):
            continue
        numbers = [
            int(name)
            for name in files.list_dir(base / topic)
            if name.isascii() and name.isdecimal() and files.is_dir(base / topic / name)
        ]
        for queue_id in sorted(numbers):
            yield topic, queue_id, base / topic / str(queue_id)


def disk_bytes(files: Files, path: Path) -> int:
    """Sum of the lengths of all files at or below ``path``."""
    if not files.is_dir(path):
        try:
            return files.size_bytes(path)
        except FileNotFoundError:
            return 0
    return sum(disk_bytes(files, path / name) for name in files.list_dir(path))
