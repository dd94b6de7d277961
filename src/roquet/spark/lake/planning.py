"""Plans which files of a lake a query reads, and in which tasks. Runs on the driver.

The files of a Parquet lake are those that its manifests name, so a run that works meanwhile, or was
killed, shows no rows that are not archived yet. Those of a table are those of its newest version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from roquet.errors import SparkOptionError
from roquet.spark.jobs.lake import DELTA_LOG, NO_DAY, STREAM_METADATA, FileEntry, Lake
from roquet.spark.jobs.tables import open_table
from roquet.spark.lake.lake_options import LakeOptions
from roquet.spark.lake.pruning import Conditions, FileFacts

__all__ = ["LakeFile", "Planned", "plan_lake"]

_ROW_BYTES = 128
"""About how much a message has in a file whose manifest does not know its size."""


@dataclass(frozen=True)
class LakeFile:
    """A file to read.

    Attributes:
        path: Its path below the lake's address.
        size_bytes: About its size.
        facts: What is known of it.
        is_growing: Whether a run may replace it.
    """

    path: str
    size_bytes: int
    facts: FileFacts
    is_growing: bool = False


@dataclass(frozen=True)
class Planned:
    """The plan of a query.

    Attributes:
        address: Where the files are.
        tasks: The files of each task.
        files: How many files the lake has.
    """

    address: str
    tasks: list[list[LakeFile]]
    files: int


def plan_lake(options: LakeOptions, conditions: Conditions) -> Planned:
    """Plan a query.

    Raises:
        SparkOptionError: There is no lake at the address.
        SparkError: The lake cannot be read.
    """
    if options.lake_format == "parquet":
        place = Lake(options.address)
        found = list(_lake_files(place, options.broker_name))
        address = options.address
    else:
        table = open_table(options.lake_format, options.address)
        found = [
            LakeFile(each.path, options.split_bytes, FileFacts(topic=each.topic, day=each.day))
            for each in table.files()
        ]
        address = table.place.address
    wanted = [each for each in found if conditions.may_have_file(each.facts)]
    return Planned(address, list(_tasks(wanted, options.split_bytes)), len(found))


def _lake_files(place: Lake, broker_name: str | None) -> Iterator[LakeFile]:
    brokers = list(place.broker_names())
    if not brokers:
        raise _no_lake(place)
    for name in brokers:
        if broker_name not in {None, name}:
            continue
        for manifest in place.manifests(name):
            for file in manifest.files:
                yield LakeFile(
                    file.path,
                    file.size_bytes or file.rows * _ROW_BYTES,
                    FileFacts(
                        topic=file.topic,
                        day="" if file.day == NO_DAY else file.day,
                        broker_name=name,
                        offsets=(file.first_physical_offset, file.last_physical_offset),
                        times_ms=_times(file),
                    ),
                    is_growing=not manifest.is_complete,
                )


def _times(file: FileEntry) -> tuple[int, int] | None:
    if file.first_store_ms is None or file.last_store_ms is None:
        return None
    return file.first_store_ms, file.last_store_ms


def _no_lake(place: Lake) -> SparkOptionError:
    hint = "Name the address that archive wrote to."
    if place.has(DELTA_LOG):
        hint = "It is a Delta table: use read_table, or the option lakeFormat delta."
    elif place.has(STREAM_METADATA):
        hint = "It is the lake of a live cluster: read it with Spark's own Parquet reader."
    return SparkOptionError(f"There is no lake at {place.name}.", hint=hint)


def _tasks(files: Sequence[LakeFile], split_bytes: int) -> Iterator[list[LakeFile]]:
    """Put files together until they are as much as a task reads."""
    task: list[LakeFile] = []
    size_bytes = 0
    for file in files:
        if task and size_bytes + file.size_bytes > split_bytes:
            yield task
            task, size_bytes = [], 0
        task.append(file)
        size_bytes += file.size_bytes
    if task:
        yield task
