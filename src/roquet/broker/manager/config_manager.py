"""A table of the broker that is kept in a file: loading, saving, versions, all-or-nothing changes.

Owns what the tables of topics, groups and offsets have in common, as upstream's ``ConfigManager``
does: the files ``<store root>/config/<name>.json`` and the :class:`DataVersion` by which slaves and
name servers see that they have an old copy.

Invariants:

* A change that somebody asked for is in the file before the call returns; if it cannot be
  written, nothing changed. Upstream logs the failure and goes on.
* A change that the broker makes by itself so that somebody can go on reading is kept in memory
  if it cannot be written, and every later save tries again.
* Entries of a table are replaced, never altered in place, so that a copy of the table is a
  picture of one moment, which another thread may write.
* Of two pictures the older never replaces the newer in the file.

Everything is called on the event loop, except the jobs of :meth:`ConfigManager.begin_persist`.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from roquet.errors import ConfigError, StoreError
from roquet.format.config_files import decode_table
from roquet.model.data_version import DataVersion
from roquet.model.fastjson import WritableJson, dumps
from roquet.remoting.endpoint import LogLimiter
from roquet.runtime.clock import Clock
from roquet.runtime.config_file import ConfigFile

__all__ = [
    "ConfigManager",
    "EntryTexts",
    "SettingsManager",
    "config_path",
    "decode_table",
    "merge",
    "pretty",
    "restorer",
]

log = logging.getLogger(__name__)

CONFIG_DIRECTORY = "config"

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


def config_path(store_root: str, name: str) -> Path:
    """Where a table is kept."""
    return Path(store_root) / CONFIG_DIRECTORY / name


def pretty(value: WritableJson, *, level: int) -> str:
    """The text of a value that stands in a file at a level of TABs."""
    return dumps(value, pretty=True).replace("\n", "\n" + "\t" * level)


def merge(table: dict[K, V], loaded: dict[K, V]) -> bool:
    """Let what was loaded win over what ``table`` has; whether that has more than was loaded."""
    own = dict(table)
    table.clear()
    table.update(loaded)
    for key, value in own.items():
        table.setdefault(key, value)
    return len(table) > len(loaded)


def restorer(table: dict[K, V]) -> Callable[[], None]:
    """A function that puts back the entries that ``table`` has now."""
    saved = dict(table)

    def restore() -> None:
        table.clear()
        table.update(saved)

    return restore


class EntryTexts:
    """The texts of a table's entries, which are made again only for entries that changed.

    A broker may have thousands of topics, and each new one writes the file of all.

    Args:
        level: How deep the entries stand in the file.
        plain: Makes plain values of an entry.
    """

    def __init__(self, level: int, plain: Callable[[Struct], WritableJson]) -> None:
        self._line_break = "\n" + "\t" * level
        self._plain = plain
        self._texts: dict[str, tuple[bytes, str]] = {}

    def text(self, entries: dict[str, Struct]) -> str:
        """The entries as a pretty map."""
        texts: dict[str, tuple[bytes, str]] = {}
        for name, entry in entries.items():
            image = msgspec.json.encode(entry)
            known = self._texts.get(name)
            if known is None or known[0] != image:
                text = dumps(self._plain(entry), pretty=True).replace("\n", self._line_break)
                known = (image, f"{dumps(name)}:{text}")
            texts[name] = known
        self._texts = texts
        outer = self._line_break[:-1]
        inner = ("," + self._line_break).join(text for _, text in texts.values())
        return f"{{{self._line_break}{inner}{outer}}}"


class ConfigManager(ABC, Generic[T]):
    """A table that is kept in a file.

    Args:
        file: Where it is kept.
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
        # The loop and the thread of a job may both want to write.
        self._write_lock = threading.Lock()

    @abstractmethod
    def _take(self, loaded: T) -> bool:
        """Take over what the file held; whether the table has more than that now."""

    @abstractmethod
    def _picture(self) -> T:
        """The table at this moment; entries may be shared, as they are never altered."""

    @abstractmethod
    def _text(self, picture: T) -> str:
        """The text of the file."""

    def load(self) -> ConfigError | None:
        """Read the file.

        Returns:
            What is wrong with it, if its backup was used.

        Raises:
            ConfigError: Neither the file nor its backup can be used.
            StoreError: The file cannot be read.
        """
        loaded = self._file.load()
        if loaded is None:
            return None
        has_more = self._take(loaded.value)
        if not has_more and loaded.problem is None:
            self._written_edits = self._edits
        return loaded.problem

    def encode(self) -> str:
        """The text of the file, as upstream writes it."""
        with self._write_lock:
            return self._text(self._picture())

    def persist(self) -> None:
        """Write the file, if anything changed since it was last written.

        Raises:
            StoreError: It could not be written; the next call tries again.
        """
        job = self.begin_persist()
        if job is not None:
            job()

    def begin_persist(self) -> Callable[[], None] | None:
        """Take a picture of the table; the result writes it and may run in another thread.

        A change counts as written when the job is done, so one that never runs loses nothing.

        Returns:
            What :meth:`persist` would do, or None when nothing changed.
        """
        if self._edits == self._written_edits:
            return None
        return partial(self._write, self._edits, self._picture())

    def _write(self, edits: int, picture: T) -> None:
        with self._write_lock:
            if edits > self._written_edits:
                self._file.save(self._text(picture))
                self._written_edits = edits

    def _bump(self) -> None:
        version = self.data_version
        version.counter += 1
        version.timestamp_ms = self._clock.now_ms()
        self._edits += 1


class SettingsManager(ConfigManager[T]):
    """A table of settings: changes are all or nothing, and others hear of them.

    Attributes:
        changed: Called after every change.
    """

    def __init__(self, file: ConfigFile[T], clock: Clock) -> None:
        super().__init__(file, clock)
        self.changed: list[Callable[[], None]] = []

    @contextmanager
    def _changing(self, *restorers: Callable[[], None]) -> Iterator[None]:
        """Keep what the block changes, or put everything back."""
        version = self.data_version
        before = (version.counter, version.timestamp_ms)
        try:
            yield
            self._bump()
            self.persist()
        except BaseException:
            version.counter, version.timestamp_ms = before
            for restore in restorers:
                restore()
            # The file may hold already what was put back.
            self._edits += 1
            raise
        self._tell()

    def _keep_if_possible(self, what: str) -> None:
        """Keep a change that was just made to the table, at the latest with a later save."""
        self._bump()
        try:
            self.persist()
        except StoreError as error:
            more = self._log_limiter.allow("not kept")
            if more is not None:
                log.warning("%s is not yet in %s: %s%s", what, self._file.path.name, error, more)
        self._tell()

    def _tell(self) -> None:
        for listener in self.changed:
            listener()
