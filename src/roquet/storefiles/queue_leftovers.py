"""Queue checks after all ranges of the log: records without an entry, entries without a record.

Joins the ranges of :mod:`roquet.storefiles.queue_checks`, whose rules apply here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from roquet.format.batch_consume_queue import unpack_batch_units
from roquet.format.consume_queue import UNIT, CqUnit
from roquet.format.derived import QueueKey
from roquet.model import sys_flag as flags
from roquet.storefiles import faults
from roquet.storefiles.damage import DamagedRanges
from roquet.storefiles.faults import Listener, StoreFault, record_fault
from roquet.storefiles.layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from roquet.storefiles.queue_checks import (
    QueueRangeState,
    QueueRules,
    Run,
    Step,
    first_entry,
    is_deleted,
    is_explained,
)
from roquet.storefiles.queues import BatchQueueView, QueueView
from roquet.storefiles.view import StoreView

PIECE_UNITS = 1 << 14


def check_joints(  # noqa: PLR0917 - one queue over all ranges
    view: StoreView,
    rules: QueueRules,
    listener: Listener,
    key: QueueKey,
    parts: Sequence[QueueRangeState],
    damages: DamagedRanges,
) -> None:
    """Check that queue offsets continue from one range to the next."""
    before: QueueRangeState | None = None
    for part in parts:
        if part.expected < 0:
            continue  # a light queue, whose offsets are in its records
        if before is not None and part.first_offset not in {before.expected, before.alternative}:
            step = Step(
                key, part.first_offset, before.expected, before.last_physical, part.first_physical
            )
            if not is_explained(view, rules, listener, step, damages):
                kind = faults.GAP if part.first_offset > before.expected else faults.DUPLICATE
                detail = f"{part.first_offset}, expected {before.expected}"
                listener.add(
                    StoreFault(
                        kind,
                        None,
                        "queueOffset",
                        detail,
                        part.first_physical,
                        key,
                        part.first_offset,
                    )
                )
        before = part


def lacks_all_queues(view: StoreView, rules: QueueRules, keys: Iterable[QueueKey]) -> bool:
    """Whether records need ConsumeQueue entries, but there is no ConsumeQueue at all."""
    return not view.has_queues and any(
        key.topic not in rules.batch_topics and key not in view.batch_queues for key in keys
    )


def judge_missing(
    view: StoreView, rules: QueueRules, listener: Listener, key: QueueKey, run: Run
) -> None:
    """Judge records that have no entry.

    Records of a deleted topic have none, nor have those of a former life of a topic. A running or
    crashed broker may not have written all entries yet.
    """
    queue = view.queue_of(key)
    if queue is None and is_deleted(view, rules, key.topic):
        detail = f"topic {key.topic} was deleted; {run.count} of its records are still in the log"
        listener.note("deleted", detail, physical_offset=run.first_physical)
        return
    first = None if queue is None else first_entry(queue)
    if first is not None and first.physical_offset > run.last_physical:
        return  # records of a former life of the topic
    may_lag = rules.is_running or rules.has_crashed
    if may_lag and (queue is None or queue.end_offset() <= run.first_physical):
        detail = f"{key.topic}-{key.queue_id}: {run.count} entries are still to be written"
        listener.note("lag", detail, physical_offset=run.first_physical)
        return
    is_batch = isinstance(queue, BatchQueueView) or key.topic in rules.batch_topics
    detail = f"entry {run.start} is missing"
    if is_batch:
        detail = f"{run.count} entries are missing, the first at offset {run.start}"
    elif run.count > 1:
        detail = f"entries {run.start} to {run.end - 1} are missing"
    path = view.root / (BATCH_CONSUME_QUEUE if is_batch else CONSUME_QUEUE)
    if queue is not None:
        path = queue.directory if is_batch else queue.path_of(run.start)
    listener.add(
        StoreFault(
            faults.ENTRY_MISSING,
            path,
            "physicalOffset",
            detail,
            run.first_physical,
            key,
            run.start,
        )
    )


@dataclass
class UncheckedEntries:
    """Entries that no record was compared with.

    Attributes:
        entries: How many there are, without fillers.
        expired: How many of them are older than the log.
        behind: How many point beyond the end of the log.
        behind_from: The least physical offset of those; -1 if there are none.
    """

    entries: int = 0
    expired: int = 0
    behind: int = 0
    behind_from: int = -1


def settled_runs(
    parts: Iterable[QueueRangeState], *, is_batch: bool
) -> tuple[tuple[int, int], ...]:
    """Ranges of entries that need no further check, in order: first, and one past the last."""
    runs = sorted(
        (run.start, run.end)
        for part in parts
        for run in (part.compared if is_batch else (*part.compared, *part.missing))
    )
    merged: list[tuple[int, int]] = []
    for start, end in runs:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def check_left_over(  # noqa: PLR0917 - a queue, and what is known of the log
    view: StoreView,
    rules: QueueRules,
    listener: Listener,
    queue: QueueView,
    settled: Sequence[tuple[int, int]],
    bounds: tuple[int, int],
    damages: DamagedRanges,
) -> UncheckedEntries:
    """Check every entry of a queue that no record was compared with.

    Args:
        view: The store.
        rules: What is known about it.
        listener: Receives the faults.
        queue: The queue.
        settled: The result of :func:`settled_runs`.
        bounds: Physical offsets where the log, or its checked part, starts and ends.
        damages: Damaged bytes of the log.
    """
    (start, log_end), left = bounds, UncheckedEntries()
    for number, unit in _units_between(queue, settled):
        if unit.is_filler:
            continue
        if unit.is_written:
            left.entries += 1
            if unit.physical_offset < start:
                left.expired += 1
                continue
            if unit.physical_offset >= log_end:
                least = unit.physical_offset
                left.behind_from = min(left.behind_from, least) if left.behind else least
                left.behind += 1
                continue
            if damages.covers(unit.physical_offset):
                continue
        elif rules.is_running and _is_written_now(queue, number):
            continue
        fault = _stray(view, queue, number, unit)
        if fault is not None:
            listener.add(fault)
    return left


def _is_written_now(queue: QueueView, number: int) -> bool:
    """Whether a running broker has written an entry since it was read."""
    unit = queue.reread(number)
    return unit is not None and unit.is_written


def _units_between(
    queue: QueueView, settled: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, CqUnit]]:
    """Entries before, between and after the settled ones, as they are on disk now."""
    position, end = queue.first_offset, queue.nonzero_end()
    for start, stop in (*settled, (end, end)):
        for begin in range(position, min(start, end), PIECE_UNITS):
            count = min(PIECE_UNITS, min(start, end) - begin)
            data = queue.read(begin, count)
            units = (
                (unit.plain for unit in unpack_batch_units(data))
                if isinstance(queue, BatchQueueView)
                else map(CqUnit._make, UNIT.iter_unpack(data))
            )
            yield from enumerate(units, start=begin)
        position = max(position, stop)


def _stray(view: StoreView, queue: QueueView, number: int, unit: CqUnit) -> StoreFault | None:
    """Why an entry has no record; ``None`` if it has one after all."""
    key, path, is_batch = queue.key, queue.path_of(number), isinstance(queue, BatchQueueView)
    offset = queue.offset_of(number)
    if not unit.is_written:
        if is_batch and number == queue.first_offset and unit.size_bytes == 0:
            return None  # where an emptied queue continues
        detail = f"entry {number} is empty, later {'bytes' if is_batch else 'ones'} are not"
        place = None if is_batch else offset
        return StoreFault(faults.ENTRY_WRONG, path, "size", detail, None, key, place, number)
    at = unit.physical_offset
    found = None if is_batch else view.record_at(at)
    reason = "where there is no record of the queue" if is_batch else "where no record starts"
    if found is not None:
        stated = (found.topic, found.queue_id, found.queue_offset)
        takes_place = flags.takes_queue_offset(found.sys_flag)
        if stated == (*key, offset):
            if takes_place:
                return None
            detail = f"0x{found.sys_flag:X} gets no queue offset, but has an entry"
            return record_fault(faults.BAD_CONTENT, found, "sysFlag", detail)
        home = view.queues.get(QueueKey(found.topic, found.queue_id))
        there = None if home is None else home.entry(found.queue_offset)
        if not takes_place or there is None or there.physical_offset != at:
            names = ("topic", "queueId", "queueOffset")
            name, value = next(
                (name, value)
                for name, value, own in zip(names, stated, (*key, offset), strict=True)
                if value != own
            )
            where = f"{key.topic}-{key.queue_id} at {number}"
            detail = f"{value}, but it is in ConsumeQueue {where}"
            return record_fault(faults.BAD_CONTENT, found, name, detail)
        reason = f"a record of {found.topic}-{found.queue_id} offset {found.queue_offset}"
    detail = f"entry {number} says {at}, {reason}"
    return StoreFault(faults.ENTRY_STRAY, path, "physicalOffset", detail, at, key, offset, number)
