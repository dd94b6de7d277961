"""Headers for reading messages: pull, POP and its acks, search by key or id."""

from __future__ import annotations

from enum import IntEnum

from msgspec import field

from roquet.remoting.headers.base import Header, Int32, Int64, TopicHeader, TopicQueueHeader

__all__ = [
    "AckMessageRequestHeader",
    "ChangeInvisibleTimeRequestHeader",
    "ChangeInvisibleTimeResponseHeader",
    "NotificationRequestHeader",
    "NotificationResponseHeader",
    "PeekMessageRequestHeader",
    "PollingInfoRequestHeader",
    "PollingInfoResponseHeader",
    "PopMessageRequestHeader",
    "PopMessageResponseHeader",
    "PullFlag",
    "PullMessageRequestHeader",
    "PullMessageResponseHeader",
    "QueryMessageRequestHeader",
    "QueryMessageResponseHeader",
    "ViewMessageRequestHeader",
    "ViewMessageResponseHeader",
]


class PullFlag(IntEnum):
    """Bits of a pull's system flag."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


class PullMessageRequestHeader(TopicQueueHeader, kw_only=True):
    """Messages of a queue, from an offset on.

    Attributes:
        queue_offset: The first offset to read.
        sys_flag: 1 commit ``commit_offset``, 2 may wait, 4 has a subscription, 8 class filter,
            16 lite pull.
        suspend_timeout_ms: How long to wait for a first message.
        subscription: The filter expression, if it differs from the heartbeat's.
        proxy_forward_client_id: The client behind a proxy; upstream misspells the name.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_ms: Int64 = field(name="suspendTimeoutMillis")
    subscription: str | None = None
    sub_version: Int64
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_forward_client_id: str | None = field(default=None, name="proxyFrowardClientId")


class PullMessageResponseHeader(Header, kw_only=True):
    """Where to continue; the body holds the records.

    Attributes:
        offset_delta: What a static topic adds to the offsets in the records.
        forbidden_type: Why the group may not read.
    """

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


class PopMessageRequestHeader(TopicQueueHeader, kw_only=True):
    """Messages of any queue, to be made invisible for a while.

    Attributes:
        queue_id: A queue, or -1 for any.
        init_mode: Where a new group starts: 0 at the first message, 1 at the end.
        order: Whether the queue is blocked until its messages are acknowledged.
        attempt_id: Distinguishes a repeated request from a new one.
    """

    consumer_group: str
    topic: str
    queue_id: Int32 = 0
    max_msg_nums: Int32 = 0
    invisible_time_ms: Int64 = field(default=0, name="invisibleTime")
    poll_time_ms: Int64 = field(default=0, name="pollTime")
    born_time_ms: Int64 = field(default=0, name="bornTime")
    init_mode: Int32 = 0
    expression_type: str | None = field(default=None, name="expType")
    expression: str | None = field(default=None, name="exp")
    order: bool = False
    attempt_id: str | None = None


class PopMessageResponseHeader(Header, kw_only=True):
    """What was popped; the body holds the records.

    Attributes:
        revive_queue_id: Where the broker remembers this pop.
        rest_num: About how many messages are left.
        start_offset_info: First offset of each queue.
        msg_offset_info: Offsets of each queue.
        order_count_info: How often each was delivered, for orderly pops.
    """

    pop_time_ms: Int64 = field(default=0, name="popTime")
    invisible_time_ms: Int64 = field(default=0, name="invisibleTime")
    revive_queue_id: Int32 = field(default=0, name="reviveQid")
    rest_num: Int64 = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequestHeader(TopicQueueHeader, kw_only=True):
    """A popped message that was consumed.

    Attributes:
        extra_info: The receipt that came with the message.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    queue_offset: Int64 = field(name="offset")


class ChangeInvisibleTimeRequestHeader(TopicQueueHeader, kw_only=True):
    """A popped message that needs more time, or is to be redelivered soon."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    queue_offset: Int64 = field(name="offset")
    invisible_time_ms: Int64 = field(name="invisibleTime")


class ChangeInvisibleTimeResponseHeader(Header, kw_only=True):
    """The parts of the new receipt."""

    pop_time_ms: Int64 = field(default=0, name="popTime")
    invisible_time_ms: Int64 = field(default=0, name="invisibleTime")
    revive_queue_id: Int32 = field(default=0, name="reviveQid")


class PeekMessageRequestHeader(TopicQueueHeader, kw_only=True):
    """Messages to look at without taking them."""

    topic: str
    queue_id: Int32 = 0
    max_msg_nums: Int32 = 0
    consumer_group: str


class NotificationRequestHeader(TopicQueueHeader, kw_only=True):
    """Wait for something to pop."""

    consumer_group: str
    topic: str
    queue_id: Int32 = 0
    poll_time_ms: Int64 = field(default=0, name="pollTime")
    born_time_ms: Int64 = field(default=0, name="bornTime")
    order: bool = False
    attempt_id: str | None = None


class NotificationResponseHeader(Header, kw_only=True):
    """Whether there is something to pop."""

    has_msg: bool = False
    polling_full: bool = False


class PollingInfoRequestHeader(TopicQueueHeader, kw_only=True):
    """A group, whose waiting requests are to be counted."""

    consumer_group: str
    topic: str
    queue_id: Int32 = 0


class PollingInfoResponseHeader(Header, kw_only=True):
    """So many."""

    polling_num: Int32 = 0


class QueryMessageRequestHeader(TopicHeader, kw_only=True):
    """Messages by key.

    Attributes:
        index_type: Which index: of keys, unique keys or tags.
        last_key: Where a paged search continues.
    """

    topic: str
    key: str
    max_num: Int32
    begin_timestamp_ms: Int64 = field(name="beginTimestamp")
    end_timestamp_ms: Int64 = field(name="endTimestamp")
    index_type: str | None = None
    last_key: str | None = None


class QueryMessageResponseHeader(Header, kw_only=True):
    """How far the index reaches; the body holds the records."""

    index_last_update_timestamp_ms: Int64 = field(name="indexLastUpdateTimestamp")
    index_last_update_physical_offset: Int64 = field(name="indexLastUpdatePhyoffset")


class ViewMessageRequestHeader(Header, kw_only=True):
    """The message at a physical offset."""

    topic: str | None = None
    physical_offset: Int64 = field(name="offset")


class ViewMessageResponseHeader(Header, kw_only=True):
    """Empty; the body holds the record."""
