"""Ranges of the log to batches of the columns that were asked for.

Owns the loop of a reading task: windows of a segment go through a lane, damaged bytes through
``corrupt``, compressed bodies through the client's decompression.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from roquet.client.compression import decompress
from roquet.errors import BadBody, CorruptRecord, DataLost
from roquet.runtime.files import Files
from roquet.spark.log.corrupt import (
    DROPMALFORMED,
    FAILFAST,
    PERMISSIVE,
    Damage,
    damage_at,
    damage_row,
)
from roquet.spark.log.decoder import BLANK, ENDED, FULL, MORE, Lane, Piece, lane
from roquet.spark.log.queue_reading import Gathered, QueueRange, entry_damage, gather
from roquet.spark.log.selection import Selection
from roquet.spark.log.window import Segment, Window, claimed_bytes
from roquet.spark.schema import CORRUPT_COLUMN

BODY_BATCH_BYTES = 32 << 20
"""Decompressed bodies of a batch, about."""

_BROKER_NAME = "brokerName"


class LogRange(NamedTuple):
    """Records of one segment that start from ``start`` on and in front of ``stop``."""

    segment: Segment
    start: int
    stop: int
    end: int
    """Physical offset where the segment, or its confirmed part, ends."""

    @property
    def size_bytes(self) -> int:
        """How much there is to read."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class ReadRules:
    """How rows are made; travels with each task.

    Attributes:
        selection: Which rows.
        mode: What damaged bytes become.
        check_crc: Whether bodies are checked against their CRC.
        decompress: Whether compressed bodies are given as they were before.
        broker_name: What the column ``brokerName`` says; the log does not know.
        fail_on_data_loss: Whether a segment that is gone is an error.
    """

    selection: Selection = field(default_factory=Selection)
    mode: str = PERMISSIVE
    check_crc: bool = False
    decompress: bool = True
    broker_name: str | None = None
    fail_on_data_loss: bool = True


class LogReader:
    """Reads ranges as batches of one schema."""

    def __init__(self, schema: pa.Schema, rules: ReadRules, files: Files | None = None) -> None:
        """Fix the columns and the rules."""
        self._schema = schema
        self._rules = rules
        self._files = files or Files()
        self._is_told = CORRUPT_COLUMN in schema.names
        in_record = [name for name in schema.names if name not in {_BROKER_NAME, CORRUPT_COLUMN}]
        self._lane: Lane = lane(in_record, rules.selection, check_crc=rules.check_crc)

    def batches(self, ranges: Sequence[LogRange | QueueRange]) -> Iterator[pa.RecordBatch]:
        """All wanted rows of some ranges, in their order."""
        for part in ranges:
            if isinstance(part, QueueRange):
                yield from self._queue(part)
                continue
            try:
                window = Window(self._files, part.segment, limit=part.stop)
            except DataLost:
                if self._rules.fail_on_data_loss:
                    raise
                continue
            with window:
                yield from self._range(window, part)

    def _range(self, window: Window, part: LogRange) -> Iterator[pa.RecordBatch]:
        offset = part.start
        while offset < part.stop:
            if not window.has(offset, 1):
                window.load(offset)
            piece = self._lane.decode(
                window.view,
                offset - window.base,
                part.stop - window.base,
                part.end - window.base,
                window.base,
            )
            offset = window.base + piece.reached
            if piece.rows:
                yield from self._piece_batches(piece)
            if piece.why in {ENDED, FULL}:
                continue
            if piece.why == MORE:
                window.load(offset, claimed_bytes(window, offset))
                continue
            damage = damage_at(window, offset, part.stop, part.end, check_crc=self._rules.check_crc)
            if damage is None:
                assert piece.why == BLANK
                return
            yield from self._damage_batches(damage, window.segment)
            offset = damage.end

    def _queue(self, part: QueueRange) -> Iterator[pa.RecordBatch]:
        """The records that entries of a queue point to."""
        skips_lost = not self._rules.fail_on_data_loss
        try:
            for found in gather(self._files, part, skips_lost=skips_lost):
                if isinstance(found, Damage):
                    yield from self._damage_batches(found, part.segments[0])
                else:
                    yield from self._gathered(found)
        except DataLost:
            if not skips_lost:
                raise

    def _gathered(self, found: Gathered) -> Iterator[pa.RecordBatch]:
        size = len(found.data)
        position = 0
        while position < size:
            piece = self._lane.decode(found.data, position, size, size, -1)
            if piece.rows:
                yield from self._piece_batches(piece)
            position = piece.reached
            if piece.why in {ENDED, FULL}:
                continue
            number = bisect_right(found.starts, position) - 1
            unit = found.units[number]
            record = found.data[position : position + unit.size_bytes]
            damage = entry_damage(record, unit, check_crc=self._rules.check_crc)
            yield from self._damage_batches(damage, found.segment)
            position = found.starts[number] + unit.size_bytes

    # -- rows ------------------------------------------------------------------------------------

    def _piece_batches(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        if not (self._rules.decompress and piece.compressed):
            yield self._batch(piece.arrays, piece.rows)
            return
        bodies = piece.arrays["body"].to_pylist()
        problems: list[str | None] = [None] * piece.rows
        begin, held_bytes = 0, 0
        flags = dict(piece.compressed)
        for row in range(piece.rows):
            if row in flags:
                bodies[row], problems[row] = self._body(bodies[row], flags[row])
            held_bytes += len(bodies[row] or b"")
            if held_bytes >= BODY_BATCH_BYTES or row + 1 == piece.rows:
                yield from self._cut(piece, begin, row + 1, bodies, problems)
                bodies[begin : row + 1] = [None] * (row + 1 - begin)
                begin, held_bytes = row + 1, 0

    def _body(self, data: bytes, sys_flag: int) -> tuple[bytes | None, str | None]:
        """A body as it was before, or what is wrong with it."""
        try:
            return decompress(data, sys_flag), None
        except BadBody as error:
            if self._rules.mode == FAILFAST:
                raise CorruptRecord(
                    "A body of the log cannot be decompressed.",
                    detail=error.detail,
                    hint="Read it as it is stored with the option decompress=false.",
                ) from None
            return data if self._is_told else None, f"body: {error.detail}"

    def _cut(
        self,
        piece: Piece,
        begin: int,
        end: int,
        bodies: Sequence[bytes | None],
        problems: Sequence[str | None],
    ) -> Iterator[pa.RecordBatch]:
        """Some rows of a piece, with bodies of their own."""
        arrays = {name: array.slice(begin, end - begin) for name, array in piece.arrays.items()}
        arrays["body"] = pa.array(bodies[begin:end], pa.binary())
        told = problems[begin:end]
        arrays[CORRUPT_COLUMN] = pa.array(told, pa.string())
        batch = self._batch(arrays, end - begin)
        if self._rules.mode == DROPMALFORMED and any(told):
            batch = batch.filter(pa.array([problem is None for problem in told]))
        if batch.num_rows:
            yield batch

    def _damage_batches(self, damage: Damage, segment: Segment) -> Iterator[pa.RecordBatch]:
        if self._rules.mode == FAILFAST:
            raise damage.error(segment)
        if self._rules.mode == DROPMALFORMED or not self._is_wanted(damage):
            return
        row = damage_row(damage, is_told=self._is_told)
        arrays = {
            each.name: _one(row.get(each.name), each.type)
            for each in self._schema
            if each.name != _BROKER_NAME
        }
        yield self._batch(arrays, 1)

    def _is_wanted(self, damage: Damage) -> bool:
        """Whether damage may concern the rows that are wanted; what it was is mostly not known."""
        message = damage.message
        return message is None or self._rules.selection.takes(
            message.topic, message.queue_id, message.store_timestamp_ms, message.properties
        )

    def _batch(self, arrays: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
        columns = []
        for each in self._schema:
            if each.name == _BROKER_NAME:
                columns.append(pa.repeat(pa.scalar(self._rules.broker_name, pa.string()), rows))
            elif each.name in arrays:
                columns.append(arrays[each.name])
            else:
                columns.append(pa.nulls(rows, each.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _one(value: object, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array([value], pa.int64()).cast(kind)
    return pa.array([value], kind)
