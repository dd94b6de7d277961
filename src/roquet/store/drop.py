"""Segments that go before their time, from a store that nobody runs.

Owns the deletion of the oldest segments of a stopped store once somebody has them elsewhere. Queue
heads and index follow when the store is started next, by its own recovery and retention.

Invariants: as of :mod:`roquet.store.retention`: the newest segment stays, deletion goes from the
oldest on without a gap, each is on disk before the next. The store is locked meanwhile, and must
have been closed in order: the entries of its queues alone tell where they go on once their records
are gone, and only then all of them are known to be on disk.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from roquet.errors import StoreError
from roquet.runtime.files import Files
from roquet.store.store_lock import StoreLock

__all__ = ["drop_segments"]

_COMMIT_LOG = "commitlog"
_NAME_DIGITS = 20


def drop_segments(root: Path, archived_offset: int, *, files: Files | None = None) -> list[str]:
    """Delete the oldest segments that end at or before a physical offset; their names.

    Args:
        root: The store directory.
        archived_offset: What is below is elsewhere.
        files: The way to the disk.

    Raises:
        StoreLocked: Somebody runs the store.
        StoreError: It was not closed in order.
    """
    disk = files or Files()
    lock = StoreLock(disk, root)
    lock.acquire()
    try:
        if lock.was_aborted:
            raise StoreError(
                f"{root} was not closed in order, so nothing is deleted from it.",
                hint="Start its broker once and stop it, then try again.",
            )
        return _drop(disk, root / _COMMIT_LOG, archived_offset)
    finally:
        lock.release()


def _drop(files: Files, folder: Path, archived_offset: int) -> list[str]:
    names = sorted(name for name in files.list_dir(folder) if _is_segment(name))
    dropped = []
    for name, following in pairwise(names):
        if int(following) > archived_offset:
            break
        if int(name) + files.size_bytes(folder / name) != int(following):
            break  # a segment is missing: what is behind it is not told by this one
        files.unlink(folder / name)
        # One by one: a crash must not bring the older of two back without the younger.
        files.sync_dir(folder)
        dropped.append(name)
    return dropped


def _is_segment(name: str) -> bool:
    return len(name) == _NAME_DIGITS and name.isascii() and name.isdecimal()
