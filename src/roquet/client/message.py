"""Messages as a client sees them: outgoing ones, the results of sends, received ones.

Owns :class:`Message`, :class:`SendStatus`, :class:`SendResult` and :class:`ReceivedMessage`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from msgspec import Struct, field

from roquet.client.compression import BODY_BYTES_MAX, decompress
from roquet.errors import BadBody, BadMessage
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.model.fastjson_reader import SURROGATE
from roquet.model.host import LOOPBACK, Host
from roquet.model.message import StoredMessage
from roquet.model.message_id import offset_message_id
from roquet.model.message_queue import MessageQueue

__all__ = ["Message", "ReceivedMessage", "SendResult", "SendStatus"]

TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"

RESERVED_PROPERTIES = frozenset(
    {
        "1ST_POP_TIME",
        "ARRIVE_TIME",
        "BORN_TIMESTAMP",
        "BUYER_ID",
        "CLUSTER",
        "CONSUME_START_TIME",
        "CORRECTION_FLAG",
        "CORRELATION_ID",
        "DELAY",
        "DLQ_ORIGIN_MESSAGE_ID",
        "DLQ_ORIGIN_TOPIC",
        "DUP_INFO",
        "EXTEND_UNIQ_INFO",
        "INNER_MULTI_QUEUE_OFFSET",
        "INSTANCE_ID",
        "KEYS",
        "MAX_OFFSET",
        "MAX_RECONSUME_TIMES",
        "MIN_OFFSET",
        "MQ2_FLAG",
        "MSG_REGION",
        "MSG_TYPE",
        "ORIGIN_MESSAGE_ID",
        "PGROUP",
        "POP_CK",
        "POP_CK_OFFSET",
        "PUSH_REPLY_TIME",
        "REAL_QID",
        "REAL_TOPIC",
        "RECONSUME_TIME",
        "REPLY_TO_CLIENT",
        "RETRY_TOPIC",
        "TAGS",
        "TIMER_DELAY_LEVEL",
        "TIMER_DELAY_MS",
        "TIMER_DELAY_SEC",
        "TIMER_DELIVER_MS",
        "TIMER_DEL_UNIQKEY",
        "TIMER_DEQUEUE_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_OUT_MS",
        "TIMER_ROLL_TIMES",
        "TRACE_ON",
        "TRANSFER_FLAG",
        "TRAN_MSG",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "TTL",
        "UNIQ_KEY",
        "WAIT",
        "__BORNHOST",
        "__CRC32#",
    }
)
"""Property names that RocketMQ reserves; users must choose other names."""


class Message(Struct, eq=False):
    """A message to send.

    Attributes:
        topic: The topic, without the client's namespace.
        body: The content.
        tags: One tag, by which consumers filter.
        keys: One or several keys, by which the message can be found.
        properties: The user's own properties.
        delay_level: Deliver later, on one of the broker's levels (1, 2, …); 0 for at once.
        delay_ms: Deliver after this delay; needs a broker of version 5.
        deliver_at_ms: Deliver at this time, milliseconds since the epoch; needs version 5.
        sharding_key: Messages with one key go to one queue, if the sender selects by it.
        wait_store_ok: Whether the broker responds only when the message is as safe as configured.
        flag: A number for the user's own use.

    Example:
        >>> message = Message("Orders", b"paid", tags="eu", keys=["17", "18"])
        >>> message.wire_properties()
        {'KEYS': '17 18', 'TAGS': 'eu', 'WAIT': 'true'}
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | Sequence[str] | None = None
    properties: dict[str, str] = field(default_factory=dict)
    delay_level: int = 0
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    sharding_key: str | None = None
    wait_store_ok: bool = True
    flag: int = 0
    system_properties: dict[str, str] | None = None
    """Properties with reserved names, which only the client's own code sets."""

    def wire_properties(self) -> dict[str, str]:
        """Return a new dict of all properties sent to the broker, without the unique id.

        Example:
            assert Message("Orders", b"paid", tags="eu").wire_properties()["TAGS"] == "eu"
        """
        found = dict(self.properties)
        if self.keys:
            keys = self.keys if isinstance(self.keys, str) else prop.KEY_SEPARATOR.join(self.keys)
            if keys:
                found[prop.KEYS] = keys
        if self.tags:
            found[prop.TAGS] = self.tags
        if self.delay_level:
            found[prop.DELAY_TIME_LEVEL] = str(self.delay_level)
        if self.delay_ms is not None:
            found[TIMER_DELAY_MS] = str(self.delay_ms)
        if self.deliver_at_ms is not None:
            found[TIMER_DELIVER_MS] = str(self.deliver_at_ms)
        if self.sharding_key:
            found[prop.SHARDING_KEY] = self.sharding_key
        found[prop.WAIT_STORE_MSG_OK] = "true" if self.wait_store_ok else "false"
        if self.system_properties:
            found |= self.system_properties
        return found

    def check(self) -> None:
        """Check that a broker can store the message as intended.

        Raises:
            BadMessage: The body is not bytes, or a property cannot be encoded.

        Example:
            try:
                Message("Orders", b"").check()
            except BadMessage as error:
                print(error.hint)
        """
        body: object = self.body
        if not isinstance(body, bytes) or not body:
            found = "no bytes" if body == b"" else type(body).__name__
            raise BadMessage(
                "The body of a message must be non-empty bytes",
                detail=f"found {found}",
                hint="Encode text, for instance with .encode().",
            )
        for name, value in self.properties.items():
            _check_property(name, value)
        for name, value in self.wire_properties().items():
            _check_text(name, value)


def _check_property(name: str, value: object) -> None:
    if name in RESERVED_PROPERTIES:
        raise BadMessage(
            f"The property {name} is used by RocketMQ itself",
            hint="Choose another name, or use the field of Message that is meant for it.",
        )
    if not isinstance(value, str) or not name.strip() or not value.strip():
        raise BadMessage(
            "The name and the value of a property must be non-blank strings",
            detail=f"{name!r}: {value!r}",
        )


def _check_text(name: str, value: str) -> None:
    for text in (name, value):
        if "\x01" in text or "\x02" in text:
            raise BadMessage(
                "A property cannot contain U+0001 or U+0002, which separate properties",
                detail=f"{name!r}: {value!r}",
            )
        if not text.isascii() and SURROGATE.search(text) is not None:
            raise BadMessage(
                "A property is not valid text: it contains an unpaired surrogate",
                detail=f"{name!r}: {value!r}",
            )


class SendStatus(Enum):
    """How safely a message is stored.

    Example:
        >>> SendStatus("SEND_OK") is SendStatus.SEND_OK
        True
    """

    SEND_OK = "SEND_OK"
    """As safe as the broker is configured to make it."""

    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """In the log, but not yet on disk when the broker's timeout expired."""

    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """In the master's log, but not yet on a slave when the broker's timeout expired."""

    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """In the master's log; no slave was available."""


class SendResult(Struct, frozen=True, kw_only=True):
    """The result of a send.

    Attributes:
        status: How safely the message is stored.
        message_id: The unique id from the producer; for a batch several, separated by commas.
        offset_message_id: The id from the broker, which contains its address and the physical
        offset; for a batch several, separated by commas.
        queue: The queue.
        queue_offset: The offset in the queue; for a batch, that of the first message.
        transaction_id: The id of its transaction, if it has one.
        region_id: The region of the broker.
        trace_on: Whether the broker has traces enabled.
        recall_handle: The handle to recall a delayed message with ``Producer.recall_message``; only
            brokers that allow recalls return one.

    Example:
        >>> result = SendResult(status=SendStatus.SEND_OK, message_id="AA", offset_message_id="BB",
        ...                     queue=MessageQueue("Orders", "broker-a", 3), queue_offset=17)
        >>> f"{result.status.name} {result.queue.queue_id}:{result.queue_offset}"
        'SEND_OK 3:17'
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region_id: str | None = None
    trace_on: bool = True
    recall_handle: str | None = None


class ReceivedMessage(Struct, kw_only=True, eq=False):
    r"""A message received from a broker.

    Attributes:
        topic: The topic; for a retried message, the original one.
        broker_name: The broker it came from.
        queue_id: Its queue.
        queue_offset: Its offset in the queue.
        physical_offset: Its offset in the broker's log.
        store_size: Its size in the log, in bytes.
        raw_body: The body as stored, possibly compressed.
        properties_data: The properties as stored.
        flag: A number for the sender's own use.
        sys_flag: Compression and transaction bits.
        body_crc: The checksum of the stored body.
        born_timestamp_ms: When it was sent, by the sender's clock.
        born_host: The sender's address.
        store_timestamp_ms: When it was stored, by the broker's clock.
        store_host: The broker's address.
        reconsume_times: How often its consumption failed.
        prepared_transaction_offset: Where the half message of its transaction is.
        max_body_bytes: The maximum size of the decompressed body.

    Example:
        >>> ReceivedMessage(topic="T", raw_body=b"hi", properties_data=b"TAGS\x01eu\x02").tags
        'eu'
    """

    topic: str
    raw_body: bytes
    broker_name: str = ""
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    store_size: int = 0
    properties_data: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    body_crc: int = 0
    born_timestamp_ms: int = 0
    born_host: Host = LOOPBACK
    store_timestamp_ms: int = 0
    store_host: Host = LOOPBACK
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    max_body_bytes: int = BODY_BYTES_MAX
    _body: bytes | None = None
    _body_error: BadBody | None = None
    _properties: dict[str, str] | None = None

    @classmethod
    def of(cls, stored: StoredMessage, broker_name: str = "") -> ReceivedMessage:
        """Create a message from a stored record.

        Example:
            from roquet.format.commit_log import decode_record

            message = ReceivedMessage.of(decode_record(record, 0, len(record)), broker_name="dev")
        """
        return cls(
            topic=stored.topic,
            raw_body=stored.body,
            broker_name=broker_name,
            queue_id=stored.queue_id,
            queue_offset=stored.queue_offset,
            physical_offset=stored.physical_offset,
            store_size=stored.store_size,
            properties_data=stored.properties_data,
            flag=stored.flag,
            sys_flag=stored.sys_flag,
            body_crc=stored.body_crc,
            born_timestamp_ms=stored.born_timestamp_ms,
            born_host=stored.born_host,
            store_timestamp_ms=stored.store_timestamp_ms,
            store_host=stored.store_host,
            reconsume_times=stored.reconsume_times,
            prepared_transaction_offset=stored.prepared_transaction_offset,
        )

    @property
    def body(self) -> bytes:
        """The content, decompressed on first access.

        Raises:
            BadBody: It cannot be decompressed, or would be longer than ``max_body_bytes``.

        Example:
            assert received.body == b"paid"
        """
        if not self.sys_flag & flags.COMPRESSED:
            return self.raw_body
        if self._body is None:
            if self._body_error is not None:
                raise self._body_error
            try:
                self._body = decompress(self.raw_body, self.sys_flag, max_bytes=self.max_body_bytes)
            except BadBody as error:
                self._body_error = error
                raise
        return self._body

    def unpack_short(self, max_bytes: int) -> bool:
        """Decompress the body unless it exceeds the limit; returns whether it is decompressed.

        Raises:
            ConfigError: The package that it needs is not installed.

        Example:
            assert received.unpack_short(1 << 20)
        """
        if not self.sys_flag & flags.COMPRESSED or self._body is not None:
            return True
        max_bytes = min(max_bytes, self.max_body_bytes)
        try:
            self._body = decompress(self.raw_body, self.sys_flag, max_bytes=max_bytes)
        except BadBody:
            return False
        return True

    @property
    def properties(self) -> dict[str, str]:
        """All properties as a dict; changes to it affect only this object.

        Example:
            assert received.properties["KEYS"] == "17"
        """
        if self._properties is None:
            self._properties = prop.decode_properties(self.properties_data)
        return self._properties

    @property
    def tags(self) -> str | None:
        """The tag, if any.

        Example:
            assert received.tags == "paid"
        """
        return self.properties.get(prop.TAGS)

    @property
    def keys(self) -> list[str]:
        """The keys.

        Example:
            assert received.keys == ["17"]
        """
        return self.properties.get(prop.KEYS, "").split()

    @property
    def queue(self) -> MessageQueue:
        """The queue it came from, with the topic of this message.

        Example:
            assert received.queue == queue
        """
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def message_id(self) -> str:
        """The unique id from the producer, or else the offset message id.

        Example:
            found = await admin.messages.by_id("Orders", received.message_id)
        """
        return self.properties.get(prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The id that contains the broker's address and the physical offset.

        Example:
            found = await admin.messages.by_offset_id(received.offset_message_id)
        """
        return offset_message_id(self.store_host, self.physical_offset)

    @property
    def transaction_id(self) -> str | None:
        """The id of its transaction: the producer's unique id.

        Example:
            assert received.transaction_id == received.message_id
        """
        return self.properties.get(prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
