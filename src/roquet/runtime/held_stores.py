"""Which stores this process has locked, and which process holds another one.

Owns the set of locked stores. It is needed because a record lock belongs to a process, not to a
descriptor: closing any descriptor of the lock file releases the lock, so a process that holds it
must not even open the file to check.
"""

from __future__ import annotations

from pathlib import Path

from roquet.runtime.files import Files
from roquet.runtime.memory import process_id

LOCK_FILE = "lock"

_held: set[Path] = set()


def is_held_here(root: Path) -> bool:
    """Whether this process has locked a store; it must not open the lock file again then."""
    return root.resolve() in _held


def hold(root: Path) -> None:
    """Record that this process has locked a store."""
    _held.add(root.resolve())


def let_go(root: Path) -> None:
    """Record that this process has released a store."""
    _held.discard(root.resolve())


def store_holder(files: Files, root: Path) -> int | None:
    """The process that has a store open: 0 if it is not visible, ``None`` if there is none.

    The lock is only queried.
    """
    if is_held_here(root):
        return process_id()
    lock = root / LOCK_FILE
    return files.lock_holder(lock) if files.exists(lock) else None
