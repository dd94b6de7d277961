"""Looking into a store and keeping it in order: everything of the interface but life and puts.

Owns no files: the parts do the work, this module asks them. Two acts change the log other than by
a put: the append of replicated bytes, and truncation.

Reads come from the owner or, where the disk may be waited for, from any thread. What changes
something takes the store's lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from roquet.errors import StoreClosed, StoreDamaged, StoreError
from roquet.format import commit_log as fmt
from roquet.format.consume_queue import UNIT_BYTES, unpack_unit
from roquet.model.host import Host
from roquet.model.message import StoredMessage
from roquet.model.message_id import offset_message_id
from roquet.model.topic import LMQ_PREFIX, is_system_topic
from roquet.store.checkpoint import StoreCheckpoint
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.dispatch import ArrivingListener, CommitLogDispatcher
from roquet.store.flush import AckQueue, FlushCommitLog
from roquet.store.index import IndexService
from roquet.store.message_store import PutDone, PutHook
from roquet.store.reader import PULL_BYTES_MAX, MessageFilter
from roquet.store.results import (
    BoundaryType,
    Bytes,
    GetMessageResult,
    PutMessageResult,
    QueryMessageResult,
)
from roquet.store.retention import Retention
from roquet.store.running_flags import RunningFlag
from roquet.store.store_health import StoreHealth
from roquet.store.store_lock import StoreLock
from roquet.store.truncate import Truncation

log = logging.getLogger(__name__)

_IDS_A_READ = 1024


class StoreViews(StoreHealth):
    """The part of a store that reads and maintains; its subclass makes the parts."""

    checkpoint: StoreCheckpoint
    index: IndexService | None
    acks: AckQueue
    flusher: FlushCommitLog
    retention: Retention
    _store_lock: StoreLock
    _lock: threading.RLock
    _burst: list[tuple[PutMessageResult, PutDone | None, bool]]

    def __init__(self) -> None:
        """Nothing hidden, nobody to follow, no hooks; the subclass makes the parts."""
        self.put_hooks: list[PutHook] = []
        self._confirm_limit: int | None = None
        self._ha_master_address = ""
        self._logics_lock = threading.Lock()

    def _check_readable(self) -> None:
        if not self.flags.is_readable:
            raise StoreClosed(
                f"{self.root} is not read at the moment", detail=", ".join(self.flags.reasons())
            )

    # -- reading a queue ------------------------------------------------------------------------

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int,
        *,
        max_total_bytes: int = PULL_BYTES_MAX,
        message_filter: MessageFilter | None = None,
    ) -> GetMessageResult:
        """Records of a queue from an offset on, with upstream's status and limits.

        Raises:
            StoreClosed: The store is shut down or not readable.
        """
        self._check_readable()
        began_ns = self.clock.monotonic_ns()
        result = self.reader.get_message(
            topic,
            queue_id,
            queue_offset,
            max_messages,
            max_total_bytes=max_total_bytes,
            message_filter=message_filter,
        )
        self.stats.note_get_latency(self.clock.monotonic_ns() - began_ns)
        return result

    def get_message_in_memory(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int,
        *,
        max_total_bytes: int = PULL_BYTES_MAX,
        message_filter: MessageFilter | None = None,
    ) -> GetMessageResult | None:
        """As :meth:`get_message`, or ``None`` when that may wait for the disk: use a thread.

        Raises:
            StoreClosed: The store is shut down or not readable.
        """
        self._check_readable()
        began_ns = self.clock.monotonic_ns()
        result = self.reader.get_message_in_memory(
            topic,
            queue_id,
            queue_offset,
            max_messages,
            max_total_bytes=max_total_bytes,
            message_filter=message_filter,
        )
        if result is not None:
            self.stats.note_get_latency(self.clock.monotonic_ns() - began_ns)
        return result

    def will_block(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether reading there may wait for the disk, so that a thread should do it."""
        return self.reader.will_block(topic, queue_id, queue_offset)

    def find_consume_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue that exists."""
        return self.queues.find(topic, queue_id)

    def max_offset_in_queue(self, topic: str, queue_id: int, *, committed: bool = True) -> int:
        """The place behind the last message; not ``committed``: the place of the next append."""
        queue = self.queues.find(topic, queue_id)
        if queue is None:
            return 0
        return queue.max_queue_offset if committed else queue.next_queue_offset

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The place of the oldest message that is still there, -1 for no queue."""
        queue = self.queues.find(topic, queue_id)
        return -1 if queue is None else queue.min_queue_offset

    def total_in_queue(self, topic: str, queue_id: int) -> int:
        """How many messages a queue holds."""
        queue = self.queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_queue_offset - queue.min_queue_offset

    def physical_offset_in_queue(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Where the record of a place lies in the log, -1 for none."""
        unit = self._unit(topic, queue_id, queue_offset)
        return -1 if unit is None else unit.physical_offset

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: BoundaryType = BoundaryType.LOWER,
    ) -> int:
        """The first message stored at or after a time, or (upper) the last up to it."""
        return self.reader.offset_by_time(topic, queue_id, timestamp_ms, boundary)

    # -- time -------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self.clock.now_ms()

    def earliest_message_time_ms(self) -> int:
        """Store time of the oldest record of the log, -1 for none."""
        first = self.commit_log.queue.first
        if first is None:
            return -1
        timestamp = fmt.peek_store_timestamp_ms(first.view, 0, first.read_limit)
        return -1 if timestamp is None else timestamp

    def earliest_message_time_in_queue_ms(self, topic: str, queue_id: int) -> int:
        """Store time of the oldest message of a queue, -1 for none."""
        return self.message_store_time_ms(
            topic, queue_id, self.min_offset_in_queue(topic, queue_id)
        )

    def message_store_time_ms(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time of a message, -1 if it is not there."""
        queue = self.queues.find(topic, queue_id)
        return -1 if queue is None else self.reader.store_timestamp_of(queue, queue_offset)

    # -- single messages --------------------------------------------------------------------------

    def select_one(self, physical_offset: int, size_bytes: int | None = None) -> Bytes | None:
        """The record at an offset of the log, ``None`` if there is no good one."""
        self._check_readable()
        return self.reader.select_one(physical_offset, size_bytes)

    def look_message(
        self, physical_offset: int, size_bytes: int | None = None
    ) -> StoredMessage | None:
        """The message at an offset of the log."""
        self._check_readable()
        return self.reader.look_message(physical_offset, size_bytes)

    def query_message(
        self, topic: str, key: str, max_messages: int, begin_ms: int, end_ms: int
    ) -> QueryMessageResult:
        """Records of a topic with a key in a range of time."""
        self._check_readable()
        return self.reader.query_message(topic, key, max_messages, begin_ms, end_ms)

    def message_ids(
        self, topic: str, queue_id: int, begin_offset: int, end_offset: int, store_host: Host
    ) -> dict[str, int]:
        """Offset message ids of a range of a queue, each with its queue offset."""
        self._check_readable()
        ids: dict[str, int] = {}
        queue = self.queues.find(topic, queue_id)
        if queue is None:
            return ids
        offset = max(begin_offset, queue.min_queue_offset)
        end_offset = min(end_offset, queue.max_queue_offset)
        while offset < end_offset:
            units = queue.read_units(offset, min(end_offset - offset, _IDS_A_READ))
            if not units:
                break
            for position in range(0, len(units), UNIT_BYTES):
                unit = unpack_unit(units, position)
                if not unit.is_filler:
                    ids[offset_message_id(store_host, unit.physical_offset)] = offset
                offset += 1
        return ids

    # -- the log as bytes -------------------------------------------------------------------------

    @property
    def max_physical_offset(self) -> int:
        """End of the readable log."""
        return self.commit_log.max_offset

    @property
    def min_physical_offset(self) -> int:
        """The oldest byte of the log."""
        return self.commit_log.min_offset

    @property
    def confirm_offset(self) -> int:
        """End of what readers may see: flushed with SYNC_FLUSH, appended otherwise.

        Never beyond what :meth:`set_confirm_offset` allows.
        """
        end = self.commit_log.max_offset
        if self.config.is_sync_flush:
            end = min(end, self.commit_log.flushed_offset)
        limit = self._confirm_limit
        return end if limit is None else min(end, limit)

    @property
    def is_confirmed_at_once(self) -> bool:
        """Whether an append is confirmed as soon as it is made."""
        return (
            not self.config.is_sync_flush
            and self.commit_log.pool is None
            and self._confirm_limit is None
        )

    def set_confirm_offset(self, physical_offset: int | None) -> None:
        """Show readers nothing from an offset on; ``None`` takes that back."""
        with self._lock:
            self._confirm_limit = physical_offset
            if physical_offset is not None:
                self.checkpoint.advance(confirm=physical_offset)
            if self.dispatcher.dispatched_offset < self.confirm_offset:
                self.dispatcher.run(self.confirm_offset)

    def commit_log_data(self, physical_offset: int) -> memoryview | None:
        """The log from an offset to at most the end of its segment."""
        self._check_readable()
        return self.commit_log.data_from(physical_offset, self.commit_log.queue.size_bytes)

    def bulk_commit_log_data(self, physical_offset: int, size_bytes: int) -> list[memoryview]:
        """The log from an offset on, over as many segments as it takes."""
        self._check_readable()
        parts: list[memoryview] = []
        end = physical_offset + size_bytes
        while physical_offset < end:
            part = self.commit_log.data_from(physical_offset, end - physical_offset)
            if part is None:
                break
            parts.append(part)
            physical_offset += len(part)
        return parts

    def append_to_commit_log(self, physical_offset: int, data: bytes | memoryview) -> bool:
        """Append bytes of a master's log; false if that is not where the log ends.

        Raises:
            StoreClosed: The store takes no writes.
            OSError: A segment could not be made; what was appended before it stays.
        """
        with self._lock:
            if not self.flags.is_writeable:
                reasons = ", ".join(self.flags.reasons())
                raise StoreClosed(f"{self.root} takes no replicated data", detail=reasons)
            if not self.commit_log.append_data(physical_offset, data):
                return False
            self.dispatcher.run(self.confirm_offset)
            # A later master goes on from the newest record's time; the flusher's mark needs it.
            self.commit_log.store_timestamp_ms = max(
                self.commit_log.store_timestamp_ms, self.dispatcher.store_timestamp_ms
            )
            if self.config.is_sync_flush:
                self.flusher.request()
            return True

    def update_ha_master_address(self, address: str) -> None:
        """Tell a slave whom to follow."""
        self._ha_master_address = address

    @property
    def ha_master_address(self) -> str:
        """Whom a slave follows, empty for nobody."""
        return self._ha_master_address

    def slave_behind_bytes(self) -> int:
        """How much of the log the slave that is furthest has not yet got."""
        return max(self.commit_log.max_offset - self.acks.replicated_offset, 0)

    # -- truncation -------------------------------------------------------------------------------

    def is_offset_aligned(self, physical_offset: int) -> bool:
        """Whether a record, or the end of a segment or of the log, begins at an offset."""
        return self._truncation().is_aligned(physical_offset)

    def truncate_to(self, physical_offset: int) -> None:
        """Erase the log and what is derived from it from an offset on, durably.

        Only while no put is under way: the caller has finished its burst and has let the answers
        that wait for the disk or a slave go.

        Raises:
            StoreError: The offset is none that the log can end at, or puts are under way.
            OSError: The disk refused; the store must be recovered before it is used again.
        """
        with self._lock:
            if self.flags.has(RunningFlag.SHUT_DOWN | RunningFlag.FLUSH_FAILED):
                reasons = ", ".join(self.flags.reasons())
                raise StoreClosed(f"{self.root} cannot be truncated", detail=reasons)
            if self._burst or len(self.acks):
                raise StoreError(
                    f"the log cannot be truncated to {physical_offset}",
                    detail="puts are under way",
                    hint="finish the burst and let waiting answers go first",
                )
            truncation = self._truncation()
            truncation.check(physical_offset)
            if physical_offset == self.commit_log.wrote_offset:
                return
            self._store_lock.mark_running()
            dispatcher, acks = self.dispatcher, self.acks
            with self._logics_lock:
                truncation.run(physical_offset)
                dispatcher.written_offset = min(dispatcher.written_offset, physical_offset)
            dispatcher.dispatched_offset = min(dispatcher.dispatched_offset, physical_offset)
            acks.flushed_offset = min(acks.flushed_offset, physical_offset)
            acks.replicated_offset = min(acks.replicated_offset, physical_offset)
            if dispatcher.dispatched_offset < self.confirm_offset:
                dispatcher.run(self.confirm_offset)

    def reset_write_offset(self, physical_offset: int) -> None:
        """Let the next append go to an offset: begin an empty log there, or truncate.

        Raises:
            StoreError: As :meth:`truncate_to`, or the offset is not where a segment begins.
        """
        with self._lock:
            if self.commit_log.queue.segments:
                self.truncate_to(physical_offset)
                return
            if not self.commit_log.begin_at(physical_offset):
                raise StoreError(
                    f"the log cannot begin at {physical_offset}",
                    detail=f"segments have {self.commit_log.queue.size_bytes} bytes",
                    hint="an empty log begins where a segment begins",
                )
            self.dispatcher.dispatched_offset = physical_offset

    def _truncation(self) -> Truncation:
        return Truncation(self.commit_log, self.queues, self.index, self.checkpoint, self.flusher)

    # -- maintenance ------------------------------------------------------------------------------

    def flush(self) -> int:
        """Put everything appended so far on disk; returns how far that is."""
        self.flusher.flush_all()
        return self.commit_log.flushed_offset

    def delete_files_manually(self, *, archived_offset: int | None = None) -> None:
        """Delete segments that are old enough, whatever the hour.

        Or, with ``archived_offset``, those that end at or before this physical offset, however
        young: somebody has them elsewhere.
        """
        if archived_offset is None:
            self.retention.request_manual()
        else:
            self.retention.request_archived(archived_offset)

    def delete_topics(self, topics: Iterable[str]) -> int:
        """Delete the queues of topics; returns how many topics had any."""
        with self._lock:
            self._dispatch_all()
            known = [topic for topic in set(topics) if topic in self.queues.table]
            for topic in known:
                self.queues.delete_topic(topic)
                log.info("deleted the queues of %s", topic)
            return len(known)

    def clean_unused_topics(self, retained: Iterable[str]) -> int:
        """Delete the queues of topics that are neither retained nor the broker's own."""
        kept = set(retained)
        with self._lock:
            return self.delete_topics(
                topic
                for topic in list(self.queues.table)
                if not (topic in kept or is_system_topic(topic) or topic.startswith(LMQ_PREFIX))
            )

    def clean_expired_consume_queues(self) -> int:
        """Delete queues none of whose messages is in the log any more; returns how many."""
        with self._lock:
            self._dispatch_all()
            return self.queues.clean_expired_queues(self.commit_log.min_offset)

    def _catch_up(self) -> None:
        """Dispatch what is confirmed; damage is told, and shows in the flags."""
        try:
            self.dispatcher.run(self.confirm_offset)
        except StoreDamaged as error:
            log.critical("queues and index stay behind the log: %s", error)

    def _retry_dispatch(self) -> None:
        """Try again what failed for want of space, so that writes can go on."""
        if self.flags.has(RunningFlag.LOGICS_QUEUE_ERROR | RunningFlag.INDEX_FILE_ERROR):
            self._catch_up()

    def _dispatch_all(self) -> None:
        """Leave no record behind whose late dispatch would bring back a deleted queue."""
        if self.dispatcher.dispatched_offset < self.commit_log.wrote_offset:
            self.flusher.flush_all()
            self.dispatcher.run(self.confirm_offset)
        self.dispatcher.finish()

    # -- joining in -------------------------------------------------------------------------------

    @property
    def dispatchers(self) -> list[CommitLogDispatcher]:
        """Told of every record in the order of the log."""
        return self.dispatcher.dispatchers

    def add_dispatcher(self, dispatcher: CommitLogDispatcher) -> None:
        """Join the dispatchers."""
        self.dispatcher.dispatchers.append(dispatcher)

    def add_arriving_listener(self, listener: ArrivingListener) -> None:
        """Be told of every queue that grew, once a burst."""
        self.dispatcher.arriving.append(listener)
