"""The log from record to record, across damage.

Owns the rule how to go on. A record whose lengths agree with each other leads to the next one even
if something else in it is wrong. Where lengths are wrong too, the next good record is searched by
its magic number, and ConsumeQueue entries tell which records lay in between. At the end of the log
nothing good follows: what is there is the tail.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from roquet.errors import CorruptRecord
from roquet.format.commit_log import (
    MAGIC_BLANK,
    Blank,
    DispatchRequest,
    RecordFault,
    check_record,
    decode_record,
)
from roquet.store.inspect.queues import QueueEntry
from roquet.store.inspect.view import MappedSegment, StoreView

_ZEROS = bytes(1 << 16)


class Damage(NamedTuple):
    """Bytes of the log that are no good record: from ``start`` to ``end``."""

    start: int
    end: int
    fault: RecordFault
    named: QueueEntry | None
    """The entry that says which record is meant, if a ConsumeQueue has one."""


class Damages:
    """Bad places of the log, told in their order, to be asked for by offset."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, damage: Damage) -> None:
        """Remember one behind all others."""
        self._starts.append(damage.start)
        self._ends.append(damage.end)

    def covers(self, physical_offset: int) -> bool:
        """Whether an offset is inside of one."""
        index = bisect_right(self._starts, physical_offset) - 1
        return index >= 0 and physical_offset < self._ends[index]

    def any_between(self, low: int, high: int) -> bool:
        """Whether one starts behind ``low`` and in front of ``high``."""
        index = bisect_right(self._starts, low)
        return index < len(self._starts) and self._starts[index] < high


class Tail(NamedTuple):
    """Where the log ends, and what is behind: nothing (zeros), or what a crash left."""

    physical_offset: int
    is_zero: bool
    fault: RecordFault
    named: list[QueueEntry]
    """Entries that ConsumeQueues have of records at or behind the end."""


class LogWalk:
    """One pass over the log.

    Args:
        view: The store.
        on_damage: Called for each run of bad bytes that good records follow.
        start: Physical offset of the record to begin with; by default the oldest.
        end: Physical offset to stop at; by default the walk finds the end of the log.

    Attributes:
        tail: How the log ends; ``None`` until the walk is over, or if it stopped at ``end``.
        position: Physical offset that the walk has reached.
        segment: The segment of the record given out last.
    """

    def __init__(
        self,
        view: StoreView,
        *,
        on_damage: Callable[[Damage], None],
        start: int | None = None,
        end: int | None = None,
    ) -> None:
        self._view = view
        self._on_damage = on_damage
        self._end = end
        self._next_good = -1
        self.tail: Tail | None = None
        self.position = view.min_offset if start is None else start
        self.segment: MappedSegment | None = None

    def records(self) -> Iterator[DispatchRequest]:
        """All good records in the order of the log."""
        view = self._view
        rules = view.rules
        end = view.max_offset if self._end is None else self._end
        while self.position < end:
            segment = self.segment = self._segment()
            if segment is None:
                return
            data, base, limit = segment.view, segment.part.start, segment.part.size_bytes
            position = self.position - base
            while base + position < end:
                found = check_record(
                    data, position, limit, physical_offset=base + position, rules=rules
                )
                if isinstance(found, DispatchRequest):
                    position += found.size_bytes
                    self.position = base + position
                    yield found
                    if position < limit:
                        continue
                    break
                self.position = base + position
                if not self._step_over(found, segment):
                    return
                position = self.position - base
                if not 0 <= position < limit:
                    break

    def _segment(self) -> MappedSegment | None:
        """The segment of the position; over a gap, or over segments deleted meanwhile, the next."""
        view = self._view
        while True:
            following = [part.start for part in view.segments if part.end > self.position]
            if not following:
                return None
            self.position = max(self.position, following[0])
            index = view.segment_index(self.position)
            segment = None if index is None else view.map_segment(index)
            if segment is not None:
                return segment
            self.position = view.segments[index].end if index is not None else following[0]

    def _step_over(self, found: Blank | RecordFault, segment: MappedSegment) -> bool:
        """Move behind what is no record; false at the end of the log."""
        offset = self.position
        rest = segment.part.end - offset
        if isinstance(found, Blank):
            if found.size_bytes == rest:
                self.position = segment.part.end
                return True
            detail = f"the segment's end says {found.size_bytes}, {rest} bytes are left"
            found = RecordFault(offset, "totalSize", detail)
        following = self._following(offset, segment)
        if following is None:
            self.tail = self._tail(offset, found)
            return False
        self._report(offset, following, found, segment)
        self.position = following
        return True

    def _following(self, offset: int, segment: MappedSegment) -> int | None:
        """Where to go on behind a bad record at ``offset``; ``None`` if nothing good follows."""
        end = self._view.max_offset if self._end is None else self._end
        after = offset
        size = shape_size(segment, offset)
        if size is not None:
            after = offset + size - 1
            if self._is_start(offset + size, segment):
                return offset + size
        if self._next_good <= after:
            found = self._view.next_record(after, end)
            if found is None:
                return None if self._end is None or offset >= end else end
            self._next_good = found.physical_offset
        return offset + size if size is not None else self._next_good

    def _is_start(self, offset: int, segment: MappedSegment) -> bool:
        """Whether a good record, or the end of the segment, is at an offset."""
        if offset == segment.part.end:
            return self._view.next_record(offset - 1, self._view.max_offset) is not None
        found = self._view.check_at(offset)
        if isinstance(found, Blank):
            return self._view.next_record(offset, self._view.max_offset) is not None
        return isinstance(found, DispatchRequest)

    def _report(self, start: int, end: int, fault: RecordFault, segment: MappedSegment) -> None:
        """Tell of a bad record, and of every further one that lay before ``end``."""
        named = self._view.entries_between(start, end)
        first = next((entry for entry in named if entry.unit.physical_offset == start), None)
        starts = sorted({entry.unit.physical_offset for entry in named} | {start})
        stops = [*starts[1:], end]
        for size in (stops[0] - start, 0 if first is None else first.unit.size_bytes):
            fault = _refine(fault, start, start + size, segment, self._view)
        self._on_damage(Damage(start, stops[0], fault, first))
        following = dict(zip(starts, stops, strict=True))
        for entry in named:
            offset = entry.unit.physical_offset
            if offset == start:
                continue
            found = self._view.check_at(offset)
            if isinstance(found, DispatchRequest):
                continue
            if isinstance(found, Blank):
                found = RecordFault(offset, "magic", "the end of a segment stands here")
            found = _refine(found, offset, following[offset], segment, self._view)
            self._on_damage(Damage(offset, following[offset], found, entry))

    def _tail(self, offset: int, fault: RecordFault) -> Tail:
        view = self._view
        named = view.entries_between(offset, view.max_offset)
        index = view.segment_index(offset) or 0
        is_zero = True
        for number in range(index, len(view.segments)):
            segment = view.map_segment(number)
            if segment is None:
                continue
            is_zero = is_zero and _is_zero(segment, max(offset - segment.part.start, 0))
            if number == index and named and named[0].unit.physical_offset == offset:
                fault = _refine(fault, offset, named[0].unit.end_offset, segment, view)
        return Tail(offset, is_zero, fault, named)


def shape_size(segment: MappedSegment, physical_offset: int) -> int | None:
    """Length of the record at an offset if all its lengths agree, whatever else is wrong."""
    try:
        message = decode_record(
            segment.view, physical_offset - segment.part.start, segment.part.size_bytes
        )
    except CorruptRecord:
        return None
    return message.store_size


def _refine(
    fault: RecordFault, start: int, end: int, segment: MappedSegment, view: StoreView
) -> RecordFault:
    """Blame totalSize if the record is good with the size that its neighbour suggests."""
    if fault.field in {"magic", "physicalOffset"} or not 0 < end - start <= segment.part.size_bytes:
        return fault
    data = bytearray(view.bytes_at(start, end - start))
    if len(data) != end - start or data[4:8] == MAGIC_BLANK.to_bytes(4, "big"):
        return fault
    stated = int.from_bytes(data[:4], "big", signed=True)
    data[:4] = len(data).to_bytes(4, "big")
    good = check_record(data, 0, len(data), physical_offset=start, rules=view.rules)
    if not isinstance(good, DispatchRequest):
        return fault
    detail = f"says {stated}, the record has {len(data)} bytes"
    return RecordFault(start, "totalSize", detail)


def _is_zero(segment: MappedSegment, position: int) -> bool:
    """Whether nothing was ever written from a position to the end of a segment."""
    for start in range(position, segment.part.size_bytes, len(_ZEROS)):
        piece = segment.mapping[start : start + len(_ZEROS)]
        if piece != _ZEROS[: len(piece)]:
            return False
    return True
