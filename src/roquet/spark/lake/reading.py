"""Reads the rows of a lake's files on an executor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from roquet.errors import SparkError
from roquet.spark.jobs.lake_files import Place
from roquet.spark.jobs.parquet_options import ONE_WORD, WORDS
from roquet.spark.lake.lake_options import DAY
from roquet.spark.lake.planning import LakeFile
from roquet.spark.lake.pruning import Conditions, Read

__all__ = ["LakeReader"]

_BATCH_ROWS = 8_192
_REPLACED_MAX = 5
_TOPIC, _SMALL, _OFFSET = "topic", "queueId", "physicalOffset"
_KEYS = ["keys", "msgId"]


class LakeReader:
    """Reads files with the same columns and conditions.

    Args:
        address: Where they are.
        schema: The columns to return.
        conditions: Which rows.

    Attributes:
        groups_read: How many row groups were read.
        groups_skipped: How many were not, because no row can match.
    """

    def __init__(self, address: str, schema: pa.Schema, conditions: Conditions) -> None:
        self._place = Place(address)
        self._schema = schema
        self._conditions = conditions
        self.groups_read = self.groups_skipped = 0

    def batches(self, files: Sequence[LakeFile]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some files.

        Raises:
            SparkError: A file is missing or damaged.
        """
        for file in files:
            try:
                with self._place.told(), self._opened(file) as (opened, read):
                    yield from self._file(file, opened, read)
            except FileNotFoundError:
                raise SparkError(
                    f"The lake {self._place.name} lacks a file that it names.",
                    detail=file.path,
                    hint="Read it again if archive rewrites it; otherwise run verify.",
                ) from None
            except pa.ArrowInvalid as error:
                raise SparkError(
                    f"A file of the lake {self._place.name} is damaged.",
                    detail=f"{file.path}: {error}",
                    hint="roquet spark verify finds all that are.",
                ) from None

    @contextmanager
    def _opened(self, file: LakeFile) -> Iterator[tuple[pq.ParquetFile, Read]]:
        """Open a file; one that an upload may replace meanwhile is read at once before."""
        if not (file.is_growing and self._place.is_uploading):
            with self._place.parquet(file.path) as opened:
                yield opened, self._bytes(file.path)
            return
        data = self._whole_file(file.path)
        with pq.ParquetFile(pa.BufferReader(data)) as opened:
            yield opened, lambda offset, count: data[offset : offset + count].to_pybytes()

    def _whole_file(self, path: str) -> pa.Buffer:
        """Return the bytes of a file, all of the same version of it."""
        for left in reversed(range(_REPLACED_MAX)):
            with self._place.filesystem.open_input_file(self._place.path(path)) as stream:
                data = pa.py_buffer(stream.read_at(stream.size(), 0))
            try:
                pq.ParquetFile(pa.BufferReader(data)).close()
            except pa.ArrowInvalid:  # replaced between the two requests
                if not left:
                    raise
            else:
                break
        return data

    def _file(self, file: LakeFile, opened: pq.ParquetFile, read: Read) -> Iterator[pa.RecordBatch]:
        has_single_words = (opened.metadata.metadata or {}).get(WORDS) == ONE_WORD
        wanted = {*self._schema.names, *self._conditions.columns}
        last = file.facts.offsets[1] if file.is_growing and file.facts.offsets else None
        if last is not None:
            wanted.add(_OFFSET)
        columns = [name for name in opened.schema_arrow.names if name in wanted]
        groups = []
        for number in range(opened.metadata.num_row_groups):
            group = opened.metadata.row_group(number)
            if self._conditions.may_have_group(
                group, read, has_single_words=has_single_words
            ) and self._has_keys(opened, number):
                groups.append(number)
        self.groups_read += len(groups)
        self.groups_skipped += opened.metadata.num_row_groups - len(groups)
        if not groups:
            return
        if not columns:  # of the folder's columns only: any small one counts the rows
            columns = [
                _SMALL if _SMALL in opened.schema_arrow.names else opened.schema_arrow.names[0]
            ]
        for batch in opened.iter_batches(_BATCH_ROWS, row_groups=groups, columns=columns):
            read_rows = pa.Table.from_batches([batch])
            if last is not None:  # a run may have added rows since its manifest was read
                read_rows = read_rows.filter(pc.less_equal(read_rows.column(_OFFSET), last))
            rows = self._conditions.chosen(self._whole(read_rows, file))
            if rows.num_rows:
                yield from rows.select(self._schema.names).cast(self._schema).to_batches()

    def _has_keys(self, opened: pq.ParquetFile, number: int) -> bool:
        """Whether a row group has one of the keys; bodies are read only then."""
        if not self._conditions.keys:
            return True
        rows = opened.read_row_group(number, columns=_KEYS)
        return bool(pc.any(self._conditions.key_mask(rows)).as_py())

    def _whole(self, rows: pa.Table, file: LakeFile) -> pa.Table:
        """Add the columns that a file has not: those of its folder, others as nulls."""
        known = {_TOPIC: file.facts.topic, DAY: file.facts.day or None}
        for name in sorted({*self._schema.names, *self._conditions.columns}):
            if name not in rows.schema.names:
                kind = pa.string() if name in known else self._schema.field(name).type
                value = pa.scalar(known.get(name), kind)
                rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        return rows

    def _bytes(self, path: str) -> Read:
        def read(offset: int, count: int) -> bytes:
            with self._place.filesystem.open_input_file(self._place.path(path)) as stream:
                return bytes(stream.read_at(count, offset))

        return read
