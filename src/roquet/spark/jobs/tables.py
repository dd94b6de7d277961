"""Tables of Delta Lake and of Apache Iceberg, which ``archive`` can write instead of plain Parquet.

Workers write Parquet files as they do for a lake; the driver then commits them to the table, all
files of a step with the physical offset up to which the log is in it. How far a table is, is told
by the table alone: a run that was killed before its commit left files that nobody reads, and the
next begins where the last commit ended. So a message is there once, whatever came between.

The commits are made by the Python packages ``deltalake`` and ``pyiceberg``, which need no classes
in Spark's own process and so work with every version of Spark.

Invariants:

* A file is named by the range of the log that it holds. What is committed is never written again
  with other messages.
* Two runs for the same broker cannot both add the same range: one of them fails.
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
    "Note",
    "TableFile",
    "commit_failed",
    "open_table",
    "table_schema",
]

TABLE_FORMATS: dict[str, tuple[str, str, str]] = {
    "delta": ("roquet.spark.jobs.delta_table", "DeltaLakeTable", "deltalake"),
    "iceberg": ("roquet.spark.jobs.iceberg_table", "IcebergTable", "pyiceberg"),
}
"""By name: the module and the class of a target, and the package that it needs."""


class Note(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a table notes of a broker.

    Attributes:
        rules: Which messages it takes.
        start: Physical offset at which its first run began.
    """

    rules: ArchiveRules
    start: int


class TableFile(NamedTuple):
    """A Parquet file of a table.

    Attributes:
        path: Below the table's own address.
        topic: Of all its messages; ``None`` if the file has a column for that.
        day: As ``topic``.
    """

    path: str
    topic: str | None
    day: str | None


class LakeTable(ABC):
    """A table at an address.

    Attributes:
        place: Where its files are put; known once it exists.
        folder: Below ``place``.
        has_partition_columns: Whether files have columns for topic and day, too.
    """

    folder: ClassVar[str]
    has_partition_columns: ClassVar[bool]
    place: Lake

    @abstractmethod
    def exists(self) -> bool:
        """Whether it is there."""

    @abstractmethod
    def create(self) -> None:
        """Make it, empty, if it is not there."""

    @abstractmethod
    def note(self, broker_name: str) -> Note | None:
        """What was asked of the archive of a broker; ``None`` if there is none yet."""

    @abstractmethod
    def stop(self, broker_name: str) -> int | None:
        """The physical offset up to which it has the log of a broker."""

    @abstractmethod
    def write_note(self, broker_name: str, note: Note) -> None:
        """Fix what is asked of the archive of a broker."""

    @abstractmethod
    def commit(self, broker_name: str, stop: int, files: Sequence[FileEntry]) -> None:
        """Add files and the offset up to which they go, all or nothing.

        Raises:
            SparkError: Another one was quicker.
        """

    @abstractmethod
    def files(self) -> list[TableFile]:
        """All files of its newest version.

        Raises:
            SparkError: Its rows cannot be told from its files alone.
        """


def open_table(lake_format: str, address: str) -> LakeTable:
    """The table at an address, which may have to be created.

    Args:
        lake_format: One of :data:`TABLE_FORMATS`.
        address: Of a Delta table a folder or URI; of an Iceberg table ``CATALOG.NAMESPACE.TABLE``.

    Raises:
        SparkOptionError: There is no such format, or the address is none.
        SparkMissing: The package that it needs is not installed.
    """
    if lake_format not in TABLE_FORMATS:
        raise SparkOptionError(
            f"{lake_format!r} is no format of a table here.",
            hint=f"Take one of: {', '.join(TABLE_FORMATS)}.",
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
    """The columns of a table: those of the sources, and the day."""
    return arrow_schema(struct_type(COLUMNS).add("day", "string"))


def commit_failed(address: str, error: Exception) -> SparkError:
    """What is said when another one was quicker."""
    return SparkError(
        f"Another change of {address} came first, so nothing was committed.",
        detail=str(error),
        hint="Let one archive run for each broker, and run it again: it goes on where it was.",
    )
