"""The log: every message of every topic, in the order of arrival.

Owns the segments, the position of the next record, and the marks

    flushed_offset <= committed_offset <= wrote_offset

as physical offsets. One writer: the owner of the store. Flush threads read ``wrote_offset`` and
move ``flushed_offset``; nobody else writes here.

Invariants: records never overlap, and the only gaps are the BLANK ends of segments; store
timestamps never go back; a record is encoded and checked against every limit before a byte of it
is written; a batch becomes visible as a whole.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from roquet.errors import ProtocolError
from roquet.format import batch as batch_format
from roquet.format import commit_log as fmt
from roquet.format.record_layout import (
    CRC_PROPERTY_BYTES,
    END_OF_SEGMENT_BYTES,
    RECORD_BYTES_MIN,
)
from roquet.model import sys_flag as flags
from roquet.model.delay_level import DelayLevels
from roquet.model.message import BatchMessage, BrokerMessage
from roquet.model.properties import PROPERTIES_BYTES_MAX
from roquet.model.topic import RETRY_OR_DLQ_LENGTH_MAX, TOPIC_LENGTH_MAX
from roquet.runtime.clock import Clock
from roquet.runtime.exhaustion import is_exhausted
from roquet.runtime.files import Files
from roquet.store.allocate import AllocateMappedFile
from roquet.store.config import MessageStoreConfig
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.mapped_file import MappedFile
from roquet.store.mapped_file_queue import MappedFileQueue
from roquet.store.results import AppendResult, PutMessageResult, PutMessageStatus
from roquet.store.transient_pool import TransientStorePool

COMMIT_LOG_DIR = "commitlog"


class Appended(NamedTuple):
    """A successful append and the records to dispatch."""

    result: AppendResult
    requests: list[fmt.DispatchRequest]


class _Entry(NamedTuple):
    """One record to write, checked and with its final lengths."""

    body: bytes | memoryview
    properties: bytes | memoryview
    flag: int
    size_bytes: int


class _Envelope(NamedTuple):
    """What all records of one append share."""

    topic: bytes
    queue_id: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    v2: bool


class CommitLog:
    """The log open for appending and reading."""

    def __init__(self, files: Files, root: Path, config: MessageStoreConfig, clock: Clock) -> None:
        """Keep the log in ``root``/commitlog."""
        self._config = config
        self._clock = clock
        self.queue = MappedFileQueue(
            files, root / COMMIT_LOG_DIR, size_bytes=config.commit_log_file_bytes
        )
        self.allocator = AllocateMappedFile(
            files,
            self.queue.root,
            clock,
            size_bytes=config.commit_log_file_bytes,
            warm=config.warm_mapped_file,
        )
        self.pool: TransientStorePool | None = None
        if config.uses_transient_pool:
            self.pool = TransientStorePool(
                files,
                count=config.transient_store_pool_size,
                size_bytes=config.commit_log_file_bytes,
            )
        self.queue.has_buffers = self.pool is not None
        self.rules = fmt.RecordRules(
            DelayLevels(config.message_delay_levels),
            check_crc=config.check_crc_on_recover,
            check_property_crc=config.append_property_crc or config.force_verify_property_crc,
            force_property_crc=config.force_verify_property_crc,
        )
        self._append_rules = replace(self.rules, check_crc=True, check_torn=True)
        self.flushed_offset = 0
        self.store_timestamp_ms = 0

    # -- marks ------------------------------------------------------------------------------

    @property
    def wrote_offset(self) -> int:
        """Offset after the last appended record."""
        return self.queue.max_wrote_offset()

    @property
    def max_offset(self) -> int:
        """Offset after the last readable record: committed, if a transient pool is in use."""
        return self.queue.max_offset

    @property
    def min_offset(self) -> int:
        """Offset of the oldest byte still kept."""
        return self.queue.min_offset

    # -- appending --------------------------------------------------------------------------

    def append(self, message: BrokerMessage, queue: ConsumeQueue) -> Appended | PutMessageResult:
        """Append one message and advance its queue's next offset, or return why not."""
        envelope = self._envelope(message, message.prepared_transaction_offset)
        if isinstance(envelope, PutMessageResult):
            return envelope
        entry = self._entry(envelope, message.body, message.properties, message.flag)
        if isinstance(entry, PutMessageResult):
            return entry
        return self._write(envelope, [entry], queue)

    def append_batch(
        self, message: BatchMessage, queue: ConsumeQueue
    ) -> Appended | PutMessageResult:
        """Append all messages of a batch, or none."""
        if len(message.body) > self._config.max_message_bytes:
            return _illegal(f"batch body of {len(message.body)} bytes")
        envelope = self._envelope(message, 0)
        if isinstance(envelope, PutMessageResult):
            return envelope
        entries: list[_Entry] = []
        try:
            for flag, body, properties in batch_format.decode_batch(message.body):
                entry = self._entry(envelope, body, properties, flag)
                if isinstance(entry, PutMessageResult):
                    return entry
                entries.append(entry)
        except ProtocolError as error:
            return _illegal(error.detail or error.message)
        if not entries:
            return _illegal("the batch is empty")
        return self._write(envelope, entries, queue)

    def _envelope(
        self, message: BrokerMessage | BatchMessage, prepared: int
    ) -> _Envelope | PutMessageResult:
        sys_flag = message.sys_flag & ~(flags.BORN_HOST_V6 | flags.STORE_HOST_V6)
        if message.born_host.is_ipv6:
            sys_flag |= flags.BORN_HOST_V6
        if message.store_host.is_ipv6:
            sys_flag |= flags.STORE_HOST_V6
        v2 = self._config.auto_message_version_on_topic_length and fmt.uses_v2(message.topic)
        try:
            born_host, store_host = message.born_host.pack(), message.store_host.pack()
        except struct.error as error:
            return _illegal(f"hosts {message.born_host}, {message.store_host}: {error}")
        return _Envelope(
            message.topic.encode(),
            message.queue_id,
            sys_flag,
            message.born_timestamp_ms,
            born_host,
            store_host,
            message.reconsume_times,
            prepared,
            v2,
        )

    def _entry(
        self,
        envelope: _Envelope,
        body: bytes | memoryview,
        properties: bytes | memoryview,
        flag: int,
    ) -> _Entry | PutMessageResult:
        """Check one record against every limit before anything is written."""
        extra = 0
        if self._config.append_property_crc:
            properties = fmt.with_crc_room(bytes(properties))
            extra = CRC_PROPERTY_BYTES
        if len(properties) + extra > PROPERTIES_BYTES_MAX:
            return PutMessageResult(
                PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
                detail=f"{len(properties) + extra} bytes, {PROPERTIES_BYTES_MAX} allowed",
            )
        topic_limit = RETRY_OR_DLQ_LENGTH_MAX if envelope.v2 else TOPIC_LENGTH_MAX
        if not 0 < len(envelope.topic) <= topic_limit:
            return _illegal(f"topic of {len(envelope.topic)} bytes")
        if len(body) > self._config.max_message_bytes:
            return _illegal(f"body of {len(body)} bytes")
        size = fmt.record_size(
            sys_flag=envelope.sys_flag,
            body_bytes=len(body),
            topic_bytes=len(envelope.topic),
            properties_bytes=len(properties) + extra,
            v2=envelope.v2,
        )
        if size > self._config.max_record_bytes:
            return _illegal(f"record of {size} bytes")
        return _Entry(body, properties, flag, size)

    def _write(
        self, envelope: _Envelope, entries: Sequence[_Entry], queue: ConsumeQueue
    ) -> Appended | PutMessageResult:
        total = sum(entry.size_bytes for entry in entries)
        if total + END_OF_SEGMENT_BYTES > self.queue.size_bytes:
            return _illegal(f"{total} bytes do not fit a segment of {self.queue.size_bytes}")
        segment = self.segment_for(total)
        if isinstance(segment, PutMessageResult):
            return segment
        now_ms = self.next_store_timestamp()
        takes_offset = flags.takes_queue_offset(envelope.sys_flag)
        queue_offset = queue.next_queue_offset if takes_offset else 0
        start = segment.start_offset + segment.wrote
        try:
            data = self._encode(envelope, entries, start, queue_offset, now_ms)
        except struct.error as error:
            return _illegal(f"a number does not fit its field: {error}")
        requests = self._requests(data, start)
        if isinstance(requests, PutMessageResult):
            return requests
        segment.append(data)
        segment.store_timestamp_ms = now_ms
        self.store_timestamp_ms = now_ms
        if takes_offset:
            queue.next_queue_offset += len(entries)
        result = AppendResult(
            start, total, now_ms, queue_offset, tuple(r.physical_offset for r in requests)
        )
        return Appended(result, requests)

    def _encode(
        self,
        envelope: _Envelope,
        entries: Sequence[_Entry],
        start: int,
        queue_offset: int,
        now_ms: int,
    ) -> bytes:
        records: list[bytes] = []
        position = start
        for number, entry in enumerate(entries):
            records.append(
                fmt.encode_record(
                    topic=envelope.topic,
                    body=entry.body,
                    properties=entry.properties,
                    queue_id=envelope.queue_id,
                    flag=entry.flag,
                    queue_offset=queue_offset + number,
                    physical_offset=position,
                    sys_flag=envelope.sys_flag,
                    born_timestamp_ms=envelope.born_timestamp_ms,
                    born_host=envelope.born_host,
                    store_timestamp_ms=now_ms,
                    store_host=envelope.store_host,
                    reconsume_times=envelope.reconsume_times,
                    prepared_transaction_offset=envelope.prepared_transaction_offset,
                    v2=envelope.v2,
                    append_crc=self._config.append_property_crc,
                )
            )
            position += entry.size_bytes
        return records[0] if len(records) == 1 else b"".join(records)

    def _requests(
        self, data: bytes, physical_offset: int
    ) -> list[fmt.DispatchRequest] | PutMessageResult:
        """Decode what is about to be written, with the same checks as recovery.

        What recovery would take for damage, such as a sector of properties that is all NUL, is
        refused here.
        """
        requests: list[fmt.DispatchRequest] = []
        position = 0
        while position < len(data):
            found = fmt.check_record(
                data,
                position,
                len(data),
                physical_offset=physical_offset + position,
                rules=self._append_rules,
            )
            if isinstance(found, fmt.RecordFault):
                return _illegal(f"{found.field}: {found.detail}")
            assert isinstance(found, fmt.DispatchRequest), "a record reads as an end of segment"
            requests.append(found)
            position += found.size_bytes
        return requests

    def next_store_timestamp(self) -> int:
        """The current time, or the last store timestamp if the clock went back."""
        return max(self._clock.now_ms(), self.store_timestamp_ms)

    def segment_for(self, size_bytes: int) -> MappedFile | PutMessageResult:
        """The segment for the next record; closes the current one if the record does not fit."""
        segment = self.queue.last
        if segment is not None and not segment.is_full:
            remaining = segment.size_bytes - segment.wrote
            if size_bytes + END_OF_SEGMENT_BYTES <= remaining:
                return segment
            try:
                fresh = self._next_segment(segment.end_offset)
            except OSError as error:
                return _no_file(error)
            segment.close_with(fmt.end_of_segment(remaining))
            self.queue.add(fresh)
            return fresh
        try:
            fresh = self._next_segment(segment.end_offset if segment is not None else 0)
        except OSError as error:
            return _no_file(error)
        self.queue.add(fresh)
        return fresh

    def _next_segment(self, start_offset: int) -> MappedFile:
        pool = self.pool
        if pool is None:
            return self.allocator.take(start_offset)
        if pool.available == 0 and self._config.fast_fail_if_no_buffer_in_store_pool:
            raise OSError(errno.ENOBUFS, "all transient buffers are in use")
        fresh = self.allocator.take(start_offset)
        fresh.write_buffer = pool.borrow()
        return fresh

    def append_data(self, physical_offset: int, data: bytes | memoryview) -> bool:
        """Append raw bytes of a master's log at exactly this offset; false if it is not the end.

        The data includes segment ends, so segments are split as on the master.
        """
        if physical_offset != self.wrote_offset:
            return False
        view = memoryview(data)
        while view:
            segment = self.queue.last
            assert segment is not None, "a log without segments cannot take data"
            if segment.is_full:
                segment = self._next_segment(segment.end_offset)
                self.queue.add(segment)
            room = segment.size_bytes - segment.wrote
            segment.reserve()
            segment.append(bytes(view[:room]))
            view = view[room:]
        return True

    def begin_at(self, physical_offset: int) -> bool:
        """Create the first segment of an empty log; false unless a segment may begin there.

        Recovery reads a segment from its first byte, so a log cannot begin in the middle of one.
        A single segment without a byte may be left of a log that was cut; it goes.
        """
        if physical_offset < 0 or physical_offset % self.queue.size_bytes:
            return False
        if self.queue.segments:
            if self.wrote_offset != self.min_offset:
                return False
            self.allocator.discard()
            self.queue.clear()
        self.queue.add(self._next_segment(physical_offset))
        self.flushed_offset = physical_offset
        return True

    # -- reading ----------------------------------------------------------------------------

    def slice(self, physical_offset: int, size_bytes: int) -> memoryview | None:
        """Readable bytes inside one segment, ``None`` if some of them are missing."""
        segment = self.queue.find(physical_offset)
        if segment is None:
            return None
        return segment.slice(physical_offset - segment.start_offset, size_bytes)

    def data_from(self, physical_offset: int, size_bytes: int) -> memoryview | None:
        """Readable bytes from an offset to at most the end of its segment, for replication.

        Waits until they are in memory; raises :class:`~roquet.errors.StoreError` if they cannot
        be read.
        """
        segment = self.queue.find(physical_offset)
        if segment is None:
            return None
        position = physical_offset - segment.start_offset
        length = min(size_bytes, segment.read_limit - position)
        if length <= 0:
            return None
        segment.make_resident(position, length)
        return segment.slice(position, length)

    def next_segment_offset(self, physical_offset: int) -> int:
        """Start of the segment after the one that holds an offset."""
        size = self.queue.size_bytes
        return physical_offset - physical_offset % size + size

    def store_timestamp_at(self, physical_offset: int, size_bytes: int) -> int:
        """Store timestamp of a record, -1 if it is not readable; waits for its first page."""
        segment = self.queue.find(physical_offset)
        if segment is None:
            return -1
        position = physical_offset - segment.start_offset
        view = segment.slice(position, size_bytes)
        if view is None:
            return -1
        segment.make_resident(position, min(size_bytes, RECORD_BYTES_MIN))
        timestamp = fmt.peek_store_timestamp_ms(view, 0, len(view))
        return -1 if timestamp is None else timestamp

    # -- files ------------------------------------------------------------------------------

    def load(self) -> None:
        """Open the segments; nothing is changed on disk."""
        self.queue.load()

    def reserve(self) -> None:
        """Make sure that all blocks of the last segment are allocated; raises ``OSError``."""
        if self.queue.last is not None:
            self.queue.last.reserve()

    def truncate(self, physical_offset: int) -> None:
        """Erase the log from an offset on, durably."""
        self.queue.truncate(physical_offset, self.pool.give_back if self.pool else None)
        self.flushed_offset = min(self.flushed_offset, physical_offset)

    def close(self) -> None:
        """Stop allocation and close the segments; the caller has flushed them."""
        self.allocator.stop()
        self.queue.close()


def _illegal(detail: str) -> PutMessageResult:
    return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, detail=detail)


def _no_file(error: OSError) -> PutMessageResult:
    """Refuse a put for which there is no segment; a shortage counts as temporary."""
    status = PutMessageStatus.CREATE_MAPPED_FILE_FAILED
    if is_exhausted(error):
        status = PutMessageStatus.SERVICE_NOT_AVAILABLE
    return PutMessageResult(status, detail=str(error))
