"""Delta Lake and Apache Iceberg tables, which ``archive`` can write instead of plain Parquet.

Workers write Parquet files as for a lake; the driver then commits them to the table, all files of a
step together with the physical offset that they reach. Only the table records how far it is: a run
that was killed before its commit leaves files that nobody reads, and the next run starts where the
last commit ended. So each message is in the table exactly once.

The Python packages ``deltalake`` and ``pyiceberg`` make the commits. They need no classes in
Spark's JVM, so they work with every version of Spark.

Invariants:

* A file is named after its range of the log and its writer, and is never replaced.
* Two runs for the same broker cannot both add the same range: a commit builds on a version of the
  table that it has checked, and the format refuses it if there is a newer one that concerns it.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import pyarrow as pa
from msgspec import Struct

from roquet.errors import SparkError, SparkMissing, SparkOptionError
from roquet.spark.jobs.lake import ArchiveRules, FileEntry, Lake
from roquet.spark.schema import COLUMNS, arrow_schema, struct_type

__all__ = [
    "TABLE_FORMATS",
    "LakeTable",
    "TableFile",
    "TableNote",
    "commit_failed",
    "open_table",
    "table_schema",
]

TABLE_FORMATS: dict[str, tuple[str, str, str]] = {
    "delta": ("roquet.spark.jobs.delta_table", "DeltaLakeTable", "deltalake"),
    "iceberg": ("roquet.spark.jobs.iceberg_table", "IcebergTable", "pyiceberg"),
}
"""By format: the module and class of the table, and the package that it needs."""


COMMITS_MAX = 50
"""How often a commit is tried while others come first."""


class TableNote(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a table records about a broker's archive.

    Attributes:
        rules: Which messages it takes.
        start: The physical offset at which the first run started.
    """

    rules: ArchiveRules
    start: int


class TableFile(NamedTuple):
    """A Parquet file of a table.

    Attributes:
        path: The path below the table's address.
        topic: The topic of all messages; ``None`` if the file has a column for it.
        day: Likewise the day.
    """

    path: str
    topic: str | None
    day: str | None


class LakeTable(ABC):
    """A table at an address.

    Attributes:
        name: Its address for people.
        place: Where its files are written; known once the table exists.
        folder: Their folder below ``place``.
        has_partition_columns: Whether files have columns for topic and day.
    """

    folder: ClassVar[str]
    has_partition_columns: ClassVar[bool]
    name: str
    place: Lake

    @abstractmethod
    def exists(self) -> bool:
        """Whether the table exists."""

    @abstractmethod
    def create(self) -> None:
        """Create the empty table if it does not exist."""

    @abstractmethod
    def note(self, broker_name: str) -> TableNote | None:
        """Return the note on a broker's archive; ``None`` if there is none yet."""

    @abstractmethod
    def stop(self, broker_name: str) -> int | None:
        """Return the physical offset up to which the table has a broker's log."""

    @abstractmethod
    def write_note(self, broker_name: str, note: TableNote) -> None:
        """Record the rules of a broker's archive."""

    def commit(
        self, broker_name: str, reached: int | None, stop: int, files: Sequence[FileEntry]
    ) -> None:
        """Add files and the offset that they reach, atomically.

        A commit that lost against one of another broker, or of maintenance, is tried again.

        Args:
            broker_name: Whose log it is.
            reached: The offset up to which the table must have the log until now.
            stop: The offset up to which it has it then.
            files: The files, all of them written.

        Raises:
            SparkError: Another run for the same broker committed first.
        """
        conflict: Exception | None = None
        for _ in range(COMMITS_MAX):
            conflict = self.try_commit(broker_name, reached, stop, files)
            if conflict is None:
                return
        raise commit_failed(self.name, str(conflict))

    @abstractmethod
    def try_commit(
        self, broker_name: str, reached: int | None, stop: int, files: Sequence[FileEntry]
    ) -> Exception | None:
        """Do :meth:`commit` once; return why another commit that came first prevented it.

        Raises:
            SparkError: Another run for the same broker committed first.
        """

    def check_reached(self, found: int | None, reached: int | None) -> None:
        """Check how far the version of the table is on which a commit builds.

        Raises:
            SparkError: Another run for the same broker committed first.
        """
        if found != reached:
            raise commit_failed(self.name, f"the table is at {found}, this run began at {reached}")

    @abstractmethod
    def files(self) -> list[TableFile]:
        """Return all files of the newest version.

        Raises:
            SparkError: The files alone do not determine its rows.
        """


def open_table(lake_format: str, address: str) -> LakeTable:
    """Return the table at an address; it may not exist yet.

    Args:
        lake_format: One of :data:`TABLE_FORMATS`.
        address: A folder or URI for Delta, ``CATALOG.NAMESPACE.TABLE`` for Iceberg.

    Raises:
        SparkOptionError: The format is unknown, or the address invalid.
        SparkMissing: The package that it needs is not installed.
    """
    if lake_format not in TABLE_FORMATS:
        raise SparkOptionError(
            f"{lake_format!r} is not a supported table format.",
            hint=f"Use one of: {', '.join(TABLE_FORMATS)}.",
        )
    module, name, package = TABLE_FORMATS[lake_format]
    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise SparkMissing(
            f"Tables of the format {lake_format} need the package {package}.",
            detail=str(error),
            hint=f"Install it where the command runs: pip install 'roquet[{lake_format}]'",
        ) from None
    table = found(address)
    assert isinstance(table, LakeTable), f"{name} is no table"
    return table


def table_schema() -> pa.Schema:
    """Return the columns of a table: those of the sources, and the day."""
    return arrow_schema(struct_type(COLUMNS).add("day", "string"))


def commit_failed(name: str, detail: str) -> SparkError:
    """Return the error for a commit that lost against another one."""
    return SparkError(
        f"Another change of {name} came first, so nothing was committed.",
        detail=detail,
        hint="Let one archive run for each broker, and run it again: it continues from there.",
    )
