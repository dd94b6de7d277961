"""Tables of the broker kept in files: loading, saving, versions, atomic changes.

Owns what the tables of topics, groups and offsets have in common, as upstream's ``ConfigManager``
does: the files ``<store root>/config/<name>.json`` and the :class:`DataVersion`, by which slaves
and name servers detect an outdated copy.

Invariants:

* A requested change is in the file before it takes effect and is acknowledged; if the write fails,
  nothing changes. Upstream logs the failure and continues.
* A change that the broker makes itself so that a client can continue reading stays in memory if
  it cannot be written, and every later save retries it.
* Entries of a table are replaced, never modified in place, so that a copy of the table is a
  consistent snapshot, which another thread may write.
* An older snapshot never replaces a newer one in the file.
* Large tables are written piece by piece, and unchanged entries are not encoded again.

Everything is called on the event loop, except the jobs of :meth:`ConfigManager.begin_persist`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from roquet.errors import ConfigError
from roquet.format.config_files import decode_table
from roquet.model.data_version import DataVersion
from roquet.model.fastjson import WritableJson, dumps
from roquet.remoting.endpoint import LogLimiter
from roquet.runtime.clock import Clock
from roquet.runtime.config_file import ConfigFile

__all__ = [
    "ConfigManager",
    "EntryTextCache",
    "SettingsManager",
    "TableSnapshot",
    "config_path",
    "decode_table",
    "merge",
    "pretty",
]

CONFIG_DIRECTORY = "config"

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
E = TypeVar("E", bound=Struct)

ENTRIES_A_PIECE = 500
"""Entries of a table that are encoded as one piece."""


def config_path(store_root: str, name: str) -> Path:
    """Return the path of a table's file."""
    return Path(store_root) / CONFIG_DIRECTORY / name


def pretty(value: WritableJson, *, level: int) -> str:
    """Encode a value for a file, indented by a number of TABs."""
    return dumps(value, pretty=True).replace("\n", "\n" + "\t" * level)


def merge(table: dict[K, V], loaded: dict[K, V]) -> bool:
    """Let loaded entries override those of ``table``; return whether it has others."""
    own = dict(table)
    table.clear()
    table.update(loaded)
    for key, value in own.items():
        table.setdefault(key, value)
    return len(table) > len(loaded)


class EntryTextCache(Generic[E]):
    """Caches the texts of a table's entries, so that only changed entries are encoded.

    A broker may have a hundred thousand topics, and each new one writes the file of all. Entries
    are replaced, never modified, so the same object has the same text.

    Args:
        level: The nesting level of the entries in the file.
        member: Encodes the name of an entry, a colon, and the entry, indented for that level.
        quick_member: Does the same for entries whose text is not worth caching; ``None`` for
            others.
    """

    def __init__(
        self,
        level: int,
        member: Callable[[str, E], bytes],
        quick_member: Callable[[str, E], bytes | None] = lambda _name, _entry: None,
    ) -> None:
        self._line_break = "\n" + "\t" * level
        self._member = member
        self._quick_member = quick_member
        self._texts: dict[str, tuple[E, bytes]] = {}

    def __len__(self) -> int:
        """How many texts are cached."""
        return len(self._texts)

    def pieces(self, entries: dict[str, E]) -> Iterator[bytes]:
        """Yield the entries as an indented map, piece by piece."""
        line_break = self._line_break.encode()
        known = self._texts
        texts: dict[str, tuple[E, bytes]] = {}
        piece: list[bytes] = []
        before = b"{" + line_break
        for name, entry in entries.items():
            text = known.get(name)
            if text is not None and text[0] is entry:
                texts[name] = text
                piece.append(text[1])
            elif (quick := self._quick_member(name, entry)) is not None:
                piece.append(quick)
            else:
                texts[name] = (entry, self._member(name, entry))
                piece.append(texts[name][1])
            if len(piece) == ENTRIES_A_PIECE:
                yield before + (b"," + line_break).join(piece)
                before = b"," + line_break
                piece.clear()
        self._texts = texts
        if piece or not entries:
            yield before + (b"," + line_break).join(piece)
        yield line_break[:-1] + b"}"


class TableSnapshot(NamedTuple, Generic[T]):
    """A snapshot of a table, to be written to the file.

    Attributes:
        number: Increases from snapshot to snapshot.
        edits: How many edits of the table it includes.
        staged: The last staged change that it includes.
        staged_ms: When that was staged.
    """

    number: int
    edits: int
    staged: int
    staged_ms: int
    table: T


class ConfigManager(ABC, Generic[T]):
    """A table that is kept in a file.

    Args:
        file: Its file.
        clock: The time, for versions.

    Attributes:
        data_version: Counts the changes.
    """

    def __init__(self, file: ConfigFile[T], clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self.data_version = DataVersion(timestamp_ms=clock.now_ms())
        self._log_limiter = LogLimiter(clock)
        self._edits = 1
        self._written_edits = 0
        self._snapshots = 0
        self._written_snapshot = 0
        self._staged = 0
        self._staged_ms = 0
        # The loop and a job's thread may write at the same time.
        self._write_lock = threading.Lock()

    @abstractmethod
    def _take(self, loaded: T) -> bool:
        """Apply the content of the file; return whether the table now has more than that."""

    @abstractmethod
    def _snapshot(self) -> T:
        """The table at this moment; entries may be shared, as they are never modified."""

    @abstractmethod
    def _pieces(self, snapshot: T) -> Iterable[bytes]:
        """The text of the file; in several pieces if it may be large."""

    def load(self) -> ConfigError | None:
        """Read the file.

        Returns:
            The fault of the file, if its backup was used.

        Raises:
            ConfigError: Neither the file nor its backup is usable.
            StoreError: The file cannot be read.
        """
        loaded = self._file.load()
        if loaded is None:
            return None
        has_more = self._take(loaded.value)
        if not has_more and loaded.problem is None:
            self._written_edits = self._edits
        return loaded.problem

    def persist(self) -> None:
        """Write the file, if anything changed since it was last written.

        Raises:
            StoreError: It could not be written; the next call retries.
        """
        job = self.begin_persist()
        if job is not None:
            job()

    def begin_persist(self) -> Callable[[], None] | None:
        """Take a snapshot of the table; return a function that writes it, in any thread.

        A change counts as written only when that is done, so nothing is lost if it never runs.

        Returns:
            The work of :meth:`persist`, or None if nothing changed.
        """
        return partial(self._write, self._new_snapshot()) if self._is_dirty() else None

    def _is_dirty(self) -> bool:
        """Whether there are changes that are not in the file."""
        return self._edits != self._written_edits

    def _new_snapshot(self) -> TableSnapshot[T]:
        self._snapshots += 1
        return TableSnapshot(
            self._snapshots, self._edits, self._staged, self._staged_ms, self._snapshot()
        )

    def _write(self, snapshot: TableSnapshot[T]) -> None:
        with self._write_lock:
            if snapshot.number > self._written_snapshot:
                self._file.save_pieces(self._pieces(snapshot.table))
                self._written_snapshot = snapshot.number
                self._written_edits = snapshot.edits

    def _adopt_version(self, version: DataVersion | None) -> None:
        """Note that the table is now a copy of another broker's, with that broker's version."""
        if version is not None:
            self.data_version = msgspec.structs.replace(version)
        self._edits += 1

    def _bump(self) -> None:
        version = self.data_version
        version.counter += 1
        version.timestamp_ms = self._clock.now_ms()
        self._edits += 1


class SettingsManager(ConfigManager[T]):
    """A table of settings that reports its changes.

    Attributes:
        changed: Called after every change.
    """

    def __init__(self, file: ConfigFile[T], clock: Clock) -> None:
        super().__init__(file, clock)
        self.changed: list[Callable[[], None]] = []

    def tell_changed(self) -> None:
        """Call all listeners for changes."""
        for listener in self.changed:
            listener()
