"""Recovery after a clean or unclean shutdown.

Decides which part of the log is valid, and in what order to repair the rest:

1. Change nothing: find where to start, and walk the log to its end with every check on
   (:mod:`roquet.store.log_walk`).
2. Refuse, clean exit or not, a log that lacks what the rest of the store vouches for
   (:mod:`roquet.store.evidence`).
3. Erase everything after the end (zeros on disk before any position moves), drop queue entries
   and index files that are in doubt, dispatch again from the starting point, or from the beginning
   of the log if a queue or an index file is missing (:mod:`roquet.store.lost_queues`).
4. Sync all of it, then move the checkpoint.

After a crash in any of these steps, the same steps lead to the same bytes.

Where to start after an unclean exit: the newest segment whose first record was stored before the
checkpoint's oldest mark; earlier if an index file had to be removed. After a clean exit: the newest
segment that some queue points into.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial

from roquet.errors import StoreDamaged, StoreError
from roquet.format import commit_log as fmt
from roquet.format.checkpoint import Checkpoint
from roquet.format.record_layout import END_OF_SEGMENT_BYTES
from roquet.model import sys_flag as flags
from roquet.runtime.clock import Clock
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.evidence import Evidence
from roquet.store.log_walk import LogEnd, record_at, walk_log
from roquet.store.lost_queues import LostQueues
from roquet.store.recovery_progress import RecoveryProgress
from roquet.store.resident_records import first_store_timestamp_ms
from roquet.store.results import RecoveryReport
from roquet.store.store_components import StoreComponents

log = logging.getLogger(__name__)

CLOCK_MARGIN_MS = 60_000
_DISPATCH_STEP_BYTES = 64 << 20


class Recovery:
    """One recovery of one store."""

    def __init__(
        self,
        components: StoreComponents,
        *,
        known_topics: Collection[str] | None,
        progress: RecoveryProgress,
    ) -> None:
        """Work on a store that is loaded but not started.

        Args:
            components: The store.
            known_topics: The broker's topics; ``None`` if unknown.
            progress: Logs the progress.
        """
        self._log = components.commit_log
        self._queues = components.queues
        self._index = components.index
        self._dispatcher = components.dispatcher
        self._checkpoint = components.checkpoint
        self._progress = progress
        self._evidence = Evidence(components)
        self._lost = LostQueues(
            components.queues,
            components.manifest.saved,
            is_ours=components.store_lock.was_ours,
            known_topics=known_topics,
        )

    def check_clock(self, clock: Clock) -> None:
        """Refuse a store whose records come from the future; nothing is changed."""
        newest_ms = 0
        for segment in self._log.queue.segments:
            timestamp = first_store_timestamp_ms(segment)
            newest_ms = max(newest_ms, timestamp or 0)
        now_ms = clock.now_ms()
        if newest_ms > now_ms + CLOCK_MARGIN_MS:
            raise StoreDamaged(
                "the store is newer than this machine's clock",
                detail=f"records of {newest_ms} ms, the clock says {now_ms} ms",
                hint="set the clock; messages stored now would seem older than existing ones",
            )

    def run(self, *, clean_exit: bool, before_rebuild: Callable[[], None]) -> RecoveryReport:
        """Repair the store; raises :class:`StoreDamaged` before anything is changed.

        ``before_rebuild`` must mark the store as not cleanly closed: it is called before queues
        are filled after a clean exit, so that the next start notices if this one is interrupted.
        """
        queues_start = self._clean_start() if clean_exit else self._unclean_start()
        start = queues_start if clean_exit else min(queues_start, self._index_start())
        lacks_index = clean_exit and self._evidence.lacks_index_files()
        is_missing = self._lost.find_missing(self._log.min_offset, clean_exit=clean_exit)
        is_whole = is_missing or lacks_index
        is_resumed = not clean_exit and self._checkpoint.marks.logics_msg_timestamp_ms == 0
        if is_whole:
            start = self._log.min_offset
        end = walk_log(self._log, start, self._progress)
        read_bytes = end.offset - start
        self._evidence.refuse_damage(end, clean_exit=clean_exit)
        is_behind = clean_exit and (
            self._first_unqueued(self._queued_end(), end.offset) < end.offset
        )
        if is_whole or is_behind:
            self._forget_queues_mark()
            if clean_exit:
                before_rebuild()
        self._log.queue.remove_unused()
        if end.fault is not None and self._log.queue.segments:
            level = logging.INFO if self._is_plain_end(end.offset) else logging.WARNING
            log.log(level, "the log ends at %d: %s", end.offset, end.fault)
            self._log.truncate(end.offset)
        if clean_exit:
            self._queues.recover(end.offset, erase=False)
            start = self._first_unqueued(self._queues.max_physical_offset, end.offset)
        else:
            limit = min(queues_start, end.offset)
            self._queues.recover(limit, erase=True, fits=partial(self._fits, limit))
        start = self._recover_index(start, end.offset, clean_exit=clean_exit, is_anew=lacks_index)
        if is_whole or is_behind:
            self._lost.drop()
        if is_whole:
            start = self._log.min_offset
        self._dispatch(start, end.offset)
        read_bytes = max(read_bytes, end.offset - start)
        if not self._dispatcher.is_settled(end.offset):
            if self._dispatcher.shortage is not None:
                raise self._dispatcher.shortage
            raise StoreError(
                "consume queues and index cannot be rebuilt",
                detail=f"dispatch stopped at {self._dispatcher.dispatched_offset} of {end.offset}",
                hint="free space on the disk; the next start retries",
            )
        if is_whole or is_behind or is_resumed:
            self._lost.remove_deleted(self._log.min_offset, clean_exit=clean_exit)
        self._lost.settle(clean_exit=clean_exit)
        if not clean_exit:
            self._sync_names()
        self._make_durable(start, end)
        self._queues.correct_min_offsets(self._log.min_offset)
        return RecoveryReport(
            clean_exit=clean_exit,
            start_offset=start,
            end_offset=end.offset,
            records=end.records,
            cut_reason=f"{end.fault.field}: {end.fault.detail}" if end.fault else "",
            read_bytes=read_bytes,
        )

    def _forget_queues_mark(self) -> None:
        """Let the checkpoint vouch for no queue entry until all of them exist again.

        A start after an interrupted one finds files of every queue, so none seems missing. Only
        the mark shows that they must be filled from the beginning of the log.
        """
        self._checkpoint.reset(self._checkpoint.marks._replace(logics_msg_timestamp_ms=0))
        self._checkpoint.flush()

    def _dispatch(self, start: int, end: int) -> None:
        """Fill queues and index with the records from one offset to another."""
        self._dispatcher.dispatched_offset = start
        if self._progress is not None:
            self._progress.begin("filling queues and index", start, end)
            for offset in range(start + _DISPATCH_STEP_BYTES, end, _DISPATCH_STEP_BYTES):
                self._dispatcher.run(offset)
                if self._queues.has_pending:
                    return  # they cannot be written; memory must not hold those of the whole log
                self._progress.reached(offset)
        self._dispatcher.run(end)

    # -- where to start ---------------------------------------------------------------------

    def _segment_start(self, physical_offset: int) -> int:
        segment = self._log.queue.find(physical_offset)
        return segment.start_offset if segment is not None else self._log.min_offset

    def _clean_start(self) -> int:
        """Newest segment that some queue points into."""
        newest = max(self._evidence.newest_entry, 0)
        segments = self._log.queue.segments
        for segment in reversed(segments):
            if segment.start_offset <= newest:
                return segment.start_offset
        return self._log.min_offset

    def _queued_end(self) -> int:
        """End of the newest record that has a queue entry, before recovery; -1 if none has."""
        found = record_at(self._log, self._evidence.newest_entry)
        return found.end_offset if isinstance(found, fmt.DispatchRequest) else -1

    def _first_unqueued(self, start: int, end: int) -> int:
        """The first record from ``start`` on that should have a queue entry.

        Records without a queue offset, such as prepared transactions, are skipped: after a clean
        exit the index has them, and putting the last of them again would change it.
        """
        offset = max(start, self._log.min_offset)
        while offset < end:
            found = record_at(self._log, offset)
            if isinstance(found, fmt.Blank):
                offset = self._log.next_segment_offset(offset)
            elif isinstance(found, fmt.DispatchRequest) and not flags.takes_queue_offset(
                found.sys_flag
            ):
                offset = found.end_offset
            else:
                break
        return offset

    def _fits(self, limit: int, queue: ConsumeQueue, place: int) -> bool:
        """Whether an entry was written whole and its record ends before ``limit``.

        If the log no longer holds the record, it is compared with the entry before it: an entry
        that lost the upper half of its offset points before that one's record.
        """
        unit = queue.entries.peek(place)
        if unit is None or unit.is_filler:
            return unit is not None
        if unit.end_offset > limit:
            return False
        if unit.physical_offset < self._log.min_offset:
            before = queue.entries.peek(place - 1)
            return before is None or (
                before.is_written and before.end_offset <= unit.physical_offset
            )
        found = record_at(self._log, unit.physical_offset)
        return isinstance(found, fmt.DispatchRequest) and (
            (found.topic, found.queue_id, found.queue_offset, found.size_bytes)
            == (queue.topic, queue.queue_id, queue.peek_queue_offset(place), unit.size_bytes)
        )

    def _unclean_start(self) -> int:
        """Newest segment that began before the checkpoint's oldest mark."""
        limit_ms = self._checkpoint.recovery_timestamp_ms
        for segment in reversed(self._log.queue.segments):
            timestamp = first_store_timestamp_ms(segment)
            if timestamp is not None and 0 < timestamp <= limit_ms:
                return segment.start_offset
        return self._log.min_offset

    def _index_start(self) -> int:
        """Segment from which index files in doubt have to be rebuilt."""
        if self._index is None:
            return self._log.wrote_offset
        mark_ms = self._checkpoint.marks.index_msg_timestamp_ms
        return self._segment_start(self._index.peek_resume_offset(index_msg_timestamp_ms=mark_ms))

    def _is_plain_end(self, offset: int) -> bool:
        """Whether nothing was ever written after the end."""
        view = self._log.slice(offset, END_OF_SEGMENT_BYTES)
        return view is None or not any(view)

    # -- repairs ----------------------------------------------------------------------------

    def _recover_index(self, start: int, end: int, *, clean_exit: bool, is_anew: bool) -> int:
        """Open the index without what is in doubt, or empty; return where dispatch must begin.

        The checkpoint is lowered with the index before anything is put again: a mark beyond the
        kept files would vouch for their unsynced successors after a second crash.
        """
        if self._index is None:
            return start
        marks = self._checkpoint.marks
        self._index.load(
            last_exit_ok=clean_exit, index_msg_timestamp_ms=marks.index_msg_timestamp_ms
        )
        if is_anew:
            log.error("files of the index are gone; it is built again from the log")
            self._index.destroy()
        doubtful = self._index.doubtful_from(end)
        if doubtful is not None:
            start = min(start, self._segment_start(doubtful))
        self._checkpoint.reset(
            marks._replace(index_msg_timestamp_ms=self._index.durable_timestamp_ms)
        )
        self._checkpoint.flush()
        return start

    def _sync_names(self) -> None:
        """Sync the names of files that a killed process may have created but never synced."""
        self._log.queue.sync_names()
        self._queues.sync_names()
        if self._index is not None:
            self._index.sync_names()

    def _make_durable(self, start: int, end: LogEnd) -> None:
        """Sync what was walked and rebuilt, then move the checkpoint."""
        for segment in self._log.queue.segments:
            if segment.end_offset > start:
                segment.sync()
        self._log.flushed_offset = end.offset
        self._log.store_timestamp_ms = max(
            self._log.store_timestamp_ms, end.last_store_timestamp_ms
        )
        self._queues.sync(least_pages=0)
        self._queues.synced_offset = end.offset
        index_ms = 0
        if self._index is not None:
            self._index.end_recovery()
            newest = self._index.newest_header()
            index_ms = self._index.flush(thorough=True)
            if newest is not None:
                self._index.keep_mark(*newest)
        marks = self._checkpoint.marks
        newest_ms = end.last_store_timestamp_ms or marks.physic_msg_timestamp_ms
        self._checkpoint.reset(
            Checkpoint(
                newest_ms,
                newest_ms,
                index_ms,
                marks.master_flushed_offset,
                max(end.last_record_offset, 0),
            )
        )
        self._checkpoint.flush()
