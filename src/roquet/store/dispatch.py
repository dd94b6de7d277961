"""From the log to everything derived from it.

Owns ``dispatched_offset``, the end of what ConsumeQueue, Index and the joined dispatchers have
seen (upstream's reputFromOffset), and the list of dispatchers. A record is dispatched once it is
confirmed: at once with ASYNC_FLUSH, after the sync with SYNC_FLUSH, after the commit with a
transient pool.

Invariants: records are dispatched in the order of the log, each to every dispatcher. When one of
them fails for want of space the record stays the next to be dispatched, writes are refused, and
the following run tries again; queue and index pass over what they already have.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from roquet.errors import StoreDamaged
from roquet.format.commit_log import (
    END_OF_SEGMENT_BYTES,
    Blank,
    DispatchRequest,
    RecordFault,
    RecordRules,
    check_record,
)
from roquet.store.commit_log import CommitLog
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.index import IndexService
from roquet.store.mapped_file import MappedFile
from roquet.store.running_flags import RunningFlag, RunningFlags

if TYPE_CHECKING:
    from roquet import _fast

log = logging.getLogger(__name__)

_LANE_STEP_BYTES = 32 << 20

CommitLogDispatcher = Callable[[DispatchRequest], None]
ArrivingListener = Callable[[ConsumeQueue], None]
BitmapCalculator = Callable[[DispatchRequest], bytes | None]


class Dispatcher:
    """Feeds what is derived from the log."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        index: IndexService | None,
        flags: RunningFlags,
        *,
        is_replica: bool = False,
    ) -> None:
        """Feed ``queues`` and, unless ``None``, ``index``.

        A replica's log may end in the middle of a record, whose rest is still on its way.
        """
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._flags = flags
        self._is_replica = is_replica
        self._rules = RecordRules(commit_log.rules.delay_levels, check_crc=False)
        self.dispatched_offset = 0
        self.store_timestamp_ms = 0
        self.written_timestamp_ms = 0
        self.written_offset = 0
        self.dispatchers: list[CommitLogDispatcher] = []
        self.arriving: list[ArrivingListener] = []
        self.bitmap: BitmapCalculator | None = None
        self.lane: _fast.Lane | None = None

    @property
    def behind_bytes(self) -> int:
        """How much of the log is not dispatched yet."""
        return max(self._log.max_offset - self.dispatched_offset, 0)

    @property
    def is_plain(self) -> bool:
        """Whether queue and index are all that has to be fed, so that the lane may do it."""
        return not self.dispatchers and self.bitmap is None

    def is_settled(self, confirm_offset: int) -> bool:
        """Whether everything before an offset is dispatched and written to its queue files."""
        return self.dispatched_offset >= confirm_offset and not self._queues.touched

    def dispatch(self, requests: Iterable[DispatchRequest]) -> bool:
        """Dispatch records just appended; false if they have to wait for :meth:`run`."""
        for request in requests:
            if not self._follows(request):
                return False
            if not self._guarded(request):
                return False
        return True

    def run(self, confirm_offset: int) -> None:
        """Dispatch everything up to a confirmed offset, reading it from the log, then finish."""
        while self.dispatched_offset < confirm_offset:
            if not (self._run_lane(confirm_offset) or self._run_one(confirm_offset)):
                break
        self.finish()

    def finish(self) -> None:
        """End of a burst: write index and queue entries, then tell those who wait for them."""
        if self._index is not None:
            self._index.write_pending()
        try:
            grown = self._queues.write_pending()
        except OSError:
            log.exception("writing consume queues failed; writes are refused until it succeeds")
            self._flags.set(RunningFlag.LOGICS_QUEUE_ERROR)
            return
        self._flags.clear(RunningFlag.LOGICS_QUEUE_ERROR)
        self.written_timestamp_ms = self.store_timestamp_ms
        self.written_offset = self.dispatched_offset
        for queue in grown:
            for listener in self.arriving:
                listener(queue)

    def put_derived(self, request: DispatchRequest) -> None:
        """Give one record to queue and index; raises ``OSError``."""
        bitmap = self.bitmap(request) if self.bitmap is not None else None
        self._queues.put(request, bitmap)
        if self._index is not None:
            self._index.build(request)

    def _guarded(self, request: DispatchRequest) -> bool:
        try:
            self.put_derived(request)
        except OSError:
            log.exception("indexing failed; writes are refused until it succeeds")
            self._flags.set(RunningFlag.INDEX_FILE_ERROR)
            return False
        self._flags.clear(RunningFlag.INDEX_FILE_ERROR)
        for dispatcher in self.dispatchers:
            dispatcher(request)
        self.dispatched_offset = request.end_offset
        self.store_timestamp_ms = request.store_timestamp_ms
        return True

    def _follows(self, request: DispatchRequest) -> bool:
        """Whether nothing but the end of a segment lies between the mark and a record."""
        if request.physical_offset == self.dispatched_offset:
            return True
        segment = self._log.queue.find(request.physical_offset)
        return (
            segment is not None
            and request.physical_offset == segment.start_offset
            and self._ends_segment(self.dispatched_offset)
        )

    def _ends_segment(self, physical_offset: int) -> bool:
        view = self._log.data_from(physical_offset, 8)
        if view is None:
            return False
        found = check_record(view, 0, len(view), physical_offset=physical_offset, rules=self._rules)
        return isinstance(found, Blank)

    def _run_lane(self, confirm_offset: int) -> bool:
        """Let the compiled lane dispatch what it can; whether it moved on."""
        segment = self._log.queue.find(self.dispatched_offset)
        if self.lane is None or not self.is_plain or segment is None:
            return False
        began = self.dispatched_offset
        position = began - segment.start_offset
        limit = min(
            segment.read_limit,
            confirm_offset - segment.start_offset,
            position + _LANE_STEP_BYTES,
        )
        try:
            self.lane.redispatch(segment.view, position, limit, segment.start_offset)
        except OSError:
            log.exception("indexing failed; writes are refused until it succeeds")
            self._flags.set(RunningFlag.INDEX_FILE_ERROR)
            return False
        if self.dispatched_offset == began:
            return False
        self._flags.clear(RunningFlag.INDEX_FILE_ERROR)
        if self.dispatched_offset - began >= _LANE_STEP_BYTES // 2:
            self.finish()
        return True

    def _run_one(self, confirm_offset: int) -> bool:
        """Dispatch the next record, or pass over the end of a segment; whether it moved on."""
        offset = self.dispatched_offset
        segment = self._log.queue.find(offset)
        if segment is None:
            return False
        start = offset - segment.start_offset
        found = check_record(
            segment.view, start, segment.read_limit, physical_offset=offset, rules=self._rules
        )
        if isinstance(found, Blank):
            self.dispatched_offset = segment.end_offset
            return True
        if isinstance(found, RecordFault):
            if self._is_replica and _is_cut_short(segment, start, found):
                return False
            self._flags.set(RunningFlag.LOGICS_QUEUE_ERROR)
            raise StoreDamaged(
                f"the record at {offset} changed after it was written",
                detail=f"{found.field}: {found.detail}",
                hint="run 'roquet store verify' and restore the segment from a replica",
            )
        return found.end_offset <= confirm_offset and self._guarded(found)


def _is_cut_short(segment: MappedFile, position: int, fault: RecordFault) -> bool:
    """Whether all that is wrong is that the record's rest is not there yet."""
    left = segment.read_limit - position
    size = int.from_bytes(segment.view[position : position + 4], "big", signed=True)
    return fault.field == "totalSize" and (
        left < END_OF_SEGMENT_BYTES or left < size <= segment.size_bytes - position
    )
