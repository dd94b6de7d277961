"""The value of each column, message by message."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from roquet.model import properties as prop
from roquet.model.message import StoredMessage
from roquet.spark.schema import TIMESTAMP_MAX_MS, TIMESTAMP_MIN_MS

if TYPE_CHECKING:
    from roquet.client.message import ReceivedMessage  # it takes half a second to import

__all__ = ["VALUES"]

_Message: TypeAlias = "StoredMessage | ReceivedMessage"


def _microseconds(time_ms: int) -> int | None:
    return time_ms * 1000 if TIMESTAMP_MIN_MS <= time_ms <= TIMESTAMP_MAX_MS else None


def _message_id(message: _Message) -> str:
    unique_id = message.properties.get(prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
    return message.offset_message_id if unique_id is None else unique_id


VALUES: dict[str, Callable[[_Message], object]] = {
    "topic": lambda message: message.topic,
    "queueId": lambda message: message.queue_id,
    "queueOffset": lambda message: message.queue_offset,
    "tags": lambda message: message.tags,
    "keys": lambda message: message.properties.get(prop.KEYS),
    "properties": lambda message: list(message.properties.items()),
    "msgId": _message_id,
    "offsetMsgId": lambda message: message.offset_message_id,
    "bornTimestamp": lambda message: _microseconds(message.born_timestamp_ms),
    "storeTimestamp": lambda message: _microseconds(message.store_timestamp_ms),
    "bornHost": lambda message: str(message.born_host),
    "storeHost": lambda message: str(message.store_host),
    "physicalOffset": lambda message: message.physical_offset,
    "storeSize": lambda message: message.store_size,
    "reconsumeTimes": lambda message: message.reconsume_times,
    "sysFlag": lambda message: message.sys_flag,
    "flag": lambda message: message.flag,
    "bodyCrc": lambda message: (message.body_crc ^ 0x8000_0000) - 0x8000_0000,
    "preparedTransactionOffset": lambda message: message.prepared_transaction_offset,
}
"""By column: a function that returns its value as Arrow expects it, times in microseconds.

The body is not included: the reader decides whether to decompress it."""
