"""Headers of the name server: routes, broker registration, key-value config."""

from __future__ import annotations

from msgspec import field

from roquet.remoting.headers.base import Header, Int32, Int64, TopicHeader

__all__ = [
    "AddWritePermOfBrokerResponseHeader",
    "BrokerHeartbeatRequestHeader",
    "BrokerNameRequestHeader",
    "DeleteTopicFromNamesrvRequestHeader",
    "GetBrokerMemberGroupRequestHeader",
    "GetKVConfigResponseHeader",
    "GetKVListByNamespaceRequestHeader",
    "GetRouteInfoRequestHeader",
    "GetTopicsByClusterRequestHeader",
    "KVKeyRequestHeader",
    "PutKVConfigRequestHeader",
    "QueryDataVersionRequestHeader",
    "QueryDataVersionResponseHeader",
    "RegisterBrokerRequestHeader",
    "RegisterBrokerResponseHeader",
    "RegisterTopicRequestHeader",
    "UnregisterBrokerRequestHeader",
    "WipeWritePermOfBrokerResponseHeader",
]


class GetRouteInfoRequestHeader(TopicHeader, kw_only=True):
    """The route of a topic.

    Attributes:
        accept_standard_json_only: Whether the keys of maps must be quoted.
    """

    topic: str
    accept_standard_json_only: bool | None = None


class RegisterBrokerRequestHeader(Header, kw_only=True):
    """A broker to register.

    Attributes:
        broker_id: 0 for a master, anything else for a slave.
        body_crc32: The CRC of the body, or 0 to skip the check.
    """

    broker_name: str
    broker_address: str = field(name="brokerAddr")
    cluster_name: str
    ha_server_address: str = field(name="haServerAddr")
    broker_id: Int64
    heartbeat_timeout_ms: Int64 | None = field(default=None, name="heartbeatTimeoutMillis")
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 = 0


class RegisterBrokerResponseHeader(Header, kw_only=True):
    """The master of the broker's name, for a slave."""

    ha_server_address: str | None = field(default=None, name="haServerAddr")
    master_address: str | None = field(default=None, name="masterAddr")


class UnregisterBrokerRequestHeader(Header, kw_only=True):
    """A broker to unregister."""

    broker_name: str
    broker_address: str = field(name="brokerAddr")
    cluster_name: str
    broker_id: Int64


class QueryDataVersionRequestHeader(Header, kw_only=True):
    """Asks whether a broker's topics are up to date; their version is in the body."""

    broker_name: str
    broker_address: str = field(name="brokerAddr")
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponseHeader(Header, kw_only=True):
    """Whether they changed; the known version is in the body."""

    changed: bool


class BrokerHeartbeatRequestHeader(Header, kw_only=True):
    """A broker that is alive.

    Attributes:
        epoch: How often the master changed.
        max_physical_offset: Where its log ends.
        confirm_physical_offset: How far its replicas have the log.
        election_priority: Smaller numbers are preferred as master.
    """

    cluster_name: str
    broker_address: str = field(name="brokerAddr")
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_physical_offset: Int64 | None = field(default=None, name="maxOffset")
    confirm_physical_offset: Int64 | None = field(default=None, name="confirmOffset")
    heartbeat_timeout_ms: Int64 | None = field(default=None, name="heartbeatTimeoutMills")
    election_priority: Int32 | None = None


class GetBrokerMemberGroupRequestHeader(Header, kw_only=True):
    """The brokers of one name."""

    cluster_name: str
    broker_name: str


class RegisterTopicRequestHeader(TopicHeader, kw_only=True):
    """A topic to register; its queues are in the body."""

    topic: str


class DeleteTopicFromNamesrvRequestHeader(TopicHeader, kw_only=True):
    """A topic whose route is to be dropped."""

    topic: str
    cluster_name: str | None = None


class GetTopicsByClusterRequestHeader(Header, kw_only=True):
    """The topics of a cluster."""

    cluster: str


class BrokerNameRequestHeader(Header, kw_only=True):
    """A broker whose write permission is to be removed or restored."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header, kw_only=True):
    """How many topics were changed."""

    wipe_topic_count: Int32


class AddWritePermOfBrokerResponseHeader(Header, kw_only=True):
    """How many topics were changed."""

    add_topic_count: Int32


class PutKVConfigRequestHeader(Header, kw_only=True):
    """A value to set."""

    namespace: str
    key: str
    value: str


class KVKeyRequestHeader(Header, kw_only=True):
    """A value to show or to drop."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header, kw_only=True):
    """The value."""

    value: str | None = None


class GetKVListByNamespaceRequestHeader(Header, kw_only=True):
    """The values of a namespace."""

    namespace: str
