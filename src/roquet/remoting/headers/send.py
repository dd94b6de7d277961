"""Headers of sending: messages, send-back, transactions, recall, replies."""

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from roquet.remoting.headers.base import Header, Int32, Int64, RpcHeader, TopicHeader

__all__ = [
    "CheckTransactionStateRequestHeader",
    "CheckTransactionStateResponseHeader",
    "ConsumerSendMsgBackRequestHeader",
    "EndTransactionRequestHeader",
    "EndTransactionResponseHeader",
    "RecallMessageRequestHeader",
    "RecallMessageResponseHeader",
    "ReplyMessageRequestHeader",
    "SendMessageRequestHeader",
    "SendMessageRequestHeaderV2",
    "SendMessageResponseHeader",
]


class SendMessageRequestHeader(TopicHeader, kw_only=True):
    """A message to store, under long names.

    Attributes:
        default_topic: The topic whose settings a new topic takes.
        properties: All properties in one string.
        batch: Whether the body holds several messages.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp_ms: Int64 = field(name="bornTimestamp")
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    batch: bool | None = None


class SendMessageRequestHeaderV2(SendMessageRequestHeader, kw_only=True):
    """A message to store, under one-letter names; the values are the same."""

    encode_last: ClassVar[tuple[str, ...]] = (
        "broker_name",
        "logical",
        "namespace",
        "namespaced",
        "oneway",
    )

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: Int32 = field(name="d")
    queue_id: Int32 = field(name="e")
    sys_flag: Int32 = field(name="f")
    born_timestamp_ms: Int64 = field(name="g")
    flag: Int32 = field(name="h")
    properties: str | None = field(default=None, name="i")
    reconsume_times: Int32 | None = field(default=None, name="j")
    unit_mode: bool | None = field(default=None, name="k")
    max_reconsume_times: Int32 | None = field(default=None, name="l")
    batch: bool | None = field(default=None, name="m")
    broker_name: str | None = field(default=None, name="n")


class SendMessageResponseHeader(Header, kw_only=True):
    """Where a message was stored.

    Attributes:
        msg_id: The offset message id, or several separated by commas.
        transaction_id: The producer's unique id.
        batch_unique_id: The unique id of an inner batch.
        recall_handle: What cancels a timer message.
    """

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_unique_id: str | None = field(default=None, name="batchUniqId")
    recall_handle: str | None = None


class ReplyMessageRequestHeader(TopicHeader, kw_only=True):
    """The reply to a request message, on its way to the requesting client."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp_ms: Int64 = field(name="bornTimestamp")
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp_ms: Int64 = field(default=0, name="storeTimestamp")


class ConsumerSendMsgBackRequestHeader(RpcHeader, kw_only=True):
    """A message that could not be consumed.

    Attributes:
        physical_offset: Where the message is in the log.
        delay_level: The delay level of the retry; 0 lets the broker choose, below 0 is the DLQ.
    """

    physical_offset: Int64 = field(name="offset")
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


class EndTransactionRequestHeader(RpcHeader, kw_only=True):
    """The end of a transaction.

    Attributes:
        half_queue_offset: Where the half message is in the half queue.
        physical_offset: Where the half message is in the log.
        commit_or_rollback: 8 commit, 12 roll back, 0 unknown.
        from_transaction_check: Whether this responds to a check by the broker.
    """

    topic: str | None = None
    producer_group: str
    half_queue_offset: Int64 = field(name="tranStateTableOffset")
    physical_offset: Int64 = field(name="commitLogOffset")
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None


class EndTransactionResponseHeader(Header, kw_only=True):
    """Nothing."""


class CheckTransactionStateRequestHeader(RpcHeader, kw_only=True):
    """Asks whether a half message was committed."""

    topic: str | None = None
    half_queue_offset: Int64 = field(name="tranStateTableOffset")
    physical_offset: Int64 = field(name="commitLogOffset")
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class CheckTransactionStateResponseHeader(Header, kw_only=True):
    """The response of old clients; current ones send END_TRANSACTION instead."""

    producer_group: str
    half_queue_offset: Int64 = field(name="tranStateTableOffset")
    physical_offset: Int64 = field(name="commitLogOffset")
    commit_or_rollback: Int32


class RecallMessageRequestHeader(TopicHeader, kw_only=True):
    """A timer message to cancel."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallMessageResponseHeader(Header, kw_only=True):
    """The unique id of the cancelled message."""

    msg_id: str
