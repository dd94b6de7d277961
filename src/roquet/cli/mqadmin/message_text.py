"""Messages as upstream's tool prints them, and the files for their bodies.

A body is written to a temporary folder, under the id of its message. That id comes from a producer,
so only a well-formed id becomes a file name.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from msgspec import Struct

from roquet.cli.mqadmin.java import PROPERTIES_TABLE_SIZE, map_text, message_queue_text
from roquet.client import PullResult, ReceivedMessage, SendResult
from roquet.model.host import Host

__all__ = [
    "MessageFacts",
    "body_file",
    "body_text",
    "message_text",
    "msg_id",
    "note_bounds",
    "properties_text",
    "send_result_text",
]

_ID = re.compile(r"(?a)[0-9A-Za-z]+")

MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"


class MessageFacts(Struct, frozen=True, kw_only=True, rename="camel"):
    """A message, for programs."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    msg_id: str
    offset_msg_id: str
    tags: str | None
    keys: list[str]
    born_timestamp: int
    store_timestamp: int
    reconsume_times: int
    properties: dict[str, str]

    @classmethod
    def of(cls, message: ReceivedMessage) -> MessageFacts:
        """The facts of a message."""
        return cls(
            topic=message.topic,
            broker_name=message.broker_name,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            physical_offset=message.physical_offset,
            msg_id=msg_id(message),
            offset_msg_id=message.offset_message_id,
            tags=message.tags,
            keys=message.keys,
            born_timestamp=message.born_timestamp_ms,
            store_timestamp=message.store_timestamp_ms,
            reconsume_times=message.reconsume_times,
            properties=message.properties,
        )


def msg_id(message: ReceivedMessage) -> str:
    """The unique id that its producer gave it, or where it is stored."""
    return message.message_id or message.offset_message_id


def note_bounds(result: PullResult) -> None:
    """Add the ends of the queue to the properties of pulled messages, as upstream's client does."""
    for message in result.messages:
        message.properties[MIN_OFFSET] = str(result.min_offset)
        message.properties[MAX_OFFSET] = str(result.max_offset)


def properties_text(message: ReceivedMessage) -> str:
    """The properties."""
    return map_text(message.properties, size=PROPERTIES_TABLE_SIZE)


def message_text(message: ReceivedMessage, *, with_body: bool = True) -> str:
    """A whole message.

    Args:
        message: The message.
        with_body: Whether to include the body; otherwise it is ``null``.
    """
    is_transaction = message.properties.get("TRAN_MSG", "").lower() == "true"
    transaction_id = msg_id(message) if is_transaction else "null"
    body = f"[{', '.join(str(_signed(byte)) for byte in message.body)}]" if with_body else "null"
    return (
        f"MessageExt [brokerName={message.broker_name or 'null'}, queueId={message.queue_id}, "
        f"storeSize={message.store_size}, queueOffset={message.queue_offset}, "
        f"sysFlag={message.sys_flag}, bornTimestamp={message.born_timestamp_ms}, "
        f"bornHost={_host(message.born_host)}, storeTimestamp={message.store_timestamp_ms}, "
        f"storeHost={_host(message.store_host)}, msgId={message.offset_message_id}, "
        f"commitLogOffset={message.physical_offset}, bodyCRC={message.body_crc}, "
        f"reconsumeTimes={message.reconsume_times}, "
        f"preparedTransactionOffset={message.prepared_transaction_offset}, "
        f"toString()=Message{{topic='{message.topic}', flag={message.flag}, "
        f"properties={properties_text(message)}, body={body}, transactionId='{transaction_id}'}}]"
    )


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _host(host: Host) -> str:
    return f"/{host}"


def body_text(message: ReceivedMessage, charset: str) -> str:
    """The body as text.

    Raises:
        LookupError: There is no such charset.
    """
    return message.body.decode(charset, "replace")


def body_file(message: ReceivedMessage, *, number: int = 0) -> str:
    """Write the body to a file, and return the path.

    Args:
        message: The message.
        number: Distinguishes several messages with one id.
    """
    name = msg_id(message)
    if _ID.fullmatch(name) is None:
        name = message.offset_message_id
    folder = Path(tempfile.gettempdir()) / "rocketmq" / "msgbodys"
    folder.mkdir(parents=True, exist_ok=True)
    # An existing file of that name, possibly a link elsewhere, is replaced.
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        file.write(message.body)
    path = folder / (f"{name}_{number}" if number else name)
    Path(file.name).replace(path)
    return str(path)


def send_result_text(result: SendResult) -> str:
    """The result of a send."""
    return (
        f"SendResult [sendStatus={result.status.value}, msgId={result.message_id}, "
        f"offsetMsgId={result.offset_message_id}, "
        f"messageQueue={message_queue_text(result.queue)}, queueOffset={result.queue_offset}, "
        f"recallHandle={result.recall_handle or 'null'}]"
    )
