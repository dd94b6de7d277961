"""From records of an answer to an Arrow batch.

Owns the way by messages, one value after the other, which knows everything a client knows:
batches inside of a message, static topics, tags that only look wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from roquet.client.expression import Expression, subscription_of
from roquet.client.message import ReceivedMessage
from roquet.client.pull_api import decode_messages
from roquet.errors import BadBody, ProtocolError
from roquet.model import properties as prop
from roquet.model.message_queue import MessageQueue
from roquet.spark.broker.fetch import Piece
from roquet.spark.broker.offsets import queue_text
from roquet.spark.schema import TIMESTAMP_MAX_MS, TIMESTAMP_MIN_MS

__all__ = ["RowMaker"]


class RowMaker:
    """Makes batches of the records of one queue.

    Args:
        queue: The queue, with the user's topic.
        schema: The Arrow schema that Spark wants; its names are columns of the source.
        expression: Which messages are wanted.
        decompress: Whether bodies are given decompressed.
    """

    def __init__(
        self, queue: MessageQueue, schema: pa.Schema, expression: Expression, *, decompress: bool
    ) -> None:
        self._queue = queue
        self._schema = schema
        self._decompress = decompress
        subscription = subscription_of(queue.topic, expression, version_ms=0)
        is_tags = isinstance(expression, str)
        self._tags = frozenset(subscription.tags_set if is_tags else ())

    def batch(self, pieces: Iterable[Piece]) -> pa.RecordBatch:
        """One batch of all messages in the pieces.

        Raises:
            ProtocolError: There are bytes that are no message, or a body that cannot be read.
        """
        messages = [message for piece in pieces for message in self._messages(piece)]
        arrays = [
            pa.array(self._values(field.name, messages), type=field.type) for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _messages(self, piece: Piece) -> Iterable[ReceivedMessage]:
        found, is_whole = decode_messages(piece.data, self._queue, offset_delta=piece.offset_delta)
        if not is_whole:
            raise ProtocolError(
                f"An answer for {queue_text(self._queue)} holds bytes that are no message",
                code="bad_message_bytes",
                detail=f"behind offset {found[-1].queue_offset}",
                hint="The broker's log may be damaged there; see roquet store check.",
            )
        return (
            message
            for message in found
            if piece.start_offset <= message.queue_offset < piece.end_offset
            and (not self._tags or message.tags in self._tags)
        )

    def _values(self, column: str, messages: Sequence[ReceivedMessage]) -> list[object]:
        if column == "topic":
            return [self._queue.topic] * len(messages)
        if column == "brokerName":
            return [self._queue.broker_name] * len(messages)
        if column == "body":
            return [self._body(message) for message in messages]
        value_of = _VALUES[column]
        return [value_of(message) for message in messages]

    def _body(self, message: ReceivedMessage) -> bytes:
        if not self._decompress:
            return message.raw_body
        try:
            return message.body
        except BadBody as error:
            raise ProtocolError(
                f"The body at offset {message.queue_offset} of {queue_text(self._queue)} "
                f"cannot be decompressed",
                code="bad_body_bytes",
                detail=error.detail or error.message,
                hint="Read it as it is: set decompress to false.",
            ) from error


def _micros(timestamp_ms: int) -> int | None:
    if TIMESTAMP_MIN_MS <= timestamp_ms <= TIMESTAMP_MAX_MS:
        return timestamp_ms * 1000
    return None


_VALUES: dict[str, Callable[[ReceivedMessage], object]] = {
    "queueId": lambda message: message.queue_id,
    "queueOffset": lambda message: message.queue_offset,
    "tags": lambda message: message.tags,
    "keys": lambda message: message.properties.get(prop.KEYS),
    "properties": lambda message: list(message.properties.items()),
    "msgId": lambda message: message.message_id,
    "offsetMsgId": lambda message: message.offset_message_id,
    "bornTimestamp": lambda message: _micros(message.born_timestamp_ms),
    "storeTimestamp": lambda message: _micros(message.store_timestamp_ms),
    "bornHost": lambda message: str(message.born_host),
    "storeHost": lambda message: str(message.store_host),
    "physicalOffset": lambda message: message.physical_offset,
    "storeSize": lambda message: message.store_size,
    "reconsumeTimes": lambda message: message.reconsume_times,
    "sysFlag": lambda message: message.sys_flag,
    "flag": lambda message: message.flag,
    "bodyCrc": lambda message: message.body_crc & 0x7FFFFFFF,
    "preparedTransactionOffset": lambda message: message.prepared_transaction_offset,
}
