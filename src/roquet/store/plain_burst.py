"""Many ordinary messages at once: one copy into the log, one note in each queue.

Owns nothing of the store, as :mod:`roquet.store.plain_append`, whose rules say what is ordinary and
whose bytes these are. Whoever has read the messages from the wire has made sure of what concerns
their text: properties without NUL that are pairs of different names with values.

Invariants:

* Nothing has changed before all records are made; then they are copied together, the first bytes
  of the first one last, so that a killed process leaves all or none of them behind.
* Messages are taken from the front. The first that cannot be appended here, and all behind it,
  are left to the caller.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from roquet.format import commit_log as fmt
from roquet.format.consume_queue import UNIT, UNIT_BYTES
from roquet.model.properties import PROPERTIES_BYTES_MAX
from roquet.store.commit_log import CommitLog
from roquet.store.config import MessageStoreConfig
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.dispatch import Dispatcher
from roquet.store.index import IndexService
from roquet.store.index_file import IndexRecord
from roquet.store.mapped_file import MappedFile
from roquet.store.plain_append import RECORD_HEAD, TopicNote

__all__ = ["PlainBurst", "PlainMessage"]

PlainMessage = tuple[
    TopicNote, int, bytes | bytearray, bytes, int, int, int, bytes, bytes | None, bytes | None
]
"""Topic, queue id, body, properties, flag, sys flag, born timestamp in milliseconds; and of the
properties UNIQ_KEY, KEYS, TAGS. A tuple without names, because making one with names takes longer
than most of what is done with it."""

_LENGTH = struct.Struct(">H")
_EMPTY_RECORD_BYTES = fmt.FIXED_BYTES - 1
_MAGIC = fmt.MAGIC_V1
_CRC_MASK = fmt.CRC_MASK


class _Growth:
    """What a burst adds to a queue."""

    __slots__ = ("end_offset", "next_queue_offset", "queue", "units")

    def __init__(self, queue: ConsumeQueue) -> None:
        self.queue = queue
        self.next_queue_offset = queue.next_queue_offset
        self.units: list[bytes] = []
        self.end_offset = 0


class _Burst:
    """Records that are made but not yet in the log."""

    __slots__ = ("data", "growths", "keys", "places", "records")

    def __init__(self) -> None:
        self.data: list[bytes | bytearray] = []
        self.places: list[tuple[int, int]] = []
        self.growths: dict[tuple[TopicNote, int], _Growth] = {}
        self.records: list[IndexRecord] = []
        self.keys = 0


class PlainBurst:
    """Append and dispatch of bursts for one store."""

    def __init__(
        self,
        config: MessageStoreConfig,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        index: IndexService | None,
        dispatcher: Dispatcher,
    ) -> None:
        """Work on the parts of a store; ``index`` may be ``None``."""
        self._log = commit_log
        self._segments = commit_log.queue
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._body_bytes_max = config.max_message_bytes
        self._record_bytes_max = config.max_record_bytes

    def append(
        self,
        messages: Sequence[PlainMessage],
        now_ms: int,
        *,
        dispatch: bool,
        born_host: bytes,
        store_host: bytes,
    ) -> list[tuple[int, int]]:
        """Append messages from the front on.

        Args:
            messages: What to append.
            now_ms: Their store timestamp.
            dispatch: Whether they are confirmed by being appended, and nothing waits before them.
            born_host: Who sent them, eight bytes as in records.
            store_host: Who stores them, likewise.

        Returns:
            Queue offset and physical offset of each that was appended.
        """
        segment = self._segments.last
        if segment is None:
            return []
        start = segment.start_offset + segment.wrote
        hosts = (born_host, store_host)
        burst = self._prepared(messages, segment, now_ms, hosts, dispatch=dispatch)
        index = self._index
        if dispatch and index is not None and not index.has_room(burst.keys, start):
            # Near the end of an index file the first message may fit where all do not.
            burst = self._prepared(messages[:1], segment, now_ms, hosts, dispatch=dispatch)
            if len(messages) == 1 or not index.has_room(burst.keys, start):
                return []
        if not burst.places:
            return []
        data = b"".join(burst.data)
        segment.append(data)
        segment.store_timestamp_ms = self._log.store_timestamp_ms = now_ms
        for growth in burst.growths.values():
            growth.queue.next_queue_offset = growth.next_queue_offset
            if dispatch:
                if not growth.queue.pending:
                    self._queues.touched.append(growth.queue)
                growth.queue.pending += b"".join(growth.units)
                growth.queue.max_physical_offset = growth.end_offset
        if dispatch:
            if index is not None:
                index.pending += burst.records
            self._dispatcher.dispatched_offset = start + len(data)
            self._dispatcher.store_timestamp_ms = now_ms
        return burst.places

    def _prepared(
        self,
        messages: Sequence[PlainMessage],
        segment: MappedFile,
        now_ms: int,
        hosts: tuple[bytes, bytes],
        *,
        dispatch: bool,
    ) -> _Burst:
        """Make the records of as many messages as fit."""
        burst = _Burst()
        data, places, growths, records = burst.data, burst.places, burst.growths, burst.records
        born, store = hosts
        pack_head, pack_length, pack_unit = RECORD_HEAD.pack, _LENGTH.pack, UNIT.pack
        crc32 = zlib.crc32
        position = start = segment.start_offset + segment.wrote
        limit = segment.start_offset + segment.size_bytes - fmt.END_OF_SEGMENT_BYTES
        for (
            topic, queue_id, body, properties, flag, sys_flag, born_ms, unique_key, keys, tags,
        ) in messages:  # fmt: skip
            body_bytes = len(body)
            properties_bytes = len(properties)
            field = topic.field
            size = _EMPTY_RECORD_BYTES + body_bytes + len(field) + properties_bytes
            if (
                position + size > limit
                or size > self._record_bytes_max
                or body_bytes > self._body_bytes_max
                or properties_bytes > PROPERTIES_BYTES_MAX
            ):
                break
            growth = growths.get((topic, queue_id))
            if growth is None:
                growth = self._growth(topic, queue_id, start, dispatch=dispatch)
                if growth is None:
                    break
                growths[topic, queue_id] = growth
            queue_offset = growth.next_queue_offset
            data += (
                pack_head(
                    size, _MAGIC, crc32(body) & _CRC_MASK, queue_id, flag, queue_offset, position,
                    sys_flag, born_ms, born, now_ms, store, 0, 0, body_bytes,
                ),
                body, field, pack_length(properties_bytes), properties,
            )  # fmt: skip
            places.append((queue_offset, position))
            growth.next_queue_offset = queue_offset + 1
            if dispatch:
                hashes = [topic.hash_of(unique_key)]
                if keys and b" " in keys:
                    hashes += [topic.hash_of(key) for key in keys.split(b" ") if key]
                elif keys:
                    hashes.append(topic.hash_of(keys))
                code = 0
                if tags:
                    code, tags_hash = topic.tags_of(tags)
                    hashes.append(tags_hash)
                burst.keys += len(hashes)
                records.append((position, now_ms, hashes))
                growth.units.append(pack_unit(position, size, code))
                growth.end_offset = position + size
            position += size
        return burst

    def _growth(
        self, topic: TopicNote, queue_id: int, start: int, *, dispatch: bool
    ) -> _Growth | None:
        """The growth of a queue; ``None`` if there is none, or it is not ready for its entries."""
        queues = self._queues.table.get(topic.name)
        queue = None if queues is None else queues.get(queue_id)
        if queue is None:
            return None
        if dispatch and (
            queue.max_physical_offset > start
            or queue.max_queue_offset + len(queue.pending) // UNIT_BYTES != queue.next_queue_offset
        ):
            return None
        return _Growth(queue)
