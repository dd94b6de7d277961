"""Delayed messages whose time has come, as messages for the queues for which they are meant.

Owns nothing but a memory of hosts and queues that come again and again. Deliveries are many at
once, so an ordinary record is copied with a few looks at its bytes, by the layout of
:mod:`roquet.format.commit_log`; the first 88 bytes of a record with IPv4 hosts are:

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

Behind them come body, topic with a length of one byte, properties with a length of two. Any other
record is read as every record is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from roquet.broker.stored_copy import Place, copied, place_in, stored_properties
from roquet.format.commit_log import MAGIC_V1, decode_record
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.model.host import Host
from roquet.model.message import BrokerMessage, StoredMessage
from roquet.model.topic import TRANS_HALF_TOPIC
from roquet.store.results import Bytes

__all__ = ["DueCopies"]

_HEAD = struct.Struct(">iI8xiq8xiq8s8x8si8xi")
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
        self._places: dict[_QueueName, Place] = {}

    def of(self, slices: Iterable[Bytes]) -> Iterator[tuple[int, BrokerMessage | None]]:
        """The offsets of records in their queue, each with the message that is to be stored.

        Args:
            slices: Whole records that were checked, as a read gives them.

        Yields:
            ``None`` for the message where a record does not say for which queue it is.
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
        """Size, place and copy of a record that is ordinary."""
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
        properties_at = topic_at + 1 + part[topic_at] + 2
        properties = bytes(part[properties_at : position + size_bytes])
        place = self._place(properties)
        if place is None or _CRC_NAME in properties:
            return None
        due = BrokerMessage(
            place[0],
            place[1],
            bytes(part[body_at:topic_at]),
            properties,
            flag,
            sys_flag,
            born_timestamp_ms,
            self._hosts.get(born_host) or self._host(born_host),
            self._hosts.get(store_host) or self._host(store_host),
            reconsume_times,
            0,
            False,  # noqa: FBT003 - wait_store_ok; by place, because there are so many
        )
        return size_bytes, queue_offset, due

    def _place(self, properties: bytes) -> Place | None:
        """The queue that properties name, if they name it in the ordinary way."""
        pairs = b"\x02%b\x02" % properties
        topic_at = pairs.rfind(_REAL_TOPIC)
        queue_at = pairs.rfind(_REAL_QUEUE_ID)
        if topic_at < 0 or queue_at < 0:
            return None
        topic_at += len(_REAL_TOPIC)
        queue_at += len(_REAL_QUEUE_ID)
        topic = pairs[topic_at : pairs.find(_PAIR_END, topic_at)]
        queue_id = pairs[queue_at : pairs.find(_PAIR_END, queue_at)]
        return self._places.get((topic, queue_id)) or self._new_place(topic, queue_id, properties)

    def _new_place(self, topic: bytes, queue_id: bytes, properties: bytes) -> Place | None:
        """Read properties as all are read, and remember where that finds what was found."""
        place = place_in(prop.decode_properties(properties))
        if place is None or place[0] == TRANS_HALF_TOPIC:
            return None
        if (place[0].encode(), b"%d" % place[1]) == (topic, queue_id):
            if len(self._places) >= _KNOWN_MAX:
                self._places.clear()
            self._places[topic, queue_id] = place
        return place

    def _host(self, packed: bytes) -> Host:
        if len(self._hosts) >= _KNOWN_MAX:
            self._hosts.clear()
        host = self._hosts[packed] = Host.unpack(packed)
        return host


def _due(message: StoredMessage) -> BrokerMessage | None:
    place = place_in(message.properties)
    if place is None or place[0] == TRANS_HALF_TOPIC:
        return None
    return copied(message, place, stored_properties(message))
