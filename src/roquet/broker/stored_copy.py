"""Storing a message again: what a new record keeps of the old one.

Turns a record into a message for the store; shared by the delivery of delayed messages,
messages that consumers send back, and the commit of transactions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from roquet.format.commit_log import decode_record
from roquet.model import properties as prop
from roquet.model.host import Host
from roquet.model.message import BrokerMessage, StoredMessage
from roquet.store.results import Bytes, GetMessageResult

__all__ = [
    "TopicQueue",
    "copied",
    "messages_of",
    "queue_in",
    "real_queue",
    "records_in",
    "stored_properties",
]

TopicQueue = tuple[str, int]
"""A topic and one of its queues."""

_CRC_NAME = prop.CRC32.encode()


def stored_properties(message: StoredMessage, *without: str) -> bytes:
    r"""The properties of a record for its copy, except those named and its checksum.

    Example:
        >>> from roquet.model.host import LOOPBACK
        >>> data = b"TAGS\x01A\x02REAL_QID\x010\x02"
        >>> message = StoredMessage(
        ...     "T", 0, 0, 0, 0, b"", data, 0, 0, 0, 0, LOOPBACK, 0, LOOPBACK, 0, 0
        ... )
        >>> stored_properties(message, "REAL_QID")
        b'TAGS\x01A\x02'
    """
    if not without and _CRC_NAME not in message.properties_data:
        return message.properties_data
    dropped = {prop.CRC32, *without}
    return prop.encode_properties(
        {name: value for name, value in message.properties.items() if name not in dropped}
    )


def copied(
    message: StoredMessage,
    queue: TopicQueue,
    properties: bytes | Mapping[str, str],
    *,
    sys_flag: int | None = None,
    store_host: Host | None = None,
    reconsume_times: int | None = None,
    prepared_transaction_offset: int = 0,
) -> BrokerMessage:
    """Return a record as a new message of a queue; it does not wait for the disk."""
    if not isinstance(properties, bytes):
        properties = prop.encode_properties(properties)
    topic, queue_id = queue
    return BrokerMessage(
        topic=topic,
        queue_id=queue_id,
        body=message.body,
        properties=properties,
        flag=message.flag,
        sys_flag=message.sys_flag if sys_flag is None else sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        store_host=message.store_host if store_host is None else store_host,
        reconsume_times=message.reconsume_times if reconsume_times is None else reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        wait_store_ok=False,
    )


def real_queue(message: StoredMessage) -> TopicQueue | None:
    """Return the real topic and queue of a record that waits elsewhere."""
    return queue_in(message.properties)


def queue_in(properties: Mapping[str, str]) -> TopicQueue | None:
    """Return the real topic and queue named in properties."""
    topic = properties.get(prop.REAL_TOPIC)
    queue_id = properties.get(prop.REAL_QUEUE_ID, "")
    if topic is None or not (queue_id.isascii() and queue_id.isdecimal()) or len(queue_id) > 9:
        return None
    return topic, int(queue_id)


def messages_of(found: GetMessageResult) -> Iterator[StoredMessage]:
    """Yield the messages that a read found."""
    for part in found.slices:
        yield from records_in(part)


def records_in(part: Bytes) -> Iterator[StoredMessage]:
    """Yield the messages of consecutive records."""
    position = 0
    while position < len(part):
        message = decode_record(part, position, len(part))
        yield message
        position += message.store_size
