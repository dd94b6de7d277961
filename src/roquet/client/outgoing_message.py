"""Turns a user's message into what is sent over the wire.

Owns the checks before a send, the unique id, compression, and the size and splitting of batches.

Invariant: the user's objects are not changed; an :class:`OutgoingMessage` is created once per send
and is the same for all attempts, so that consumers can recognize a message that was sent twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from roquet.client.compression import compress
from roquet.client.hooks import MessageKind
from roquet.client.ids import UniqueIds
from roquet.client.message import Message
from roquet.client.names import check_publish_topic, wrap
from roquet.client.producer_options import ProducerOptions
from roquet.errors import BadMessage, MessageTooLarge
from roquet.format.batch import BATCH_ENTRY_BYTES_MIN, encode_batch
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.model.topic import is_retry_topic
from roquet.remoting.codes import RequestCode

__all__ = ["MESSAGE_TYPE", "REPLY", "OutgoingMessage", "OutgoingMessages", "split_batch"]

INSTANCE_ID = "INSTANCE_ID"
MESSAGE_TYPE = "MSG_TYPE"
REPLY = "reply"
_UNIQUE_ID_BYTES_MAX = len(prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX) + 56 + 2


class OutgoingMessage(Struct, kw_only=True, eq=False):
    """One message, or one batch, ready to be sent.

    Attributes:
        messages: The user's messages.
        code: The request code.
        topic: The topic on the wire.
        body: The body on the wire.
        flag: The user's number.
        sys_flag: Compression and transaction bits.
        properties: All properties.
        properties_text: The properties as one string.
        unique_ids: The ids of the messages.
        kind: The kind of message.
        reconsume_times: For a message that a consumer sends back: how often it was consumed.
        max_reconsume_times: For such a message: how often it may be consumed.
    """

    messages: Sequence[Message]
    code: RequestCode
    topic: str
    body: bytes
    flag: int
    sys_flag: int
    properties: dict[str, str]
    properties_text: str
    unique_ids: tuple[str, ...]
    kind: MessageKind = MessageKind.NORMAL
    reconsume_times: int = 0
    max_reconsume_times: int | None = None

    @property
    def is_batch(self) -> bool:
        """Whether the body holds several messages."""
        return self.code == RequestCode.SEND_BATCH_MESSAGE

    @property
    def user_topic(self) -> str:
        """The topic as the user wrote it."""
        return self.messages[0].topic


class OutgoingMessages:
    """Prepares messages for sending.

    Args:
        options: The producer's settings.
        namespace: The namespace of topics.
        unique_ids: Generates the ids.

    Attributes:
        topics: The topic on the wire by the user's topic, for all topics sent to.
    """

    def __init__(self, options: ProducerOptions, namespace: str, unique_ids: UniqueIds) -> None:
        self._options = options
        self._namespace = namespace
        self._unique_ids = unique_ids
        self._compressor = options.compressor
        self.topics: dict[str, str] = {}

    def wire_topic(self, topic: str) -> str:
        """Return the topic on the wire.

        Raises:
            BadName: The topic cannot be sent to.
        """
        found = self.topics.get(topic)
        if found is None:
            check_publish_topic(topic)
            found = self.topics[topic] = wrap(self._namespace, topic)
        return found

    def check(self, message: Message) -> None:
        """Check a message as :meth:`of_message` and :meth:`of_batch` do.

        Raises:
            BadName: Its topic cannot be sent to.
            BadMessage: It is invalid.
            MessageTooLarge: Its body or its properties are too long.
        """
        self.wire_topic(message.topic)
        self._checked(message)

    def of_message(self, message: Message, unique_id: str | None = None) -> OutgoingMessage:
        """Prepare one message.

        Args:
            message: The message.
            unique_id: The id that it already has.

        Raises:
            BadName: Its topic cannot be sent to.
            BadMessage: It is invalid.
            MessageTooLarge: Its body or its properties are too long.
        """
        properties, text = self._checked(message, unique_id)
        body, sys_flag = message.body, 0
        if len(body) >= self._options.compress_over_bytes:
            packed = compress(body, self._compressor, level=self._options.compress_level)
            if len(packed) < len(body):
                body, sys_flag = packed, self._compressor.sys_flag
        code, kind = RequestCode.SEND_MESSAGE_V2, MessageKind.NORMAL
        system = message.system_properties
        if system and system.get(prop.TRANSACTION_PREPARED) == "true":
            sys_flag |= flags.TRANSACTION_PREPARED
            kind = MessageKind.HALF
        elif prop.DELAY_TIME_LEVEL in properties:
            kind = MessageKind.DELAYED
        if system and system.get(MESSAGE_TYPE) == REPLY:
            code = RequestCode.SEND_REPLY_MESSAGE_V2
            topic = message.topic  # the reply topic of a cluster has no namespace
        else:
            topic = self.wire_topic(message.topic)
        made = OutgoingMessage(
            messages=(message,),
            code=code,
            topic=topic,
            body=body,
            flag=message.flag,
            sys_flag=sys_flag,
            properties=properties,
            properties_text=text,
            unique_ids=(properties[prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX],),
            kind=kind,
        )
        if is_retry_topic(topic):
            _take_reconsume_times(made)
        return made

    def of_batch(self, messages: Sequence[Message]) -> OutgoingMessage:
        """Prepare a batch; it is not split.

        Raises:
            BadName: The topic cannot be sent to.
            BadMessage: They cannot be sent as one batch.
            MessageTooLarge: A message is too long.
        """
        check_batch(messages)
        first = messages[0]
        topic = self.wire_topic(first.topic)
        entries: list[tuple[int, bytes, bytes]] = []
        ids: list[str] = []
        for message in messages:
            properties, text = self._checked(message)
            entries.append((message.flag, message.body, text.encode()))
            ids.append(properties[prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX])
        whole = {
            prop.WAIT_STORE_MSG_OK: "true" if first.wait_store_ok else "false",
            prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX: self._unique_ids.make(),
        }
        if self._namespace:
            whole[INSTANCE_ID] = self._namespace
        return OutgoingMessage(
            messages=tuple(messages),
            code=RequestCode.SEND_BATCH_MESSAGE,
            topic=topic,
            body=encode_batch(entries),
            flag=0,
            sys_flag=0,
            properties=whole,
            properties_text=prop.properties_text(whole),
            unique_ids=tuple(ids),
        )

    def _checked(
        self, message: Message, unique_id: str | None = None
    ) -> tuple[dict[str, str], str]:
        """Check a message; returns its properties, and their text."""
        body: object = message.body
        if type(body) is not bytes or not body or message.properties:
            _refuse_bad(message)
        if len(message.body) > self._options.max_message_bytes:
            raise MessageTooLarge(
                "The body is too long",
                detail=f"{len(message.body)} bytes; max_message_bytes is "
                f"{self._options.max_message_bytes}",
                hint="Send less at once, or raise the limit here and on the broker.",
            )
        try:
            properties = message.wire_properties()
        except TypeError as error:
            raise BadMessage(
                "A field of the message has the wrong type", detail=str(error)
            ) from None
        if prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX not in properties:
            properties[prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX] = unique_id or self._unique_ids.make()
        if self._namespace:
            properties[INSTANCE_ID] = self._namespace
        text = prop.properties_text(properties)
        count = len(properties)
        if text.count("\x01") != count or text.count("\x02") != count:
            _refuse_bad(message)
        size_bytes = len(text) if text.isascii() else _encoded_bytes(text)
        if size_bytes > prop.PROPERTIES_BYTES_MAX:
            raise MessageTooLarge(
                "The properties are too long",
                detail=f"{size_bytes} bytes with keys, tags and the unique id; "
                f"the limit is {prop.PROPERTIES_BYTES_MAX}",
                hint="Move some of them to the body.",
            )
        return properties, text


def split_batch(messages: Sequence[Message], *, max_bytes: int) -> Iterator[list[Message]]:
    """Split messages into batches up to a maximum size, in order.

    A message that exceeds the size is a batch of its own.

    Args:
        messages: The messages to send.
        max_bytes: The maximum size of a batch on the wire.

    Example:
        >>> messages = [Message("T", b"x" * 400) for _ in range(5)]
        >>> [len(part) for part in split_batch(messages, max_bytes=1_200)]
        [2, 2, 1]
    """
    part: list[Message] = []
    part_bytes = 0
    for message in messages:
        size_bytes = batched_bytes(message)
        if part and part_bytes + size_bytes > max_bytes:
            yield part
            part, part_bytes = [], 0
        part.append(message)
        part_bytes += size_bytes
    if part:
        yield part


def batched_bytes(message: Message) -> int:
    """Return the maximum size of a message in a batch."""
    text = prop.properties_text(message.wire_properties())
    return BATCH_ENTRY_BYTES_MIN + _UNIQUE_ID_BYTES_MAX + len(message.body) + _encoded_bytes(text)


def check_batch(messages: Sequence[Message]) -> None:
    """Check that messages can form one batch.

    Raises:
        BadMessage: There is none, they have several topics, or one is delayed.
    """
    if not messages:
        raise BadMessage("A batch needs at least one message")
    first = messages[0]
    for message in messages:
        if message.topic != first.topic:
            raise BadMessage(
                "The messages of a batch must have the same topic",
                detail=f"{first.topic} and {message.topic}",
                hint="Send one batch for each topic.",
            )
        if message.wait_store_ok != first.wait_store_ok:
            raise BadMessage("The messages of a batch must have the same wait_store_ok")
        if is_delayed(message):
            raise BadMessage("A delayed message cannot be in a batch", hint="Send it on its own.")
        if message.system_properties or is_retry_topic(message.topic):
            raise BadMessage("This message cannot be in a batch", hint="Send it on its own.")


def is_delayed(message: Message) -> bool:
    """Return whether a message is delayed."""
    return (
        message.delay_level > 0 or message.delay_ms is not None or message.deliver_at_ms is not None
    )


def _take_reconsume_times(made: OutgoingMessage) -> None:
    """Move the counts of a message that a consumer sends back out of its properties."""
    times = made.properties.pop(prop.RECONSUME_TIME, None)
    max_times = made.properties.pop(prop.MAX_RECONSUME_TIMES, None)
    if times is not None:
        made.reconsume_times = int(times)
    if max_times is not None:
        made.max_reconsume_times = int(max_times)
    made.properties_text = prop.properties_text(made.properties)


def _refuse_bad(message: Message) -> None:
    try:
        message.check()
    except TypeError as error:
        raise BadMessage("A field of the message has the wrong type", detail=str(error)) from None


def _encoded_bytes(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise BadMessage(
            "A property cannot be written as UTF-8", detail=f"{error.object[error.start]!r}"
        ) from None
