"""Turns ranges of the log into batches of the requested columns.

Owns the loop of a reading task: windows of a segment go through a decoder, damaged bytes through
``corrupt``, compressed bodies through the client's decompression.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from roquet.errors import BadBody, CorruptRecord, DataLost
from roquet.format.segment_files import Segment
from roquet.runtime.files import Files
from roquet.spark.log.corrupt import (
    DROPMALFORMED,
    FAILFAST,
    PERMISSIVE,
    damage_error,
    damage_row,
)
from roquet.spark.log.decoder import BLANK, ENDED, FULL, MORE, DecodedRows, make_decoder
from roquet.spark.log.queue_reading import (
    Gathered,
    PlacesRange,
    QueueRange,
    entry_damage,
    gather,
    gather_places,
)
from roquet.spark.log.selection import Selection
from roquet.spark.schema import BODY_BYTES_MAX, CORRUPT_COLUMN
from roquet.storefiles.damage import DamagedRange, damage_at
from roquet.storefiles.records import LogRange
from roquet.storefiles.window import Window, claimed_bytes

BODY_BATCH_BYTES = 32 << 20
"""The approximate size of the decompressed bodies in a batch."""

_BROKER_NAME = "brokerName"


@dataclass(frozen=True, slots=True)
class ReadRules:
    """How rows are made; part of each task.

    Attributes:
        selection: Which rows.
        mode: What damaged bytes become.
        check_crc: Whether bodies are checked against their CRC.
        decompress: Whether bodies are decompressed.
        broker_name: The value of the column ``brokerName``, which is not in the log.
        fail_on_data_loss: Whether a missing segment is an error.
        drops_unknown_damage: Whether damage is skipped if it is unknown which message it was.
    """

    selection: Selection = field(default_factory=Selection)
    mode: str = PERMISSIVE
    check_crc: bool = False
    decompress: bool = True
    broker_name: str | None = None
    fail_on_data_loss: bool = True
    drops_unknown_damage: bool = False


class LogReader:
    """Reads ranges as batches of one schema."""

    def __init__(self, schema: pa.Schema, rules: ReadRules, files: Files | None = None) -> None:
        """Store the columns and the rules."""
        self._schema = schema
        self._rules = rules
        self._files = files or Files()
        self._is_told = CORRUPT_COLUMN in schema.names
        in_record = [name for name in schema.names if name not in {_BROKER_NAME, CORRUPT_COLUMN}]
        self._decoder = make_decoder(in_record, rules.selection, check_crc=rules.check_crc)

    def batches(
        self, ranges: Sequence[LogRange | QueueRange | PlacesRange]
    ) -> Iterator[pa.RecordBatch]:
        """Yield all selected rows of some ranges, in order."""
        for part in ranges:
            if not isinstance(part, LogRange):
                yield from self._apart(part)
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
            piece = self._decoder.decode(
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

    def _apart(self, part: QueueRange | PlacesRange) -> Iterator[pa.RecordBatch]:
        """Yield records that entries of a queue or of the index point to."""
        skips_lost = not self._rules.fail_on_data_loss
        try:
            if isinstance(part, PlacesRange):
                segment = part.segment
                gathered = gather_places(self._files, segment, part.offsets, part.end)
            else:
                segment = part.segments[0]
                gathered = gather(self._files, part, skips_lost=skips_lost)
            for found in gathered:
                if isinstance(found, DamagedRange):
                    yield from self._damage_batches(found, segment)
                else:
                    yield from self._gathered(found)
        except DataLost:
            if not skips_lost:
                raise

    def _gathered(self, found: Gathered) -> Iterator[pa.RecordBatch]:
        size = len(found.data)
        position = 0
        while position < size:
            piece = self._decoder.decode(found.data, position, size, size, -1)
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

    def _piece_batches(self, piece: DecodedRows) -> Iterator[pa.RecordBatch]:
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
        """Return the decompressed body, or what is wrong with it."""
        # The client takes half a second to import, which every process of Spark would spend.
        from roquet.client.compression import decompress  # noqa: PLC0415

        try:
            return decompress(data, sys_flag, max_bytes=BODY_BYTES_MAX), None
        except BadBody as error:
            if self._rules.mode == FAILFAST:
                raise CorruptRecord(
                    "A body of the log cannot be decompressed.",
                    detail=error.detail,
                    hint="To read it as stored, set decompress=false.",
                ) from None
            return data if self._is_told else None, f"body: {error.detail}"

    def _cut(
        self,
        piece: DecodedRows,
        begin: int,
        end: int,
        bodies: Sequence[bytes | None],
        problems: Sequence[str | None],
    ) -> Iterator[pa.RecordBatch]:
        """Yield some rows of a piece, with other bodies."""
        arrays = {name: array.slice(begin, end - begin) for name, array in piece.arrays.items()}
        arrays["body"] = pa.array(bodies[begin:end], pa.binary())
        told = problems[begin:end]
        arrays[CORRUPT_COLUMN] = pa.array(told, pa.string())
        batch = self._batch(arrays, end - begin)
        if self._rules.mode == DROPMALFORMED and any(told):
            batch = batch.filter(pa.array([problem is None for problem in told]))
        if batch.num_rows:
            yield batch

    def _damage_batches(self, damage: DamagedRange, segment: Segment) -> Iterator[pa.RecordBatch]:
        if self._rules.mode == FAILFAST:
            raise damage_error(damage, segment)
        row = damage_row(damage, is_told=self._is_told)
        if self._rules.mode == DROPMALFORMED or not self._is_wanted(damage, row):
            return
        arrays = {
            each.name: _one(row.get(each.name), each.type)
            for each in self._schema
            if each.name != _BROKER_NAME
        }
        yield self._batch(arrays, 1)

    def _is_wanted(self, damage: DamagedRange, row: Mapping[str, object]) -> bool:
        """Whether damage may affect selected rows; mostly it is unknown which record it was."""
        message, selection = damage.message, self._rules.selection
        if message is None:
            if self._rules.drops_unknown_damage:
                return False
        elif not selection.takes(
            message.topic, message.queue_id, message.store_timestamp_ms, message.properties
        ):
            return False
        return selection.takes_values(row.get)

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
