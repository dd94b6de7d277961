"""Walks the whole log from record to record, across damage.

Tells damage in the middle of a log from its end: damage counts once a valid record follows it;
otherwise it is the tail. ConsumeQueue entries show which records were in damaged bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from roquet.errors import DataLost
from roquet.format.commit_log import Blank, DispatchRequest, RecordFault, check_record
from roquet.format.record_layout import MAGIC_BLANK
from roquet.storefiles.damage import DamagedRange
from roquet.storefiles.queues import QueueEntry
from roquet.storefiles.records import FoundRecord, LogRange, records_of
from roquet.storefiles.view import StoreView


class BadRecord(NamedTuple):
    """Bytes of the log that are not a valid record: from ``start`` to ``end``."""

    start: int
    end: int
    fault: RecordFault
    named: QueueEntry | None
    """The entry of the record that should be here, if a ConsumeQueue has one."""


class Tail(NamedTuple):
    """Where the log ends, and what follows: nothing (zeros), or what a crash left."""

    physical_offset: int
    is_zero: bool
    fault: RecordFault
    named: list[QueueEntry]
    """ConsumeQueue entries of records at or after the end."""


class LogWalk:
    """One pass over the log.

    Args:
        view: The store.
        on_damage: Called for each bad record that a valid one follows.
        start: Physical offset of the record to begin with; by default the oldest.
        end: Physical offset to stop at; by default the walk finds the end of the log.

    Attributes:
        tail: How the log ends; ``None`` until the walk is over, or if it stopped at ``end``.
        position: Physical offset that the walk has reached.
    """

    def __init__(
        self,
        view: StoreView,
        *,
        on_damage: Callable[[BadRecord], None],
        start: int | None = None,
        end: int | None = None,
    ) -> None:
        self._view = view
        self._on_damage = on_damage
        self._end = end
        self._held: list[DamagedRange] = []
        self.tail: Tail | None = None
        self.position = view.min_offset if start is None else start

    def records(self) -> Iterator[DispatchRequest]:
        """All valid records in the order of the log."""
        return (found.record for found in self.found())

    def found(self) -> Iterator[FoundRecord]:
        """All valid records in the order of the log, with their bytes."""
        view, start = self._view, self.position
        end = view.max_offset if self._end is None else self._end
        for part in view.segments:
            low, high = max(start, part.start), min(end, part.end)
            if low >= high:
                continue
            try:
                here = LogRange(part, low, high, part.end)
                for found in records_of(view.files, here, view.rules, self._held.append):
                    if self._held:
                        self._release()
                    self.position = found.record.end_offset
                    yield found
            except DataLost:
                continue  # retention removed it while a broker runs
            if not self._held:
                self.position = max(self.position, high)
        if self._held and self._end is None:
            self.tail = self._tail()
        else:
            self._release()
            self.position = max(self.position, end)

    def _release(self) -> None:
        """Report damage that turned out not to be the end of the log."""
        for damage in self._held:
            self._report(damage)
        self._held.clear()

    def _report(self, damage: DamagedRange) -> None:
        """Report a bad record, and every further one before ``damage.end``."""
        view, start, fault = self._view, damage.start, damage.fault
        named = view.entries_between(start, damage.end)
        first = next((entry for entry in named if entry.unit.physical_offset == start), None)
        starts = sorted({entry.unit.physical_offset for entry in named} | {start})
        stops = [*starts[1:], damage.end]
        for size in (stops[0] - start, 0 if first is None else first.unit.size_bytes):
            fault = _refine(fault, start, start + size, view)
        self._on_damage(BadRecord(start, stops[0], fault, first))
        following = dict(zip(starts, stops, strict=True))
        for entry in named:
            offset = entry.unit.physical_offset
            if offset == start:
                continue
            found = view.check_at(offset)
            if isinstance(found, DispatchRequest):
                continue
            if isinstance(found, Blank):
                found = RecordFault(offset, "magic", "the end of a segment is here")
            found = _refine(found, offset, following[offset], view)
            self._on_damage(BadRecord(offset, following[offset], found, entry))

    def _tail(self) -> Tail:
        offset, fault = self._held[0].start, self._held[0].fault
        named = self._view.entries_between(offset, self._view.max_offset)
        if named and named[0].unit.physical_offset == offset:
            fault = _refine(fault, offset, named[0].unit.end_offset, self._view)
        return Tail(offset, all(each.is_zero for each in self._held), fault, named)


def _refine(fault: RecordFault, start: int, end: int, view: StoreView) -> RecordFault:
    """Blame totalSize if the record is valid with the size that its neighbour suggests."""
    size_max = view.segment_bytes
    if fault.field in {"magic", "physicalOffset"} or not 0 < end - start <= size_max:
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
