"""Reading messages back: by queue, by offset, by key, by time.

Owns no state. Reads by queue are those of :mod:`roquet.store.queue_reader`; all other lookups are
here. Every record is checked before it is returned.

Who may call: the owner for what is in memory, any thread for what is not.
"""

from __future__ import annotations

from roquet.format import commit_log as fmt
from roquet.model.message import StoredMessage
from roquet.store.batch_consume_queue import BatchConsumeQueue
from roquet.store.commit_log import CommitLog
from roquet.store.config import MessageStoreConfig
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.index import IndexService
from roquet.store.queue_reader import (
    PULL_BYTES_MAX,
    MessageFilter,
    QueueFilter,
    QueueReader,
    RecordFilter,
)
from roquet.store.read_ahead import ReadAhead
from roquet.store.resident_records import check_in
from roquet.store.results import BoundaryType, Bytes, QueryMessageResult
from roquet.store.stats import StoreStatsService

__all__ = ["PULL_BYTES_MAX", "MessageFilter", "MessageReader", "QueueFilter", "RecordFilter"]

QUERY_BYTES_MAX = 16 << 20


class MessageReader(QueueReader):
    """Reads of one store."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        index: IndexService | None,
        config: MessageStoreConfig,
        stats: StoreStatsService,
        *,
        read_ahead: ReadAhead,
    ) -> None:
        """Read from these."""
        super().__init__(commit_log, queues, config, stats, read_ahead=read_ahead)
        self._index = index

    # -- by offset, by key --------------------------------------------------------------------

    def select_one(self, physical_offset: int, size_bytes: int | None = None) -> Bytes | None:
        """The record at an offset of the log, ``None`` if there is no valid one."""
        segment = self._log.queue.find(physical_offset)
        if segment is None:
            return None
        position = physical_offset - segment.start_offset
        limit = segment.read_limit if size_bytes is None else position + size_bytes
        if limit > segment.read_limit:
            return None
        found = check_in(segment, position, limit, rules=self._rules)
        if not isinstance(found, fmt.DispatchRequest):
            return None
        return segment.slice(position, found.size_bytes)

    def look_message(
        self, physical_offset: int, size_bytes: int | None = None
    ) -> StoredMessage | None:
        """The message at an offset of the log."""
        record = self.select_one(physical_offset, size_bytes)
        return fmt.decode_record(record, 0, len(record)) if record is not None else None

    def query_message(
        self, topic: str, key: str, max_messages: int, begin_ms: int, end_ms: int
    ) -> QueryMessageResult:
        """Records of a topic with a key or unique key, newest first, bounded in bytes."""
        result = QueryMessageResult()
        if self._index is None:
            return result
        limit = min(max_messages, self._config.query_messages_max)
        found = self._index.query(topic, key, limit, begin_ms, end_ms)
        if not found.physical_offsets:
            return result
        result.index_last_update_timestamp_ms = found.last_update_timestamp_ms
        result.index_last_update_physical_offset = found.last_update_physical_offset
        for physical_offset in sorted(set(found.physical_offsets)):
            record = self.select_one(physical_offset)
            if record is None or result.total_bytes + len(record) > QUERY_BYTES_MAX:
                continue
            result.records.append(record)
            result.total_bytes += len(record)
        return result

    # -- by time ------------------------------------------------------------------------------

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: BoundaryType = BoundaryType.LOWER,
    ) -> int:
        """Offset of the first message stored at or after a time, or (upper) the last up to it.

        If there is none: the next offset, or the first one for the upper boundary.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        if isinstance(queue, BatchConsumeQueue):
            return queue.offset_by_time(timestamp_ms, is_upper=boundary is BoundaryType.UPPER)
        low, high = queue.min_queue_offset, queue.max_queue_offset
        if boundary is BoundaryType.LOWER:
            return self._first_not_before(queue, low, high, timestamp_ms)
        after = self._first_not_before(queue, low, high, timestamp_ms + 1)
        return max(after - 1, low)

    def _first_not_before(self, queue: ConsumeQueue, low: int, high: int, timestamp_ms: int) -> int:
        while low < high:
            middle = (low + high) // 2
            if self.store_timestamp_of(queue, middle) < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def store_timestamp_of(self, queue: ConsumeQueue, queue_offset: int) -> int:
        """Store time of an entry's message, -1 if it is gone."""
        unit = queue.unit_at(queue_offset)
        if unit is None or unit.is_filler:
            return -1
        return self._log.store_timestamp_at(unit.physical_offset, unit.size_bytes)
