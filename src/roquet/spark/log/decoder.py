"""Chooses the decoder from log to Arrow columns, and wraps compiled code's output in arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import pyarrow as pa

from roquet.runtime import compiled
from roquet.spark.log import row_decoder
from roquet.spark.log.row_decoder import (
    ARROW_TYPES,
    BLANK,
    ENDED,
    FAULT,
    FULL,
    MORE,
    DecodedRows,
    RowDecoder,
)
from roquet.spark.log.selection import Selection
from roquet.spark.schema import COLUMNS

if compiled.is_built("roquet.spark.log._decoder"):
    from roquet.spark.log import _columns, _decoder, _walk

__all__ = [
    "BLANK",
    "ENDED",
    "FAULT",
    "FULL",
    "MORE",
    "ColumnDecoder",
    "DecodedRows",
    "Decoder",
    "is_compiled",
    "make_decoder",
    "walk",
]

_MAP = pa.map_(pa.string(), pa.string())
_Varying = tuple[int, int, int, int, int]


class Decoder(Protocol):
    """Decodes records; see :meth:`RowDecoder.decode`."""

    def decode(
        self, data: memoryview, position: int, stop: int, end: int, base: int
    ) -> DecodedRows:
        """Decode the records that start at or after ``position`` and before ``stop``."""
        ...


class ColumnDecoder:
    """Compiled :class:`RowDecoder`; a block stays alive while any of its arrays does."""

    def __init__(self, columns: Iterable[str], selection: Selection, *, check_crc: bool) -> None:
        self._columns = tuple(columns)
        self._decoder = _decoder.Decoder(
            self._columns,
            selection,
            check_crc=check_crc,
            rows_max=row_decoder.ROWS_MAX,
            bytes_max=row_decoder.BYTES_MAX,
        )

    def decode(
        self, data: memoryview, position: int, stop: int, end: int, base: int
    ) -> DecodedRows:
        """As :meth:`RowDecoder.decode`."""
        block, reached, why = self._decoder.decode(data, position, stop, end, base)
        arrays = {name: _array(block, name) for name in self._columns} if block.rows else {}
        return DecodedRows(block.rows, arrays, block.compressed, reached, why)


def is_compiled() -> bool:
    """Whether the compiled decoder is in use."""
    return compiled.is_used("roquet.spark.log._decoder")


def make_decoder(columns: Iterable[str], selection: Selection, *, check_crc: bool) -> Decoder:
    """Return the fastest available decoder; takes the arguments of :class:`RowDecoder`."""
    kind = ColumnDecoder if is_compiled() else RowDecoder
    return kind(columns, selection, check_crc=check_crc)


def walk(
    data: memoryview, position: int, stop: int, end: int, base: int, *, records_max: int
) -> tuple[int, int, int]:
    """Step from record to record; see :func:`roquet.spark.log.row_decoder.walk`."""
    step = _walk.walk if is_compiled() else row_decoder.walk
    return step(data, position, stop, end, base, records_max=records_max)


def _array(block: _columns.Block, name: str) -> pa.Array:
    if name == _columns.MAP_NAME:
        return _map_array(block)
    kind = ARROW_TYPES[COLUMNS[name]]
    rows: int = block.rows
    if name in _columns.FIXED_NAMES:
        nulls, valid, address, size = block.fixed(name)
        buffers = [_validity(block, nulls, valid, rows), _buffer(block, address, size)]
        return pa.Array.from_buffers(kind, rows, buffers, nulls)
    return _varying(block, kind, rows, block.varying(name))


def _varying(block: _columns.Block, kind: pa.DataType, rows: int, parts: _Varying) -> pa.Array:
    nulls, valid, offsets, address, size = parts
    buffers = [
        _validity(block, nulls, valid, rows),
        _buffer(block, offsets, (rows + 1) * 4),
        _buffer(block, address, size),
    ]
    return pa.Array.from_buffers(kind, rows, buffers, nulls)


def _map_array(block: _columns.Block) -> pa.Array:
    offsets, pairs, names, values = block.entries()
    rows: int = block.rows
    entries = pa.StructArray.from_arrays(
        [
            _varying(block, pa.string(), pairs, names),
            _varying(block, pa.string(), pairs, values),
        ],
        fields=[_MAP.key_field, _MAP.item_field],
    )
    buffers = [None, _buffer(block, offsets, (rows + 1) * 4)]
    return pa.Array.from_buffers(_MAP, rows, buffers, 0, children=[entries])


def _validity(block: _columns.Block, nulls: int, address: int, rows: int) -> pa.Buffer | None:
    return _buffer(block, address, (rows + 7) // 8) if nulls else None


def _buffer(block: _columns.Block, address: int, size: int) -> pa.Buffer:
    """Return memory of a block, which is kept while the buffer is in use."""
    return pa.foreign_buffer(address, size, block) if size else pa.py_buffer(b"")
