"""The lake: Parquet files of messages, and manifests that say what they hold.

Layout below the lake's address:

.. code-block:: text

    topic=Orders/day=2026-11-15/part-broker-a-00000000000000000000.parquet
    _manifest/broker-a/archive.json                    which messages this lake takes
    _manifest/broker-a/00000000000000000000.json       one for each range of the log

Any Parquet reader reads it: topic and day are Hive's partitions, and what begins with ``_`` or
``.`` is passed over. :func:`read_lake` gives the columns of the sources with their types.

Invariants:

* Ranges of a broker follow each other without gap or overlap, but for what its log had lost. Files
  and manifest of a range are named by the physical offset of its start, so that writing it again
  replaces it. Only the newest range may grow; it is written again as a whole, under its name.
* A manifest is published after the files it names, each by a rename; a file that no manifest names
  is of a run that was killed, and has the name under which the next run replaces it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from msgspec import Struct, field

from roquet.errors import SparkError, SparkOptionError
from roquet.spark.schema import COLUMNS, struct_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "MANIFEST",
    "STREAM_METADATA",
    "ArchiveRules",
    "FileEntry",
    "Lake",
    "RangeManifest",
    "crc_sum",
    "file_name",
    "is_file_of",
    "partition_path",
    "read_lake",
    "read_lake_files",
]

M = TypeVar("M", bound=Struct)

MANIFEST = "_manifest"
STREAM_METADATA = "_spark_metadata"
"""Spark's own list of the files that a stream wrote; where it is, Spark reads no others."""

_RULES = "archive.json"

# What Spark writes as %XX in the name of a partition, so that it reads the same text back.
_PLAIN = " !$&()+,-.;@_`~|<>"


class FileEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """One Parquet file.

    Attributes:
        path: Below the lake's address.
        topic: The topic of its messages.
        day: The day (UTC) on which they were stored.
        rows: How many there are.
        crc_sum: The sum of their bodies' checksums, which does not depend on their order.
        first_physical_offset: Of the first in the log.
        last_physical_offset: Of the last in the log.
    """

    path: str
    topic: str
    day: str
    rows: int
    crc_sum: int
    first_physical_offset: int
    last_physical_offset: int


class RangeManifest(Struct, frozen=True, kw_only=True, rename="camel"):
    """A range of a broker's log that is in the lake.

    Attributes:
        broker_name: Whose log.
        start: Physical offset of its first record.
        stop: Physical offset behind its last.
        is_complete: Whether it will not grow.
        files: What holds its messages.
    """

    broker_name: str
    start: int
    stop: int
    is_complete: bool
    files: list[FileEntry] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """How many messages it has."""
        return sum(each.rows for each in self.files)


class ArchiveRules(Struct, frozen=True, kw_only=True, rename="camel"):
    """Which messages of a broker the lake takes; the same for all its ranges.

    Attributes:
        topics: Names of topics; empty for all.
        decompress: Whether bodies are as they were before compression.
    """

    topics: list[str] = field(default_factory=list)
    decompress: bool = True


class Lake:
    """A lake at an address: a folder, or a URI that pyarrow knows (``s3://``, ``hdfs://``, …).

    Raises:
        SparkOptionError: Nothing can be reached by such an address.
    """

    def __init__(self, address: str) -> None:
        try:
            if "://" in address:
                self.filesystem, self.base = pafs.FileSystem.from_uri(address)
            else:
                self.filesystem = pafs.LocalFileSystem()
                self.base = posixpath.abspath(address)
        except (OSError, ValueError) as error:
            raise SparkOptionError(
                f"{address!r} is no place for a lake.",
                detail=str(error),
                hint="Name a folder, or a URI such as s3://bucket/path.",
            ) from None
        self.address = address

    def path(self, *parts: str) -> str:
        """A path of the file system, from one below the lake's address."""
        return posixpath.join(self.base, *parts)

    # ------------------------------------------------------------------------------- manifests

    def rules(self, broker_name: str) -> ArchiveRules | None:
        """What was asked of the archive of a broker; ``None`` if there is none yet."""
        data = self._read(MANIFEST, quote(broker_name, safe=""), _RULES)
        return None if data is None else _decoded(data, ArchiveRules, _RULES)

    def write_rules(self, broker_name: str, rules: ArchiveRules) -> None:
        """Fix what is asked of the archive of a broker."""
        self.publish(msgspec.json.encode(rules), MANIFEST, quote(broker_name, safe=""), _RULES)

    def manifests(self, broker_name: str) -> list[RangeManifest]:
        """The ranges of a broker's log, in order."""
        found = (self._manifest(broker_name, name) for name in self._manifest_names(broker_name))
        return [each for each in found if each is not None]

    def newest(self, broker_name: str) -> tuple[int, RangeManifest | None]:
        """How many ranges there are, and the newest, without a look at the others."""
        names = self._manifest_names(broker_name)
        return len(names), self._manifest(broker_name, names[-1]) if names else None

    def _manifest_names(self, broker_name: str) -> list[str]:
        folder = self.path(MANIFEST, quote(broker_name, safe=""))
        selector = pafs.FileSelector(folder, allow_not_found=True)
        return sorted(
            info.base_name
            for info in self.filesystem.get_file_info(selector)
            if info.is_file and info.base_name != _RULES and info.base_name.endswith(".json")
        )

    def _manifest(self, broker_name: str, name: str) -> RangeManifest | None:
        data = self._read(MANIFEST, quote(broker_name, safe=""), name)
        return None if data is None else _decoded(data, RangeManifest, name)

    def broker_names(self) -> Iterator[str]:
        """The brokers whose logs are in the lake."""
        selector = pafs.FileSelector(self.path(MANIFEST), allow_not_found=True)
        for info in self.filesystem.get_file_info(selector):
            if info.type is pafs.FileType.Directory:
                yield unquote(info.base_name)

    def write_manifest(self, manifest: RangeManifest) -> None:
        """Publish the manifest of a range."""
        data = msgspec.json.format(msgspec.json.encode(manifest))
        self.publish(data, self.manifest_path(manifest))

    def manifest_path(self, manifest: RangeManifest) -> str:
        """Where the manifest of a range is, below the lake's address."""
        broker = quote(manifest.broker_name, safe="")
        return posixpath.join(MANIFEST, broker, f"{manifest.start:020d}.json")

    # ----------------------------------------------------------------------------------- files

    def publish(self, data: bytes, *parts: str) -> None:
        """Write a small file, so that it is there as a whole or not at all."""
        final = self.path(*parts)
        folder, name = posixpath.split(final)
        self.filesystem.create_dir(folder)
        made = posixpath.join(folder, f".{name}.tmp")
        with self.filesystem.open_output_stream(made) as stream:
            stream.write(data)
        self.filesystem.move(made, final)

    def has(self, *parts: str) -> bool:
        """Whether a file is there."""
        info = self.filesystem.get_file_info(self.path(*parts))
        return info.type is not pafs.FileType.NotFound

    def _read(self, *parts: str) -> bytes | None:
        try:
            with self.filesystem.open_input_stream(self.path(*parts)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None


def _decoded(data: bytes, kind: type[M], name: str) -> M:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise SparkError(
            f"The manifest {name} of the lake cannot be read.",
            detail=str(error),
            hint="Remove it and run archive again: its range is written anew.",
        ) from None


def partition_path(topic: str, day: str) -> str:
    """The folder of a topic's day.

    Example:
        >>> partition_path("%RETRY%g", "2026-11-15")
        'topic=%25RETRY%25g/day=2026-11-15'
    """
    return f"topic={quote(topic, safe=_PLAIN)}/day={day}"


def file_name(broker_name: str, start: int) -> str:
    """The name of the files of a range.

    Example:
        >>> file_name("broker-a", 7)
        'part-broker-a-00000000000000000007.parquet'
    """
    return f"part-{quote(broker_name, safe='')}-{start:020d}.parquet"


def is_file_of(broker_name: str, name: str) -> bool:
    """Whether a file of that name has messages of a broker."""
    start = name.removesuffix(".parquet").rpartition("-")[2]
    return start.isdecimal() and name == file_name(broker_name, int(start))


def crc_sum(rows: pa.RecordBatch | pa.Table) -> int:
    """The sum of the checksums of bodies; Spark's int is signed, a checksum is not."""
    crcs = pc.bit_wise_and(rows.column("bodyCrc").cast(pa.int64()), pa.scalar(0xFFFFFFFF))
    total: int | None = pc.sum(crcs).as_py()
    return total or 0


def read_lake(spark: SparkSession, lake: str) -> DataFrame:
    """The messages of a lake, with the columns of the sources and ``day``."""
    return spark.read.schema(_schema()).parquet(lake)


def read_lake_files(spark: SparkSession, lake: str, paths: Sequence[str]) -> DataFrame:
    """The messages of some files of a lake, as :func:`read_lake` gives them.

    Args:
        spark: The session.
        lake: Where the lake is.
        paths: Of the files, below the lake's address; one at least.
    """
    base = lake.rstrip("/")
    reader = spark.read.schema(_schema()).option("basePath", base)
    return reader.parquet(*(f"{base}/{path}" for path in paths))


def _schema() -> StructType:
    return struct_type(COLUMNS).add("day", "string")
