"""Turns rows into messages.

Owns the mapping of the sink's columns to messages, and the id of each row.

The id is the property ``SPARK_ROW_ID``: ``query/batch/partition/row/digest``. A row that is written
again after a failure has the same id, so consumers can drop duplicates. The id contains a digest
of the message because Spark may reorder the rows of a partition on a retry: a duplicate may then
go unrecognised, but no row is ever mistaken for another and lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime

import pyarrow as pa

from roquet.client.message import RESERVED_PROPERTIES, Message
from roquet.errors import BadMessage
from roquet.model import properties as prop

__all__ = ["ROW_ID", "OutgoingRow", "RowReader"]

ROW_ID = "SPARK_ROW_ID"
"""The property that holds the id of a row."""

ROWS_AT_ONCE = 256
"""How many rows are converted to Python objects at a time; bodies may be long."""


class OutgoingRow:
    """A row to be sent.

    Attributes:
        message: The message.
        queue_id: The queue to send it to, if the row names one.
        broker_name: The broker of that queue, if the row names one.
    """

    __slots__ = ("broker_name", "message", "queue_id")

    def __init__(self, message: Message, queue_id: int | None, broker_name: str | None) -> None:
        self.message = message
        self.queue_id = queue_id
        self.broker_name = broker_name


class RowReader:
    """Converts the rows of one task to messages.

    Args:
        topic: The topic of every row; ``None`` if it is in a column.
        task_id: The prefix of the row ids.
    """

    def __init__(self, topic: str | None, task_id: str) -> None:
        self._topic = topic
        self._task_id = task_id
        self._count = 0

    def rows(self, batch: pa.RecordBatch) -> Iterator[OutgoingRow]:
        """The messages of a batch.

        Raises:
            BadMessage: A row cannot be a message.
        """
        wanted = batch.select([name for name in batch.schema.names if name in _WANTED])
        for start in range(0, wanted.num_rows, ROWS_AT_ONCE):
            for row in wanted.slice(start, ROWS_AT_ONCE).to_pylist():
                try:
                    made = self._row(row)
                except BadMessage as error:
                    raise BadMessage(
                        f"Row {self._count} of {self._task_id} cannot be sent: {error.message}",
                        detail=error.detail,
                        hint=error.hint,
                    ) from None
                self._count += 1
                yield made

    def _row(self, row: Mapping[str, object]) -> OutgoingRow:
        topic = self._topic or _text(row.get("topic"))
        if topic is None:
            raise BadMessage("it has no topic", hint="Set the option topic, or the column.")
        given = _properties(row.get("properties"))
        message = Message(
            topic,
            _body(row.get("body")),
            tags=_text(row.get("tags")) if "tags" in row else given.get(prop.TAGS),
            keys=_keys(row.get("keys")) if "keys" in row else given.get(prop.KEYS),
            properties={
                name: value
                for name, value in given.items()
                if name not in RESERVED_PROPERTIES and name not in _DROPPED
            },
            delay_level=_integer(row.get("delayLevel")) or 0,
            deliver_at_ms=_time_ms(row.get("deliverAt")),
            sharding_key=_text(row.get("shardingKey")) or given.get(prop.SHARDING_KEY),
        )
        message.properties[ROW_ID] = f"{self._task_id}/{self._count}/{_digest(message)}"
        message.check()
        return OutgoingRow(
            message, _integer(row.get("queueId")), _text(row.get("brokerName")) or None
        )


_WANTED = frozenset(
    {
        "body",
        "topic",
        "tags",
        "keys",
        "properties",
        "shardingKey",
        "queueId",
        "brokerName",
        "delayLevel",
        "deliverAt",
    }
)
_DROPPED = frozenset({ROW_ID, prop.SHARDING_KEY})


def _digest(message: Message) -> str:
    found = hashlib.blake2b(message.body, digest_size=8)
    found.update(prop.properties_text(message.wire_properties()).encode(errors="replace"))
    found.update(message.topic.encode())
    return found.hexdigest()


def _body(value: object) -> bytes:
    if isinstance(value, str):
        value = value.encode()
    if not isinstance(value, bytes):
        raise BadMessage("its body is null", hint="Filter such rows out, or give them a body.")
    return value


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _keys(value: object) -> str | list[str] | None:
    if isinstance(value, list):
        return [each for each in value if isinstance(each, str)]
    return _text(value)


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _time_ms(value: object) -> int | None:
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return _integer(value)


def _properties(value: object) -> dict[str, str]:
    if not isinstance(value, list):
        return {}
    return {name: each for name, each in value if isinstance(each, str)}
