"""From a record in the body of an answer to a message, quickly.

Owns the short way for ordinary records, which have the addresses of IPv4 and the topic's length in
one byte; ``_records.pyx`` is the same, compiled, for many of them. Everything else, and every
record whose lengths do not fit, goes the long way of
:func:`roquet.format.commit_log.decode_record`, which owns the layout and knows what is wrong.

===== ================================
bytes what
===== ================================
88    the fields with a fixed length
n     body
1 + n topic, its length before it
2 + n properties, their length before
===== ================================
"""

from __future__ import annotations

import struct
from functools import lru_cache
from importlib.util import find_spec

from roquet.client.message import ReceivedMessage
from roquet.format.commit_log import MAGIC_V1, decode_record
from roquet.model import sys_flag as flags
from roquet.model.host import Host
from roquet.runtime import compiled

IS_BUILT = find_spec("roquet._records") is not None
if IS_BUILT:
    from roquet import _records

__all__ = ["IS_BUILT", "make_reader", "read_message"]

_HEAD = struct.Struct(">iIIiiqqiq8sq8siqi")
_IPV6 = flags.BORN_HOST_V6 | flags.STORE_HOST_V6
_REST_BYTES_MIN = 3


def read_message(buffer: bytes | memoryview, start: int, broker_name: str = "") -> ReceivedMessage:
    """The message of the record at ``start``.

    Args:
        buffer: Records, one behind the other.
        start: Where it begins.
        broker_name: The broker that it came from.

    Raises:
        CorruptRecord: There is no record.
    """
    left = len(buffer) - start
    if left < _HEAD.size + _REST_BYTES_MIN:
        return _read_slowly(buffer, start, broker_name)
    (
        size,
        magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_ms,
        born_host,
        store_ms,
        store_host,
        reconsume_times,
        prepared_offset,
        body_bytes,
    ) = _HEAD.unpack_from(buffer, start)
    end = start + size
    body_at = start + _HEAD.size
    topic_at = body_at + body_bytes + 1
    if magic != MAGIC_V1 or sys_flag & _IPV6 or size > left or body_bytes < 0 or topic_at + 2 > end:
        return _read_slowly(buffer, start, broker_name)
    topic_end = topic_at + buffer[topic_at - 1]
    properties_at = topic_end + 2
    if (
        properties_at > end
        or buffer[topic_end] << 8 | buffer[topic_end + 1] != end - properties_at
        or end - properties_at > 0x7FFF
    ):
        return _read_slowly(buffer, start, broker_name)
    return ReceivedMessage(
        topic=_text(bytes(buffer[topic_at:topic_end])),
        raw_body=bytes(buffer[body_at : topic_at - 1]),
        broker_name=broker_name,
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        store_size=size,
        properties_data=bytes(buffer[properties_at:end]),
        flag=flag,
        sys_flag=sys_flag,
        body_crc=crc,
        born_timestamp_ms=born_ms,
        born_host=_host(born_host),
        store_timestamp_ms=store_ms,
        store_host=_host(store_host),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_offset,
    )


def _read_slowly(buffer: bytes | memoryview, start: int, broker_name: str) -> ReceivedMessage:
    return ReceivedMessage.of(decode_record(buffer, start, len(buffer)), broker_name)


@lru_cache(maxsize=1024)
def _text(data: bytes) -> str:
    return str(data, "utf-8", "replace")


@lru_cache(maxsize=1024)
def _host(data: bytes) -> Host:
    return Host.unpack(data)


_WRAPPED = flags.INNER_BATCH | flags.NEED_UNWRAP


def make_reader() -> _records.RecordReader | None:
    """What reads many ordinary records; ``None`` where it is not built or not wanted."""
    if not (IS_BUILT and compiled.is_wanted()):
        return None
    return _records.RecordReader(ReceivedMessage, _text, _host, _IPV6, _WRAPPED)
