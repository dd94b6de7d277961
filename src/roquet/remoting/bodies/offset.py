"""Bodies about offsets and consumer progress."""

from __future__ import annotations

from msgspec import Struct, field

from roquet.model.data_version import DataVersion
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SubscriptionData

__all__ = [
    "ConsumeQueueData",
    "ConsumeStats",
    "ConsumeStatsList",
    "ConsumerOffsetSerializeWrapper",
    "DelayOffsetSerializeWrapper",
    "GetConsumerStatusBody",
    "MessageQueueForC",
    "OffsetMovedEvent",
    "OffsetWrapper",
    "QueryConsumeQueueResponseBody",
    "QueryConsumeTimeSpanBody",
    "QueryCorrectionOffsetBody",
    "QueueTimeSpan",
    "ResetOffsetBody",
    "ResetOffsetBodyForC",
]


class OffsetWrapper(Struct, rename="camel", kw_only=True):
    """The progress of a group in a queue.

    Attributes:
        broker_offset: The next offset of the queue.
        consumer_offset: The committed offset.
        pull_offset: The offset after the last pulled message.
        last_timestamp_ms: When the last consumed message was stored.
    """

    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp_ms: int = field(default=0, name="lastTimestamp")
    pull_offset: int = 0


class ConsumeStats(Struct, rename="camel", kw_only=True):
    """The progress of a group."""

    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)


class ConsumeStatsList(Struct, rename="camel", kw_only=True):
    """The progress of all groups of a broker."""

    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    total_diff: int = 0
    total_inflight_diff: int = 0


class ConsumerOffsetSerializeWrapper(Struct, rename="camel", kw_only=True):
    """Committed offsets, by ``topic@group`` and queue id."""

    data_version: DataVersion | None = None
    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)


class DelayOffsetSerializeWrapper(Struct, rename="camel", kw_only=True):
    """The progress of each delay level."""

    data_version: DataVersion | None = None
    offset_table: dict[int, int] = field(default_factory=dict)


class ResetOffsetBody(Struct, rename="camel", kw_only=True):
    """The offsets to continue from, by queue."""

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)


class MessageQueueForC(Struct, rename="camel", kw_only=True):
    """A queue and the offset to continue from."""

    broker_name: str | None = None
    offset: int = 0
    queue_id: int = 0
    topic: str | None = None


class ResetOffsetBodyForC(Struct, rename="camel", kw_only=True):
    """The same for C++ clients, which cannot parse objects as keys."""

    offset_table: list[MessageQueueForC] | None = None


class GetConsumerStatusBody(Struct, rename="camel", kw_only=True):
    """Offsets in the clients: of one client, or of several by client id."""

    consumer_table: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)
    message_queue_table: dict[MessageQueue, int] = field(default_factory=dict)


class QueryCorrectionOffsetBody(Struct, rename="camel", kw_only=True):
    """The smallest offsets of other groups, by queue id."""

    correction_offsets: dict[int, int] = field(default_factory=dict)


class QueueTimeSpan(Struct, rename="camel", kw_only=True):
    """Store times in a queue; text fields are in the broker's time zone.

    Attributes:
        consume_timestamp_ms: When the next message to consume was stored.
        delay_ms: How long ago that was.
    """

    consume_timestamp_ms: int = field(default=0, name="consumeTimeStamp")
    consume_timestamp_text: str | None = field(default=None, name="consumeTimeStampStr")
    delay_ms: int = field(default=0, name="delayTime")
    max_timestamp_ms: int = field(default=0, name="maxTimeStamp")
    max_timestamp_text: str | None = field(default=None, name="maxTimeStampStr")
    message_queue: MessageQueue | None = None
    min_timestamp_ms: int = field(default=0, name="minTimeStamp")
    min_timestamp_text: str | None = field(default=None, name="minTimeStampStr")


class QueryConsumeTimeSpanBody(Struct, rename="camel", kw_only=True):
    """Store times in the queues of a group."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


class ConsumeQueueData(Struct, rename="camel", kw_only=True):
    """An entry of a consume queue, and whether a group's filter matches it."""

    bit_map: str | None = None
    eval: bool = False
    extend_data_json: str | None = None
    msg: str | None = None
    physical_offset: int = field(default=0, name="physicOffset")
    physical_bytes: int = field(default=0, name="physicSize")
    tags_code: int = 0


class QueryConsumeQueueResponseBody(Struct, rename="camel", kw_only=True):
    """Entries of a consume queue."""

    filter_data: str | None = None
    max_queue_index: int = 0
    min_queue_index: int = 0
    queue_data: list[ConsumeQueueData] | None = None
    subscription_data: SubscriptionData | None = None


class OffsetMovedEvent(Struct, rename="camel", kw_only=True):
    """A group requested a deleted offset; the body of a message, not of a request."""

    consumer_group: str | None = None
    message_queue: MessageQueue | None = None
    new_queue_offset: int = field(default=0, name="offsetNew")
    requested_queue_offset: int = field(default=0, name="offsetRequest")
