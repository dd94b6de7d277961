"""A small settings file with a backup next to it, as in upstream's ``ConfigManager``.

Owns the three names ``topics.json`` (the current text), ``topics.json.bak`` (the text before it)
and ``topics.json.tmp`` (a text that is being written), and the order in which they change:

.. code-block:: text

    save                                       a crash right after leaves
    1  write topics.json.tmp, sync it          current = old
    2  rename topics.json to .bak              current missing, backup = old
    3  rename .tmp to topics.json              current = new, backup = old
    4  sync the directory                      the same, also after a power cut

Upstream writes the current file in place after step 2, so a crash can leave it half written.

Invariants:

* At every point of a save, one of current and backup holds the whole old or the whole new text.
  The file system need only make each rename atomic, in any order; so there is one sync of the
  directory, at the end.
* A damaged current file never replaces the backup: a save renames it to ``topics.json.damaged-1``.
  Loading changes nothing on the disk.
* The ``.tmp`` is never read: a text is valid only after the rename.

The calls block; on an event loop they belong in a worker thread. One object per path, one call at a
time.
"""

from __future__ import annotations

import enum
import errno
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from roquet.errors import ConfigError, DiskFull, OutOfResources, RoquetError, StoreError
from roquet.runtime.exhaustion import exhaustion_hint, is_exhausted
from roquet.runtime.failpoint import failpoint
from roquet.runtime.files import Files

__all__ = ["ConfigFile", "LoadedConfig"]

T = TypeVar("T")

_BLANK = b" \t\r\n\0"
"""A file that was not on disk at a power cut may read as zeros."""

_LOST_BYTES = {errno.EIO, errno.EBADMSG, errno.EUCLEAN}
"""Errors that mean the bytes are lost; others may pass, so the backup is not used for them."""

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}


@dataclass(frozen=True, slots=True)
class LoadedConfig(Generic[T]):
    """The result of a load.

    Attributes:
        value: The decoded text.
        text: The text of the file.
        path: The file it came from: the current one or the backup.
        problem: Why the current file was not used; None if it was.
    """

    value: T
    text: str
    path: Path
    problem: ConfigError | None


class _State(enum.Enum):
    USABLE = enum.auto()
    MISSING = enum.auto()
    BLANK = enum.auto()
    DAMAGED = enum.auto()


@dataclass(frozen=True, slots=True)
class _Unusable:
    state: _State
    reason: str


class ConfigFile(Generic[T]):
    """One settings file and its backup.

    Args:
        path: The current file; the first save creates its directory.
        files: The file system.
        decode: Turns the text into a value; raises ``RoquetError`` or ``ValueError`` for a text
            that cannot be used, which then counts as damaged.

    Example:
        >>> import tempfile
        >>> directory = Path(tempfile.mkdtemp())
        >>> config = ConfigFile(directory / "delayOffset.json", Files(), decode=int)
        >>> config.load() is None
        True
        >>> config.save("1")
        >>> config.save("2")
        >>> config.load().value, config.backup_path.read_text()
        (2, '1')
    """

    def __init__(self, path: Path, files: Files, *, decode: Callable[[str], T]) -> None:
        self.path = path
        self.backup_path = path.with_name(path.name + ".bak")
        self._new_path = path.with_name(path.name + ".tmp")
        self._files = files
        self._decode = decode
        self._current: _State | None = None

    def load(self) -> LoadedConfig[T] | None:
        """Read the current file, or the backup if the current one cannot be used.

        Returns:
            The result, or None if neither file exists.

        Raises:
            ConfigError: A file exists, but neither can be used. Nothing was changed.
            StoreError: A read failed for a reason that does not mean loss.
        """
        current = self._examine(self.path)
        if isinstance(current, LoadedConfig):
            self._current = _State.USABLE
            return current
        self._current = current.state
        backup = self._examine(self.backup_path)
        if isinstance(backup, LoadedConfig):
            problem = ConfigError(
                f"{self.path.name} cannot be used, so its backup was loaded.",
                code="config_backup_used",
                detail=f"{self.path} {current.reason}; loaded {self.backup_path}",
                hint="The last save may be missing: compare the settings with what you expect.",
            )
            return LoadedConfig(backup.value, backup.text, self.backup_path, problem)
        if current.state is backup.state is _State.MISSING:
            return None
        raise ConfigError(
            f"Neither {self.path.name} nor its backup can be used.",
            code="config_unusable",
            detail=f"{self.path} {current.reason}; {self.backup_path} {backup.reason}",
            hint="Repair the file or restore it from a copy. Remove both files only if starting "
            "without these settings is acceptable. Nothing was changed.",
        )

    def save(self, text: str) -> None:
        """Make ``text`` the current file and the current file the backup.

        Raises:
            DiskFull: There is no space.
            OutOfResources: There are no descriptors or memory left.
            StoreError: The file system refused. In all cases a load finds the old text, or the
                new one if only the last step failed.
        """
        data = text.encode("utf-8")
        if not data.strip(_BLANK):
            raise ValueError(f"a blank text would make {self.path.name} count as damaged")
        self.save_pieces((data,))

    def save_pieces(self, pieces: Iterable[bytes]) -> None:
        """Like :meth:`save`, for a long text that is generated while it is written; never blank.

        Raises:
            DiskFull: There is no space.
            StoreError: The file system refused.
        """
        current = self._current or self._state_of_current()
        self._current = None
        try:
            self._files.make_dirs(self.path.parent)
            self._write_new(pieces)
            failpoint("config_file.new_written")
            self._keep_old(current)
            failpoint("config_file.old_kept")
            self._files.rename(self._new_path, self.path)
            failpoint("config_file.new_in_place")
            self._files.sync_dir(self.path.parent)
        except OSError as error:
            raise self._save_error(error) from error
        self._current = _State.USABLE

    def _examine(self, path: Path) -> LoadedConfig[T] | _Unusable:
        try:
            data = self._files.read_file(path)
        except FileNotFoundError:
            return _Unusable(_State.MISSING, "does not exist")
        except OSError as error:
            if error.errno in _LOST_BYTES:
                return _Unusable(_State.DAMAGED, f"cannot be read ({error.strerror})")
            raise StoreError(
                f"{path.name} cannot be read.",
                detail=f"{path}: {error.strerror}",
                hint="Check the file's type, owner and permissions. Nothing was changed.",
            ) from error
        if not data.strip(_BLANK):
            return _Unusable(_State.BLANK, f"is blank ({len(data)} bytes)")
        try:
            text = data.decode("utf-8")
            return LoadedConfig(self._decode(text), text, path, None)
        except RoquetError as error:
            facts = f" ({error.detail})" if error.detail else ""
            return _Unusable(_State.DAMAGED, f"is damaged: {error.message.rstrip('.')}{facts}")
        except ValueError as error:
            return _Unusable(_State.DAMAGED, f"is damaged: {error}")

    def _state_of_current(self) -> _State:
        found = self._examine(self.path)
        return found.state if isinstance(found, _Unusable) else _State.USABLE

    def _write_new(self, pieces: Iterable[bytes]) -> None:
        # Leftovers of a crash or failed sync are replaced by a new file, not overwritten.
        self._files.unlink(self._new_path)
        try:
            fd = self._files.open(self._new_path, write=True, create=True)
            try:
                position = 0
                for piece in pieces:
                    self._files.write_at(fd, piece, position)
                    position += len(piece)
                self._files.data_sync(fd)
            finally:
                self._files.close(fd)
        except OSError:
            with suppress(OSError):
                self._files.unlink(self._new_path)
            raise

    def _keep_old(self, current: _State) -> None:
        if current in {_State.MISSING, _State.BLANK}:
            return
        is_usable = current is _State.USABLE
        target = self.backup_path if is_usable else self._free_damaged_path()
        # If the file was removed meanwhile, the backup stays as it is.
        with suppress(FileNotFoundError):
            self._files.rename(self.path, target)

    def _free_damaged_path(self) -> Path:
        number = 1
        while True:
            path = self.path.with_name(f"{self.path.name}.damaged-{number}")
            if not self._files.exists(path):
                return path
            number += 1

    def _save_error(self, error: OSError) -> StoreError:
        if is_exhausted(error):
            return OutOfResources(
                f"{self.path.name} was not saved.",
                detail=f"{self.path}: {error.strerror}",
                hint=f"The previous text is still there; {exhaustion_hint(error)}.",
            )
        full = error.errno in _NO_SPACE
        cause = "there is no space" if full else "the file system refused"
        kind = DiskFull if full else StoreError
        return kind(
            f"{self.path.name} was not saved: {cause}.",
            detail=f"{self.path}: {error.strerror}",
            hint="The previous text is still there. "
            + ("Free some space." if full else "Check the disk, the owner and the permissions."),
        )
