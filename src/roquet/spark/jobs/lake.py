"""The lake: Parquet files of messages, and manifests that describe them.

Layout below the lake's address:

.. code-block:: text

    topic=Orders/day=2026-11-15/part-broker-a-00000000000000000000.parquet
    _manifest/broker-a/archive.json                    which messages the lake takes
    _manifest/broker-a/00000000000000000000.json       one for each range of the log
    _manifest/broker-a/run.json                        what a run is about to write

Any Parquet reader can read it: topic and day are Hive-style partitions, and names that begin with
``_`` or ``.`` are skipped. :func:`read_lake` returns the columns of the sources with their types.

Invariants:

* The ranges of a broker have no gaps or overlaps, except where its log had lost messages. Files and
  manifest of a range are named after the physical offset of its start, so rewriting replaces them.
  Only the newest range may grow; it is rewritten as a whole, under the same name.
* A manifest is published after the files it names, each in one step
  (:mod:`roquet.spark.jobs.lake_files`). Workers finish in any order,
  so there may be gaps between manifests while a run works. A run writes its plan before any file,
  and deletes it when all manifests are published: an existing plan belongs to a run that was killed
  (or still works), and the next run rewrites the unfinished ranges with the same bounds and names.
* Only the run that wrote the current plan publishes files.
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
from roquet.spark.jobs.inputs import ALL, Wanted, read_log
from roquet.spark.jobs.lake_files import UNFINISHED, Place, is_local, scheme_of
from roquet.spark.schema import COLUMNS, struct_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "DELTA_LOG",
    "MANIFEST",
    "NO_DAY",
    "STREAM_METADATA",
    "ArchiveRules",
    "FileEntry",
    "FileTotals",
    "Lake",
    "PlannedRange",
    "RangeManifest",
    "RunPlan",
    "crc_sum",
    "file_name",
    "is_file_of",
    "is_read_by_spark",
    "lake_schema",
    "nothing_of",
    "partition_path",
    "read_lake",
    "read_lake_files",
    "read_young",
    "table_file_name",
]

M = TypeVar("M", bound=Struct)

MANIFEST = "_manifest"
STREAM_METADATA = "_spark_metadata"
"""Spark's list of the files that a stream wrote; if it exists, Spark reads no others."""

DELTA_LOG = "_delta_log"
"""The log of a Delta table; if it exists, only the files that it names count."""

NO_DAY = "__HIVE_DEFAULT_PARTITION__"
"""The day of a message whose store time is out of range, as Hive and Spark write it."""

_RULES = "archive.json"
_RUN = "run.json"

# The characters that Spark escapes as %XX in the name of a partition.
_PLAIN = " !$&()+,-.;@_`~|<>"


class FileEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """One Parquet file.

    Attributes:
        path: The path below the lake's address.
        topic: The topic of its messages.
        day: The day (UTC) on which they were stored.
        rows: The number of messages.
        crc_sum: The sum of their bodies' checksums, which does not depend on their order.
        first_physical_offset: The lowest physical offset of a message.
        last_physical_offset: The highest physical offset of a message.
        size_bytes: The file's size; 0 in old manifests, which do not have it.
        first_store_ms: The earliest store time of a message; ``None`` if not known.
        last_store_ms: The latest one.
    """

    path: str
    topic: str
    day: str
    rows: int
    crc_sum: int
    first_physical_offset: int
    last_physical_offset: int
    size_bytes: int = 0
    first_store_ms: int | None = None
    last_store_ms: int | None = None


class RangeManifest(Struct, frozen=True, kw_only=True, rename="camel"):
    """A range of a broker's log that is in the lake.

    Attributes:
        broker_name: Whose log it is.
        start: The physical offset of its first record.
        stop: The physical offset after its last record.
        is_complete: Whether it will not grow.
        files: The files with its messages.
    """

    broker_name: str
    start: int
    stop: int
    is_complete: bool
    files: list[FileEntry] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """The number of messages."""
        return sum(each.rows for each in self.files)


class PlannedRange(Struct, frozen=True, kw_only=True, rename="camel"):
    """A range that a run plans to write.

    Attributes:
        start: The physical offset of its first record.
        stop: The physical offset after its last record.
        is_complete: Whether it will not grow.
    """

    start: int
    stop: int
    is_complete: bool


class RunPlan(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a run is about to write.

    Attributes:
        run_id: The id of the run.
        ranges: The ranges, in order.
    """

    run_id: str
    ranges: list[PlannedRange]


class FileTotals:
    """Collects the totals of a file for the manifest."""

    def __init__(self) -> None:
        self._rows = self._crc_sum = 0
        self._first: int | None = None
        self._last = 0
        self._times_ms: list[int] = []

    def add(self, part: pa.RecordBatch | pa.Table) -> None:
        """Add rows; at least one."""
        offsets = pc.min_max(part.column("physicalOffset"))
        low, high = offsets["min"].as_py(), offsets["max"].as_py()
        self._rows += part.num_rows
        self._crc_sum += crc_sum(part)
        self._first = low if self._first is None else min(self._first, low)
        self._last = max(self._last, high)
        if "storeTimestamp" in part.schema.names:
            times = pc.min_max(part.column("storeTimestamp").cast(pa.int64()))
            found = [times[name].as_py() for name in ("min", "max") if times[name].is_valid]
            found_ms = [*self._times_ms, *(each // 1000 for each in found)]
            self._times_ms = [min(found_ms), max(found_ms)] if found_ms else []

    def entry(self, path: str, topic: str, day: str, size_bytes: int) -> FileEntry:
        """Return the manifest's entry."""
        return FileEntry(
            path=path,
            topic=topic,
            day=day,
            rows=self._rows,
            crc_sum=self._crc_sum,
            first_physical_offset=self._first or 0,
            last_physical_offset=self._last,
            size_bytes=size_bytes,
            first_store_ms=min(self._times_ms, default=None),
            last_store_ms=max(self._times_ms, default=None),
        )


class ArchiveRules(Struct, frozen=True, kw_only=True, rename="camel"):
    """Which messages of a broker the lake takes; the same for all its ranges.

    Attributes:
        topics: Names of topics; empty for all.
        decompress: Whether bodies are decompressed.
    """

    topics: list[str] = field(default_factory=list)
    decompress: bool = True


class Lake(Place):
    """A lake at an address: a folder, or a URI (``s3://``, ``hdfs://``, …).

    Raises:
        SparkOptionError: The address is invalid.
    """

    # ------------------------------------------------------------------------------- manifests

    def rules(self, broker_name: str) -> ArchiveRules | None:
        """Return the rules of a broker's archive; ``None`` if there are none yet."""
        data = self.read(MANIFEST, quote(broker_name, safe=""), _RULES)
        return None if data is None else _decoded(data, ArchiveRules, _RULES)

    def write_rules(self, broker_name: str, rules: ArchiveRules) -> None:
        """Record the rules of a broker's archive."""
        self.publish(msgspec.json.encode(rules), MANIFEST, quote(broker_name, safe=""), _RULES)

    def manifests(self, broker_name: str) -> list[RangeManifest]:
        """Return the ranges of a broker's log, in order."""
        found = (self.manifest(broker_name, start) for start in self._starts(broker_name))
        return [each for each in found if each is not None]

    def newest(self, broker_name: str) -> tuple[int, RangeManifest | None]:
        """Return the number of ranges and the newest one, without reading the others."""
        starts = self._starts(broker_name)
        return len(starts), self.manifest(broker_name, starts[-1]) if starts else None

    def _starts(self, broker_name: str) -> list[int]:
        found = self.below(MANIFEST, quote(broker_name, safe=""))
        names = [info.base_name for info in found if info.is_file]
        stems = [name.removesuffix(".json") for name in names if name.endswith(".json")]
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def manifest(self, broker_name: str, start: int) -> RangeManifest | None:
        """Return the manifest of the range that starts at an offset."""
        name = _manifest_name(start)
        data = self.read(MANIFEST, quote(broker_name, safe=""), name)
        return None if data is None else _decoded(data, RangeManifest, name)

    def broker_names(self) -> Iterator[str]:
        """Yield the brokers whose logs are in the lake."""
        for info in self.below(MANIFEST):
            if info.type is pafs.FileType.Directory:
                yield unquote(info.base_name)

    def write_manifest(self, manifest: RangeManifest) -> None:
        """Publish the manifest of a range."""
        data = msgspec.json.format(msgspec.json.encode(manifest))
        self.publish(data, self.manifest_path(manifest))

    def manifest_path(self, manifest: RangeManifest) -> str:
        """Return the path of a range's manifest below the lake's address."""
        broker = quote(manifest.broker_name, safe="")
        return posixpath.join(MANIFEST, broker, _manifest_name(manifest.start))

    # ------------------------------------------------------------------------------------ runs

    def plan(self, broker_name: str) -> RunPlan | None:
        """Return the plan of an unfinished run; ``None`` if there is none."""
        data = self.read(MANIFEST, quote(broker_name, safe=""), _RUN)
        return None if data is None else _decoded(data, RunPlan, _RUN)

    def write_plan(self, broker_name: str, plan: RunPlan) -> None:
        """Record the plan of a run; from now on no other run publishes anything."""
        self.publish(msgspec.json.encode(plan), MANIFEST, quote(broker_name, safe=""), _RUN)

    def check_run(self, broker_name: str, run_id: str) -> None:
        """Check that a run may publish.

        Raises:
            SparkError: Another run has started.
        """
        plan = self.plan(broker_name)
        if plan is None or plan.run_id != run_id:
            raise SparkError(
                f"Another run writes the log of {broker_name!r} to {self.name}.",
                hint="Let one archive at a time write to a lake.",
            )

    def end_plan(self, broker_name: str, run_id: str) -> None:
        """Delete the plan of a run that is complete.

        Raises:
            SparkError: Another run has started.
        """
        self.check_run(broker_name, run_id)
        self.delete(MANIFEST, quote(broker_name, safe=""), _RUN)

    def sweep(self, run_id: str) -> None:
        """Remove the unfinished files of a killed run."""
        for info in self.below(is_deep=True):
            if info.is_file and info.base_name.endswith(f".{run_id}{UNFINISHED}"):
                self.delete(posixpath.relpath(info.path, self.base))

    def files_of_range(self, broker_name: str, start: int) -> Iterator[tuple[str, str, str]]:
        """Yield topic, day and path of all files of a range, whether in a manifest or not."""
        name = file_name(broker_name, start)
        for info in self.below(is_deep=True):
            if info.is_file and info.base_name == name:
                path = posixpath.relpath(info.path, self.base)
                topic, day = path.split("/")[:2]
                yield unquote(topic.removeprefix("topic=")), day.removeprefix("day="), path


def _decoded(data: bytes, kind: type[M], name: str) -> M:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise SparkError(
            f"The manifest {name} of the lake cannot be read.",
            detail=str(error),
            hint="Remove it and run archive again: its range is written again.",
        ) from None


def _manifest_name(start: int) -> str:
    return f"{start:020d}.json"


def partition_path(topic: str, day: str) -> str:
    """Return the folder for a topic and day.

    Example:
        >>> partition_path("%RETRY%g", "2026-11-15")
        'topic=%25RETRY%25g/day=2026-11-15'
    """
    return f"topic={quote(topic, safe=_PLAIN)}/day={day}"


def file_name(broker_name: str, start: int) -> str:
    """Return the name of the files of a range.

    Example:
        >>> file_name("broker-a", 7)
        'part-broker-a-00000000000000000007.parquet'
    """
    return f"part-{quote(broker_name, safe='')}-{start:020d}.parquet"


def table_file_name(broker_name: str, start: int, stop: int, made: str) -> str:
    """Return the name of a range's files in a table: both ends of the range, and who wrote them.

    A table must never have a file replaced, and several writers may have the same range.

    Example:
        >>> table_file_name("broker-a", 7, 900, "c0ffee").format(0)
        'part-broker-a-00000000000000000007-00000000000000000900-0-c0ffee.parquet'
    """
    span = f"{start:020d}-{stop:020d}"
    return f"part-{quote(broker_name, safe='')}-{span}-{{}}-{made}.parquet"


def is_file_of(broker_name: str, name: str) -> bool:
    """Whether a file with this name has messages of a broker."""
    start = name.removesuffix(".parquet").rpartition("-")[2]
    return start.isdecimal() and name == file_name(broker_name, int(start))


def crc_sum(rows: pa.RecordBatch | pa.Table) -> int:
    """Return the sum of the bodies' checksums; Spark's int is signed, a checksum is not."""
    crcs = pc.bit_wise_and(rows.column("bodyCrc").cast(pa.int64()), pa.scalar(0xFFFFFFFF))
    total: int | None = pc.sum(crcs).as_py()
    return total or 0


def nothing_of(place: Lake, broker_name: str) -> SparkOptionError:
    """Return the error for a lake that has nothing from a broker."""
    hint = "It holds no archive of a log."
    if names := sorted(place.broker_names()):
        hint = f"It holds messages of: {', '.join(names)}. Name one of them by --broker-name."
    if place.has(DELTA_LOG):
        hint = (
            "It is a Delta table: verify reads it with --format delta, tier wants a Parquet lake."
        )
    return SparkOptionError(f"{place.name} holds nothing of {broker_name!r}.", hint=hint)


def read_lake(
    spark: SparkSession,
    lake: str,
    *,
    columns: Sequence[str] = (),
    wanted: Wanted = ALL,
    keys: Sequence[str] = (),
) -> DataFrame:
    """Read the messages of a lake, with the columns of the sources and ``day``.

    Spark reads a folder or HDFS with its own Parquet reader. Other addresses, and queries for keys,
    are read by the source ``rocketmq-lake``, with the credentials that ``archive`` uses.

    Args:
        spark: A session that knows the sources.
        lake: The lake's address.
        columns: The columns to read; empty for all.
        wanted: Which messages.
        keys: Words of KEYS, or unique ids; a message must have one of them. Empty for any.
    """
    if is_read_by_spark(lake) and not keys:
        frame = spark.read.schema(lake_schema()).parquet(lake)
        return _narrowed(frame, columns, wanted)
    options = wanted.log_options()
    if columns:
        options["columns"] = ",".join(columns)
    if keys:
        options["keys"] = ",".join(keys)
    return spark.read.format("rocketmq-lake").options(**options).load(lake)


def is_read_by_spark(lake: str) -> bool:
    """Whether Spark's own Parquet reader knows the file system of an address, out of the box."""
    return is_local(lake) or scheme_of(lake) == "hdfs"


def _narrowed(frame: DataFrame, columns: Sequence[str], wanted: Wanted) -> DataFrame:
    if wanted.topics:
        frame = frame.where(frame["topic"].isin(*wanted.topics))
    if wanted.from_ms is not None:
        frame = frame.where(f"storeTimestamp >= timestamp_millis({wanted.from_ms})")
    if wanted.to_ms is not None:
        frame = frame.where(f"storeTimestamp < timestamp_millis({wanted.to_ms})")
    return frame.select(*columns) if columns else frame


def read_lake_files(spark: SparkSession, lake: str, paths: Sequence[str]) -> DataFrame:
    """Read the messages of some files of a lake by Spark's own reader, like :func:`read_lake`.

    Args:
        spark: The session.
        lake: The lake's address.
        paths: The paths below the lake's address, at least one.
    """
    base = lake.rstrip("/")
    reader = spark.read.schema(lake_schema()).option("basePath", base)
    return reader.parquet(*(f"{base}/{path}" for path in paths))


def read_young(
    spark: SparkSession, store: str, rules: ArchiveRules, start: int, broker_name: str
) -> DataFrame:
    """Read the log from a physical offset on, with the rows that the lake would have.

    Args:
        spark: A session that knows the sources.
        store: The store directory; it may be running.
        rules: Those of the lake.
        start: The physical offset.
        broker_name: Whose log it is.
    """
    return read_log(
        spark,
        store,
        Wanted(topics=rules.topics),
        columns=list(COLUMNS),
        startingOffsets=str(start),
        brokerName=broker_name,
        decompress=str(rules.decompress).lower(),
    )


def lake_schema() -> StructType:
    """Return the columns of a lake: those of the sources, and ``day``."""
    return struct_type(COLUMNS).add("day", "string")
