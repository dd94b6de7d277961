"""Turns due delayed messages into messages for their target queues.

Keeps only a cache of recurring hosts and queues. Many messages are delivered at once, so a plain
record (IPv4 hosts, topic length in one byte) is copied by :mod:`roquet.format.record_layout` with a
few reads of its bytes. Any other record is decoded as usual.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from roquet.broker.stored_copy import TopicQueue, copied, queue_in, stored_properties
from roquet.format.commit_log import decode_record
from roquet.format.record_layout import (
    MAGIC_V1,
    PROPERTIES_LENGTH_BYTES,
    RECORD,
    TOPIC_LENGTH_BYTES_V1,
)
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.model.host import Host
from roquet.model.message import BrokerMessage, StoredMessage
from roquet.model.topic import TRANS_HALF_TOPIC
from roquet.store.results import Bytes

__all__ = ["DueCopies"]

_HEAD = RECORD.only(
    "totalSize",
    "magic",
    "flag",
    "queueOffset",
    "sysFlag",
    "bornTimestamp",
    "bornHost",
    "storeHost",
    "reconsumeTimes",
    "bodyLength",
)
_HOSTS_V6 = flags.BORN_HOST_V6 | flags.STORE_HOST_V6
_CRC_NAME = prop.CRC32.encode()
_PAIR_END = b"\x02"
_REAL_TOPIC = f"\x02{prop.REAL_TOPIC}\x01".encode()
_REAL_QUEUE_ID = f"\x02{prop.REAL_QUEUE_ID}\x01".encode()
_KNOWN_MAX = 4096

_QueueName = tuple[bytes, bytes]


class DueCopies:
    """Makes the copies."""

    def __init__(self) -> None:
        self._hosts: dict[bytes, Host] = {}
        self._queues: dict[_QueueName, TopicQueue] = {}

    def of(self, slices: Iterable[Bytes]) -> Iterator[tuple[int, BrokerMessage | None]]:
        """Yield the queue offset of each record, with the message to store.

        Args:
            slices: Complete records that were checked, as a read returns them.

        Yields:
            ``None`` as the message if a record names no target queue.
        """
        for part in slices:
            position, end = 0, len(part)
            while position < end:
                copy = self._plain(part, position)
                if copy is None:
                    message = decode_record(part, position, end)
                    yield message.queue_offset, _due(message)
                    position += message.store_size
                else:
                    size_bytes, queue_offset, due = copy
                    yield queue_offset, due
                    position += size_bytes

    def _plain(self, part: Bytes, position: int) -> tuple[int, int, BrokerMessage] | None:
        """Return size, queue offset and copy of a plain record."""
        (
            size_bytes,
            magic,
            flag,
            queue_offset,
            sys_flag,
            born_timestamp_ms,
            born_host,
            store_host,
            reconsume_times,
            body_bytes,
        ) = _HEAD.unpack_from(part, position)
        if magic != MAGIC_V1 or sys_flag & _HOSTS_V6:
            return None
        body_at = position + _HEAD.size
        topic_at = body_at + body_bytes
        topic_end = topic_at + TOPIC_LENGTH_BYTES_V1 + part[topic_at]
        properties_at = topic_end + PROPERTIES_LENGTH_BYTES
        properties = bytes(part[properties_at : position + size_bytes])
        queue = self._queue(properties)
        if queue is None or _CRC_NAME in properties:
            return None
        due = BrokerMessage(
            queue[0],
            queue[1],
            bytes(part[body_at:topic_at]),
            properties,
            flag,
            sys_flag,
            born_timestamp_ms,
            self._hosts.get(born_host) or self._host(born_host),
            self._hosts.get(store_host) or self._host(store_host),
            reconsume_times,
            0,
            False,  # noqa: FBT003 - wait_store_ok; positional, because there are so many
        )
        return size_bytes, queue_offset, due

    def _queue(self, properties: bytes) -> TopicQueue | None:
        """Return the queue named in properties, if they have the usual form."""
        pairs = b"\x02%b\x02" % properties
        topic_at = pairs.rfind(_REAL_TOPIC)
        queue_at = pairs.rfind(_REAL_QUEUE_ID)
        if topic_at < 0 or queue_at < 0:
            return None
        topic_at += len(_REAL_TOPIC)
        queue_at += len(_REAL_QUEUE_ID)
        topic = pairs[topic_at : pairs.find(_PAIR_END, topic_at)]
        queue_id = pairs[queue_at : pairs.find(_PAIR_END, queue_at)]
        return self._queues.get((topic, queue_id)) or self._new_queue(topic, queue_id, properties)

    def _new_queue(self, topic: bytes, queue_id: bytes, properties: bytes) -> TopicQueue | None:
        """Parse properties in full, and cache the queue that they name."""
        queue = queue_in(prop.decode_properties(properties))
        if queue is None or queue[0] == TRANS_HALF_TOPIC:
            return None
        if (queue[0].encode(), b"%d" % queue[1]) == (topic, queue_id):
            if len(self._queues) >= _KNOWN_MAX:
                self._queues.clear()
            self._queues[topic, queue_id] = queue
        return queue

    def _host(self, packed: bytes) -> Host:
        if len(self._hosts) >= _KNOWN_MAX:
            self._hosts.clear()
        host = self._hosts[packed] = Host.unpack(packed)
        return host


def _due(message: StoredMessage) -> BrokerMessage | None:
    queue = queue_in(message.properties)
    if queue is None or queue[0] == TRANS_HALF_TOPIC:
        return None
    return copied(message, queue, stored_properties(message))
