"""Which stores this process has taken, and who has taken another one.

Owns the set of them. It is needed because a record lock belongs to a process, not to a descriptor:
to close any descriptor of the lock file gives the lock up, so a process that holds it must not even
look at the file to see who does.
"""

from __future__ import annotations

from pathlib import Path

from roquet.runtime.files import Files
from roquet.runtime.memory import process_id

LOCK_FILE = "lock"

_held: set[Path] = set()


def is_held_here(root: Path) -> bool:
    """Whether this process has taken a store; nobody may open its lock file again then."""
    return root.resolve() in _held


def hold(root: Path) -> None:
    """Note that this process has taken a store."""
    _held.add(root.resolve())


def let_go(root: Path) -> None:
    """Note that this process has given a store back."""
    _held.discard(root.resolve())


def store_holder(files: Files, root: Path) -> int | None:
    """Process that has a store open: 0 if it cannot be seen, ``None`` if nobody has.

    Its lock is looked at, never touched.
    """
    if is_held_here(root):
        return process_id()
    lock = root / LOCK_FILE
    return files.lock_holder(lock) if files.exists(lock) else None
