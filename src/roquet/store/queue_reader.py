"""Reading messages back by queue: what every pull does.

Owns no state. A read takes queue entries, of messages or of batches, and slices of the mapped log
(adjacent ones joined), and checks each record against its entry before returning it: a damaged
record is skipped and logged, never served.

All records come from the mapping, wherever in the log they are:

================================= ==================== =========================================
record                            on the event loop    in a thread
================================= ==================== =========================================
appended lately by this process   is served            is served
in memory, as the kernel says     is served            is served
not in memory                     the read is given up is served after the kernel has brought
                                                       its pages in
================================= ==================== =========================================

A thread never takes a page fault from disk itself: it would hold the interpreter's lock meanwhile,
and so block the loop. A reader that proceeds in order rarely needs a thread, because
:mod:`roquet.store.read_ahead` brings in what it reads next.

Upstream's limits for messages on disk apply to records that are not in memory. If a read has
reached them it ends there, before it would have to wait. With messageInDiskByDistance they apply
to records further from the end of the log than accessMessageInMemoryMaxRatio, as they do upstream.
That distance always decides whether a reader is sent to a slave.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from roquet.format import commit_log as fmt
from roquet.format.consume_queue import UNIT, CqUnit
from roquet.format.consume_queue_ext import CqExtUnit, is_ext_address
from roquet.model.properties import PROPERTIES_BYTES_MAX
from roquet.model.topic import SCHEDULE_TOPIC
from roquet.runtime.memory import physical_memory_bytes
from roquet.store.commit_log import CommitLog
from roquet.store.compiled import compiled_fits_entry
from roquet.store.config import BrokerRole, MessageStoreConfig
from roquet.store.consume_queue import ConsumeQueue, Entry
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.mapped_file import MappedFile
from roquet.store.read_ahead import RECENT_BYTES, ReadAhead
from roquet.store.results import Bytes, GetMessageResult, GetMessageStatus
from roquet.store.stats import StoreStatsService

log = logging.getLogger(__name__)

PULL_BYTES_MAX = 128 << 20
PULL_BYTES_MIN = 100

WINDOW_BYTES = 256 << 10
"""How much of the log the kernel checks, or brings in, at a time."""

QueueFilter = Callable[[int, CqExtUnit | None], bool]
RecordFilter = Callable[[memoryview], bool]


class MessageFilter(NamedTuple):
    """What a reader wants: judged by the queue entry first, then by the record.

    Attributes:
        entries_max: How many entries one read checks, if records take long to judge.
        bytes_max: How many bytes of records one read judges; the last one may exceed it. A long
            record counts no more than the maximum length of properties.
    """

    by_queue: QueueFilter | None = None
    by_record: RecordFilter | None = None
    entries_max: int | None = None
    bytes_max: int = sys.maxsize


EVERYTHING = MessageFilter()


class ReadRequest(NamedTuple):
    """What a read asks for."""

    topic: str
    queue_id: int
    queue_offset: int
    max_messages: int
    max_total_bytes: int = PULL_BYTES_MAX
    message_filter: MessageFilter | None = None


class _Limits(NamedTuple):
    """How much one read takes.

    A pair is for records on disk and for those in memory; the first record always fits.

    Attributes:
        offsets: Queue offsets checked.
        messages: Messages taken, at most.
        enough: Messages after which no further record is taken; the last one may hold more.
        total_bytes: Length of the records.
    """

    offsets: int
    messages: int
    enough: tuple[int, int]
    total_bytes: tuple[int, int]


class RecordSlices:
    """The records of a response; those that are adjacent in the log are joined."""

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
        """Add a record of the mapped log."""
        size_bytes = len(record)
        self.count += 1
        self.total_bytes += size_bytes
        self.last = record
        if physical_offset == self._end:
            self._end += size_bytes
            return
        self.join()
        segment = self._log.queue.find(physical_offset)
        if segment is None:
            self._slices.append(record)  # of a segment that expired just now
            return
        self._segment = segment
        self._start = physical_offset
        self._end = physical_offset + size_bytes

    def join(self) -> None:
        """Join the adjacent records that were added last into one slice."""
        segment, self._segment = self._segment, None
        if segment is not None:
            begin = segment.start_offset
            self._slices.append(segment.view[self._start - begin : self._end - begin])
        self._start = self._end = -1

    def describe(self, result: GetMessageResult) -> None:
        """Set what a result says of its records."""
        result.total_bytes = self.total_bytes
        if self.count:
            result.status = GetMessageStatus.FOUND
            stored_ms = fmt.peek_store_timestamp_ms(self.last, 0, len(self.last))
            result.last_store_timestamp_ms = stored_ms or 0


class _Residency:
    """Which part of the log is in memory, as far as one read needs to know.

    A part that the read has brought in itself still counts as on disk.

    Attributes:
        recent_offset: From here on, all of it is in memory.
    """

    __slots__ = ("_brought", "_found", "_log", "_may_block", "recent_offset")

    def __init__(self, commit_log: CommitLog, recent_offset: int, *, may_block: bool) -> None:
        self.recent_offset = recent_offset
        self._log = commit_log
        self._may_block = may_block
        self._found = self._brought = range(0)

    def has(self, physical_offset: int, size_bytes: int) -> bool:
        """Whether a record is in memory, or there is none of which a byte would be read."""
        if physical_offset >= self.recent_offset or _covers(
            self._found, physical_offset, size_bytes
        ):
            return True
        if _covers(self._brought, physical_offset, size_bytes):
            return False
        segment, window_bytes = self._window(physical_offset, size_bytes)
        if segment is None:
            return True
        position = physical_offset - segment.start_offset
        for found_bytes in (window_bytes, size_bytes):
            if segment.is_resident(position, found_bytes):
                self._found = range(physical_offset, physical_offset + found_bytes)
                return True
        return False

    def bring(self, physical_offset: int, size_bytes: int) -> bool:
        """Wait until a record is in memory; false if the read must not wait."""
        if not self._may_block:
            return False
        if not _covers(self._brought, physical_offset, size_bytes):
            segment, window_bytes = self._window(physical_offset, size_bytes)
            if segment is not None:
                segment.make_resident(physical_offset - segment.start_offset, window_bytes)
                self._brought = range(physical_offset, physical_offset + window_bytes)
        return True

    def _window(self, physical_offset: int, size_bytes: int) -> tuple[MappedFile | None, int]:
        """The segment of a record and how much to check or bring in; no segment if it is gone."""
        segment = self._log.queue.find(physical_offset)
        if segment is None:
            return None, 0
        readable_bytes = segment.start_offset + segment.read_limit - physical_offset
        if size_bytes > readable_bytes:
            return None, 0
        return segment, min(max(WINDOW_BYTES, size_bytes), readable_bytes)


def _covers(part: range, physical_offset: int, size_bytes: int) -> bool:
    return part.start <= physical_offset and physical_offset + size_bytes <= part.stop


class QueueReader:
    """Reads of the queues of one store.

    Attributes:
        memory_bytes: How close to the end of the log a record counts as near.
        read_ahead: Brings in what readers read next.
        damaged_records: How many records were not served because they are damaged.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        config: MessageStoreConfig,
        stats: StoreStatsService,
        *,
        read_ahead: ReadAhead,
    ) -> None:
        self.read_ahead = read_ahead
        self._log = commit_log
        self._queues = queues
        self._config = config
        self._stats = stats
        ratio = config.access_message_in_memory_max_ratio
        self.memory_bytes = physical_memory_bytes() * ratio // 100
        self._by_distance = config.message_in_disk_by_distance
        self._rules = replace(commit_log.rules, check_crc=True)
        force_crc = commit_log.rules.force_property_crc
        self._fits_entry = None if force_crc else compiled_fits_entry()
        self._own_offset: int | None = None
        self.damaged_records = 0

    def get_message(self, wanted: ReadRequest) -> GetMessageResult:
        """Records of a queue from an offset on, with upstream's status and limits."""
        result = self._get(wanted, may_block=True)
        assert result is not None, "a read that may wait for the disk was given up"
        return result

    def get_message_in_memory(self, wanted: ReadRequest) -> GetMessageResult | None:
        """Like :meth:`get_message`, or ``None`` if that would wait for the disk."""
        return self._get(wanted, may_block=False)

    def _get(self, wanted: ReadRequest, *, may_block: bool) -> GetMessageResult | None:
        offset = wanted.queue_offset
        queue = self._queues.find(wanted.topic, wanted.queue_id)
        if queue is None:
            status = GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
            low = -1 if self._queues.has_batch_queues(wanted.topic) else 0
            return GetMessageResult(status, self._corrected(offset, 0), low)
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
        """Where to read next; a slave leaves the correction to its master."""
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

    def _limits(self, wanted: ReadRequest, unit_bytes: int) -> _Limits:
        """Upstream's limits, which assume one message per entry."""
        config = self._config
        total_bytes = min(max(wanted.max_total_bytes, PULL_BYTES_MIN), PULL_BYTES_MAX)
        scanned_bytes = max(config.filter_message_bytes_max, wanted.max_messages * unit_bytes)
        if wanted.message_filter is not None and wanted.message_filter.entries_max is not None:
            scanned_bytes = min(scanned_bytes, wanted.message_filter.entries_max * unit_bytes)
        return _Limits(
            -(-scanned_bytes // unit_bytes),
            wanted.max_messages,
            (config.transfer_count_in_disk_max, config.transfer_count_in_memory_max),
            (
                min(total_bytes, config.transfer_bytes_in_disk_max),
                min(total_bytes, config.transfer_bytes_in_memory_max),
            ),
        )

    def _residency(self, log_end: int, *, may_block: bool) -> _Residency:
        # What an earlier process appended may no longer be in memory.
        if self._own_offset is None:
            self._own_offset = log_end
        recent_offset = max(log_end - RECENT_BYTES, self._own_offset)
        return _Residency(self._log, recent_offset, may_block=may_block)

    def _collect(
        self, queue: ConsumeQueue, wanted: ReadRequest, result: GetMessageResult, *, may_block: bool
    ) -> bool:
        """Fill ``result`` from one queue file; false if that would wait but must not.

        A batch is served whole, whichever of its offsets the read starts at.
        """
        offset = wanted.queue_offset
        limits = self._limits(wanted, queue.unit_bytes)
        read_units = queue.read_units if may_block else queue.read_cached_units
        units = read_units(offset, limits.offsets + 1)  # the first may hold earlier offsets too
        if units is None:
            return False
        log_end = self._log.max_offset
        if not units:
            result.status = GetMessageStatus.OFFSET_FOUND_NULL
            result.next_begin_offset = self._corrected(offset, queue.next_file_offset(offset))
            # Upstream counts from the start of the log if it has read no entry.
            self._note_fall(result, log_end)
            return True
        residency = self._residency(log_end, may_block=may_block)
        by_queue, by_record, _, bytes_left = wanted.message_filter or EVERYTHING
        gathered = RecordSlices(self._log, result.slices)
        topic = queue.topic.encode()
        removed_until = -1
        last_offset = -1
        for entry, queue_offset, messages in queue.unpack_entries(units, offset):
            physical_offset, size_bytes, _ = entry
            if (queue_offset - offset >= limits.offsets or bytes_left <= 0) or (
                gathered.count and result.inner_messages + messages > limits.messages
            ):
                break
            is_skipped = physical_offset < removed_until or not (
                by_queue is None or self._matches_queue(queue, entry, by_queue)
            )
            is_resident = is_skipped or residency.has(physical_offset, size_bytes)
            in_memory = self.is_near(physical_offset) if self._by_distance else is_resident
            if gathered.count and (
                result.inner_messages >= limits.enough[in_memory]
                or gathered.total_bytes + size_bytes > limits.total_bytes[in_memory]
            ):
                break
            last_offset = physical_offset
            result.next_begin_offset = queue_offset + messages
            if is_skipped:
                continue
            if not (is_resident or residency.bring(physical_offset, size_bytes)):
                return False
            record = self._record(queue, entry, queue_offset, topic)
            if record is None:
                if not gathered.count:
                    result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
                if physical_offset < self._log.min_offset:
                    removed_until = self._log.next_segment_offset(physical_offset)
                continue
            if by_record is not None:
                bytes_left -= min(size_bytes, PROPERTIES_BYTES_MAX)
                if not by_record(memoryview(record)):
                    if not gathered.count:
                        result.status = GetMessageStatus.NO_MATCHED_MESSAGE
                    result.filtered_count += 1
                    continue
            gathered.add(record, physical_offset)
            result.queue_offsets.append(queue_offset)
            result.inner_messages += messages
            removed_until = -1
        gathered.join()
        gathered.describe(result)
        if last_offset >= 0:
            self._note_fall(result, log_end - last_offset)
            if last_offset < residency.recent_offset:
                self.read_ahead.advance(queue, offset, result.next_begin_offset)
        return True

    def _note_fall(self, result: GetMessageResult, behind_bytes: int) -> None:
        """Record how far a reader is behind the end of the log; a slave serves those far behind."""
        result.behind_bytes = behind_bytes
        result.suggest_pulling_from_slave = behind_bytes > self.memory_bytes

    def _matches_queue(self, queue: ConsumeQueue, entry: Entry, by_queue: QueueFilter) -> bool:
        if queue.ext is None:
            return by_queue(entry[2], None)
        tags_code, ext = self._tags_of(queue, entry[2])
        if ext is None and is_ext_address(tags_code):
            return True  # the unit is lost: only the record can decide
        return by_queue(tags_code, ext)

    def _tags_of(self, queue: ConsumeQueue, tags_code: int) -> tuple[int, CqExtUnit | None]:
        """Tags code of an entry, through its ext unit where it has one."""
        if queue.ext is not None and is_ext_address(tags_code):
            ext = queue.ext.get(tags_code)
            if ext is not None:
                return ext.tags_code, ext
        return tags_code, None

    def _record(
        self, queue: ConsumeQueue, entry: Entry, queue_offset: int, topic: bytes
    ) -> Bytes | None:
        """The record of an entry, if it exists and matches the entry in every field."""
        physical_offset, size_bytes, _ = entry
        record = self._log.slice(physical_offset, size_bytes)
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
        """Whether the compiled check accepts a record; one that it rejects may still fit."""
        physical_offset, _, tags_code = entry
        return self._fits_entry is not None and self._fits_entry(
            record, physical_offset, topic, queue.queue_id, queue_offset, tags_code
        )

    def _misfit(
        self, queue: ConsumeQueue, unit: CqUnit, queue_offset: int, record: Bytes
    ) -> str | None:
        """Why a record does not match its entry, or is not valid at all."""
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
        physical_offset, size_bytes, _ = UNIT.unpack_from(units)
        residency = self._residency(self._log.max_offset, may_block=False)
        return not residency.has(physical_offset, size_bytes)

    def is_near(self, physical_offset: int) -> bool:
        """Whether an offset is close to the end of the log, by upstream's rule."""
        return self._log.max_offset - physical_offset <= self.memory_bytes
