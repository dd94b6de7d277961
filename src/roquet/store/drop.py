"""Early deletion of segments from a stopped store.

Deletes the oldest segments of a stopped store once they are archived elsewhere. Queue heads and
index follow at the next start, through recovery and retention.

Invariants: as in :mod:`roquet.store.retention`: the newest segment stays, deletion goes from the
oldest on without a gap, each durable before the next. The store is locked meanwhile, and must have
been closed cleanly: once the records are gone, only the entries of a queue show where it continues,
and only a clean shutdown ensures that all entries are on disk.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from roquet.errors import StoreError
from roquet.runtime.files import Files
from roquet.store.manifest import StoreManifest
from roquet.store.store_lock import StoreLock

__all__ = ["drop_segments"]

_COMMIT_LOG = "commitlog"
_NAME_DIGITS = 20


def drop_segments(root: Path, archived_offset: int, *, files: Files | None = None) -> list[str]:
    """Delete the oldest segments that end at or before a physical offset; return their names.

    Args:
        root: The store directory.
        archived_offset: Everything below it is archived elsewhere.
        files: Access to the disk.

    Raises:
        StoreLocked: The store is in use.
        StoreError: It was not closed cleanly.
    """
    disk = files or Files()
    lock = StoreLock(disk, root)
    lock.acquire()
    try:
        if lock.was_aborted:
            raise StoreError(
                f"{root} was not closed cleanly, so nothing is deleted from it.",
                hint="Start its broker once and stop it, then retry.",
            )
        names = _droppable(disk, root / _COMMIT_LOG, archived_offset)
        if names:
            manifest = StoreManifest(disk, root)
            manifest.load()
            manifest.forget_start(int(names[-1]) + disk.size_bytes(root / _COMMIT_LOG / names[-1]))
        _drop(disk, root / _COMMIT_LOG, names)
        return names
    finally:
        lock.release()


def _droppable(files: Files, folder: Path, archived_offset: int) -> list[str]:
    names = sorted(name for name in files.list_dir(folder) if _is_segment(name))
    dropped = []
    for name, following in pairwise(names):
        if int(following) > archived_offset:
            break
        if int(name) + files.size_bytes(folder / name) != int(following):
            break  # a segment is missing: this one says nothing about later ones
        dropped.append(name)
    return dropped


def _drop(files: Files, folder: Path, names: list[str]) -> None:
    for name in names:
        files.unlink(folder / name)
        # One by one: a crash must not bring back the older of two without the newer.
        files.sync_dir(folder)


def _is_segment(name: str) -> bool:
    return len(name) == _NAME_DIGITS and name.isascii() and name.isdecimal()
