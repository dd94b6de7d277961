"""Reading messages back by queue: what every pull does.

Owns no state. A read looks at queue entries, takes slices of the mapped log (neighbours joined),
and checks each record against its entry before it is handed out: a damaged record is passed over
and logged, never served.

Where records come from depends on where they are:

================================= ==================== =========================================
record                            on the event loop    in a thread
================================= ==================== =========================================
appended lately by this process   the mapping          the mapping
in memory, as the kernel says     the mapping          the mapping
near the end of the log           the read is given up the mapping, after the kernel was told to
                                                       bring its pages in
far from the end of the log       the read is given up a copy, by a read call
================================= ==================== =========================================

Near and far are upstream's accessMessageInMemoryMaxRatio. A thread never takes a page fault from
disk itself: it would hold the interpreter's lock meanwhile, and the loop with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from roquet.format import commit_log as fmt
from roquet.format.consume_queue import UNIT, UNIT_BYTES, CqUnit
from roquet.format.consume_queue_ext import CqExtUnit, is_ext_address
from roquet.format.plain_record import plain_tags_code, topic_field
from roquet.model.topic import SCHEDULE_TOPIC
from roquet.runtime.memory import physical_memory_bytes
from roquet.store.commit_log import CommitLog
from roquet.store.config import BrokerRole, MessageStoreConfig
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.lane import compiled_fits_entry
from roquet.store.mapped_file import MappedFile
from roquet.store.results import Bytes, GetMessageResult, GetMessageStatus
from roquet.store.stats import StoreStatsService

log = logging.getLogger(__name__)

PULL_BYTES_MAX = 128 << 20
PULL_BYTES_MIN = 100

RECENT_BYTES = 32 << 20
"""What this process appended within so much of the end of the log counts as in memory."""

WINDOW_BYTES = 256 << 10
"""How much of the log the kernel is asked about, or to bring in, at a time."""

QueueFilter = Callable[[int, CqExtUnit | None], bool]
RecordFilter = Callable[[memoryview], bool]
Entry = tuple[int, int, int]
"""A queue entry: physical offset, size, tags code."""


class MessageFilter(NamedTuple):
    """What a reader wants: judged by the queue entry first, then by the record.

    Attributes:
        entries_max: Entries that one read looks at, if records take long to judge.
    """

    by_queue: QueueFilter | None = None
    by_record: RecordFilter | None = None
    entries_max: int | None = None


_EVERYTHING = MessageFilter()


class _Wanted(NamedTuple):
    queue_offset: int
    max_messages: int
    max_total_bytes: int
    message_filter: MessageFilter | None


class _Limits(NamedTuple):
    """How much one read takes: entries looked at, and of records how many and how long.

    The latter are given for records near the end of the log and for others; the first record
    always fits.
    """

    entries: int
    entries_read: int
    near: tuple[int, int]
    far: tuple[int, int]


class _Gathered:
    """The records of an answer, those that are neighbours in the log joined."""

    __slots__ = ("_end", "_log", "_segment", "_slices", "_start", "count", "last", "total_bytes")

    def __init__(self, commit_log: CommitLog, slices: list[Bytes]) -> None:
        self._log = commit_log
        self._slices = slices
        self._segment: MappedFile | None = None
        self._start = self._end = -1
        self.count = 0
        self.total_bytes = 0
        self.last: Bytes = b""

    def add(self, record: Bytes, physical_offset: int) -> None:
        """Take a record of the mapped log, or a copy of one."""
        size_bytes = len(record)
        self.count += 1
        self.total_bytes += size_bytes
        self.last = record
        if physical_offset == self._end and isinstance(record, memoryview):
            self._end += size_bytes
            return
        self.join()
        segment = self._log.queue.find(physical_offset)
        if segment is None or isinstance(record, bytes):
            self._slices.append(record)  # a copy, or of a segment that expired just now
            return
        self._segment = segment
        self._start = physical_offset
        self._end = physical_offset + size_bytes

    def join(self) -> None:
        """Make one slice of the neighbours that were added last."""
        segment, self._segment = self._segment, None
        if segment is not None:
            begin = segment.start_offset
            self._slices.append(segment.view[self._start - begin : self._end - begin])
        self._start = self._end = -1


class _Residency:
    """What of the log is in memory, as far as one read has to know.

    Attributes:
        recent_offset: From here on all of it is.
    """

    __slots__ = ("_end", "_log", "_may_block", "_start", "recent_offset")

    def __init__(self, commit_log: CommitLog, recent_offset: int, *, may_block: bool) -> None:
        self.recent_offset = recent_offset
        self._log = commit_log
        self._may_block = may_block
        self._start = self._end = 0

    def covers(self, physical_offset: int, size_bytes: int) -> bool:
        """Whether a record is in memory, after waiting for that if allowed."""
        if self._start <= physical_offset and physical_offset + size_bytes <= self._end:
            return True
        segment = self._log.queue.find(physical_offset)
        if segment is None:
            return True  # no byte of it will be read
        position = physical_offset - segment.start_offset
        window_bytes = min(max(WINDOW_BYTES, size_bytes), segment.read_limit - position)
        if size_bytes > window_bytes:
            return True  # as above
        if self._may_block:
            segment.make_resident(position, window_bytes)
        elif not segment.is_resident(position, window_bytes):
            window_bytes = size_bytes
            if not segment.is_resident(position, window_bytes):
                return False
        self._start, self._end = physical_offset, physical_offset + window_bytes
        return True


class QueueReader:
    """Reads of the queues of one store.

    Attributes:
        memory_bytes: How far from the end of the log a record is near.
        damaged_records: How many records were not served because they are damaged.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        config: MessageStoreConfig,
        stats: StoreStatsService,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._config = config
        self._stats = stats
        ratio = config.access_message_in_memory_max_ratio
        self.memory_bytes = physical_memory_bytes() * ratio // 100
        self._rules = replace(commit_log.rules, check_crc=True)
        force_crc = commit_log.rules.force_property_crc
        self._fits_entry = None if force_crc else compiled_fits_entry()
        self._must_check_more = self._rules.check_property_crc
        self._own_offset: int | None = None
        self.damaged_records = 0

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
        wanted = _Wanted(queue_offset, max_messages, max_total_bytes, message_filter)
        result = self._get(topic, queue_id, wanted, may_block=True)
        assert result is not None, "a read that may wait for the disk was given up"
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
        """As :meth:`get_message`, or ``None`` when that would wait for the disk."""
        wanted = _Wanted(queue_offset, max_messages, max_total_bytes, message_filter)
        return self._get(topic, queue_id, wanted, may_block=False)

    def _get(
        self, topic: str, queue_id: int, wanted: _Wanted, *, may_block: bool
    ) -> GetMessageResult | None:
        offset = wanted.queue_offset
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            status = GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
            return GetMessageResult(status, self._corrected(offset, 0))
        result = self._out_of_range(queue, offset)
        if result is None:
            result = GetMessageResult(
                GetMessageStatus.NO_MATCHED_MESSAGE,
                offset,
                queue.min_queue_offset,
                queue.max_queue_offset,
            )
            if not self._collect(queue, wanted, result, may_block=may_block):
                return None
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

    def _limits(self, wanted: _Wanted) -> _Limits:
        config = self._config
        messages = wanted.max_messages
        total_bytes = min(max(wanted.max_total_bytes, PULL_BYTES_MIN), PULL_BYTES_MAX)
        scanned_bytes = max(config.filter_message_bytes_max, messages * UNIT_BYTES)
        if wanted.message_filter is not None and wanted.message_filter.entries_max is not None:
            scanned_bytes = min(scanned_bytes, wanted.message_filter.entries_max * UNIT_BYTES)
        return _Limits(
            -(-scanned_bytes // UNIT_BYTES),
            max(scanned_bytes // UNIT_BYTES, messages),
            (
                min(messages, config.transfer_count_in_memory_max),
                min(total_bytes, config.transfer_bytes_in_memory_max),
            ),
            (
                min(messages, config.transfer_count_in_disk_max),
                min(total_bytes, config.transfer_bytes_in_disk_max),
            ),
        )

    def _residency(self, log_end: int, *, may_block: bool) -> _Residency:
        # What an earlier process appended may have left memory meanwhile.
        if self._own_offset is None:
            self._own_offset = log_end
        recent_offset = max(log_end - RECENT_BYTES, self._own_offset)
        return _Residency(self._log, recent_offset, may_block=may_block)

    def _collect(
        self, queue: ConsumeQueue, wanted: _Wanted, result: GetMessageResult, *, may_block: bool
    ) -> bool:
        """Fill ``result`` from one queue file; false if that would wait and must not."""
        offset = queue_offset = wanted.queue_offset
        limits = self._limits(wanted)
        read_units = queue.read_units if may_block else queue.read_cached_units
        units = read_units(offset, limits.entries_read)
        if units is None:
            return False
        if not units:
            result.status = GetMessageStatus.OFFSET_FOUND_NULL
            result.next_begin_offset = self._corrected(offset, queue.next_file_offset(offset))
            return True
        log_end = self._log.max_offset
        near_offset = log_end - self.memory_bytes
        residency = self._residency(log_end, may_block=may_block)
        by_queue, by_record, _ = wanted.message_filter or _EVERYTHING
        gathered = _Gathered(self._log, result.slices)
        topic = topic_field(queue.topic)
        removed_until = -1
        physical_offset = 0
        for entry in UNIT.iter_unpack(units):
            physical_offset, size_bytes, _ = entry
            is_near = physical_offset >= near_offset
            messages, total_bytes = limits.near if is_near else limits.far
            if queue_offset - offset >= limits.entries or (
                gathered.count
                and (gathered.count >= messages or gathered.total_bytes + size_bytes > total_bytes)
            ):
                break
            queue_offset += 1
            if physical_offset < removed_until or not (
                by_queue is None or self._matches_queue(queue, entry, by_queue)
            ):
                continue
            if physical_offset < residency.recent_offset and not (
                residency.covers(physical_offset, size_bytes) if is_near else may_block
            ):
                return False
            record = self._record(queue, entry, queue_offset - 1, topic, is_near=is_near)
            if record is None:
                if not gathered.count:
                    result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
                if physical_offset < self._log.min_offset:
                    removed_until = self._log.next_segment_offset(physical_offset)
                continue
            if by_record is not None and not by_record(memoryview(record)):
                if not gathered.count:
                    result.status = GetMessageStatus.NO_MATCHED_MESSAGE
                result.filtered_count += 1
                continue
            gathered.add(record, physical_offset)
            result.queue_offsets.append(queue_offset - 1)
            removed_until = -1
        gathered.join()
        result.next_begin_offset = queue_offset
        result.total_bytes = gathered.total_bytes
        if gathered.count:
            result.status = GetMessageStatus.FOUND
            stored_ms = fmt.peek_store_timestamp_ms(gathered.last, 0, len(gathered.last))
            result.last_store_timestamp_ms = stored_ms or 0
        if queue_offset > offset:
            last_offset, _, _ = UNIT.unpack_from(units, (queue_offset - offset - 1) * UNIT_BYTES)
            result.behind_bytes = log_end - last_offset
        result.suggest_pulling_from_slave = physical_offset < near_offset
        return True

    def _matches_queue(self, queue: ConsumeQueue, entry: Entry, by_queue: QueueFilter) -> bool:
        if queue.ext is None:
            return by_queue(entry[2], None)
        tags_code, ext = self._tags_of(queue, entry[2])
        if ext is None and is_ext_address(tags_code):
            return True  # the unit is lost: only the record can tell
        return by_queue(tags_code, ext)

    def _tags_of(self, queue: ConsumeQueue, tags_code: int) -> tuple[int, CqExtUnit | None]:
        """Tags code of an entry, through its ext unit where it has one."""
        if queue.ext is not None and is_ext_address(tags_code):
            ext = queue.ext.get(tags_code)
            if ext is not None:
                return ext.tags_code, ext
        return tags_code, None

    def _record(
        self, queue: ConsumeQueue, entry: Entry, queue_offset: int, topic: bytes, *, is_near: bool
    ) -> Bytes | None:
        """The record of an entry if it is there and fits the entry in every field."""
        physical_offset, size_bytes, _ = entry
        segment = self._log.queue.find(physical_offset)
        if segment is None:
            return None
        position = physical_offset - segment.start_offset
        record: Bytes | None
        if is_near:
            record = segment.slice(position, size_bytes)
        else:
            record = segment.read_cold(position, size_bytes)
        if record is None or self._fits_plainly(queue, entry, queue_offset, topic, record):
            return record
        fault = self._misfit(queue, CqUnit._make(entry), queue_offset, record)
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

    def _fits_plainly(
        self, queue: ConsumeQueue, entry: Entry, queue_offset: int, topic: bytes, record: Bytes
    ) -> bool:
        """Whether a record is an ordinary one and that of its entry; if not, others must judge."""
        physical_offset, size_bytes, tags_code = entry
        if self._fits_entry is not None:
            return self._fits_entry(
                record, physical_offset, topic[1:], queue.queue_id, queue_offset, tags_code
            )
        if self._must_check_more:
            return False
        expected = (size_bytes, fmt.MAGIC_V1, queue.queue_id, queue_offset, physical_offset)
        code = plain_tags_code(record, 0, expected, topic)
        return code is not None and (code == tags_code or queue.topic == SCHEDULE_TOPIC)

    def _misfit(
        self, queue: ConsumeQueue, unit: CqUnit, queue_offset: int, record: Bytes
    ) -> str | None:
        """Why a record is not the one its entry speaks of, or not a good one at all."""
        found = fmt.check_record(
            record, 0, len(record), physical_offset=unit.physical_offset, rules=self._rules
        )
        if not isinstance(found, fmt.DispatchRequest):
            return str(found)
        expected = (queue.topic, queue.queue_id, queue_offset, unit.size_bytes)
        actual = (found.topic, found.queue_id, found.queue_offset, found.size_bytes)
        if actual != expected:
            return f"entry says {expected}, record says {actual}"
        tags_code, ext = self._tags_of(queue, unit.tags_code)
        is_comparable = queue.topic != SCHEDULE_TOPIC and (
            ext is not None or not is_ext_address(tags_code)
        )
        if is_comparable and found.tags_code != tags_code:
            return f"entry says tags {tags_code}, record says {found.tags_code}"
        return None

    def will_block(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether reading there may wait for the disk, so that a thread should do it."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return False
        units = queue.read_cached_units(queue_offset, 1)
        if units is None:
            return True
        if not units:
            return False
        physical_offset, size_bytes, _ = UNIT.unpack(units)
        if not self.is_in_memory(physical_offset):
            return self._log.queue.find(physical_offset) is not None
        residency = self._residency(self._log.max_offset, may_block=False)
        return physical_offset < residency.recent_offset and not residency.covers(
            physical_offset, size_bytes
        )

    def is_in_memory(self, physical_offset: int) -> bool:
        """Whether an offset is near enough to the end of the log to be in memory still."""
        return self._log.max_offset - physical_offset <= self.memory_bytes
