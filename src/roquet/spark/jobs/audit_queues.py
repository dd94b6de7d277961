"""Entries of ConsumeQueues that no record of the log was compared with.

Owns the judgement of what is left over: an entry may have expired with its record, belong to a
damaged record, or lead behind the end of the log; anything else should not be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from roquet.format.consume_queue import FILLER_SIZE, UNIT_BYTES, CqUnit
from roquet.format.derived import QueueKey
from roquet.model import sys_flag as flags
from roquet.runtime.files import Files
from roquet.spark.jobs import audit_findings as kinds
from roquet.spark.jobs.audit_findings import Findings, queue_name
from roquet.spark.jobs.audit_scan import UNIT_TYPE, AuditRules, queues_of
from roquet.spark.log.queue_files import QueueFiles
from roquet.spark.log.records import Hurt, record_at
from roquet.spark.log.store_files import LogFiles, open_log

PIECE_UNITS = 1 << 16


@dataclass(frozen=True)
class QueueTask:
    """A queue, and which of its entries are settled: runs of queue offsets in order."""

    key: QueueKey
    settled: tuple[tuple[int, int], ...]


@dataclass
class QueueSeen:
    """What a task says of its queues.

    Attributes:
        entries: Entries that were left over.
        lost: By queue: entries that lead behind the end of the log, and the least of their offsets.
        findings: What should not be.
    """

    entries: int = 0
    lost: dict[QueueKey, tuple[int, int]] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)


@dataclass(frozen=True)
class QueueWorker:
    """Sent to executors: judges what is left over of some queues."""

    rules: AuditRules
    log_end: int
    hurts: tuple[Hurt, ...]

    def __call__(self, tasks: Sequence[QueueTask]) -> QueueSeen:
        """Look at some queues."""
        log = open_log(Files(), [self.rules.store])
        queues, seen = queues_of(log), QueueSeen()
        for task in tasks:
            queue = queues.get(task.key)
            if queue is not None:
                self._judge(log, queues, queue, task, seen)
        return seen

    def _judge(
        self,
        log: LogFiles,
        queues: dict[QueueKey, QueueFiles],
        queue: QueueFiles,
        task: QueueTask,
        seen: QueueSeen,
    ) -> None:
        lost = 0
        lost_from = self.log_end
        end = _nonzero_end(queue)
        for first, stop in _between(task.settled, queue.first_file_offset, end):
            for begin in range(first, stop, PIECE_UNITS):
                count = min(PIECE_UNITS, stop - begin)
                units = np.frombuffer(queue.read(begin, count), dtype=UNIT_TYPE)
                physical, size = units["physical_offset"], units["size_bytes"]
                is_written = (physical >= 0) & (size > 0)
                is_filler = (physical == 0) & (size == FILLER_SIZE)
                is_behind = is_written & (physical >= self.log_end)
                is_expired = is_written & (physical < self.rules.start)
                seen.entries += int(np.count_nonzero(is_written & ~is_filler))
                if is_behind.any():
                    least = int(physical[is_behind].min())
                    lost_from = min(lost_from, least) if lost else least
                    lost += int(np.count_nonzero(is_behind))
                for at in np.flatnonzero(~is_filler & ~is_behind & ~is_expired):
                    unit = CqUnit(*units[at].item())
                    self._blame(log, queues, task.key, begin + int(at), unit, seen.findings)
        if lost:
            seen.lost[task.key] = (lost, lost_from)

    def _blame(  # noqa: PLR0917 - the parts of one sentence
        self,
        log: LogFiles,
        queues: dict[QueueKey, QueueFiles],
        key: QueueKey,
        queue_offset: int,
        unit: CqUnit,
        findings: Findings,
    ) -> None:
        """Say why no record belongs to an entry."""
        where = f"ConsumeQueue of {queue_name(key)}, entry {queue_offset}"
        if not unit.is_written:
            if self.rules.is_running:
                return
            findings.add(kinds.ENTRY_WRONG, where, "is empty, later ones are not")
            return
        offset = unit.physical_offset
        if any(hurt.start <= offset < hurt.end for hurt in self.hurts):
            return
        found = record_at(log, offset, self.rules.record_rules)
        if found is None:
            findings.add(kinds.ENTRY_STRAY, where, f"says {offset}, where no record starts")
            return
        place = f"{queue_name(QueueKey(found.topic, found.queue_id))} offset {found.queue_offset}"
        home = queues.get(QueueKey(found.topic, found.queue_id))
        at_home = None if home is None else home.unit(found.queue_offset)
        is_at_home = at_home is not None and at_home.physical_offset == offset
        is_same = (found.topic, found.queue_id, found.queue_offset) == (*key, queue_offset)
        if is_same and flags.takes_queue_offset(found.sys_flag):
            return
        if is_same:
            detail = f"has an entry, but 0x{found.sys_flag:X} takes no place in a queue"
            findings.add(kinds.BAD_CONTENT, f"physical offset {offset}, {place}", detail)
        elif is_at_home:
            findings.add(kinds.ENTRY_STRAY, where, f"says {offset}, the record of {place}")
        else:
            detail = f"says that it is of {place}, but stands in {where}"
            findings.add(kinds.BAD_CONTENT, f"physical offset {offset}", detail)


def _nonzero_end(queue: QueueFiles) -> int:
    """Queue offset behind the last entry that is not all zeros, whatever lies before it."""
    low, end = queue.first_file_offset, queue.end_file_offset
    while end > low:
        begin = max(low, end - PIECE_UNITS)
        data = queue.read(begin, end - begin).rstrip(b"\0")
        if data:
            return begin + -(-len(data) // UNIT_BYTES)
        end = begin
    return low


def _between(settled: Sequence[tuple[int, int]], first: int, end: int) -> list[tuple[int, int]]:
    """The runs of queue offsets that are not settled."""
    runs, position = [], first
    for start, stop in settled:
        if position < min(start, end):
            runs.append((position, min(start, end)))
        position = max(position, stop)
    if position < end:
        runs.append((position, end))
    return runs
