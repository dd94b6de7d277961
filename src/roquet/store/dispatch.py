"""Derives queues and index from the log.

Owns ``dispatched_offset``, the end of what ConsumeQueue, Index and the joined dispatchers have
seen (upstream's reputFromOffset), and the list of dispatchers. A record is dispatched once it is
confirmed: at once with ASYNC_FLUSH, after the sync with SYNC_FLUSH, after the commit with a
transient pool.

Invariants: records are dispatched in the order of the log, each to every dispatcher. If one of
them fails for lack of space, descriptors or memory, the record remains the next to be dispatched,
writes are refused, and the next run retries; queue and index skip what they already have.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from roquet.errors import StoreDamaged
from roquet.format.commit_log import Blank, DispatchRequest, RecordFault, RecordRules, check_record
from roquet.format.record_layout import END_OF_SEGMENT_BYTES
from roquet.runtime.exhaustion import is_exhausted
from roquet.store.commit_log import CommitLog
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.index import IndexService
from roquet.store.mapped_file import MappedFile
from roquet.store.running_flags import RunningFlag, RunningFlags

log = logging.getLogger(__name__)

_STEP_BYTES = 32 << 20

# A member of an enumeration takes a function call to find, and every burst needs this one.
_LOGICS_QUEUE_ERROR = RunningFlag.LOGICS_QUEUE_ERROR

CommitLogDispatcher = Callable[[DispatchRequest], None]
ArrivingListener = Callable[[ConsumeQueue], None]
Redispatch = Callable[[memoryview, int, int, int, bool], int]
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

        A replica's log may end in the middle of a record, whose rest is still to come; its records
        came over the network, so their checksums are verified.
        ``shortage`` is the last failure if it was for lack of descriptors or memory, so that an
        early retry may succeed.
        """
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._flags = flags
        self._is_replica = is_replica
        self._checks_crc = is_replica and commit_log.rules.check_crc
        self._rules = RecordRules(commit_log.rules.delay_levels, check_crc=self._checks_crc)
        self.dispatched_offset = 0
        self.store_timestamp_ms = 0
        self.written_timestamp_ms = 0
        self.written_offset = 0
        self.dispatchers: list[CommitLogDispatcher] = []
        self.arriving: list[ArrivingListener] = []
        self.bitmap: BitmapCalculator | None = None
        self.redispatch: Redispatch | None = None
        self.shortage: OSError | None = None

    @property
    def behind_bytes(self) -> int:
        """How much of the log is not dispatched yet."""
        return max(self._log.max_offset - self.dispatched_offset, 0)

    @property
    def is_plain(self) -> bool:
        """Whether only queue and index have to be fed, so that compiled code may do it."""
        return not self.dispatchers and self.bitmap is None

    def is_settled(self, confirm_offset: int) -> bool:
        """Whether everything before an offset is dispatched and written to its queue files."""
        return self.dispatched_offset >= confirm_offset and not self._queues.has_pending

    def dispatch(self, requests: Iterable[DispatchRequest]) -> bool:
        """Dispatch records just appended; false if they have to wait for :meth:`run`."""
        for request in requests:
            if not self._follows(request):
                return False
            if not self._guarded(request):
                return False
        return True

    def run(self, confirm_offset: int) -> None:
        """Dispatch everything up to a confirmed offset from the log, then finish.

        If queue entries cannot be written, it ends early: memory must not hold those of the rest.
        """
        written = self.dispatched_offset
        while self.dispatched_offset < confirm_offset:
            if not (self._run_plain(confirm_offset) or self._run_one(confirm_offset)):
                break
            if self.dispatched_offset - written >= _STEP_BYTES // 2:
                self.finish()
                if self._queues.has_pending:
                    return
                written = self.dispatched_offset
        self.finish()

    def finish(self) -> None:
        """End a burst: write queue entries, then notify the listeners."""
        try:
            grown = self._queues.write_pending()
        except OSError as error:
            self._refuse_writes(RunningFlag.LOGICS_QUEUE_ERROR, "writing consume queues", error)
            return
        self._flags.clear(_LOGICS_QUEUE_ERROR)
        self.written_timestamp_ms = self.store_timestamp_ms
        self.written_offset = self.dispatched_offset
        for queue in grown:
            for listener in self.arriving:
                listener(queue)

    def go_back_to(self, physical_offset: int, store_timestamp_ms: int) -> None:
        """Go back to the end of a truncated log, and the time of its last record."""
        self.dispatched_offset = min(self.dispatched_offset, physical_offset)
        self.written_offset = min(self.written_offset, physical_offset)
        self.store_timestamp_ms = min(self.store_timestamp_ms, store_timestamp_ms)
        self.written_timestamp_ms = min(self.written_timestamp_ms, store_timestamp_ms)

    def put_derived(self, request: DispatchRequest) -> None:
        """Add one record to queue and index; raises ``OSError``."""
        bitmap = self.bitmap(request) if self.bitmap is not None else None
        self._queues.put(request, bitmap)
        if self._index is not None:
            self._index.build(request)

    def _guarded(self, request: DispatchRequest) -> bool:
        try:
            self.put_derived(request)
        except OSError as error:
            self._refuse_writes(RunningFlag.INDEX_FILE_ERROR, "indexing", error)
            return False
        self._flags.clear(RunningFlag.INDEX_FILE_ERROR)
        for dispatcher in self.dispatchers:
            dispatcher(request)
        self.dispatched_offset = request.end_offset
        self.store_timestamp_ms = request.store_timestamp_ms
        return True

    def _refuse_writes(self, flag: RunningFlag, what: str, error: OSError) -> None:
        """Refuse appends until a later run succeeds."""
        self.shortage = error if is_exhausted(error) else None
        if self.shortage is not None:
            log.warning("%s has to wait; writes are refused meanwhile: %s", what, error)
        else:
            log.error("%s failed; writes are refused until it succeeds", what, exc_info=error)
        self._flags.set(flag)

    def _follows(self, request: DispatchRequest) -> bool:
        """Whether there is at most the end of a segment between the mark and a record."""
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

    def _run_plain(self, confirm_offset: int) -> bool:
        """Let compiled code dispatch the plain records that follow; whether it made progress."""
        segment = self._log.queue.find(self.dispatched_offset)
        if self.redispatch is None or not self.is_plain or segment is None:
            return False
        began = self.dispatched_offset
        position = began - segment.start_offset
        limit = min(
            segment.read_limit,
            confirm_offset - segment.start_offset,
            position + _STEP_BYTES,
        )
        try:
            self.redispatch(segment.view, position, limit, segment.start_offset, self._checks_crc)
        except OSError as error:
            self._refuse_writes(RunningFlag.INDEX_FILE_ERROR, "indexing", error)
            return False
        if self.dispatched_offset == began:
            return False
        self._flags.clear(RunningFlag.INDEX_FILE_ERROR)
        return True

    def _run_one(self, confirm_offset: int) -> bool:
        """Dispatch the next record, or skip the end of a segment; whether it made progress."""
        offset = self.dispatched_offset
        segment = self._log.queue.find(offset)
        if segment is None:
            return False
        start = offset - segment.start_offset
        found = check_record(
            segment.view, start, segment.read_limit, physical_offset=offset, rules=self._rules
        )
        if isinstance(found, Blank):
            if self._is_replica:
                self._check_segment_end(segment, offset, found)
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

    def _check_segment_end(self, segment: MappedFile, offset: int, found: Blank) -> None:
        """Raise if the master's segment ends where this one does not."""
        if found.size_bytes != segment.end_offset - offset:
            self._flags.set(RunningFlag.LOGICS_QUEUE_ERROR)
            raise StoreDamaged(
                f"the master's segment ends {found.size_bytes} bytes after {offset}",
                detail=f"this one ends at {segment.end_offset}",
                hint="delete this store, and set mappedFileSizeCommitLog as on the master",
            )


def _is_cut_short(segment: MappedFile, position: int, fault: RecordFault) -> bool:
    """Whether the only fault is that the rest of the record has not arrived yet."""
    left = segment.read_limit - position
    size = int.from_bytes(segment.view[position : position + 4], "big", signed=True)
    return fault.field == "totalSize" and (
        left < END_OF_SEGMENT_BYTES or left < size <= segment.size_bytes - position
    )
