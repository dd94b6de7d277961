"""Segments of a log to columns: the compiled decoder beside the reference.

The bytes end right before a protected page, so that reading one byte too far ends the process.
"""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

from fuzz.outcome import size_class
from roquet.errors import CorruptRecord
from roquet.format.commit_log import (
    DispatchRequest,
    RecordRules,
    check_record,
    decode_record,
    end_of_segment,
)
from roquet.format.record_layout import MAGIC_V2
from roquet.model.delay_level import DelayLevels
from roquet.spark.log import decoder, row_decoder
from roquet.spark.log.decoder import ENDED, FAULT, FULL, MORE
from roquet.spark.log.selection import Selection
from roquet.spark.schema import COLUMNS

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "data"
RECORDS_OF_A_SEED = 3
BYTES_MAX = 1 << 16
BASE = 0
TOKENS = (
    MAGIC_V2.to_bytes(4, "big"),
    end_of_segment(8),
    b"\x00\x00\x00\x5b",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x30",
    b"KEYS\x01k\x02",
    b"TAGS\x01",
    b"\x02\x01",
    b"\xed\xa0\x80",
    b"__CRC32#\x010123456789\x02",
)
_NAMES = tuple(name for name in COLUMNS if name != "brokerName")
_RULES = {
    is_checked: RecordRules(DelayLevels(), check_crc=is_checked) for is_checked in (False, True)
}


class _Guarded:
    """Memory followed by a page that cannot be read."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, BYTES_MAX + mmap.PAGESIZE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        assert libc.mprotect(start + BYTES_MAX, mmap.PAGESIZE, 0) == 0

    def put(self, data: bytes) -> memoryview:
        """The bytes, right in front of that page."""
        self._memory[BYTES_MAX - len(data) : BYTES_MAX] = data
        return memoryview(self._memory)[BYTES_MAX - len(data) : BYTES_MAX]


_guarded = _Guarded()


def seeds() -> list[bytes]:
    """The first records of golden stores, and of one with long topics and IPv6."""
    found = []
    for segment in sorted(GOLDEN.glob("store-*/commitlog/00000000000000000000")):
        data = segment.read_bytes()
        position = 0
        for _ in range(RECORDS_OF_A_SEED):
            record = check_record(
                data, position, len(data), physical_offset=position, rules=_RULES[True]
            )
            if not isinstance(record, DispatchRequest):
                break
            position += record.size_bytes
        found.append(data[:position] + end_of_segment(8))
    return found


def fuzz_one(data: bytes) -> str:
    """Both decoders read the same, and refuse damaged records."""
    data = data[:BYTES_MAX]
    words = [_compare(data, is_checked=is_checked) for is_checked in (False, True)]
    _walks(data)
    return ", ".join(words)


def _compare(data: bytes, *, is_checked: bool) -> str:
    view = _guarded.put(data)
    selection = Selection()
    fast = decoder.ColumnDecoder(_NAMES, selection, check_crc=is_checked)
    plain = row_decoder.RowDecoder(_NAMES, selection, check_crc=is_checked)
    position = rows = 0
    while True:
        ours = fast.decode(view, position, len(data), len(data), BASE)
        theirs = plain.decode(view, position, len(data), len(data), BASE)
        assert (ours.rows, ours.reached, ours.why) == (theirs.rows, theirs.reached, theirs.why)
        for name in ours.arrays:
            ours.arrays[name].validate(full=True)
            assert ours.arrays[name].equals(theirs.arrays[name]), name
        assert ours.compressed == theirs.compressed
        rows += ours.rows
        position = ours.reached
        if ours.why != FULL:
            break
    assert ours.why != MORE, "all there is was given"
    if ours.why == FAULT:
        found = check_record(
            data, position, len(data), physical_offset=position, rules=_RULES[is_checked]
        )
        assert not isinstance(found, DispatchRequest)
    elif ours.why == ENDED:
        assert position == len(data)
    return f"{size_class(rows)} rows, {ours.why}"


def _walks(data: bytes) -> None:
    view = _guarded.put(data)
    arguments = (view, 0, len(data), len(data), BASE)
    records, reached, _ = decoder.walk(*arguments, records_max=1 << 30)
    assert row_decoder.walk(*arguments, records_max=1 << 30)[:2] == (records, reached)
    position = 0
    for _ in range(records):
        try:
            position += decode_record(data, position, len(data)).store_size
        except CorruptRecord as error:
            raise AssertionError("a record that was walked over is none") from error
    assert position == reached
