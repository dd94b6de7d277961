"""Headers of clients: heartbeat, unregistration, groups, locks, and requests from a broker."""

from __future__ import annotations

from msgspec import field

from roquet.remoting.headers.base import Header, Int32, RpcHeader, TopicHeader

__all__ = [
    "ConsumeMessageDirectlyRequestHeader",
    "GetAllProducerInfoRequestHeader",
    "GetConsumerConnectionListRequestHeader",
    "GetConsumerListByGroupRequestHeader",
    "GetConsumerListByGroupResponseHeader",
    "GetConsumerRunningInfoRequestHeader",
    "GetProducerConnectionListRequestHeader",
    "HeartbeatRequestHeader",
    "HeartbeatResponseHeader",
    "LockBatchMqRequestHeader",
    "NotifyConsumerIdsChangedRequestHeader",
    "UnlockBatchMqRequestHeader",
    "UnregisterClientRequestHeader",
    "UnregisterClientResponseHeader",
]


class HeartbeatRequestHeader(RpcHeader, kw_only=True):
    """No fields of its own; the client is in the body."""


class HeartbeatResponseHeader(Header, kw_only=True):
    """What the client may do in its next heartbeat.

    Attributes:
        is_support_heart_beat_v2: Whether the broker accepts heartbeats without subscriptions.
        is_sub_change: Whether the broker wants the subscriptions again.
    """

    is_support_heart_beat_v2: bool | None = field(default=None, name="IS_SUPPORT_HEART_BEAT_V2")
    is_sub_change: bool | None = field(default=None, name="IS_SUB_CHANGE")


class UnregisterClientRequestHeader(RpcHeader, kw_only=True):
    """A client leaves a group."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class UnregisterClientResponseHeader(Header, kw_only=True):
    """Nothing."""


class GetConsumerListByGroupRequestHeader(RpcHeader, kw_only=True):
    """The clients of a group."""

    consumer_group: str


class GetConsumerListByGroupResponseHeader(Header, kw_only=True):
    """Empty; the list is in the body."""


class LockBatchMqRequestHeader(RpcHeader, kw_only=True):
    """No fields of its own; the queues are in the body."""


class UnlockBatchMqRequestHeader(RpcHeader, kw_only=True):
    """No fields of its own; the queues are in the body."""


class NotifyConsumerIdsChangedRequestHeader(RpcHeader, kw_only=True):
    """A group that changed."""

    consumer_group: str


class GetConsumerConnectionListRequestHeader(RpcHeader, kw_only=True):
    """The connections of a consumer group."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(RpcHeader, kw_only=True):
    """The connections of a producer group."""

    producer_group: str


class GetAllProducerInfoRequestHeader(Header, kw_only=True):
    """Nothing."""


class GetConsumerRunningInfoRequestHeader(RpcHeader, kw_only=True):
    """A consumer whose state is requested."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyRequestHeader(TopicHeader, kw_only=True):
    """A message for one client to consume now."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    stored_broker_name: str | None = field(default=None, name="brokerName")
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
