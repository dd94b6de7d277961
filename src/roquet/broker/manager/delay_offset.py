"""The delivery offset of each delay level, kept in ``delayOffset.json``.

Owns the table from delay level to queue offset: the next entry to be delivered from the level's
queue of SCHEDULE_TOPIC_XXXX. The file has upstream's layout.

Invariants:

* An offset is in the file only when the messages delivered before it are on disk. After a power
  failure messages may be delivered twice, but none is lost. Upstream writes the file without
  checking whether the log is behind.
* The file is written at intervals, not at each delivery, as upstream does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import msgspec

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.config_manager import ConfigManager, config_path, decode_table
from roquet.errors import StoreError
from roquet.model.data_version import DataVersion
from roquet.model.fastjson import WritableJson, dumps
from roquet.remoting.bodies.offset import DelayOffsetSerializeWrapper
from roquet.runtime.clock import Clock
from roquet.runtime.config_file import ConfigFile
from roquet.runtime.files import Files

__all__ = ["DelayOffsetManager"]

VERSION_STEP = 200
"""Deliveries per version increment; upstream's delayOffsetUpdateVersionStep."""

_FILE_NAME = "delayOffset.json"


def _decode(text: str) -> DelayOffsetSerializeWrapper:
    return decode_table(DelayOffsetSerializeWrapper, text)


class DelayOffsetManager(ConfigManager[DelayOffsetSerializeWrapper]):
    """The offsets of the delay levels.

    Args:
        file: Their file; see :meth:`at`.
        clock: The time.
        flush: Flushes the log and returns the flushed offset; called in the thread that writes the
            file.

    Attributes:
        table: Queue offsets by delay level; read only.
    """

    def __init__(
        self,
        file: ConfigFile[DelayOffsetSerializeWrapper],
        clock: Clock,
        *,
        flush: Callable[[], int],
    ) -> None:
        super().__init__(file, clock)
        self.table: dict[int, int] = {}
        self._flush = flush
        self._delivered_offset = 0
        self._updates = 0

    @classmethod
    def at(
        cls, config: BrokerConfig, files: Files, clock: Clock, *, flush: Callable[[], int]
    ) -> DelayOffsetManager:
        """Return the offsets in the store of ``config``."""
        file = ConfigFile(config_path(config.store_root, _FILE_NAME), files, decode=_decode)
        return cls(file, clock, flush=flush)

    def query(self, level: int) -> int:
        """Return the next offset of a level."""
        return self.table.get(level, 0)

    def update(
        self, level: int, queue_offset: int, *, delivered_offset: int = 0, messages: int = 1
    ) -> None:
        """Set the next offset of a level.

        Args:
            level: The delay level.
            queue_offset: The next entry to be delivered.
            delivered_offset: The physical end of the last delivered message.
            messages: How many were delivered, for the version.
        """
        self.table[level] = queue_offset
        self._delivered_offset = max(self._delivered_offset, delivered_offset)
        steps = self._updates // VERSION_STEP
        self._updates += messages
        self._edits += 1
        if self._updates // VERSION_STEP > steps:
            self._bump()

    def adopt(
        self, table: Mapping[int, int], version: DataVersion | None, *, master_offset: int
    ) -> None:
        """Become a copy of a master's table.

        Args:
            table: Its offsets.
            version: Its version.
            master_offset: Where the master's log ended at that time or later; the file is written
                once the log here is on disk up to that offset.
        """
        self.table.clear()
        self.table.update(table)
        self._delivered_offset = max(self._delivered_offset, master_offset)
        self._adopt_version(version)

    def begin_persist(self) -> Callable[[], None] | None:
        """Take a snapshot of the table; the result flushes the log, then writes the snapshot."""
        write = super().begin_persist()
        return None if write is None else partial(self._write_behind, self._delivered_offset, write)

    def _write_behind(self, physical_offset: int, write: Callable[[], None]) -> None:
        flushed_offset = self._flush()
        if flushed_offset < physical_offset:
            raise StoreError(
                f"{_FILE_NAME} was not written: the log is not on disk.",
                detail=f"flushed up to {flushed_offset}, messages end at {physical_offset}",
            )
        write()

    def _take(self, loaded: DelayOffsetSerializeWrapper) -> bool:
        self.table.update(loaded.offset_table)
        if loaded.data_version is not None:
            self.data_version = loaded.data_version
        return False

    def _snapshot(self) -> DelayOffsetSerializeWrapper:
        return DelayOffsetSerializeWrapper(
            data_version=msgspec.structs.replace(self.data_version), offset_table=dict(self.table)
        )

    def _pieces(self, snapshot: DelayOffsetSerializeWrapper) -> Iterable[bytes]:
        file: dict[str, WritableJson] = {
            "dataVersion": msgspec.to_builtins(snapshot.data_version),
            "offsetTable": snapshot.offset_table,
        }
        return (dumps(file, pretty=True).encode(),)
