"""The log against the ConsumeQueues of both types: each record has an entry, each entry a record.

Owns the rules. Each range of the log is checked by a :class:`QueueChecker`; what depends on other
ranges is in its ``parts``, which :mod:`roquet.storefiles.queue_leftovers` joins after all records.
One range may be the whole log. Memory grows with the number of queues, not of messages.

These look wrong but are not:

* An entry of a record older than the log has expired.
* When a topic is deleted and re-created, its offsets start at 0 again, and the records of its
  former life have no entries.
* A Java broker that truncated its log leaves old entries after the end of a queue.
* A running or crashed broker may not have written all entries yet.
* Filler stands for messages that are known to be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from roquet.format.batch_consume_queue import (
    BatchCqUnit,
    batch_size_of,
    batch_unit_of,
)
from roquet.format.commit_log import DispatchRequest
from roquet.format.consume_queue import UNIT, UNIT_BYTES, CqUnit
from roquet.format.consume_queue_ext import is_ext_address
from roquet.format.derived import QueueKey, light_places
from roquet.model import sys_flag as flags
from roquet.storefiles import faults
from roquet.storefiles.damage import DamagedRanges
from roquet.storefiles.faults import Listener, StoreFault, record_fault
from roquet.storefiles.queues import BatchQueueView, QueueView
from roquet.storefiles.view import StoreView

HELD_RECORDS_MAX = 1 << 13
"""How many records are collected before they are compared with entries."""

_BATCH_FIELDS = {
    "size": "size_bytes",
    "tagsCode": "tags_code",
    "storeTimestamp": "store_timestamp_ms",
    "msgBaseOffset": "base_offset",
    "batchSize": "batch_size",
}


@dataclass(frozen=True, kw_only=True)
class QueueRules:
    """What every check of queues needs to know.

    Attributes:
        known_topics: Topics that the broker has; ``None`` if unknown.
        batch_topics: Topics whose queues are of the batch type.
        topics: Topics whose queues are checked; empty for all.
        is_running: Whether a broker has the store open.
        has_crashed: Whether the last broker did not close it.
    """

    known_topics: frozenset[str] | None
    batch_topics: frozenset[str]
    topics: frozenset[str] = frozenset()
    is_running: bool
    has_crashed: bool

    @classmethod
    def of(cls, view: StoreView, topics: Iterable[str] = ()) -> QueueRules:
        """The rules for a store as it is now."""
        known = view.known_topics()
        return cls(
            known_topics=None if known is None else frozenset(known),
            batch_topics=frozenset(view.batch_topics()),
            topics=frozenset(topics),
            is_running=view.is_running,
            has_crashed=view.crashed,
        )

    def takes(self, topic: str) -> bool:
        """Whether the queues of a topic are checked."""
        return not self.topics or topic in self.topics


@dataclass(slots=True)
class Run:
    """Adjacent entries with the same outcome, and the records of the first and the last.

    Attributes:
        start: Number of the first entry; where entries are missing, its queue offset.
        end: The same for the one after the last.
        count: How many there are.
        first_physical: Where the record of the first is.
        last_physical: Where the record of the last is.
    """

    start: int
    end: int
    count: int
    first_physical: int
    last_physical: int


@dataclass(slots=True)
class QueueRangeState:
    """What a range holds of one queue.

    Attributes:
        first_offset: Queue offset of the first record; -1 if none has one of its own.
        first_physical: Where that record is.
        last_physical: Where the last record is.
        expected: Queue offset that has to follow; -1 if unknown.
        alternative: Another one that may follow after a wrong one; -1 for none.
        compared: Entries that were compared, by number.
        missing: Records whose entries are missing, by queue offset.
    """

    first_offset: int = -1
    first_physical: int = -1
    last_physical: int = -1
    expected: int = -1
    alternative: int = -1
    compared: list[Run] = field(default_factory=list)
    missing: list[Run] = field(default_factory=list)


class RecordRun(NamedTuple):
    """Consecutive records of one queue: where they are, and the entries that they must have."""

    first_offset: int
    first_physical: int
    last_physical: int
    units: bytes


_Held = tuple[int, tuple[int, int, int], int]
"""A record's queue offset, the fields of its entry and its store time; no object is kept."""


class _EntryOffsets(NamedTuple):
    """An entry's number, and the offsets of its record in the log and in the queue."""

    queue: QueueView
    number: int
    physical_offset: int
    queue_offset: int


class QueueChecker:
    """Compares the records of a range, in order, with their entries.

    Args:
        view: The store.
        rules: What is known about it.
        listener: Receives the faults.
        start: Physical offset where the range starts.
        damages: Damaged bytes of the range, as far as known by now.

    Attributes:
        parts: What the range holds of each queue.
    """

    def __init__(
        self,
        view: StoreView,
        rules: QueueRules,
        listener: Listener,
        *,
        start: int,
        damages: DamagedRanges,
    ) -> None:
        self._view = view
        self._rules = rules
        self._listener = listener
        self._start = start
        self._damages = damages
        self._batch_topics = set(rules.batch_topics)
        self._simple_topics = {key.topic for key in view.queues}
        self._next_numbers: dict[QueueKey, int] = {}
        self._ends: dict[QueueKey, int] = {}
        self._held: dict[QueueKey, list[_Held]] = {}
        self._held_count = 0
        self.parts: dict[QueueKey, QueueRangeState] = {}

    def on_record(self, record: DispatchRequest) -> None:
        """Check the next record."""
        for light, queue_offset in light_places(record):
            self._hold(light, queue_offset, record)
        if flags.takes_queue_offset(record.sys_flag):
            key = QueueKey(record.topic, record.queue_id)
            is_dense = self._is_dense(key, record)
            if self._has_batches(record):
                self._compare_batch(key, record)
            elif is_dense:
                self._hold(key, record.queue_offset, record)
        if self._held_count >= HELD_RECORDS_MAX:
            self.flush()

    def take_run(self, key: QueueKey, run: RecordRun) -> bool:
        """Check the next records of one queue together.

        Returns:
            Whether they follow the records before them and equal their entries. If not, nothing has
            changed, and the caller has to check them one by one.
        """
        part, count = self._part(key), len(run.units) // UNIT_BYTES
        if part.expected not in {-1, run.first_offset} or key.topic in self._batch_topics:
            return False
        if self._rules.takes(key.topic):
            queue = self._view.queues.get(key)
            if queue is None or queue.read(run.first_offset, count) != run.units:
                return False
            if key in self._held:
                self.flush()
            compared = Run(
                run.first_offset,
                run.first_offset + count,
                count,
                run.first_physical,
                run.last_physical,
            )
            _append(part.compared, compared)
        if part.expected < 0:
            part.first_offset, part.first_physical = run.first_offset, run.first_physical
        part.last_physical = run.last_physical
        part.expected, part.alternative = run.first_offset + count, -1
        return True

    def _has_batches(self, record: DispatchRequest) -> bool:
        """Whether a record belongs in a batch consume queue."""
        if record.sys_flag & flags.INNER_BATCH and record.topic not in self._simple_topics:
            self._batch_topics.add(record.topic)
        return record.topic in self._batch_topics

    def _part(self, key: QueueKey) -> QueueRangeState:
        part = self.parts.get(key)
        if part is None:
            part = self.parts[key] = QueueRangeState()
        return part

    # -- queue offsets follow each other -----------------------------------------------------

    def _is_dense(self, key: QueueKey, record: DispatchRequest) -> bool:
        """Whether the record's queue offset follows the one before it in its queue."""
        part, offset, step = self._part(key), record.queue_offset, batch_size_of(record)
        before, part.last_physical = part.last_physical, record.physical_offset
        if part.expected < 0:
            part.first_offset, part.first_physical = offset, record.physical_offset
        elif offset not in {part.expected, part.alternative} and not is_explained(
            self._view,
            self._rules,
            self._listener,
            Step(key, offset, part.expected, before, record.physical_offset),
            self._damages,
        ):
            if self._rules.takes(key.topic):
                kind = faults.GAP if offset > part.expected else faults.DUPLICATE
                detail = f"{offset}, expected {part.expected}"
                self._listener.add(record_fault(kind, record, "queueOffset", detail))
            part.expected, part.alternative = part.expected + step, offset + step
            return False
        part.expected, part.alternative = offset + step, -1
        return True

    # -- records and entries -----------------------------------------------------------------

    def _hold(self, key: QueueKey, queue_offset: int, record: DispatchRequest) -> None:
        if self._rules.takes(key.topic):
            wanted = (record.physical_offset, record.size_bytes, record.tags_code)
            held = (queue_offset, wanted, record.store_timestamp_ms)
            self._held.setdefault(key, []).append(held)
            self._held_count += 1

    def flush(self) -> None:
        """Compare the collected records."""
        for key, held in self._held.items():
            part = self._part(key)
            for run in _runs(held):
                self._compare(key, part, run)
        self._held.clear()
        self._held_count = 0

    def _compare(self, key: QueueKey, part: QueueRangeState, held: list[_Held]) -> None:
        """Compare records of consecutive queue offsets with their entries."""
        queue = self._view.queues.get(key)
        if queue is None:
            for queue_offset, wanted, _ in held:
                _extend(part.missing, queue_offset, wanted[0])
            return
        units = UNIT.iter_unpack(queue.read(held[0][0], len(held)))
        for fields, (queue_offset, wanted, stored_ms) in zip(units, held, strict=True):
            at = wanted[0]
            if fields == wanted:
                _extend(part.compared, queue_offset, at)
                continue
            unit = CqUnit._make(fields)
            if not unit.is_written:
                _extend(part.missing, queue_offset, at)
            elif not self._is_superseded(unit, key, queue_offset, at):
                _extend(part.compared, queue_offset, at)
                self._blame(queue, queue_offset, unit, CqUnit._make(wanted), stored_ms)

    def _is_superseded(
        self, unit: CqUnit, key: QueueKey, queue_offset: int, physical_offset: int
    ) -> bool:
        """Whether the entry belongs to a later life of the topic."""
        if unit.is_filler or unit.physical_offset <= physical_offset:
            return False
        found = self._view.record_at(unit.physical_offset)
        wanted = (*key, queue_offset)
        return found is not None and (found.topic, found.queue_id, found.queue_offset) == wanted

    def _blame(
        self, queue: QueueView, number: int, unit: CqUnit, wanted: CqUnit, stored_ms: int
    ) -> None:
        """Report how an entry differs from that of its record, stored at ``stored_ms``."""
        entry = _EntryOffsets(queue, number, wanted.physical_offset, number)
        if unit.is_filler:
            self._tell(entry, "physicalOffset", f"entry {number} is filler")
        elif unit.physical_offset != wanted.physical_offset:
            self._tell(entry, "physicalOffset", f"entry {number} says {unit.physical_offset}")
        elif unit.size_bytes != wanted.size_bytes:
            detail = f"entry {number} says {unit.size_bytes}, the record {wanted.size_bytes}"
            self._tell(entry, "size", detail)
        elif not is_ext_address(unit.tags_code):
            detail = f"entry {number} says {unit.tags_code}, the record {wanted.tags_code}"
            self._tell(entry, "tagsCode", detail)
        else:
            self._check_extension(entry, unit.tags_code, wanted.tags_code, stored_ms)

    def _check_extension(
        self, entry: _EntryOffsets, address: int, tags_code: int, stored_ms: int
    ) -> None:
        """Compare the unit that an entry names instead of a tags code with the record."""
        extension = self._view.extensions.get(entry.queue.key)
        found = None if extension is None else extension.unit(address)
        if extension is None or found is None:
            detail = f"entry {entry.number} points at {address}, where there is no unit"
            self._tell(entry, "tagsCode", detail)
            return
        path = extension.path_of(address)
        for name, stated, actual in (
            ("tagsCode", found.tags_code, tags_code),
            ("storeTimestamp", found.store_timestamp_ms, stored_ms),
        ):
            if stated != actual:
                detail = f"the unit of entry {entry.number} says {stated}, the record {actual}"
                self._tell(entry, name, detail, path)

    def _compare_batch(self, key: QueueKey, record: DispatchRequest) -> None:
        """Compare a record with its entry, which is found by the record's physical offset."""
        if not self._rules.takes(key.topic):
            return
        part, wanted = self._part(key), batch_unit_of(record)
        queue = self._view.batch_queues.get(key)
        unit = None if queue is None else self._next_unit(queue, record.physical_offset)
        if queue is None or unit is None:
            _extend(part.missing, wanted.base_offset, record.physical_offset, wanted.batch_size)
            return
        number = self._next_numbers[key]
        self._next_numbers[key] += 1
        _extend(part.compared, number, record.physical_offset)
        for name, attribute in _BATCH_FIELDS.items():
            stated, actual = getattr(unit, attribute), getattr(wanted, attribute)
            if stated != actual:
                detail = f"entry {number} says {stated}, the record {actual}"
                entry = _EntryOffsets(queue, number, record.physical_offset, record.queue_offset)
                self._tell(entry, name, detail)

    def _next_unit(self, queue: BatchQueueView, physical_offset: int) -> BatchCqUnit | None:
        """The entry of the record at an offset; the ones skipped on the way have no record."""
        number = self._next_numbers.get(queue.key)
        if number is None:
            number = queue.first_behind(self._start)
        while True:
            unit = queue.batch_unit(number)
            if (unit is None or not unit.is_written) and self._rules.is_running:
                queue.reread(number)
                unit = queue.batch_unit(number)
            if unit is None or unit.physical_offset >= physical_offset:
                break
            if not unit.is_written and number >= self._end_of(queue):
                break
            number += 1
        self._next_numbers[queue.key] = number
        is_found = unit is not None and unit.is_written and unit.physical_offset == physical_offset
        return unit if is_found else None

    def _end_of(self, queue: BatchQueueView) -> int:
        """Number after the last entry; an empty one before it does not end the queue."""
        if queue.key not in self._ends:
            is_growing = self._rules.is_running
            self._ends[queue.key] = queue.written_end() if is_growing else queue.nonzero_end()
        return self._ends[queue.key]

    def _tell(self, entry: _EntryOffsets, name: str, detail: str, path: Path | None = None) -> None:
        kind = faults.TAGS_CODE if name in {"tagsCode", "storeTimestamp"} else faults.ENTRY_WRONG
        queue, number, physical_offset, queue_offset = entry
        path = path or queue.path_of(number)
        self._listener.add(
            StoreFault(kind, path, name, detail, physical_offset, queue.key, queue_offset, number)
        )


@dataclass(frozen=True, slots=True)
class Step:
    """The step from one record of a queue to the next: its offset, the expected one, positions."""

    key: QueueKey
    queue_offset: int
    expected: int
    low: int
    high: int


def is_explained(
    view: StoreView, rules: QueueRules, listener: Listener, step: Step, damages: DamagedRanges
) -> bool:
    """Whether a queue offset may differ from the expected one.

    It may if the topic was deleted and re-created, if records in between are damaged, which is
    reported separately, or if filler shows that their loss is known.
    """
    key, queue = step.key, view.queue_of(step.key)
    name = f"{key.topic}-{key.queue_id}"
    if step.queue_offset == 0:
        if queue is None:
            return is_deleted(view, rules, key.topic)
        first = first_entry(queue)
        if first is None or first.physical_offset < step.high:
            return False
        detail = f"{name} was deleted and re-created"
        listener.note("restart", detail, physical_offset=step.high)
        return True
    if step.queue_offset < step.expected:
        return False
    if damages.any_between(step.low, step.high):
        return True
    if queue is None or isinstance(queue, BatchQueueView):
        return False
    if queue.is_filled(step.expected, step.queue_offset):
        detail = f"{name} has lost its messages from {step.expected} to {step.queue_offset}"
        listener.note("gap", detail, physical_offset=step.high)
        return True
    entry = queue.entry(step.expected)
    return entry is not None and step.low < entry.physical_offset < step.high


def is_deleted(view: StoreView, rules: QueueRules, topic: str) -> bool:
    """Whether a topic is known to have been deleted."""
    return (
        rules.known_topics is not None
        and topic not in rules.known_topics
        and not any(queue.key.topic == topic for queue in view.all_queues)
    )


def first_entry(queue: QueueView) -> CqUnit | None:
    """The first entry since the queue was last created, if it still exists."""
    return queue.entry(queue.first_offset if isinstance(queue, BatchQueueView) else 0)


def _runs(held: list[_Held]) -> Iterator[list[_Held]]:
    """Split held records where queue offsets are not consecutive."""
    begin = 0
    for at in range(1, len(held) + 1):
        if at == len(held) or held[at][0] != held[at - 1][0] + 1:
            yield held[begin:at]
            begin = at


def _extend(runs: list[Run], number: int, physical_offset: int, step: int = 1) -> None:
    """Add an entry to the last run, or start a new one."""
    _append(runs, Run(number, number + step, 1, physical_offset, physical_offset))


def _append(runs: list[Run], run: Run) -> None:
    """Join a run with the last one if it continues that, or add it."""
    last = runs[-1] if runs else None
    if last is not None and last.end == run.start:
        last.end = run.end
        last.count += run.count
        last.last_physical = run.last_physical
    else:
        runs.append(run)
