"""Bodies of clients: heartbeat, locks, assignment, connections, running state."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct, field

from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SubscriptionData

__all__ = [
    "BatchAck",
    "BatchAckMessageRequestBody",
    "CMResult",
    "CheckClientRequestBody",
    "Connection",
    "ConsumeFromWhere",
    "ConsumeMessageDirectlyResult",
    "ConsumeStatus",
    "ConsumeType",
    "ConsumerConnection",
    "ConsumerData",
    "ConsumerRunningInfo",
    "GetConsumerListByGroupResponseBody",
    "HeartbeatData",
    "LockBatchRequestBody",
    "LockBatchResponseBody",
    "MessageModel",
    "MessageQueueAssignment",
    "MessageRequestMode",
    "MessageRequestModeSerializeWrapper",
    "PopProcessQueueInfo",
    "ProcessQueueInfo",
    "ProducerConnection",
    "ProducerData",
    "ProducerInfo",
    "ProducerTableInfo",
    "QueryAssignmentRequestBody",
    "QueryAssignmentResponseBody",
    "SetMessageRequestModeRequestBody",
    "UnlockBatchRequestBody",
]


class ConsumeType(Enum):
    """How a consumer gets messages: pull, push or POP."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(Enum):
    """Whether every client gets all messages, or the clients share them.

    Example:
        consumer = PushConsumer(
            namesrv, group="screens", handler=print, message_model=MessageModel.BROADCASTING
        )
    """

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(Enum):
    """Where a new group starts; three of the names are kept for old clients only.

    Example:
        consumer = LitePullConsumer(
            namesrv, group="readers", consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        )
    """

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class MessageRequestMode(Enum):
    """How the clients of a group request messages."""

    PULL = "PULL"
    POP = "POP"


class CMResult(Enum):
    """The result of consuming a message directly."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ProducerData(Struct, rename="camel", kw_only=True):
    """A producer group of a client."""

    group_name: str | None = None


class ConsumerData(Struct, rename="camel", kw_only=True):
    """A consumer group of a client."""

    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    group_name: str | None = None
    message_model: MessageModel | None = None
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


class HeartbeatData(Struct, rename="camel", kw_only=True):
    """A heartbeat: a client and its groups.

    Attributes:
        heartbeat_fingerprint: A hash of the subscriptions, 0 if the client has none.
        without_sub: Whether subscriptions are omitted because the broker has that hash.
    """

    client_id: str | None = field(default=None, name="clientID")
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: int = 0
    producer_data_set: list[ProducerData] = field(default_factory=list)
    without_sub: bool = False


class CheckClientRequestBody(Struct, rename="camel", kw_only=True):
    """An expression to compile."""

    client_id: str | None = None
    group: str | None = None
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None


class GetConsumerListByGroupResponseBody(Struct, rename="camel", kw_only=True):
    """The client ids of a group."""

    consumer_id_list: list[str] | None = None


class LockBatchRequestBody(Struct, rename="camel", kw_only=True):
    """Queues to lock for a client."""

    client_id: str | None = None
    consumer_group: str | None = None
    queues: list[MessageQueue] = field(default_factory=list, name="mqSet")
    only_this_broker: bool = False


class LockBatchResponseBody(Struct, rename="camel", kw_only=True):
    """The queues that the client has locked."""

    locked_queues: list[MessageQueue] = field(default_factory=list, name="lockOKMQSet")


class UnlockBatchRequestBody(LockBatchRequestBody, kw_only=True):
    """Queues to unlock."""


class QueryAssignmentRequestBody(Struct, rename="camel", kw_only=True):
    """A client's request for its queues."""

    client_id: str | None = None
    consumer_group: str | None = None
    message_model: MessageModel | None = None
    strategy_name: str | None = None
    topic: str | None = None


class MessageQueueAssignment(Struct, rename="camel", kw_only=True):
    """A queue assigned to a client; -1 is any queue of the broker."""

    attachments: dict[str, str] | None = None
    message_queue: MessageQueue | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL


class QueryAssignmentResponseBody(Struct, rename="camel", kw_only=True):
    """The queues assigned to a client."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


class SetMessageRequestModeRequestBody(Struct, rename="camel", kw_only=True):
    """How the clients of a group request the messages of a topic.

    Attributes:
        pop_share_queue_nums: How many more clients share a queue; -1 is all.
    """

    consumer_group: str | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_nums: int = field(default=0, name="popShareQueueNum")
    topic: str | None = None


class MessageRequestModeSerializeWrapper(Struct, rename="camel", kw_only=True):
    """The request modes by topic and group."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = field(
        default_factory=dict
    )


class BatchAck(Struct, kw_only=True):
    """Consumed messages of one pop receipt and one queue.

    Attributes:
        retry: Where the messages were: 0 topic, 1 retry topic, 2 retry topic v2.
        bits: Bit n is set if the n-th message of the receipt was consumed.
    """

    bits: bytes | None = field(default=None, name="b")
    consumer_group: str | None = field(default=None, name="c")
    invisible_time_ms: int = field(default=0, name="it")
    pop_time_ms: int = field(default=0, name="pt")
    queue_id: int = field(default=0, name="q")
    retry: str | None = field(default=None, name="r")
    revive_queue_id: int = field(default=0, name="rq")
    start_offset: int = field(default=0, name="so")
    topic: str | None = field(default=None, name="t")


class BatchAckMessageRequestBody(Struct, rename="camel", kw_only=True):
    """Popped messages that were consumed."""

    acks: list[BatchAck] | None = None
    broker_name: str | None = None


class Connection(Struct, rename="camel", kw_only=True):
    """A connection of a client."""

    client_address: str | None = field(default=None, name="clientAddr")
    client_id: str | None = None
    language: str | None = None
    version: int = 0


class ConsumerConnection(Struct, rename="camel", kw_only=True):
    """The connections and subscriptions of a consumer group."""

    connection_set: list[Connection] = field(default_factory=list)
    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)


class ProducerConnection(Struct, rename="camel", kw_only=True):
    """The connections of a producer group."""

    connection_set: list[Connection] = field(default_factory=list)


class ProducerInfo(Struct, rename="camel", kw_only=True):
    """A client of a producer group."""

    client_id: str | None = None
    language: str | None = None
    last_update_timestamp_ms: int = field(default=0, name="lastUpdateTimestamp")
    remote_ip: str | None = field(default=None, name="remoteIP")
    version: int = 0


class ProducerTableInfo(Struct, rename="camel", kw_only=True):
    """The clients of all producer groups."""

    data: dict[str, list[ProducerInfo]] | None = None


class ProcessQueueInfo(Struct, rename="camel", kw_only=True):
    """A queue's state in a pulling client."""

    cached_msg_count: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_size_in_mib: int = field(default=0, name="cachedMsgSizeInMiB")
    commit_offset: int = 0
    dropped: bool = field(default=False, name="droped")
    last_consume_timestamp_ms: int = field(default=0, name="lastConsumeTimestamp")
    last_lock_timestamp_ms: int = field(default=0, name="lastLockTimestamp")
    last_pull_timestamp_ms: int = field(default=0, name="lastPullTimestamp")
    locked: bool = False
    transaction_msg_count: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_min_offset: int = 0
    try_unlock_times: int = 0


class PopProcessQueueInfo(Struct, rename="camel", kw_only=True):
    """A queue's state in a popping client."""

    dropped: bool = field(default=False, name="droped")
    last_pop_timestamp_ms: int = field(default=0, name="lastPopTimestamp")
    wait_ack_count: int = 0


class ConsumeStatus(Struct, rename="camel", kw_only=True):
    """How fast a client consumes a topic; times are in milliseconds."""

    consume_failed_msgs: int = 0
    consume_failed_tps: float = field(default=0.0, name="consumeFailedTPS")
    consume_ok_tps: float = field(default=0.0, name="consumeOKTPS")
    consume_rt_ms: float = field(default=0.0, name="consumeRT")
    pull_rt_ms: float = field(default=0.0, name="pullRT")
    pull_tps: float = field(default=0.0, name="pullTPS")


class ConsumerRunningInfo(Struct, rename="camel", kw_only=True):
    """The state of a consumer."""

    jstack: str | None = None
    pop_queues: dict[MessageQueue, PopProcessQueueInfo] = field(
        default_factory=dict, name="mqPopTable"
    )
    queues: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict, name="mqTable")
    properties: dict[str, str] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    user_consumer_info: dict[str, str] = field(default_factory=dict)


class ConsumeMessageDirectlyResult(Struct, rename="camel", kw_only=True):
    """The result of consuming the message."""

    auto_commit: bool = True
    consume_result: CMResult | None = None
    order: bool = False
    remark: str | None = None
    spent_time_ms: int = field(default=0, name="spentTimeMills")
