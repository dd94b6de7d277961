"""The check of a store: the log against itself, and everything else against the log.

Owns the order of the checks and how the end of the log is judged. One walk over the log feeds all
checkers. Nothing is changed on disk, and a store may be checked while a broker runs it: then only
what was complete at the start is checked.
"""

from __future__ import annotations

from collections.abc import Callable

from roquet.format.derived import QueueKey
from roquet.runtime.clock import Clock
from roquet.store.inspect.report import Report, Reporter
from roquet.store.inspect.verify_config import check_checkpoint, check_config
from roquet.store.inspect.verify_index import IndexChecker
from roquet.storefiles.damage import DamagedRanges
from roquet.storefiles.layout import CONSUME_QUEUE
from roquet.storefiles.manifest_checks import LogSpan, manifest_faults
from roquet.storefiles.queue_checks import QueueChecker, QueueRules
from roquet.storefiles.queue_leftovers import (
    check_left_over,
    judge_missing,
    lacks_all_queues,
    settled_runs,
)
from roquet.storefiles.queues import BatchQueueView, QueueEntry
from roquet.storefiles.record_checks import RecordChecker
from roquet.storefiles.small_files import has_queues_in_rocksdb
from roquet.storefiles.view import StoreView
from roquet.storefiles.walk import BadRecord, LogWalk, Tail

PROGRESS_RECORDS = 1000

Progress = Callable[[int], None]


def no_progress(_bytes_done: int) -> None:
    """Show nothing."""


class _Verification:
    """One check of one store."""

    def __init__(self, view: StoreView, clock: Clock, *, index_slots: int | None) -> None:
        self._view = view
        self._clock = clock
        self._reporter = Reporter(view)
        self._end = view.stable_end() if view.is_running else None
        self._records = RecordChecker(self._reporter, clock.now_ms)
        self._damages = DamagedRanges()
        self._rules = QueueRules.of(view)
        self._queues = QueueChecker(
            view, self._rules, self._reporter, start=view.min_offset, damages=self._damages
        )
        self._index = IndexChecker(view, self._reporter, slots=index_slots, log_end=self._end)
        self._walk = LogWalk(view, on_damage=self._on_damage, end=self._end)

    def run(self, progress: Progress) -> Report:
        view, reporter = self._view, self._reporter
        counts = reporter.report.counts
        counts.segments = len(view.segments)
        for problem in view.problems:
            reporter.problem(view.log_directory, problem)
        span = LogSpan(view.min_offset, 0, has_records=False)
        for found in self._walk.found():
            last = found.record
            counts.records += 1
            span = span.after(last)
            if counts.records % PROGRESS_RECORDS == 0:
                progress(self._walk.position - view.min_offset)
            self._records.on_record(found)
            self._queues.on_record(last)
            self._index.on_record(last)
        span = span.ended(self._walk, view)
        log_end = span.end if self._end is None else self._end
        counts.log_bytes = log_end - view.min_offset
        if self._walk.tail is not None:
            self._judge_tail(self._walk.tail)
        self._records.finish()
        if self._is_checkable():
            self._check_queues(log_end)
        self._index.finish(log_end)
        for fault in manifest_faults(view, span, self._clock.now_ms()):
            reporter.add(fault)
        check_checkpoint(view, reporter, self._clock)
        check_config(view, reporter)
        progress(view.max_offset - view.min_offset)
        return reporter.report

    def _is_checkable(self) -> bool:
        """Whether this check supports the queues; if not, a note says so."""
        if not has_queues_in_rocksdb(self._view):
            return True
        self._reporter.note("unchecked", "the queues are kept in RocksDB and were not compared")
        return False

    def _check_queues(self, log_end: int) -> None:
        """Judge records without entries and entries without records."""
        view, reporter = self._view, self._reporter
        counts, parts = reporter.report.counts, self._queues.parts
        self._queues.flush()
        counts.queues = len(view.all_queues)
        if lacks_all_queues(view, self._rules, parts):
            reporter.fault(view.root / CONSUME_QUEUE, "file", "there is no ConsumeQueue at all")
        else:
            for key, part in parts.items():
                for run in part.missing:
                    judge_missing(view, self._rules, reporter, key, run)
        bounds = (view.min_offset, log_end)
        for queue in view.all_queues:
            key = queue.key
            for problem in queue.segments.problems:
                reporter.problem(queue.directory, problem)
            own = [parts[key]] if key in parts else []
            counts.queue_entries += sum(run.count for part in own for run in part.compared)
            settled = settled_runs(own, is_batch=isinstance(queue, BatchQueueView))
            left = check_left_over(
                view, self._rules, reporter, queue, settled, bounds, self._damages
            )
            counts.expired_entries += left.expired
            if left.behind and not view.is_running:
                name = f"{key.topic}-{key.queue_id}"
                detail = f"{name}: {left.behind} entries point beyond the end of the log"
                reporter.note("stale", detail)
            queue.forget()

    def _on_damage(self, damage: BadRecord) -> None:
        self._damages.add(damage.start, damage.end)
        self._index.on_damage(damage)
        self._report_bad(damage.start, damage.fault.field, damage.fault.detail, damage.named)

    def _report_bad(self, offset: int, name: str, detail: str, named: QueueEntry | None) -> None:
        key: QueueKey | None = None if named is None else named.key
        self._reporter.fault(
            self._reporter.log_file(offset),
            name,
            detail,
            physical_offset=offset,
            key=key,
            queue_offset=None if named is None else named.queue_offset,
        )

    def _judge_tail(self, tail: Tail) -> None:
        """Judge what follows the last valid record.

        Zeros were never written. Anything else, and records with a ConsumeQueue entry, may be lost
        after a crash, but not in a store that was closed.
        """
        offset = tail.physical_offset
        lost = [entry for entry in tail.named if entry.unit.physical_offset == offset]
        if self._view.crashed:
            if not tail.is_zero:
                detail = f"a record was being written at {offset} when the broker ended"
                self._reporter.note("tail", detail, physical_offset=offset)
            return
        if not tail.is_zero:
            named = lost[0] if lost else None
            self._report_bad(offset, tail.fault.field, tail.fault.detail, named)
        if lost:
            detail = "the record is gone, but it has a ConsumeQueue entry"
            for entry in tail.named if tail.is_zero else tail.named[1:]:
                self._report_bad(entry.unit.physical_offset, "magic", detail, entry)


def verify(
    view: StoreView,
    clock: Clock,
    *,
    index_slots: int | None = None,
    progress: Progress = no_progress,
) -> Report:
    """Check a store.

    Args:
        view: The store, open.
        clock: The time; later store timestamps are faults.
        index_slots: Slots of an index file, if the files themselves do not show it.
        progress: Called now and then with the bytes of the log that are done.

    Returns:
        Everything that was found; the store is unchanged.
    """
    return _Verification(view, clock, index_slots=index_slots).run(progress)
