"""Records of a range of the log, one by one, with what is damaged between them.

Owns the walk of the pipelines that look at every record as a whole. Ranges are as
:mod:`roquet.spark.log.splits` cuts them; the last one may go on to the end of the last file, where
nothing was ever written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from roquet.format.commit_log import (
    RECORD_BYTES_MIN,
    Blank,
    DispatchRequest,
    RecordRules,
    check_record,
)
from roquet.runtime.files import Files
from roquet.spark.log.corrupt import damage_at
from roquet.spark.log.reading import LogRange
from roquet.spark.log.splits import Cutter, plan_at
from roquet.spark.log.store_files import LogFiles
from roquet.spark.log.window import Window, claimed_bytes

_PIECE_BYTES = 1 << 20
_ZEROS = bytes(_PIECE_BYTES)


class Hurt(NamedTuple):
    """Bytes of the log that are no good record: from ``start`` to ``end``."""

    start: int
    end: int
    field: str
    detail: str
    is_zero: bool
    """Whether nothing was ever written there."""


class Found(NamedTuple):
    """A good record, and where its bytes are while nothing else is read."""

    record: DispatchRequest
    data: memoryview
    start: int


def plan_whole(
    log: LogFiles, *, start: int, stop: int, is_open: bool, split_bytes: int, tasks_min: int
) -> list[list[LogRange]]:
    """Cut a log into tasks for a walk that also looks at its end.

    Args:
        log: The log.
        start: Physical offset of the first record.
        stop: Physical offset of the end.
        is_open: Whether the last task goes on to the end of the last file.
        split_bytes: About how much a task reads.
        tasks_min: How many tasks there are to be at least.
    """
    total = max(stop - start, 0)
    count = max(tasks_min, -(-total // split_bytes), 1)
    cuts = [start + total * number // count for number in range(1, count)]
    if is_open and log.segments:
        stop = max(stop, log.segments[-1].end)
    return plan_at(log, start, stop, cuts)


def time_bounds(
    log: LogFiles, start: int, stop: int, from_ms: int | None, to_ms: int | None
) -> tuple[int, int]:
    """The part of a range whose records were stored in a range of time."""
    cutter = Cutter(log)
    low = start if from_ms is None else cutter.time_from(from_ms, start, stop)
    high = stop if to_ms is None else cutter.time_from(to_ms, start, stop)
    return low, max(low, high)


def records_of(
    files: Files, part: LogRange, rules: RecordRules, on_hurt: Callable[[Hurt], None]
) -> Iterator[Found]:
    """The good records of a part of one segment.

    Args:
        files: The way to the disk.
        part: The part.
        rules: What is checked.
        on_hurt: Told of damaged bytes, before the record behind them is given.
    """
    offset = part.start
    with Window(files, part.segment, limit=part.stop) as window:
        while offset < part.stop:
            rest = part.end - offset
            if not window.has(offset, min(RECORD_BYTES_MIN, rest)):
                window.load(offset, min(RECORD_BYTES_MIN, rest))
            size = claimed_bytes(window, offset)
            if RECORD_BYTES_MIN <= size <= rest and not window.has(offset, size):
                window.load(offset, size)
            position = offset - window.base
            limit = min(part.end - window.base, len(window.view))
            found = check_record(window.view, position, limit, physical_offset=offset, rules=rules)
            if isinstance(found, DispatchRequest):
                offset += found.size_bytes
                yield Found(found, window.view, position)
                continue
            if isinstance(found, Blank) and found.size_bytes == part.segment.end - offset:
                return
            damage = damage_at(window, offset, part.stop, part.end, check_crc=True)
            if damage is None:
                return
            fault = damage.fault
            is_zero = damage.message is None and _is_zero(window, damage.start, damage.end)
            on_hurt(Hurt(damage.start, damage.end, fault.field, fault.detail, is_zero))
            offset = damage.end


def record_at(log: LogFiles, physical_offset: int, rules: RecordRules) -> DispatchRequest | None:
    """The good record at an offset, ``None`` if there is none."""
    segment = log.segment_of(physical_offset)
    if segment is None:
        return None
    rest = segment.end - physical_offset
    with Window(log.files, segment, limit=physical_offset) as window:
        head = window.need(physical_offset, min(RECORD_BYTES_MIN, rest))
        size = int.from_bytes(head[:4], "big", signed=True)
        if not RECORD_BYTES_MIN <= size <= rest:
            return None
        data = window.need(physical_offset, size)
        found = check_record(data, 0, size, physical_offset=physical_offset, rules=rules)
    return found if isinstance(found, DispatchRequest) else None


def _is_zero(window: Window, start: int, end: int) -> bool:
    for at in range(start, end, _PIECE_BYTES):
        size_bytes = min(_PIECE_BYTES, end - at)
        if bytes(window.need(at, size_bytes)) != _ZEROS[:size_bytes]:
            return False
    return True
