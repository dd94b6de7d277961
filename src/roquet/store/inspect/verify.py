"""The check of a store: the log against itself, and everything else against the log.

Owns the order of the parts and how the end of the log is judged. One walk over the log feeds all
checkers. Nothing is changed on disk, and a store may be checked while a broker runs it: then only
what was finished at the start is looked at.
"""

from __future__ import annotations

from collections.abc import Callable

from roquet.format.commit_log import DispatchRequest
from roquet.format.derived import QueueKey
from roquet.runtime.clock import Clock
from roquet.store.inspect.layout import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    ROCKSDB_CONSUME_QUEUE,
)
from roquet.store.inspect.queues import QueueEntry
from roquet.store.inspect.report import Report, Reporter
from roquet.store.inspect.verify_config import check_checkpoint, check_config, known_topics
from roquet.store.inspect.verify_index import IndexChecker
from roquet.store.inspect.verify_log import RecordChecker
from roquet.store.inspect.verify_queue import QueueChecker
from roquet.store.inspect.view import StoreView
from roquet.store.inspect.walk import Damage, LogWalk, Tail

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
        self._records = RecordChecker(self._reporter, clock)
        self._queues = QueueChecker(view, self._reporter, known_topics(view))
        self._index = IndexChecker(view, self._reporter, slots=index_slots, log_end=self._end)
        self._walk = LogWalk(view, on_damage=self._on_damage, end=self._end)

    def run(self, progress: Progress) -> Report:
        view, reporter = self._view, self._reporter
        counts = reporter.report.counts
        counts.segments = len(view.segments)
        for problem in view.problems:
            reporter.problem(view.log_directory, problem)
        last: DispatchRequest | None = None
        for last in self._walk.records():
            counts.records += 1
            if counts.records % PROGRESS_RECORDS == 0:
                progress(self._walk.position - view.min_offset)
            segment = self._walk.segment
            assert segment is not None
            start = last.physical_offset - segment.part.start
            self._records.on_record(last, segment.view, start)
            self._queues.on_record(last)
            self._index.on_record(last)
        log_end = self._log_end(last)
        counts.log_bytes = log_end - view.min_offset
        if self._walk.tail is not None:
            self._judge_tail(self._walk.tail)
        self._records.finish()
        if self._is_checkable():
            self._queues.finish(log_end)
        self._index.finish(log_end)
        check_checkpoint(view, reporter, self._clock)
        check_config(view, reporter)
        progress(view.max_offset - view.min_offset)
        return reporter.report

    def _log_end(self, last: DispatchRequest | None) -> int:
        if self._end is not None:
            return self._end
        if self._walk.tail is not None:
            return self._walk.tail.physical_offset
        return self._walk.position if last is not None else self._view.min_offset

    def _is_checkable(self) -> bool:
        """Whether the queues are of the kind this check knows; others are told of."""
        files, root = self._view.files, self._view.root
        if files.is_dir(root / BATCH_CONSUME_QUEUE) and files.list_dir(root / BATCH_CONSUME_QUEUE):
            self._reporter.note("unchecked", f"{BATCH_CONSUME_QUEUE} is not compared with the log")
        if files.is_dir(root / CONSUME_QUEUE) or not files.is_dir(root / ROCKSDB_CONSUME_QUEUE):
            return True
        self._reporter.note("unchecked", "the queues are kept in RocksDB and were not compared")
        return False

    def _on_damage(self, damage: Damage) -> None:
        self._queues.on_damage(damage)
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
        """What is behind the last good record.

        Zeros were never written. Anything else, and records that a ConsumeQueue knows of, may be
        gone after a crash; in a store that was closed they must not be.
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
            detail = "the record is gone, its ConsumeQueue entry is there"
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
        clock: Tells which store timestamps lie in the future.
        index_slots: Slots of an index file, where the files themselves do not tell.
        progress: Told now and then how many bytes of the log are done.

    Returns:
        All that was found; the store is unchanged.
    """
    return _Verification(view, clock, index_slots=index_slots).run(progress)
