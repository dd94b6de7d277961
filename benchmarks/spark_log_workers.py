"""What the benchmark of ``rocketmq-log`` runs in Spark's Python processes.

Owns the other side, a naive source, and the check of every row.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from roquet.format.commit_log import decode_record
from roquet.format.record_layout import MAGIC_V1
from roquet.model.host import Host
from roquet.model.properties import decode_properties
from roquet.spark.log.corrupt import message_row
from roquet.spark.schema import ddl

SEGMENT_BYTES = 1 << 30

_HEAD = struct.Struct(">iIIiiqqiqIi")
_TAIL = struct.Struct(">qIiiqi")


class PlainSource(DataSource):
    """A naive source: a loop over the records of a segment, a tuple for each."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format()``."""
        return "plain-log"

    def schema(self) -> str:
        """The same columns."""
        return ddl()

    def reader(self, schema: object) -> DataSourceReader:  # noqa: ARG002 - Spark passes it
        """Its reader."""
        return PlainReader(self.options["path"], int(self.options["bytes"]))


class PlainReader(DataSourceReader):
    """Reads the head of the first segment."""

    def __init__(self, path: str, limit: int) -> None:
        """Set what to read."""
        self._path = path
        self._limit = limit

    def partitions(self) -> list[InputPartition]:
        """One task."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:  # noqa: ARG002
        """Records as tuples."""
        with open(self._path, "rb") as file:  # noqa: PTH123 - as one writes it first
            data = file.read(self._limit)
        position = 0
        while position + 91 < len(data):
            head = _HEAD.unpack_from(data, position)
            size = head[0]
            if head[1] != MAGIC_V1 or position + size > len(data):
                return
            yield plain_row(data, position, head)
            position += size


def plain_row(data: bytes, position: int, head: tuple[int, ...]) -> tuple[object, ...]:
    """The columns of one record with IPv4 hosts."""
    size, _, crc, queue_id, flag, queue_offset, physical, sys_flag, born, ip, port = head
    store_ms, _, _, times, prepared, body_bytes = _TAIL.unpack_from(data, position + 56)
    body_at = position + 88
    body = data[body_at : body_at + body_bytes]
    topic_at = body_at + body_bytes + 1
    topic_end = topic_at + data[topic_at - 1]
    properties = decode_properties(data[topic_end + 2 : position + size])
    offset_id = (data[position + 64 : position + 72] + data[position + 28 : position + 36]).hex()
    return (
        data[topic_at:topic_end].decode(),
        None,
        queue_id,
        queue_offset,
        body,
        properties.get("TAGS"),
        properties.get("KEYS"),
        properties,
        properties.get("UNIQ_KEY", offset_id.upper()),
        offset_id.upper(),
        datetime.fromtimestamp(born / 1000, UTC),
        datetime.fromtimestamp(store_ms / 1000, UTC),
        f"{Host(ip.to_bytes(4, 'big'), port)}",
        f"{Host.unpack(data[position + 64 : position + 72])}",
        physical,
        size,
        times,
        sys_flag,
        flag,
        crc,
        prepared,
    )


class RowCheck(DataSource):
    """A sink that decodes rows a second time, from the files, by ``roquet.format``."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format()``."""
        return "row-check"

    def writer(self, schema: object, overwrite: bool) -> RowCheckWriter:  # noqa: ARG002, FBT001
        """Its writer."""
        return RowCheckWriter(self.options["log"], self.options["report"])


@dataclass
class Checked(WriterCommitMessage):
    """The result of one task."""

    rows: int
    wrong: int
    size_bytes: int


class RowCheckWriter(DataSourceArrowWriter):
    """Compares rows with a log."""

    def __init__(self, log: str, report: str) -> None:
        """Check against the segments in ``log`` and write the sums to ``report``."""
        self._log = log
        self._report = report

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Checked:
        """Compare the rows of a task."""
        checked = Checked(0, 0, 0)
        files: dict[int, int] = {}
        for batch in iterator:
            columns: dict[str, list[Any]] = {}
            for field, column in zip(batch.schema, batch.columns, strict=True):
                is_time = field.name.endswith("Timestamp")
                columns[field.name] = (column.cast("int64") if is_time else column).to_pylist()
            columns.pop("brokerName")
            for values in zip(*columns.values(), strict=True):
                row = dict(zip(columns, values, strict=True))
                start = row["physicalOffset"] - row["physicalOffset"] % SEGMENT_BYTES
                if start not in files:
                    files[start] = os.open(f"{self._log}/{start:020d}", os.O_RDONLY)
                data = os.pread(files[start], row["storeSize"], row["physicalOffset"] - start)
                checked.rows += 1
                checked.wrong += row != message_row(decode_record(data, 0, len(data)))
                checked.size_bytes += row["storeSize"]
        for fd in files.values():
            os.close(fd)
        return checked

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the sums."""
        parts = [part for part in messages if isinstance(part, Checked)]
        sums = {
            "rows": sum(part.rows for part in parts),
            "wrong": sum(part.wrong for part in parts),
            "bytes": sum(part.size_bytes for part in parts),
        }
        Path(self._report).write_text(json.dumps(sums), "utf-8")
