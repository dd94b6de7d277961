"""A Delta Lake table as a target of ``archive``.

Files are in Hive-style partitions, ``topic=Orders/day=2026-11-15/``. How far a broker's log is
archived is the version of an application transaction, which is part of each commit; the rules of
the archive are a property of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from roquet.errors import SparkError, SparkOptionError
from roquet.runtime.clock import SystemClock
from roquet.spark.jobs.lake import MANIFEST, NO_DAY, STREAM_METADATA, FileEntry, Lake
from roquet.spark.jobs.tables import (
    COMMITS_MAX,
    LakeTable,
    TableFile,
    TableNote,
    commit_failed,
    table_schema,
)

__all__ = ["DeltaLakeTable"]

_PARTITIONS = ["topic", "day"]
_READER_VERSION_MAX = 1
"""Higher versions may use deletion vectors or column mapping."""


def _key(broker_name: str) -> str:
    return f"roquet.archive.{broker_name}"


class DeltaLakeTable(LakeTable):
    """A Delta table at a folder or URI.

    Raises:
        SparkOptionError: The address has a lake of plain Parquet files.
    """

    folder = ""
    has_partition_columns = False

    def __init__(self, address: str) -> None:
        self.place = Lake(address)
        self.name = self.place.name
        self._uri = address if "://" in address else self.place.base
        if self.place.has(MANIFEST) or self.place.has(STREAM_METADATA):
            raise SparkOptionError(
                f"{self.name} is a lake of Parquet files, and no Delta table.",
                hint="Use another address for the table, or omit the format.",
            )

    def exists(self) -> bool:
        """Whether the table exists."""
        return DeltaTable.is_deltatable(self._uri)

    def create(self) -> None:
        """Create the empty table if it does not exist."""
        with suppress(CommitFailedError):  # another run has created it meanwhile
            DeltaTable.create(
                self._uri,
                table_schema(),
                mode="ignore",
                partition_by=_PARTITIONS,
                name="messages",
                description="Messages of brokers, as archived from their logs.",
            )

    def note(self, broker_name: str) -> TableNote | None:
        """Return the note on a broker's archive."""
        found = self._open().metadata().configuration.get(_key(broker_name))
        return None if found is None else msgspec.json.decode(found, type=TableNote)

    def stop(self, broker_name: str) -> int | None:
        """Return the physical offset up to which the table has a broker's log."""
        return self._open().transaction_version(_key(broker_name))

    def write_note(self, broker_name: str, note: TableNote) -> None:
        """Record the rules of a broker's archive."""
        text = msgspec.json.encode(note).decode()
        for left in reversed(range(COMMITS_MAX)):
            try:
                self._open().alter.set_table_properties(
                    {_key(broker_name): text}, raise_if_not_exists=False
                )
                return
            except CommitFailedError as error:
                if not left:
                    raise commit_failed(self.name, str(error)) from None

    def try_commit(
        self, broker_name: str, reached: int | None, stop: int, files: Sequence[FileEntry]
    ) -> Exception | None:
        """Add files and the offset that they reach."""
        table = self._open()
        self.check_reached(table.transaction_version(_key(broker_name)), reached)
        now_ms = SystemClock().now_ms()
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                path=entry.path,
                size=entry.size_bytes,
                partition_values={
                    "topic": entry.topic,
                    "day": None if entry.day == NO_DAY else entry.day,
                },
                modification_time=now_ms,
                data_change=True,
                stats=_stats(entry),
            )
            for entry in files
        ]
        mark = Transaction(_key(broker_name), stop)
        try:
            table.create_write_transaction(
                actions,
                mode="append",
                schema=table_schema(),
                partition_by=_PARTITIONS,
                commit_properties=CommitProperties(
                    custom_metadata={"roquet": f"{broker_name} up to {stop}"},
                    app_transactions=[mark],
                ),
            )
        except CommitFailedError as error:
            return error
        return None

    def files(self) -> list[TableFile]:
        """Return all files of the newest version."""
        table = self._open()
        if table.protocol().min_reader_version > _READER_VERSION_MAX:
            raise SparkError(
                f"{self.name} needs a newer reader than this one.",
                detail=f"it needs readers of version {table.protocol().min_reader_version}",
                hint="Deletion vectors and column mapping must be off.",
            )
        actions = pa.table(table.get_add_actions(flatten=True))
        wanted = actions.select(["path", "partition.topic", "partition.day"])
        return [
            TableFile(unquote(row["path"]), row["partition.topic"], row["partition.day"])
            for row in wanted.to_pylist()
        ]

    def _open(self) -> DeltaTable:
        """Open the newest version."""
        try:
            return DeltaTable(self._uri)
        except TableNotFoundError as error:
            raise SparkOptionError(
                f"There is no Delta table at {self.name}.",
                detail=str(error),
                hint="archive creates it.",
            ) from None


def _stats(entry: FileEntry) -> str:
    """Return the statistics of a file that readers use without opening it."""
    return msgspec.json.encode(
        {
            "numRecords": entry.rows,
            "minValues": {"physicalOffset": entry.first_physical_offset},
            "maxValues": {"physicalOffset": entry.last_physical_offset},
            "nullCount": {"physicalOffset": 0},
        }
    ).decode()
