"""Making a store whole again after a stop, clean or not.

Owns the decision what of the log is good and the order of repairs:

1. Look, change nothing: find where to start, walk the log to its end with every check on.
2. Refuse when good records that were known to be on disk lie behind the first bad one: that is
   damage, not a torn end, and cutting there would delete what was acknowledged.
3. Erase what lies behind the end (zeros on disk before any position moves), drop queue entries
   and index files that are in doubt, dispatch again from the starting point.
4. Sync all of it, then move the checkpoint.

A crash in any of these steps leaves a store on which the same steps give the same bytes.

Where to start after an unclean exit: the newest segment whose first record was stored before the
checkpoint's oldest mark; earlier if an index file had to go. After a clean exit: the newest
segment that some queue points into.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

from roquet.errors import StoreDamaged, StoreError
from roquet.format import commit_log as fmt
from roquet.format.checkpoint import Checkpoint
from roquet.format.consume_queue import CqUnit
from roquet.model import sys_flag as flags
from roquet.runtime.clock import Clock
from roquet.store.checkpoint import StoreCheckpoint
from roquet.store.commit_log import CommitLog
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.dispatch import Dispatcher
from roquet.store.index import IndexService
from roquet.store.lane import compiled_walk
from roquet.store.mapped_file import MappedFile

log = logging.getLogger(__name__)

CLOCK_MARGIN_MS = 60_000
_LOOK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What recovery found and did."""

    clean_exit: bool
    start_offset: int
    end_offset: int
    records: int
    cut_reason: str


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Result of walking the log."""

    offset: int
    records: int
    last_record_offset: int
    last_store_timestamp_ms: int
    fault: fmt.RecordFault | None


class Recovery:
    """One recovery of one store."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        index: IndexService | None,
        dispatcher: Dispatcher,
        checkpoint: StoreCheckpoint,
    ) -> None:
        """Work on a store that is loaded but not started."""
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint

    def check_clock(self, clock: Clock) -> None:
        """Refuse a store whose records come from the future; nothing is changed."""
        newest_ms = 0
        for segment in self._log.queue.segments:
            timestamp = fmt.peek_store_timestamp_ms(segment.view, 0, segment.size_bytes)
            newest_ms = max(newest_ms, timestamp or 0)
        now_ms = clock.now_ms()
        if newest_ms > now_ms + CLOCK_MARGIN_MS:
            raise StoreDamaged(
                "the store is newer than this machine's clock",
                detail=f"records of {newest_ms} ms, the clock says {now_ms} ms",
                hint="set the clock; messages stored now would seem older than those before",
            )

    def run(self, *, clean_exit: bool, before_rebuild: Callable[[], None]) -> RecoveryReport:
        """Repair the store; raises :class:`StoreDamaged` before anything is changed.

        ``before_rebuild`` must mark the store as not cleanly closed: it is called when queues
        are about to be filled after a clean exit, which the next start could not tell if this
        one came to an end half-way.
        """
        queues_start = self._clean_start() if clean_exit else self._unclean_start()
        start = queues_start if clean_exit else min(queues_start, self._index_start())
        end = walk_log(self._log, start)
        self._refuse_damage(end, clean_exit=clean_exit)
        if clean_exit and self._first_unqueued(self._queued_end(), end.offset) < end.offset:
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
        start = self._recover_index(start, end.offset, clean_exit=clean_exit)
        self._dispatcher.dispatched_offset = start
        self._dispatcher.run(end.offset)
        if not self._dispatcher.is_settled(end.offset):
            raise StoreError(
                "consume queues and index cannot be rebuilt",
                detail=f"dispatch stopped at {self._dispatcher.dispatched_offset} of {end.offset}",
                hint="make room on the disk; the next start tries again",
            )
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
        )

    # -- where to start ---------------------------------------------------------------------

    def _segment_start(self, physical_offset: int) -> int:
        segment = self._log.queue.find(physical_offset)
        return segment.start_offset if segment is not None else self._log.min_offset

    def _clean_start(self) -> int:
        """Newest segment that some queue points into."""
        newest = max(self._newest_entry, 0)
        segments = self._log.queue.segments
        for segment in reversed(segments):
            if segment.start_offset <= newest:
                return segment.start_offset
        return self._log.min_offset

    @cached_property
    def _newest_entry(self) -> int:
        """Start of the newest record that has a queue entry, before recovery; -1 without any."""
        return max((queue.peek_max_physical_offset() for queue in self._queues), default=-1)

    def _queued_end(self) -> int:
        """End of the newest record that has a queue entry, before recovery; -1 without any."""
        found = self._record_at(self._newest_entry)
        return found.end_offset if isinstance(found, fmt.DispatchRequest) else -1

    def _first_unqueued(self, start: int, end: int) -> int:
        """The first record from ``start`` on that ought to have a queue entry.

        Records without a place in a queue, such as prepared transactions, are passed over: after
        a clean exit the index has them, and to put the last of them again would change it.
        """
        offset = max(start, self._log.min_offset)
        while offset < end:
            found = self._record_at(offset)
            if isinstance(found, fmt.Blank):
                offset = self._log.next_segment_offset(offset)
            elif isinstance(found, fmt.DispatchRequest) and not flags.takes_queue_offset(
                found.sys_flag
            ):
                offset = found.end_offset
            else:
                break
        return offset

    def _fits(self, limit: int, queue: ConsumeQueue, queue_offset: int) -> bool:
        """Whether an entry was written whole and its record ends before ``limit``.

        Where the log no longer holds the record, the entry before it must tell: one that lost
        the upper half of its offset lies before that one's record.
        """
        unit = queue.peek_unit(queue_offset)
        if unit is None or unit.is_filler:
            return unit is not None
        if unit.end_offset > limit:
            return False
        if unit.physical_offset < self._log.min_offset:
            before = queue.peek_unit(queue_offset - 1)
            return before is None or (
                before.is_written and before.end_offset <= unit.physical_offset
            )
        found = self._record_at(unit.physical_offset)
        return isinstance(found, fmt.DispatchRequest) and (
            (found.topic, found.queue_id, found.queue_offset, found.size_bytes)
            == (queue.topic, queue.queue_id, queue_offset, unit.size_bytes)
        )

    def _record_at(
        self, physical_offset: int
    ) -> fmt.DispatchRequest | fmt.Blank | fmt.RecordFault | None:
        segment = self._log.queue.find(physical_offset)
        if segment is None:
            return None
        return fmt.check_record(
            segment.view,
            physical_offset - segment.start_offset,
            segment.size_bytes,
            physical_offset=physical_offset,
            rules=self._log.rules,
        )

    def _unclean_start(self) -> int:
        """Newest segment that began before the checkpoint's oldest mark."""
        limit_ms = self._checkpoint.recovery_timestamp_ms
        for segment in reversed(self._log.queue.segments):
            timestamp = fmt.peek_store_timestamp_ms(segment.view, 0, segment.size_bytes)
            if timestamp is not None and 0 < timestamp <= limit_ms:
                return segment.start_offset
        return self._log.min_offset

    def _index_start(self) -> int:
        """Segment from which index files in doubt have to be filled again."""
        if self._index is None:
            return self._log.wrote_offset
        mark_ms = self._checkpoint.marks.index_msg_timestamp_ms
        return self._segment_start(self._index.peek_resume_offset(index_msg_timestamp_ms=mark_ms))

    # -- what to refuse ---------------------------------------------------------------------

    def _refuse_damage(self, end: LogEnd, *, clean_exit: bool) -> None:
        """Raise if records that were surely on disk are lost or lie behind the end.

        The checkpoint tells by its time, a queue by an entry of a good record. When only zeros
        follow nothing is there to be saved, and refusing would help nobody.
        """
        if end.fault is None:
            return
        flushed_ms = self._checkpoint.marks.physic_msg_timestamp_ms
        # Without a single record, those that the mark speaks of may have expired since.
        may_tell = end.records > 0 or self._log.min_offset == 0
        if may_tell and end.last_store_timestamp_ms < flushed_ms:
            if not self._is_zero_from(end.offset):
                raise _damaged(end, f"records up to {flushed_ms} ms were on disk")
            log.error(
                "the disk lost what it had confirmed: records end at %d ms, were synced to %d ms",
                end.last_store_timestamp_ms,
                flushed_ms,
            )
        if clean_exit and self._newest_entry < end.offset:
            return  # nothing to be found, and no entry is torn that could hide others
        for queue in self._queues:
            for unit in queue.sample_units_from(end.offset):
                if self._is_surely_flushed(unit, clean_exit=clean_exit):
                    place = f"{queue.topic}-{queue.queue_id} at {unit.physical_offset}"
                    raise _damaged(end, f"good records follow, such as {place}")

    def _is_surely_flushed(self, unit: CqUnit, *, clean_exit: bool) -> bool:
        """Whether an entry's record is good and was on disk before the store stopped."""
        view = self._log.slice(unit.physical_offset, unit.size_bytes)
        if view is None:
            return False
        found = fmt.check_record(
            view, 0, len(view), physical_offset=unit.physical_offset, rules=self._log.rules
        )
        if not isinstance(found, fmt.DispatchRequest):
            return False
        flushed_ms = self._checkpoint.marks.physic_msg_timestamp_ms
        return clean_exit or found.store_timestamp_ms < flushed_ms

    def _is_zero_from(self, offset: int) -> bool:
        """Whether the log holds nothing but zeros from an offset on."""
        zeros = bytes(_LOOK_BYTES)
        for segment in self._log.queue.segments:
            for position in range(
                max(offset - segment.start_offset, 0), segment.size_bytes, _LOOK_BYTES
            ):
                piece = segment.view[position : position + _LOOK_BYTES]
                if piece != zeros[: len(piece)]:
                    return False
        return True

    def _is_plain_end(self, offset: int) -> bool:
        """Whether nothing was ever written behind the end."""
        view = self._log.slice(offset, fmt.END_OF_SEGMENT_BYTES)
        return view is None or not any(view)

    # -- repairs ----------------------------------------------------------------------------

    def _recover_index(self, start: int, end: int, *, clean_exit: bool) -> int:
        """Open the index without what is in doubt; where dispatch must begin then.

        The checkpoint follows the index back before anything is put again: a mark beyond the kept
        files would vouch for their unsynced successors after a second crash.
        """
        if self._index is None:
            return start
        marks = self._checkpoint.marks
        self._index.load(
            last_exit_ok=clean_exit, index_msg_timestamp_ms=marks.index_msg_timestamp_ms
        )
        doubtful = self._index.doubtful_from(end)
        if doubtful is not None:
            start = min(start, self._segment_start(doubtful))
        self._checkpoint.reset(
            marks._replace(index_msg_timestamp_ms=self._index.durable_timestamp_ms)
        )
        self._checkpoint.flush()
        return start

    def _sync_names(self) -> None:
        """Sync the names of files that a killed process may have made and never synced."""
        self._log.queue.sync_names()
        self._queues.sync_names()
        if self._index is not None:
            self._index.sync_names()

    def _make_durable(self, start: int, end: LogEnd) -> None:
        """Sync what was walked and rebuilt, then say so in the checkpoint."""
        for segment in self._log.queue.segments:
            if segment.end_offset > start:
                segment.sync()
        self._log.flushed_offset = end.offset
        self._log.store_timestamp_ms = max(
            self._log.store_timestamp_ms, end.last_store_timestamp_ms
        )
        self._queues.sync(least_pages=0)
        self._queues.synced_offset = end.offset
        index_ms = self._index.flush(thorough=True) if self._index is not None else 0
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


def _damaged(end: LogEnd, why: str) -> StoreDamaged:
    assert end.fault is not None, "a log that ends well is not damaged"
    return StoreDamaged(
        f"the log is damaged at {end.offset}",
        detail=f"{end.fault.field}: {end.fault.detail}; {why}",
        hint=(
            "nothing was changed; run 'roquet store verify' for the whole list and restore the "
            "segment from a replica or a backup"
        ),
    )


def walk_log(commit_log: CommitLog, start: int) -> LogEnd:
    """Walk from the segment start ``start`` to the first bytes that are no good record."""
    walker = _Walker(replace(commit_log.rules, check_torn=True))
    for segment in commit_log.queue.segments:
        if segment.start_offset >= start and not walker.pass_segment(segment):
            break
    return LogEnd(
        max(walker.end_offset, start),
        walker.records,
        walker.last_record_offset,
        walker.last_store_timestamp_ms,
        walker.fault,
    )


class _Walker:
    """State of a walk; the compiled lane passes over plain records, the rest is judged here."""

    def __init__(self, rules: fmt.RecordRules) -> None:
        self._rules = rules
        self._fast = compiled_walk()
        self.end_offset = 0
        self.records = 0
        self.last_record_offset = -1
        self.last_store_timestamp_ms = 0
        self.fault: fmt.RecordFault | None = None

    def pass_segment(self, segment: MappedFile) -> bool:
        """Walk one segment; whether it ended properly, so that the next one follows."""
        position = 0
        self.end_offset = segment.start_offset
        while position < segment.size_bytes:
            if self._fast is not None and not self._rules.force_property_crc:
                position = self._pass_plain(segment, position)
            offset = segment.start_offset + position
            found = fmt.check_record(
                segment.view,
                position,
                segment.size_bytes,
                physical_offset=offset,
                rules=self._rules,
            )
            if isinstance(found, fmt.Blank):
                if found.size_bytes == segment.size_bytes - position:
                    break
                found = fmt.RecordFault(offset, "totalSize", f"end of segment says {found}")
            if isinstance(found, fmt.RecordFault):
                self.fault = found
                return False
            self._note(found.physical_offset, found.store_timestamp_ms, found.end_offset)
            position += found.size_bytes
        self.end_offset = segment.end_offset
        return True

    def _pass_plain(self, segment: MappedFile, position: int) -> int:
        assert self._fast is not None, "no compiled walk"
        position, count, last, last_ms = self._fast(
            segment.view,
            position,
            segment.size_bytes,
            segment.start_offset,
            self._rules.check_crc,
        )
        if count:
            self.records += count - 1
            self._note(segment.start_offset + last, last_ms, segment.start_offset + position)
        return position

    def _note(self, offset: int, store_timestamp_ms: int, end_offset: int) -> None:
        self.records += 1
        self.last_record_offset = offset
        self.last_store_timestamp_ms = store_timestamp_ms
        self.end_offset = end_offset
