"""Reading messages back: by queue, by offset, by key, by time.

Owns no state. A read looks at queue entries, takes slices of the mapped log (neighbours merged
into one), and checks each record against its entry before it is handed out: a damaged record is
passed over and logged, never served.

Who may call: the owner for what is in memory, any thread for what is not. Whether a range is in
memory is judged by its distance from the end of the log, as upstream does; :meth:`will_block`
tells a caller on the loop to use a reader thread instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from roquet.format import commit_log as fmt
from roquet.format.consume_queue import UNIT_BYTES, CqUnit, unpack_unit
from roquet.format.consume_queue_ext import CqExtUnit, is_ext_address
from roquet.model.message import StoredMessage
from roquet.model.topic import SCHEDULE_TOPIC
from roquet.runtime.memory import physical_memory_bytes
from roquet.store.commit_log import CommitLog
from roquet.store.config import BrokerRole, MessageStoreConfig
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.index import IndexService
from roquet.store.lane import compiled_fits_entry
from roquet.store.results import (
    BoundaryType,
    Bytes,
    GetMessageResult,
    GetMessageStatus,
    QueryMessageResult,
)
from roquet.store.stats import StoreStatsService

log = logging.getLogger(__name__)

PULL_BYTES_MAX = 128 << 20
PULL_BYTES_MIN = 100
QUERY_BYTES_MAX = 16 << 20

QueueFilter = Callable[[int, CqExtUnit | None], bool]
RecordFilter = Callable[[memoryview], bool]


class MessageFilter(NamedTuple):
    """What a reader wants: judged by the queue entry first, then by the record."""

    by_queue: QueueFilter | None = None
    by_record: RecordFilter | None = None


class _Limits(NamedTuple):
    messages: int
    total_bytes: int
    scanned_bytes: int


class MessageReader:
    """Reads of one store."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        index: IndexService | None,
        config: MessageStoreConfig,
        stats: StoreStatsService,
    ) -> None:
        """Read what these own."""
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._config = config
        self._stats = stats
        ratio = config.access_message_in_memory_max_ratio
        self._memory_bytes = physical_memory_bytes() * ratio // 100
        self._rules = replace(commit_log.rules, check_crc=True)
        force_crc = commit_log.rules.force_property_crc
        self._fits_entry = None if force_crc else compiled_fits_entry()
        self.damaged_records = 0

    # -- by queue ---------------------------------------------------------------------------

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
        """Records of a queue from an offset on, with upstream's status and limits."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            status = GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
            return GetMessageResult(status, self._corrected(queue_offset, 0))
        result = self._out_of_range(queue, queue_offset)
        if result is None:
            result = GetMessageResult(
                GetMessageStatus.NO_MATCHED_MESSAGE,
                queue_offset,
                queue.min_queue_offset,
                queue.max_queue_offset,
            )
            limits = _Limits(
                max_messages,
                min(max(max_total_bytes, PULL_BYTES_MIN), PULL_BYTES_MAX),
                max(self._config.filter_message_bytes_max, max_messages * UNIT_BYTES),
            )
            self._collect(queue, queue_offset, limits, message_filter, result)
        self._stats.count_get(
            found=result.status is GetMessageStatus.FOUND, messages=result.message_count
        )
        return result

    def _corrected(self, old: int, new: int) -> int:
        """Where to read next; a slave leaves the offset to its master."""
        if self._config.broker_role is BrokerRole.SLAVE and not self._config.offset_check_in_slave:
            return old
        return new

    def _out_of_range(self, queue: ConsumeQueue, offset: int) -> GetMessageResult | None:
        low, high = queue.min_queue_offset, queue.max_queue_offset
        if high == 0:
            status, following = GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0
        elif offset < low:
            status, following = GetMessageStatus.OFFSET_TOO_SMALL, low
        elif offset == high:
            status, following = GetMessageStatus.OFFSET_OVERFLOW_ONE, offset
        elif offset > high:
            status, following = GetMessageStatus.OFFSET_OVERFLOW_BADLY, high
        else:
            return None
        return GetMessageResult(status, self._corrected(offset, following), low, high)

    def _collect(
        self,
        queue: ConsumeQueue,
        offset: int,
        limits: _Limits,
        message_filter: MessageFilter | None,
        result: GetMessageResult,
    ) -> None:
        """Fill ``result`` from one queue file."""
        units = queue.read_units(offset, max(limits.scanned_bytes // UNIT_BYTES, limits.messages))
        if not units:
            result.status = GetMessageStatus.OFFSET_FOUND_NULL
            result.next_begin_offset = self._corrected(offset, queue.next_file_offset(offset))
            return
        log_end = self._log.max_offset
        removed_until = -1
        last_physical = 0
        for number in range(len(units) // UNIT_BYTES):
            unit = unpack_unit(units, number * UNIT_BYTES)
            last_physical = unit.physical_offset
            in_memory = log_end - unit.physical_offset <= self._memory_bytes
            if number * UNIT_BYTES >= limits.scanned_bytes or self._is_full(
                unit.size_bytes, limits, result, in_memory=in_memory
            ):
                break
            result.next_begin_offset = offset + number + 1
            if unit.physical_offset < removed_until:
                continue
            if not self._matches_queue(queue, unit, message_filter):
                continue
            record = self._record(queue, unit, offset + number, in_memory=in_memory)
            if record is None:
                if result.total_bytes == 0:
                    result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
                if unit.physical_offset < self._log.min_offset:
                    removed_until = self._log.next_segment_offset(unit.physical_offset)
                continue
            by_record = message_filter.by_record if message_filter is not None else None
            if by_record is not None and not by_record(memoryview(record)):
                if result.total_bytes == 0:
                    result.status = GetMessageStatus.NO_MATCHED_MESSAGE
                continue
            self._add(result, record, offset + number, unit)
            removed_until = -1
        result.suggest_pulling_from_slave = log_end - last_physical > self._memory_bytes

    def _is_full(
        self, size_bytes: int, limits: _Limits, result: GetMessageResult, *, in_memory: bool
    ) -> bool:
        """Whether one more record would pass a limit; the first always fits."""
        if result.total_bytes == 0:
            return False
        if result.message_count + 1 > limits.messages:
            return True
        after_bytes = result.total_bytes + size_bytes
        if after_bytes > limits.total_bytes:
            return True
        config = self._config
        if in_memory:
            return (
                after_bytes > config.transfer_bytes_in_memory_max
                or result.message_count > config.transfer_count_in_memory_max - 1
            )
        return (
            after_bytes > config.transfer_bytes_in_disk_max
            or result.message_count > config.transfer_count_in_disk_max - 1
        )

    def _matches_queue(
        self, queue: ConsumeQueue, unit: CqUnit, message_filter: MessageFilter | None
    ) -> bool:
        if message_filter is None or message_filter.by_queue is None:
            return True
        tags_code, ext = self._tags_of(queue, unit)
        if ext is None and queue.ext is not None and is_ext_address(tags_code):
            return True  # the unit is lost: only the record can tell
        return message_filter.by_queue(tags_code, ext)

    def _tags_of(self, queue: ConsumeQueue, unit: CqUnit) -> tuple[int, CqExtUnit | None]:
        """Tags code of an entry, through its ext unit where it has one."""
        if queue.ext is not None and is_ext_address(unit.tags_code):
            ext = queue.ext.get(unit.tags_code)
            if ext is not None:
                return ext.tags_code, ext
        return unit.tags_code, None

    def _record(
        self, queue: ConsumeQueue, unit: CqUnit, queue_offset: int, *, in_memory: bool
    ) -> Bytes | None:
        """The record of an entry if it is there and fits the entry in every field."""
        segment = self._log.queue.find(unit.physical_offset)
        if segment is None or unit.is_filler:
            return None
        position = unit.physical_offset - segment.start_offset
        record: Bytes | None
        if in_memory:
            record = segment.slice(position, unit.size_bytes)
        else:
            record = segment.read_cold(position, unit.size_bytes)
        if record is None:
            return None
        fault = self._misfit(queue, unit, queue_offset, record)
        if fault is None:
            return record
        self.damaged_records += 1
        log.error(
            "%s-%d offset %d is damaged and not served: %s",
            queue.topic,
            queue.queue_id,
            queue_offset,
            fault,
        )
        return None

    def _misfit(
        self, queue: ConsumeQueue, unit: CqUnit, queue_offset: int, record: Bytes
    ) -> str | None:
        """Why a record is not the one its entry speaks of, or not a good one at all."""
        if self._fits_entry is not None and self._fits_entry(
            record,
            unit.physical_offset,
            queue.topic.encode(),
            queue.queue_id,
            queue_offset,
            unit.tags_code,
        ):
            return None
        found = fmt.check_record(
            record, 0, len(record), physical_offset=unit.physical_offset, rules=self._rules
        )
        if not isinstance(found, fmt.DispatchRequest):
            return str(found)
        expected = (queue.topic, queue.queue_id, queue_offset, unit.size_bytes)
        actual = (found.topic, found.queue_id, found.queue_offset, found.size_bytes)
        if actual != expected:
            return f"entry says {expected}, record says {actual}"
        tags_code, ext = self._tags_of(queue, unit)
        is_comparable = queue.topic != SCHEDULE_TOPIC and (
            ext is not None or not is_ext_address(tags_code)
        )
        if is_comparable and found.tags_code != tags_code:
            return f"entry says tags {tags_code}, record says {found.tags_code}"
        return None

    def _add(
        self, result: GetMessageResult, record: Bytes, queue_offset: int, unit: CqUnit
    ) -> None:
        """Put a record into the answer, joined with the one before it if they are neighbours."""
        result.status = GetMessageStatus.FOUND
        result.queue_offsets.append(queue_offset)
        result.total_bytes += len(record)
        previous = result.slices[-1] if result.slices else None
        is_neighbour = (
            result.last_end_offset == unit.physical_offset
            and isinstance(record, memoryview)
            and isinstance(previous, memoryview)
        )
        segment = self._log.queue.find(unit.physical_offset) if is_neighbour else None
        if segment is not None and previous is not None:
            end = unit.physical_offset - segment.start_offset + len(record)
            result.slices[-1] = segment.view[end - len(record) - len(previous) : end]
        else:
            result.slices.append(record)
        result.last_end_offset = unit.end_offset

    def will_block(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether reading there may wait for the disk, so that a thread should do it."""
        queue = self._queues.find(topic, queue_id)
        unit = queue.unit_at(queue_offset) if queue is not None else None
        segment = self._log.queue.find(unit.physical_offset) if unit is not None else None
        if unit is None or segment is None or unit.is_filler:
            return False
        if not self.is_in_memory(unit.physical_offset):
            return True
        return not segment.is_resident(unit.physical_offset - segment.start_offset, unit.size_bytes)

    def is_in_memory(self, physical_offset: int) -> bool:
        """Whether an offset is near enough to the end of the log to be in memory still."""
        return self._log.max_offset - physical_offset <= self._memory_bytes

    # -- by offset, by key --------------------------------------------------------------------

    def select_one(self, physical_offset: int, size_bytes: int | None = None) -> Bytes | None:
        """The record at an offset of the log, ``None`` if there is no good one."""
        segment = self._log.queue.find(physical_offset)
        if segment is None:
            return None
        position = physical_offset - segment.start_offset
        limit = segment.read_limit if size_bytes is None else position + size_bytes
        if limit > segment.read_limit:
            return None
        found = fmt.check_record(
            segment.view, position, limit, physical_offset=physical_offset, rules=self._rules
        )
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

        When there is none: the next offset to come, and for the upper boundary the first one.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
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
