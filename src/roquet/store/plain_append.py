"""The quick way of ordinary messages in Python: append and dispatch without reading back.

Owns nothing of the store. It works on the objects of the reference path (``CommitLog``,
``ConsumeQueue``, ``IndexService``) and leaves the bytes they would leave; whatever is not ordinary
it refuses to touch, and the reference path has it. Used where the compiled lane is not.

Ordinary is a message

* of one record, without a transaction, from and to IPv4 hosts, shorter than every limit
* of a queue that exists, in a topic of at most 127 bytes that is not the schedule topic
* whose properties hold no NUL and whose last TAGS, KEYS and UNIQ_KEY, if any, are not empty
* that fits the last segment and whose keys fit the newest index file

The record is that of :mod:`roquet.format.commit_log`; by these rules every check that the
reference path makes on reading it back holds. Its first 88 bytes are packed at once:

==== =========================== ===== ==== =========================== =====
#    field                       bytes #    field                       bytes
==== =========================== ===== ==== =========================== =====
1    totalSize                   4     9    bornTimestamp               8
2    magic                       4     10   bornHost                    8
3    bodyCRC                     4     11   storeTimestamp              8
4    queueId                     4     12   storeHost                   8
5    flag                        4     13   reconsumeTimes              4
6    queueOffset                 8     14   preparedTransactionOffset   8
7    physicalOffset              8     15   bodyLength                  4
8    sysFlag                     4
==== =========================== ===== ==== =========================== =====
"""

from __future__ import annotations

import struct
import zlib
from operator import mul

from roquet.format import commit_log as fmt
from roquet.format.consume_queue import UNIT, UNIT_BYTES
from roquet.model import sys_flag as flags
from roquet.model.host import IPV4_HOST_BYTES, Host
from roquet.model.java_string import index_key_hash, java_hash, tags_code
from roquet.model.message import BrokerMessage
from roquet.model.properties import PROPERTIES_BYTES_MAX
from roquet.model.topic import SCHEDULE_TOPIC, TOPIC_LENGTH_MAX
from roquet.store.commit_log import CommitLog
from roquet.store.config import MessageStoreConfig
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.dispatch import Dispatcher
from roquet.store.index import IndexService, tag_key
from roquet.store.results import AppendResult

__all__ = ["PlainAppend", "TopicNote", "make_plain_append"]

RECORD_HEAD = struct.Struct(">iIIiiqqiq8sq8siqi")
_LENGTH = struct.Struct(">H")
_SPECIAL_FLAGS = flags.TRANSACTION_MASK | flags.BORN_HOST_V6 | flags.STORE_HOST_V6
_MAGIC = fmt.MAGIC_V1
_CRC_MASK = fmt.CRC_MASK
_TOPICS_MAX = 4096
_KNOWN_MAX = 1024

_PAIR_END = b"\x02"
_TAGS = b"\x02TAGS\x01"
_KEYS = b"\x02KEYS\x01"
_UNIQUE_KEY = b"\x02UNIQ_KEY\x01"
_TAGS_BYTES = len(_TAGS)
_KEYS_BYTES = len(_KEYS)
_UNIQUE_KEY_BYTES = len(_UNIQUE_KEY)

_UNSIGNED = 0xFFFFFFFF
_SIGN = 0x80000000
_HASHED_BYTES_MAX = 64
_POWERS = [pow(31, exponent, 1 << 32) for exponent in range(_HASHED_BYTES_MAX + 1)]
_FACTORS = [_POWERS[:length][::-1] for length in range(_HASHED_BYTES_MAX + 1)]
_ID_TAIL_BYTES = 8  # of a unique id: a minute's milliseconds and counter; what is before them stays
_ID_BYTES_MIN = 24
_TAIL_FACTORS = _FACTORS[_ID_TAIL_BYTES]
_TAIL_POWER = _POWERS[_ID_TAIL_BYTES]


class TopicNote:
    """What follows from the name of a topic, and hashes of keys and tags that come again."""

    __slots__ = ("_prefixes", "_tags", "field", "hash_", "name")

    def __init__(self, name: str, encoded: bytes) -> None:
        """Note a topic of at most 127 bytes."""
        self.name = name
        self.field = bytes([len(encoded)]) + encoded
        self.hash_ = java_hash(f"{name}#") & _UNSIGNED
        self._prefixes: dict[bytes, int] = {}
        self._tags: dict[bytes, tuple[int, int]] = {}

    def derive(self, properties: bytes) -> tuple[int, list[int]] | None:
        r"""Tags code and index hashes of a record's properties, in the order of the index.

        ``None`` when a name comes last without a value: an earlier one may count.

        Example:
            >>> note = TopicNote("T", b"T")
            >>> note.derive(b"TAGS\x01a\x02KEYS\x01x y\x02")
            (97, [81929, 81930, 78700355])
            >>> note.derive(b"TAGS\x01a\x02TAGS\x01\x02") is None
            True
        """
        pairs = _PAIR_END + properties + _PAIR_END
        hashes: list[int] = []
        at = pairs.rfind(_UNIQUE_KEY)
        if at >= 0:
            at += _UNIQUE_KEY_BYTES
            key = pairs[at : pairs.find(_PAIR_END, at)]
            if not key:
                return None
            hashes.append(self.hash_of(key))
        at = pairs.rfind(_KEYS)
        if at >= 0:
            at += _KEYS_BYTES
            keys = pairs[at : pairs.find(_PAIR_END, at)]
            if not keys:
                return None
            hashes += [self.hash_of(key) for key in keys.split(b" ") if key]
        code = 0
        at = pairs.rfind(_TAGS)
        if at >= 0:
            at += _TAGS_BYTES
            tags = pairs[at : pairs.find(_PAIR_END, at)]
            if not tags:
                return None
            code, tags_hash = self.tags_of(tags)
            hashes.append(tags_hash)
        return code, hashes

    def tags_of(self, tags: bytes) -> tuple[int, int]:
        """Tags code and index hash of TAGS."""
        return self._tags.get(tags) or self._note_tags(tags)

    def hash_of(self, key: bytes) -> int:
        """``index_key_hash`` of the topic and a key."""
        length = len(key)
        if not key.isascii():
            return index_key_hash(self.name, key.decode("utf-8", "replace"))
        if length >= _ID_BYTES_MIN:
            if length > _HASHED_BYTES_MAX:
                return index_key_hash(self.name, key.decode())
            prefix = key[:-_ID_TAIL_BYTES]
            before = self._prefixes.get(prefix) or self._note_prefix(prefix)
            value: int = (
                sum(map(mul, key[-_ID_TAIL_BYTES:], _TAIL_FACTORS), before * _TAIL_POWER)
                & _UNSIGNED
            )
        else:
            value = sum(map(mul, key, _FACTORS[length]), self.hash_ * _POWERS[length]) & _UNSIGNED
        if value < _SIGN:
            return value
        return (1 << 32) - value if value > _SIGN else 0

    def _note_prefix(self, prefix: bytes) -> int:
        length = len(prefix)
        before = self.hash_ * _POWERS[length]
        value: int = sum(map(mul, prefix, _FACTORS[length]), before) & _UNSIGNED
        if len(self._prefixes) >= _KNOWN_MAX:
            self._prefixes.clear()
        self._prefixes[prefix] = value
        return value

    def _note_tags(self, tags: bytes) -> tuple[int, int]:
        text = tags.decode("utf-8", "replace")
        note = (tags_code(text), index_key_hash(self.name, tag_key(text)))
        if len(self._tags) >= _KNOWN_MAX:
            self._tags.clear()
        self._tags[tags] = note
        return note


def make_plain_append(
    config: MessageStoreConfig,
    commit_log: CommitLog,
    queues: ConsumeQueueStore,
    index: IndexService | None,
    dispatcher: Dispatcher,
) -> PlainAppend | None:
    """The quick way of a store, ``None`` where every record needs more than it does."""
    if (
        config.append_property_crc
        or config.force_verify_property_crc
        or config.consume_queue_ext
        or dispatcher.lane is not None
    ):
        return None
    return PlainAppend(config, commit_log, queues, index, dispatcher)


class PlainAppend:
    """Append and dispatch of ordinary messages for one store."""

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
        self._topics: dict[str, TopicNote] = {}
        self._born = (Host(b"", 0), b"")
        self._store = (Host(b"", 0), b"")

    def append(
        self, message: BrokerMessage, now_ms: int, *, is_confirmed: bool
    ) -> AppendResult | None:
        """Append a message if it is ordinary; otherwise nothing has changed.

        Args:
            message: What to append.
            now_ms: Its store timestamp.
            is_confirmed: Whether an append counts as confirmed at once, so that it may be
                dispatched if all before it is.
        """
        (
            name, queue_id, body, properties, flag, sys_flag, born_ms,
            born_host, store_host, reconsume_times, prepared_offset, _,
        ) = message  # fmt: skip
        topic = self.note_of(name)
        queues = self._queues.table.get(name)
        segment = self._segments.last
        if topic is None or queues is None or segment is None:
            return None
        queue = queues.get(queue_id)
        if (
            queue is None
            or sys_flag & _SPECIAL_FLAGS
            or type(body) is not bytes
            or type(properties) is not bytes
            or b"\0" in properties
        ):
            return None
        body_bytes = len(body)
        properties_bytes = len(properties)
        size = fmt.FIXED_BYTES - 1 + body_bytes + len(topic.field) + properties_bytes
        position = segment.wrote
        if (
            position + size + fmt.END_OF_SEGMENT_BYTES > segment.size_bytes
            or properties_bytes > PROPERTIES_BYTES_MAX
            or body_bytes > self._body_bytes_max
            or size > self._record_bytes_max
        ):
            return None
        known_host, born = self._born
        if born_host is not known_host:
            born = self._note_born(born_host)
        known_host, store = self._store
        if store_host is not known_host:
            store = self._note_store(store_host)
        derived = topic.derive(properties)
        if not born or not store or derived is None:
            return None
        code, hashes = derived
        start = segment.start_offset + position
        queue_offset = queue.next_queue_offset
        dispatcher = self._dispatcher
        index = self._index
        dispatch = is_confirmed and dispatcher.dispatched_offset == start and dispatcher.is_plain
        if dispatch and (
            queue.max_physical_offset > start
            or queue.max_queue_offset + len(queue.pending) // UNIT_BYTES != queue_offset
            or (index is not None and not index.has_room(len(hashes), start))
        ):
            return None
        try:
            head = RECORD_HEAD.pack(
                size, _MAGIC, zlib.crc32(body) & _CRC_MASK, queue_id, flag, queue_offset, start,
                sys_flag, born_ms, born, now_ms, store, reconsume_times, prepared_offset,
                body_bytes,
            )  # fmt: skip
        except struct.error:
            return None
        segment.append(
            b"".join((head, body, topic.field, _LENGTH.pack(properties_bytes), properties))
        )
        segment.store_timestamp_ms = self._log.store_timestamp_ms = now_ms
        queue.next_queue_offset = queue_offset + 1
        if dispatch:
            end = start + size
            pending = queue.pending
            if not pending:
                self._queues.touched.append(queue)
            pending += UNIT.pack(start, size, code)
            queue.max_physical_offset = end
            if hashes and index is not None:
                index.pending.append((start, now_ms, hashes))
            dispatcher.dispatched_offset = end
            dispatcher.store_timestamp_ms = now_ms
        return AppendResult(start, size, now_ms, queue_offset, (start,))

    def note_of(self, name: str) -> TopicNote | None:
        """The note of a topic; ``None`` if its messages are not ordinary."""
        return self._topics.get(name) or self._note(name)

    def _note(self, name: str) -> TopicNote | None:
        try:
            encoded = name.encode()
        except UnicodeEncodeError:
            return None
        if not 0 < len(encoded) <= TOPIC_LENGTH_MAX or name == SCHEDULE_TOPIC or b"\0" in encoded:
            return None
        if len(self._topics) >= _TOPICS_MAX:
            self._topics.clear()
        note = self._topics[name] = TopicNote(name, encoded)
        return note

    def _note_born(self, host: Host) -> bytes:
        packed = _packed(host)
        self._born = (host, packed)
        return packed

    def _note_store(self, host: Host) -> bytes:
        packed = _packed(host)
        self._store = (host, packed)
        return packed


def _packed(host: Host) -> bytes:
    """An IPv4 host as records have it, empty for any other."""
    try:
        packed = host.pack()
    except struct.error:
        return b""
    return packed if len(packed) == IPV4_HOST_BYTES else b""
