"""The directory of a store: which files belong to it, and what is wrong with them.

Owns the names below the root; the rules of a segmented directory are those of
:mod:`roquet.format.segment_files`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from roquet.errors import NotAStore
from roquet.format.derived import QueueKey
from roquet.format.segment_files import SegmentList, arrange_segments
from roquet.runtime.files import Files

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
MANIFEST_FILE = "roquet-manifest.json"
OUR_MARK = b"roquet"
"""What ``lock`` begins with if Roquet was the last to close the store."""


def locate(files: Files, path: Path) -> Path:
    """The root of the store at ``path``; raises :class:`NotAStore` if there is none."""
    root = path.resolve()
    if not files.exists(root):
        raise NotAStore(
            f"{path} does not exist",
            hint="pass the store directory of a broker, the one with commitlog in it",
        )
    if not files.is_dir(root):
        raise NotAStore(
            f"{path} is not a directory",
            hint="pass the store directory of a broker, the one with commitlog in it",
        )
    if files.is_dir((root / COMMIT_LOG).resolve()) or _has_lost_its_log(files, root):
        return root
    hint = "pass the store directory of a broker, the one with commitlog in it"
    if root.name == COMMIT_LOG:
        hint = f"give the directory above it: {path.parent}"
    elif files.is_dir(root / "store" / COMMIT_LOG):
        hint = f"did you mean {path / 'store'}?"
    raise NotAStore(f"{path} is not a message store", detail="it has no commitlog", hint=hint)


def _has_lost_its_log(files: Files, root: Path) -> bool:
    """Whether a directory without a log was a store."""
    return any(files.exists(root / name) for name in (CHECKPOINT, MANIFEST_FILE))


def read_segments(files: Files, directory: Path) -> SegmentList:
    """The files of a segmented directory."""
    listed: list[tuple[str, int]] = []
    for name in files.list_dir(directory):
        path = directory / name
        if files.is_dir(path):
            continue
        with suppress(FileNotFoundError):  # a running broker removed it after the listing
            listed.append((name, files.size_bytes(path)))
    return arrange_segments(directory, listed)


def queue_directories(files: Files, base: Path) -> Iterator[tuple[QueueKey, Path]]:
    """Every queue below ``base`` with its directory, in order."""
    for topic in files.list_dir(base):
        if not files.is_dir(base / topic):
            continue
        numbers = [
            int(name)
            for name in files.list_dir(base / topic)
            if name.isascii() and name.isdecimal() and files.is_dir(base / topic / name)
        ]
        for queue_id in sorted(numbers):
            yield QueueKey(topic, queue_id), base / topic / str(queue_id)


def disk_bytes(files: Files, path: Path) -> int:
    """Sum of the lengths of all files at or below ``path``."""
    if not files.is_dir(path):
        try:
            return files.size_bytes(path)
        except FileNotFoundError:
            return 0
    return sum(disk_bytes(files, path / name) for name in files.list_dir(path))
