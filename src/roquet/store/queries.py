"""Queries: messages and offsets, by queue, time, key or physical offset.

Owns no files: it uses the reader and the queues. The owner reads, or any thread if the read may
block on the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from roquet.format.consume_queue import UNIT_BYTES, unpack_unit
from roquet.model.host import Host
from roquet.model.message import StoredMessage
from roquet.model.message_id import offset_message_id
from roquet.store.batch_consume_queue import BatchConsumeQueue
from roquet.store.queue_reader import PULL_BYTES_MAX, MessageFilter, ReadRequest
from roquet.store.results import BoundaryType, Bytes, GetMessageResult, QueryMessageResult
from roquet.store.store_components import StoreComponents

_IDS_A_READ = 1024
Found = TypeVar("Found", GetMessageResult, GetMessageResult | None)


class Queries:
    """Queries of one store."""

    def __init__(self, components: StoreComponents) -> None:
        """Query ``components``."""
        self._components = components
        self._log = components.commit_log
        self._queues = components.queues
        self._reader = components.reader
        self._stats = components.stats
        self.clock = components.clock

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
        wanted = ReadRequest(
            topic, queue_id, queue_offset, max_messages, max_total_bytes, message_filter
        )
        return self._timed(self._reader.get_message, wanted)

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
        """Like :meth:`get_message`, or ``None`` if that may wait for the disk: use a thread.

        Raises:
            StoreClosed: The store is shut down or not readable.
        """
        wanted = ReadRequest(
            topic, queue_id, queue_offset, max_messages, max_total_bytes, message_filter
        )
        return self._timed(self._reader.get_message_in_memory, wanted)

    def _timed(self, read: Callable[[ReadRequest], Found], wanted: ReadRequest) -> Found:
        """Read, and record how long that took, unless the read was given up."""
        self._components.check_readable()
        began_ns = self.clock.monotonic_ns()
        result = read(wanted)
        if result is not None:
            self._stats.note_get_latency(self.clock.monotonic_ns() - began_ns)
        return result

    def will_block(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether reading there may wait for the disk, so that a thread should do it."""
        return self._reader.will_block(topic, queue_id, queue_offset)

    def max_offset_in_queue(self, topic: str, queue_id: int, *, committed: bool = True) -> int:
        """The offset after the last message; not ``committed``: the offset of the next append."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        return queue.max_queue_offset if committed else queue.next_queue_offset

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The offset of the oldest message still stored, -1 if there is no queue."""
        queue = self._queues.find(topic, queue_id)
        return -1 if queue is None else queue.min_queue_offset

    def physical_offset_in_queue(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """The physical offset of the record at a queue offset, -1 if there is none."""
        unit = self._components.unit(topic, queue_id, queue_offset)
        return -1 if unit is None else unit.physical_offset

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: BoundaryType = BoundaryType.LOWER,
    ) -> int:
        """The first message stored at or after a time, or (upper) the last up to it."""
        return self._reader.offset_by_time(topic, queue_id, timestamp_ms, boundary)

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self.clock.now_ms()

    def earliest_message_time_ms(self) -> int:
        """Store time of the oldest record of the log, -1 if there is none."""
        first = self._log.queue.first
        if first is None:
            return -1
        return self._log.store_timestamp_at(first.start_offset, first.read_limit)

    def earliest_message_time_in_queue_ms(self, topic: str, queue_id: int) -> int:
        """Store time of the oldest message of a queue, -1 if there is none."""
        return self.message_store_time_ms(
            topic, queue_id, self.min_offset_in_queue(topic, queue_id)
        )

    def message_store_time_ms(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time of a message, -1 if there is no such message."""
        queue = self._queues.find(topic, queue_id)
        return -1 if queue is None else self._reader.store_timestamp_of(queue, queue_offset)

    def select_one(self, physical_offset: int, size_bytes: int | None = None) -> Bytes | None:
        """The record at an offset of the log, ``None`` if there is no valid one."""
        self._components.check_readable()
        return self._reader.select_one(physical_offset, size_bytes)

    def look_message(
        self, physical_offset: int, size_bytes: int | None = None
    ) -> StoredMessage | None:
        """The message at an offset of the log."""
        self._components.check_readable()
        return self._reader.look_message(physical_offset, size_bytes)

    def query_message(
        self, topic: str, key: str, max_messages: int, begin_ms: int, end_ms: int
    ) -> QueryMessageResult:
        """Records of a topic with a key in a time range."""
        self._components.check_readable()
        return self._reader.query_message(topic, key, max_messages, begin_ms, end_ms)

    def message_ids(
        self, topic: str, queue_id: int, begin_offset: int, end_offset: int, store_host: Host
    ) -> dict[str, int]:
        """Offset message ids of a range of a queue, each with its queue offset."""
        self._components.check_readable()
        ids: dict[str, int] = {}
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return ids
        offset = max(begin_offset, queue.min_queue_offset)
        end_offset = min(end_offset, queue.max_queue_offset)
        if isinstance(queue, BatchConsumeQueue):
            for batch in queue.batch_units(offset, end_offset):
                ids[offset_message_id(store_host, batch.physical_offset)] = batch.base_offset
            return ids
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
