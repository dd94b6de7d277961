"""Selected records of a store.

Owns the filters and how records are found: through a ConsumeQueue if a queue and offsets are given,
through the index if a key is given, otherwise from record to record. All three ways find the same
records in the same order.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator

from msgspec import Struct

from roquet.format.batch_consume_queue import batch_size_of
from roquet.format.commit_log import Blank, DispatchRequest, RecordFault
from roquet.format.derived import QueueKey
from roquet.model.java_string import index_key_hash
from roquet.model.message import StoredMessage
from roquet.storefiles.index_files import IndexFileView
from roquet.storefiles.queues import QueueView
from roquet.storefiles.view import StoreView
from roquet.storefiles.walk import BadRecord, LogWalk

Warn = Callable[[str], None]


class Selection(Struct, frozen=True, kw_only=True):
    """Selects the records that pass every filter that is set. Ranges include both ends."""

    topics: frozenset[str] = frozenset()
    queue_id: int | None = None
    from_queue_offset: int | None = None
    to_queue_offset: int | None = None
    from_physical_offset: int | None = None
    to_physical_offset: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    key: str | None = None
    limit: int | None = None

    def admits(self, record: DispatchRequest) -> bool:
        """Whether a record passes all filters."""
        if self.topics and record.topic not in self.topics:
            return False
        if self.queue_id is not None and record.queue_id != self.queue_id:
            return False
        if self.key is not None and not _has_key(record, self.key):
            return False
        return (
            self._admits_offsets(record)
            and _within(record.physical_offset, self.from_physical_offset, self.to_physical_offset)
            and _within(record.store_timestamp_ms, self.from_ms, self.to_ms)
        )

    def _admits_offsets(self, record: DispatchRequest) -> bool:
        """Whether a record, which may be a batch, holds a selected queue offset."""
        low, high = self.from_queue_offset, self.to_queue_offset
        last = record.queue_offset + batch_size_of(record) - 1
        return _within(last, low, None) and _within(record.queue_offset, None, high)


def _within(value: int, low: int | None, high: int | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def _has_key(record: DispatchRequest, key: str) -> bool:
    return key == record.unique_key or key in record.keys.split()


class Dump:
    """One dump of one store.

    Args:
        view: The store, open.
        selection: Which records.
        warn: Called with one sentence for each damage found.

    Attributes:
        damage_count: How often ``warn`` was called.
        way: How records were found: ``consumequeue``, ``index`` or ``walk``.
    """

    def __init__(self, view: StoreView, selection: Selection, warn: Warn) -> None:
        self._view = view
        self._selection = selection
        self._warn_reader = warn
        self.damage_count = 0
        self.way = "walk"

    def messages(self) -> Iterator[StoredMessage]:
        """The selected records, in the order of the log."""
        limit = self._selection.limit
        if limit is not None and limit <= 0:
            return
        count = 0
        for record in self._candidates():
            if not self._selection.admits(record):
                continue
            yield self._view.message_at(record.physical_offset)
            count += 1
            if count == limit:
                return

    def _warn(self, text: str) -> None:
        self.damage_count += 1
        self._warn_reader(text)

    def _candidates(self) -> Iterator[DispatchRequest]:
        queue = self._chosen_queue()
        if queue is not None:
            self.way = "consumequeue"
            return self._through_queue(queue)
        index_files = self._usable_index()
        if index_files:
            self.way = "index"
            return self._through_index(index_files)
        return self._walk(self._start_offset(), self._end_offset())

    # -- by ConsumeQueue --------------------------------------------------------------------

    def _chosen_queue(self) -> QueueView | None:
        """The queue to read through, if the selection names a usable one with offsets."""
        chosen = self._selection
        if len(chosen.topics) != 1 or chosen.queue_id is None:
            return None
        if chosen.from_queue_offset is None and chosen.to_queue_offset is None:
            return None
        (topic,) = chosen.topics
        queue = self._view.queues.get(QueueKey(topic, chosen.queue_id))
        if queue is None or queue.segments.problems or self._view.crashed:
            return None
        return queue

    def _through_queue(self, queue: QueueView) -> Iterator[DispatchRequest]:
        chosen = self._selection
        start = max(queue.first_behind(self._view.min_offset), chosen.from_queue_offset or 0)
        end = queue.written_end()
        if chosen.to_queue_offset is not None:
            end = min(end, chosen.to_queue_offset + 1)
        for queue_offset, unit in queue.units(start, end):
            if unit.is_filler:
                continue
            found = self._view.check_at(unit.physical_offset)
            if isinstance(found, Blank | RecordFault):
                self._warn(
                    f"{queue.key.topic}-{queue.key.queue_id} offset {queue_offset}: no valid "
                    f"record at {unit.physical_offset}{_reason(found)}"
                )
                continue
            if QueueKey(found.topic, found.queue_id) != queue.key or (
                found.queue_offset != queue_offset
            ):
                self._warn(
                    f"{queue.key.topic}-{queue.key.queue_id} offset {queue_offset}: the record at "
                    f"{unit.physical_offset} is another one"
                )
                continue
            yield found

    # -- by index ---------------------------------------------------------------------------

    def _usable_index(self) -> list[IndexFileView]:
        """Index files to search, if topics and a key are given and every file is reliable."""
        if self._selection.key is None or not self._selection.topics or self._view.crashed:
            return []
        index_files, strangers = self._view.open_index()
        if strangers or any(not file.slots and file.header.index_count > 1 for file in index_files):
            return []
        used = [file for file in index_files if file.count]
        if not used or not isinstance(self._view.check_at(_index_end(used)), DispatchRequest):
            return []
        return used

    def _through_index(self, index_files: list[IndexFileView]) -> Iterator[DispatchRequest]:
        """Records by key: through the index as far as it reaches, by walking before and after."""
        offsets = self._indexed_offsets(index_files)
        if offsets is None:
            self.way = "walk"
            self._warn("a chain of the index is broken: the log is read instead")
            yield from self._walk(self._start_offset(), self._end_offset())
            return
        begin = min(file.header.begin_physical_offset for file in index_files)
        if begin > self._view.min_offset:
            yield from self._walk(self._view.min_offset, begin)
        for offset in sorted(offsets):
            found = self._view.check_at(offset)
            if isinstance(found, DispatchRequest):
                yield found
            elif offset >= self._view.min_offset:
                self._warn(f"the index points to {offset}: no valid record there{_reason(found)}")
        last = self._view.check_at(_index_end(index_files))
        if isinstance(last, DispatchRequest):
            yield from self._walk(last.end_offset, self._end_offset())

    def _indexed_offsets(self, index_files: list[IndexFileView]) -> set[int] | None:
        """Offsets under the key in each topic; ``None`` if a chain is broken."""
        key = self._selection.key
        assert key is not None
        offsets: set[int] = set()
        for file in index_files:
            for topic in self._selection.topics:
                found = file.find(index_key_hash(topic, key))
                if found is None:
                    return None
                offsets.update(found)
        return offsets

    # -- by walking -------------------------------------------------------------------------

    def _start_offset(self) -> int:
        """Start of the first segment that may hold a selected record."""
        start = self._view.min_offset
        for part in self._view.segments[1:]:
            if not self._is_all_before(part.start):
                break
            start = part.start
        return start

    def _is_all_before(self, segment_start: int) -> bool:
        """Whether every record before a segment is too early."""
        chosen = self._selection
        if chosen.from_physical_offset is not None and chosen.from_physical_offset >= segment_start:
            return True
        if chosen.from_ms is None:
            return False
        first = self._view.check_at(segment_start)
        return isinstance(first, DispatchRequest) and first.store_timestamp_ms < chosen.from_ms

    def _end_offset(self) -> int | None:
        """Where a walk may stop; ``None`` for the end of the log."""
        end = self._view.stable_end() if self._view.is_running else None
        last = self._selection.to_physical_offset
        if last is None:
            return end
        return last + 1 if end is None else min(end, last + 1)

    def _walk(self, start: int, end: int | None) -> Iterator[DispatchRequest]:
        walk = LogWalk(self._view, on_damage=self._on_damage, start=start, end=end)
        yield from walk.records()
        tail = walk.tail
        if tail is not None and not tail.is_zero and not self._view.crashed:
            self._warn(
                f"the log ends at {tail.physical_offset} with a bad record: "
                f"{tail.fault.field} {tail.fault.detail}"
            )

    def _on_damage(self, damage: BadRecord) -> None:
        name = ""
        if damage.named is not None:
            key = damage.named.key
            name = f" ({key.topic}-{key.queue_id} offset {damage.named.queue_offset})"
        self._warn(
            f"bad record at {damage.start}{name}: {damage.fault.field} {damage.fault.detail}; "
            f"continuing at {damage.end}"
        )


def _index_end(index_files: list[IndexFileView]) -> int:
    """Physical offset of the newest record in the index."""
    return max(file.header.end_physical_offset for file in index_files)


def _reason(found: Blank | DispatchRequest | RecordFault) -> str:
    return f": {found.field} {found.detail}" if isinstance(found, RecordFault) else ""


class DumpedMessage(Struct, kw_only=True, rename="camel"):
    """A record as one JSON object."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    born_timestamp: int
    store_timestamp: int
    born_host: str
    store_host: str
    tags: str | None
    keys: list[str]
    properties: dict[str, str]
    msg_id: str | None
    offset_msg_id: str
    sys_flag: int
    flag: int
    body_crc: int
    reconsume_times: int
    prepared_transaction_offset: int
    body: str
    body_encoding: str


def to_dumped(message: StoredMessage) -> DumpedMessage:
    """The JSON form of a record; a body that is not UTF-8 text is written in base64."""
    try:
        body, encoding = message.body.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        body, encoding = base64.b64encode(message.body).decode("ascii"), "base64"
    return DumpedMessage(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        store_size=message.store_size,
        born_timestamp=message.born_timestamp_ms,
        store_timestamp=message.store_timestamp_ms,
        born_host=str(message.born_host),
        store_host=str(message.store_host),
        tags=message.tags,
        keys=message.keys,
        properties=message.properties,
        msg_id=message.unique_key,
        offset_msg_id=message.offset_message_id,
        sys_flag=message.sys_flag,
        flag=message.flag,
        body_crc=message.body_crc,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        body=body,
        body_encoding=encoding,
    )
