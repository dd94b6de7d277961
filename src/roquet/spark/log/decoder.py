"""Bytes of the log to Arrow arrays, by the compiled lane or by numpy.

Owns the choice between the two, and how the buffers of the compiled lane become arrays. Both give
the same; tests feed them the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

from roquet.format.commit_log import DispatchRequest, RecordRules, check_record
from roquet.model.delay_level import DelayLevels
from roquet.model.host import Host
from roquet.model.properties import decode_properties
from roquet.runtime import compiled
from roquet.spark.log import arrow_numpy
from roquet.spark.log.arrow_numpy import BLANK, ENDED, FAULT, FULL, MORE, NumpyDecoder
from roquet.spark.log.selection import Selection
from roquet.spark.schema import COLUMNS

if TYPE_CHECKING:
    from roquet._arrow import Block

_arrow: ModuleType | None = None
if compiled.is_wanted():
    try:
        from roquet import _arrow
    except ImportError:  # not built
        _arrow = None

__all__ = [
    "BLANK",
    "ENDED",
    "FAULT",
    "FULL",
    "MORE",
    "Lane",
    "Piece",
    "is_compiled",
    "lane",
    "walk",
]

ROWS_MAX = 32_768
BYTES_MAX = 16 << 20
RULES = RecordRules(DelayLevels())

_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_MAP = pa.map_(pa.string(), pa.string())
_Varying = tuple[int, int, int, int, int]


class Piece(NamedTuple):
    """Rows that were decoded at once.

    Attributes:
        rows: How many.
        arrays: By name: the columns that were asked for.
        compressed: Row and system flag of each compressed body.
        reached: Position behind the last record that was looked at.
        why: Why it ends there.
    """

    rows: int
    arrays: dict[str, pa.Array]
    compressed: list[tuple[int, int]]
    reached: int
    why: int


class Lane(Protocol):
    """Decodes records; see :meth:`roquet._arrow.Decoder.decode`."""

    def decode(self, data: memoryview, position: int, stop: int, end: int, base: int) -> Piece:
        """Decode the records from ``position`` on that start in front of ``stop``."""


class _CompiledLane:
    """Blocks of ``roquet._arrow`` as arrays; a block lives as long as one of its arrays."""

    def __init__(self, columns: Iterable[str], selection: Selection, *, check_crc: bool) -> None:
        assert _arrow is not None
        self._columns = tuple(columns)
        self._decoder = _arrow.Decoder(**_arguments(self._columns, selection, check_crc=check_crc))

    def decode(self, data: memoryview, position: int, stop: int, end: int, base: int) -> Piece:
        block, reached, why = self._decoder.decode(data, position, stop, end, base)
        arrays = {name: _array(block, name) for name in self._columns} if block.rows else {}
        return Piece(block.rows, arrays, block.compressed, reached, why)


class _NumpyLane:
    """The reference."""

    def __init__(self, columns: Iterable[str], selection: Selection, *, check_crc: bool) -> None:
        self._decoder = NumpyDecoder(**_arguments(columns, selection, check_crc=check_crc))

    def decode(self, data: memoryview, position: int, stop: int, end: int, base: int) -> Piece:
        block, reached, why = self._decoder.decode(data, position, stop, end, base)
        return Piece(block.rows, block.arrays, block.compressed, reached, why)


def is_compiled() -> bool:
    """Whether the compiled lane is used."""
    return _arrow is not None


def lane(columns: Iterable[str], selection: Selection, *, check_crc: bool) -> Lane:
    """The quickest lane that is there.

    Args:
        columns: What to decode: columns of :data:`roquet.spark.schema.COLUMNS` that a record has.
        selection: Which rows.
        check_crc: Whether bodies are checked against their CRC.
    """
    kind = _NumpyLane if _arrow is None else _CompiledLane
    return kind(columns, selection, check_crc=check_crc)


def walk(
    data: memoryview, position: int, stop: int, end: int, base: int, *, records_max: int
) -> tuple[int, int, int]:
    """Step from record to record; see :func:`roquet._arrow.walk`."""
    step: Callable[..., tuple[int, int, int]] = arrow_numpy.walk if _arrow is None else _arrow.walk
    return step(data, position, stop, end, base, records_max=records_max)


def _arguments(columns: Iterable[str], selection: Selection, *, check_crc: bool) -> dict[str, Any]:
    return {
        "columns": columns,
        "rows_max": ROWS_MAX,
        "bytes_max": BYTES_MAX,
        "check_crc": check_crc,
        "takes_topic": selection.topic_test(),
        "queue_ids": selection.queue_ids,
        "key_bytes": [key.encode() for key in selection.keys],
        "takes_keys": selection.takes_keys,
        "store_from_ms": selection.store_from_ms,
        "store_to_ms": selection.store_to_ms,
        "is_good": _is_good,
        "read_properties": decode_properties,
        "read_host": _host_text,
    }


def _is_good(record: bytes, physical_offset: int) -> bool:
    if physical_offset < 0:  # it comes from anywhere, so what it says is right
        physical_offset = int.from_bytes(record[28:36], "big", signed=True)
    found = check_record(record, 0, len(record), physical_offset=physical_offset, rules=RULES)
    return isinstance(found, DispatchRequest)


def _host_text(packed: bytes) -> str:
    return str(Host.unpack(packed))


def _array(block: Block, name: str) -> pa.Array:
    assert _arrow is not None
    if name == _arrow.MAP_NAME:
        return _map_array(block)
    kind = _TYPES[COLUMNS[name]]
    rows: int = block.rows
    if name in _arrow.FIXED_NAMES:
        nulls, valid, address, size = block.fixed(name)
        buffers = [_validity(block, nulls, valid, rows), _buffer(block, address, size)]
        return pa.Array.from_buffers(kind, rows, buffers, nulls)
    return _varying(block, kind, rows, block.varying(name))


def _varying(block: Block, kind: pa.DataType, rows: int, parts: _Varying) -> pa.Array:
    nulls, valid, offsets, address, size = parts
    buffers = [
        _validity(block, nulls, valid, rows),
        _buffer(block, offsets, (rows + 1) * 4),
        _buffer(block, address, size),
    ]
    return pa.Array.from_buffers(kind, rows, buffers, nulls)


def _map_array(block: Block) -> pa.Array:
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


def _validity(block: Block, nulls: int, address: int, rows: int) -> pa.Buffer | None:
    return _buffer(block, address, (rows + 7) // 8) if nulls else None


def _buffer(block: Block, address: int, size: int) -> pa.Buffer:
    """Memory of a block, which stays as it is while the buffer is used."""
    return pa.foreign_buffer(address, size, block) if size else pa.py_buffer(b"")
