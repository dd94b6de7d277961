"""An Apache Iceberg table as a target of ``archive``.

``pyiceberg`` finds the catalog by ``.pyiceberg.yaml`` or variables such as
``PYICEBERG_CATALOG__NAME__URI``. How far a broker's log is archived, and the rules of the archive,
are properties of the table; the former changes in the commit that adds files.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property

import msgspec
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table, TableProperties

from roquet.errors import SparkError, SparkOptionError
from roquet.spark.jobs.lake import FileEntry, Lake
from roquet.spark.jobs.tables import (
    COMMITS_MAX,
    LakeTable,
    TableFile,
    TableNote,
    commit_failed,
    table_schema,
)

__all__ = ["IcebergTable"]


def _key(broker_name: str) -> str:
    return f"roquet.archive.{broker_name}"


def _stop_key(broker_name: str) -> str:
    return f"{_key(broker_name)}.stop"


class IcebergTable(LakeTable):
    """An Iceberg table by its name ``CATALOG.NAMESPACE.TABLE``.

    Raises:
        SparkOptionError: The name is invalid, or the catalog unknown.
    """

    folder = "data"
    has_partition_columns = True

    def __init__(self, address: str) -> None:
        catalog, _, name = address.partition(".")
        if "/" in address or not catalog or "." not in name.strip("."):
            raise SparkOptionError(
                f"{address!r} is not the name of an Iceberg table.",
                hint="Name it CATALOG.NAMESPACE.TABLE; the catalog is one of .pyiceberg.yaml.",
            )
        self.name = address
        self._table_name = name
        try:
            self._catalog: Catalog = load_catalog(catalog)
        except (ValueError, TypeError) as error:
            raise SparkOptionError(
                f"The catalog {catalog!r} is not known.",
                detail=str(error),
                hint="Describe it in .pyiceberg.yaml, or set "
                f"PYICEBERG_CATALOG__{catalog.upper()}__URI.",
            ) from None

    @cached_property
    def place(self) -> Lake:  # type: ignore[override]
        """Where its files are written."""
        return Lake(self._open().location())

    def exists(self) -> bool:
        """Whether the table exists."""
        return self._catalog.table_exists(self._table_name)

    def create(self) -> None:
        """Create the empty table if it does not exist."""
        if self.exists():
            return
        self._catalog.create_namespace_if_not_exists(self._table_name.rpartition(".")[0])
        # Another run may create it meanwhile; it is never there without its partitions.
        with (
            suppress(TableAlreadyExistsError, CommitFailedException),
            self._catalog.create_table_transaction(self._table_name, table_schema()) as change,
            change.update_spec() as spec,
        ):
            spec.add_identity("topic")
            spec.add_identity("day")

    def note(self, broker_name: str) -> TableNote | None:
        """Return the note on a broker's archive."""
        found = self._open().properties.get(_key(broker_name))
        return None if found is None else msgspec.json.decode(found, type=TableNote)

    def stop(self, broker_name: str) -> int | None:
        """Return the physical offset up to which the table has a broker's log."""
        found = self._open().properties.get(_stop_key(broker_name))
        return None if found is None else int(found)

    def write_note(self, broker_name: str, note: TableNote) -> None:
        """Record the rules of a broker's archive."""
        text = msgspec.json.encode(note).decode()
        for left in reversed(range(COMMITS_MAX)):
            try:
                with self._open().transaction() as change:
                    change.set_properties({_key(broker_name): text})
                return
            except CommitFailedException as error:
                if not left:
                    raise commit_failed(self.name, str(error)) from None

    def try_commit(
        self, broker_name: str, reached: int | None, stop: int, files: Sequence[FileEntry]
    ) -> Exception | None:
        """Add files and the offset that they reach."""
        table = self._open()
        found = table.properties.get(_stop_key(broker_name))
        self.check_reached(None if found is None else int(found), reached)
        # A retry inside would not look again at how far the table is.
        table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
        location = table.location().rstrip("/")
        try:
            with table.transaction() as change:
                if files:
                    change.add_files([f"{location}/{each.path}" for each in files])
                change.set_properties({_stop_key(broker_name): str(stop)})
        except CommitFailedException as error:
            return error
        return None

    def files(self) -> list[TableFile]:
        """Return all files of the newest version."""
        table = self._open()
        location = table.location().rstrip("/") + "/"
        found = []
        for task in table.scan().plan_files():
            path = task.file.file_path
            if task.delete_files or not path.startswith(location):
                raise SparkError(
                    f"The files of {self.name} alone do not determine its rows.",
                    detail=f"{posixpath.basename(path)} has deleted rows or is elsewhere",
                    hint="Rewrite its files: rewrite_data_files of Iceberg does that.",
                )
            found.append(TableFile(path.removeprefix(location), None, None))
        return found

    def _open(self) -> Table:
        """Open the newest version."""
        try:
            return self._catalog.load_table(self._table_name)
        except NoSuchTableError as error:
            raise SparkOptionError(
                f"There is no Iceberg table {self.name}.",
                detail=str(error),
                hint="archive creates it.",
            ) from None
