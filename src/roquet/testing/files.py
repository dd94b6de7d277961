"""File systems that fail, and file systems that record what a power cut would leave.

Owns stand-ins for :class:`roquet.runtime.files.Files`:

* :class:`FaultyFiles` counts the calls and fails one of them, or all from one on.
* :class:`RecordingFiles` tracks which bytes of every file and which names in every directory are
  certain to be on disk, and builds directories as a power cut could leave them.

What a power cut may do, as modelled here:

=================== =======================================================================
bytes               a file's content is sure up to its last ``data_sync``; each page of 4 KiB
                    changed since is old, new, or torn: every sector of 512 bytes old or new
length              any length the file had since its last ``data_sync``
names               sure after ``sync_dir`` on their directory; of the later changes (create,
                    unlink, rename, mkdir, rmdir) any subset, or any leading part, has happened
=================== =======================================================================

The content is read through the file itself, so writes through a mapping are seen. A sync makes
durable what the file held when the sync began: appends continue while a thread syncs.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from roquet.runtime.exhaustion import SyncFailed
from roquet.runtime.files import Buffer, Files
from roquet.testing.hooked_files import HookedFiles, QuickFiles

__all__ = ["FaultyFiles", "HookedFiles", "QuickFiles", "RecordingFiles"]

PAGE_BYTES = 4096
SECTOR_BYTES = 512

ENOSPC_CALLS = frozenset(
    {
        "create",
        "make_dir",
        "allocate",
        "truncate",
        "zero_range",
        "punch",
        "write_at",
        "data_sync",
        "sync_dir",
        "rename",
        "exchange",
    }
)
"""Calls that a full disk can fail."""

EMFILE_CALLS = frozenset({"create", "open", "list_dir", "sync_dir", "map"})
"""Calls that need a descriptor, and fail when the process or machine has none left."""

ENOMEM_CALLS = ENOSPC_CALLS - {"data_sync"} | {"map"}
"""Calls that may fail for lack of memory; a sync that does is a failed sync like any other."""

_CALLS_BY_ERROR = {
    errno.ENOSPC: ENOSPC_CALLS,
    errno.EMFILE: EMFILE_CALLS,
    errno.ENFILE: EMFILE_CALLS,
    errno.ENOMEM: ENOMEM_CALLS,
}


class Rng(Protocol):
    """The part of ``random.Random`` that images need."""

    def random(self) -> float:
        """Return a number in [0, 1)."""
        ...

    def randrange(self, stop: int, /) -> int:
        """Return an integer in [0, stop)."""
        ...


class Call(NamedTuple):
    """One call: the method and the file name."""

    name: str
    subject: str


class FaultyFiles(HookedFiles):
    """Fails one call, or all from one on; a failing write first writes half its sectors.

    Args:
        fail_at: Number of the first call to fail, counted from 1; 0 for none.
        error: The ``errno``. With ENOSPC, EMFILE, ENFILE and ENOMEM, only calls that can fail so
            count.
        and_after: Whether all later calls fail too.
        only: Names of the calls that count; by default all that ``error`` can hit.

    Attributes:
        calls: The calls counted so far.
        failed: The first call that failed, if any.

    Example:
        files = FaultyFiles(fail_at=1, only=frozenset({"make_dir"}))
        try:
            files.make_dir(folder / "refused")
        except OSError:
            print(files.failed)
    """

    def __init__(
        self,
        *,
        fail_at: int = 0,
        error: int = errno.EIO,
        and_after: bool = False,
        only: frozenset[str] | None = None,
    ) -> None:
        """Start with no calls counted."""
        super().__init__()
        self.fail_at = fail_at
        self._error = error
        self._and_after = and_after
        self._only = only if only is not None else _CALLS_BY_ERROR.get(error)
        self._lock = threading.Lock()
        self.calls: list[Call] = []
        self.failed: Call | None = None

    def before(self, name: str, path: Path) -> None:
        """Count a call and fail it if it is its turn."""
        if self._fails(name, path):
            if name == "data_sync":
                raise SyncFailed(self._error, os.strerror(self._error))
            raise self._refusal(path)

    def _fails(self, name: str, path: Path) -> bool:
        if self._only is not None and name not in self._only:
            return False
        with self._lock:
            self.calls.append(Call(name, path.name))
            number = len(self.calls)
            fails = 0 < self.fail_at <= number and (self._and_after or number == self.fail_at)
            if fails and self.failed is None:
                self.failed = self.calls[-1]
            return fails

    def _refusal(self, path: Path) -> OSError:
        return OSError(self._error, os.strerror(self._error), str(path))

    def heal(self) -> None:
        """Let every later call succeed.

        Example:
            files = FaultyFiles(fail_at=1, and_after=True)
            files.heal()
            files.make_dir(folder / "healed")
        """
        self.fail_at = 0

    def before_write(self, fd: int, data: Buffer, position: int) -> None:
        """Fail a write if it is its turn, after half its sectors."""
        path = self._paths.get(fd, Path("?"))
        if self._fails("write_at", path):
            half = position + len(data) // 2
            done = max(half - half % SECTOR_BYTES - position, 0)
            Files.write_at(self, fd, memoryview(data)[:done], position)
            raise self._refusal(path)

    def zero_range(self, fd: int, start: int, end: int) -> None:
        """As :meth:`Files.zero_range`; half the range is zeroed before it fails."""
        path = self._paths.get(fd, Path("?"))
        if self._fails("zero_range", path):
            Files.zero_range(self, fd, start, start + (end - start) // 2)
            raise self._refusal(path)
        Files.zero_range(self, fd, start, end)


class _Inode:
    """A file apart from its names."""

    def __init__(self, fd: int, sure: bytes) -> None:
        self.fd = fd
        self.sure = sure
        self.lengths: list[int] = []


class _Change(NamedTuple):
    """A change of names: ``inode`` appears at ``path`` (``None``: a directory), or is removed.

    ``gone`` is a name that is removed in the same step, as in a rename.
    """

    path: Path
    appears: bool
    inode: _Inode | None = None
    gone: Path | None = None


class RecordingFiles(HookedFiles):
    """Records what is certain to survive a power cut, and builds what one could leave.

    Args:
        root: Everything below it is recorded; what already exists counts as durable.
        on_call: Called before every call that changes something, with its number from 1 on; the
            moment to build an image.

    Images are built from the record, so nothing is really synced.

    Example:
        files = RecordingFiles(folder)
        files.make_dirs(folder / "data")
        files.write_file(folder / "data" / "synced", b"safe")
        files.image(random.Random(7), folder / "after-a-power-cut")
        files.release()
    """

    def __init__(
        self, root: Path, *, on_call: Callable[[int, str, Path], None] | None = None
    ) -> None:
        """Record below ``root``."""
        super().__init__()
        self._root = root
        self.on_call = on_call
        self.changes = 0
        self._lock = threading.RLock()
        self._all: list[_Inode] = []
        self._inodes: dict[int, _Inode] = {}
        self._names: dict[Path, _Inode | None] = {}
        self._pending: dict[Path, list[_Change]] = {}
        for path in sorted(root.rglob("*")) if root.is_dir() else []:
            is_file = not Files.is_dir(self, path)
            self._names[path] = self._adopt(path, sure=True) if is_file else None
        self._sure = dict(self._names)

    def _adopt(self, path: Path, *, sure: bool) -> _Inode:
        inode = _Inode(Files.open(self, path), b"")
        self._all.append(inode)
        if sure:
            inode.sure = self._content(inode)
        return inode

    def _content(self, inode: _Inode) -> bytes:
        return Files.read_at(self, inode.fd, Files.length(self, inode.fd), 0)

    def release(self) -> None:
        """Close the files that the record keeps open.

        Example:
            files = RecordingFiles(folder)
            files.release()
        """
        with self._lock:
            while self._all:
                Files.close(self, self._all.pop().fd)

    def before(self, name: str, path: Path) -> None:
        """Notify the listener of calls that change something."""
        if name in _CHANGES and self.on_call is not None:
            self.changes += 1
            self.on_call(self.changes, name, path)

    def _renamed(self, change: _Change) -> None:
        if change.appears:
            self._names[change.path] = change.inode
        else:
            self._names.pop(change.path, None)
        if change.gone is not None:
            self._names.pop(change.gone, None)
        self._pending.setdefault(change.path.parent, []).append(change)

    def make_dir(self, path: Path) -> None:
        """As :meth:`Files.make_dir`."""
        super().make_dir(path)
        with self._lock:
            self._renamed(_Change(path, appears=True))

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        """As :meth:`Files.open`."""
        fd = super().open(path, write=write, create=create)
        with self._lock:
            inode = self._names.get(path)
            if inode is None:
                inode = self._adopt(path, sure=False)
                self._renamed(_Change(path, appears=True, inode=inode))
            self._inodes[fd] = inode
        return fd

    def close(self, fd: int) -> None:
        """As :meth:`Files.close`."""
        with self._lock:
            self._inodes.pop(fd, None)
        super().close(fd)

    def allocate(self, fd: int, size_bytes: int) -> None:
        """As :meth:`Files.allocate`."""
        super().allocate(fd, size_bytes)
        self._note_length(fd)

    def truncate(self, fd: int, size_bytes: int) -> None:
        """As :meth:`Files.truncate`."""
        super().truncate(fd, size_bytes)
        self._note_length(fd)

    def write_at(self, fd: int, data: Buffer, position: int) -> None:
        """As :meth:`Files.write_at`."""
        super().write_at(fd, data, position)
        self._note_length(fd)

    def _note_length(self, fd: int) -> None:
        with self._lock:
            lengths = self._inodes[fd].lengths
            length = Files.length(self, fd)
            if not lengths or lengths[-1] != length:
                lengths.append(length)

    def data_sync(self, fd: int) -> None:
        """Record what the file holds now as durable."""
        self._before("data_sync", fd)
        with self._lock:
            inode = self._inodes[fd]
            inode.sure = self._content(inode)
            inode.lengths = []

    def sync_dir(self, path: Path) -> None:
        """Record the names in a directory as durable."""
        self.before("sync_dir", path)
        with self._lock:
            for change in self._pending.pop(path, []):
                _apply(change, self._sure)

    def rename(self, source: Path, target: Path) -> None:
        """As :meth:`Files.rename`; both names must be in one directory."""
        assert source.parent == target.parent, "a rename across directories is not modelled"
        super().rename(source, target)
        with self._lock:
            inode = self._names.get(source)
            self._renamed(_Change(target, appears=True, inode=inode, gone=source))

    def exchange(self, first: Path, second: Path) -> None:
        """Refuse, like a file system without support: what a power cut leaves is not modelled."""
        self.before("exchange", first)
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(first), None, str(second))

    def unlink(self, path: Path) -> None:
        """As :meth:`Files.unlink`."""
        super().unlink(path)
        with self._lock:
            if path in self._names:
                self._renamed(_Change(path, appears=False))

    def remove_dir(self, path: Path) -> None:
        """As :meth:`Files.remove_dir`."""
        super().remove_dir(path)
        with self._lock:
            if path in self._names and not Files.is_dir(self, path):
                self._renamed(_Change(path, appears=False))

    def image(self, rng: Rng, target: Path, *, by_sector: bool = False) -> None:
        """Build in ``target`` one state that a power cut at this moment could leave.

        Args:
            rng: Decides for each page and each name.
            target: A directory that does not exist yet; it stands for the root.
            by_sector: Decide sector by sector instead of page by page.

        Example:
            files = RecordingFiles(folder)
            for seed in range(3):
                files.image(random.Random(seed), folder / f"image-{seed}", by_sector=True)
            files.release()
        """
        with self._lock:
            names = dict(self._sure)
            for changes in self._pending.values():
                for change in _survivors(rng, changes):
                    _apply(change, names)
            self._build(names, target, lambda inode: self._torn(rng, inode, by_sector=by_sector))

    def killed(self, target: Path) -> None:
        """Build in ``target`` what a process killed at this moment leaves: everything written.

        Example:
            files = RecordingFiles(folder)
            files.killed(folder / "after-a-kill")
            files.release()
        """
        with self._lock:
            self._build(self._names, target, self._content)

    def _build(
        self,
        names: dict[Path, _Inode | None],
        target: Path,
        content: Callable[[_Inode], bytes],
    ) -> None:
        target.mkdir()
        for path in sorted(names):
            if self._root not in path.parents:
                continue
            copy = target / path.relative_to(self._root)
            if not copy.parent.is_dir():
                continue
            inode = names[path]
            if inode is None:
                copy.mkdir()
            else:
                copy.write_bytes(content(inode))

    def _torn(self, rng: Rng, inode: _Inode, *, by_sector: bool) -> bytes:
        """Return a random mix of a file's durable content and what was written since."""
        old, new = inode.sure, self._content(inode)
        if old == new and not inode.lengths:
            return old
        lengths = [len(old), len(new), *inode.lengths]
        length = lengths[rng.randrange(len(lengths))]
        old, new = (data[:length].ljust(length, b"\0") for data in (old, new))
        share_new = rng.random()
        pieces: list[bytes] = []
        for page in range(0, length, PAGE_BYTES):
            end = min(page + PAGE_BYTES, length)
            if old[page:end] == new[page:end]:
                pieces.append(old[page:end])
            elif by_sector or rng.random() < 1 / 3:
                for sector in range(page, end, SECTOR_BYTES):
                    source = new if rng.random() < share_new else old
                    pieces.append(source[sector : min(sector + SECTOR_BYTES, end)])
            else:
                source = new if rng.random() < share_new else old
                pieces.append(source[page:end])
        return b"".join(pieces)


_CHANGES = ENOSPC_CALLS | {"unlink", "remove_dir", "close"}


def _apply(change: _Change, names: dict[Path, _Inode | None]) -> None:
    if change.gone is not None and change.gone not in names:
        return  # the file to be renamed was never created
    if change.appears:
        names[change.path] = change.inode
    else:
        names.pop(change.path, None)
    if change.gone is not None:
        del names[change.gone]


def _survivors(rng: Rng, changes: list[_Change]) -> list[_Change]:
    """Choose which changes of names reached the disk: a leading part of them, or any subset."""
    if rng.random() < 0.5:
        return changes[: rng.randrange(len(changes) + 1)]
    return [change for change in changes if rng.random() < 0.5]
