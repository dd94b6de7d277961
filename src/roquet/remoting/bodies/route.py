"""Bodies of routes: which brokers and queues a topic has, which brokers a cluster has.

A name server writes a route in one of two dialects. Clients before 4.9.4, all Go clients among
them, take broker ids apart by hand and need them without quotes and without any white space; later
ones, and those that ask for it, get standard JSON. The cluster is always written the first way.
"""

from __future__ import annotations

from msgspec import Struct, field

from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.codes import version_ordinal

__all__ = [
    "MASTER_ID",
    "BrokerData",
    "BrokerMemberGroup",
    "ClusterInfo",
    "GetBrokerMemberGroupResponseBody",
    "LogicQueueMappingItem",
    "QueueData",
    "TopicQueueMappingDetail",
    "TopicQueueMappingInfo",
    "TopicRouteData",
    "encode_route",
]

MASTER_ID = 0
"""The id of the master among the brokers of a name."""

STANDARD_JSON_VERSION = version_ordinal("V4_9_4")


class QueueData(Struct, rename="camel", kw_only=True):
    """How many queues a broker has of a topic."""

    broker_name: str | None = None
    perm: int = 0
    read_queue_nums: int = 0
    topic_sys_flag: int = 0
    write_queue_nums: int = 0


class BrokerData(Struct, rename="camel", kw_only=True):
    """The brokers of one name.

    Attributes:
        broker_addrs: By broker id: the address; 0 is the master.
        enable_acting_master: Whether a slave may stand in for the master.
    """

    broker_addrs: dict[int, str] = field(default_factory=dict)
    broker_name: str | None = None
    cluster: str | None = None
    enable_acting_master: bool = False
    zone_name: str | None = None


class TopicQueueMappingInfo(Struct, rename="camel", kw_only=True):
    """Which queues of a static topic a broker has.

    Attributes:
        current_ids: By logical queue id: the broker's own queue id.
    """

    broker_name: str | None = field(default=None, name="bname")
    current_ids: dict[int, int] = field(default_factory=dict, name="currIdMap")
    dirty: bool = False
    epoch: int = 0
    scope: str = "__global__"
    topic: str | None = None
    total_queues: int = 0


class LogicQueueMappingItem(Struct, rename="camel", kw_only=True):
    """A stretch of a logical queue."""

    broker_name: str | None = field(default=None, name="bname")
    end_offset: int = -1
    generation: int = field(default=0, name="gen")
    logic_offset: int = 0
    queue_id: int = 0
    start_offset: int = 0
    time_of_end_ms: int = field(default=-1, name="timeOfEnd")
    time_of_start_ms: int = field(default=-1, name="timeOfStart")


class TopicQueueMappingDetail(TopicQueueMappingInfo, kw_only=True):
    """The same with all stretches, by logical queue id."""

    hosted_queues: dict[int, list[LogicQueueMappingItem]] = field(default_factory=dict)


class TopicRouteData(Struct, rename="camel", kw_only=True):
    """Where a topic is.

    Attributes:
        order_topic_conf: Queues of an ordered topic, as ``broker:count`` with semicolons.
    """

    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = field(default_factory=list)
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


def encode_route(
    route: TopicRouteData, *, client_version: int, standard_json_only: bool = False
) -> bytes:
    """Write a route as this client needs it.

    Args:
        route: The route.
        client_version: The version in the client's request.
        standard_json_only: Whether the request's header asks for standard JSON.
    """
    standard = standard_json_only or client_version >= STANDARD_JSON_VERSION
    return encode_body(route, standard=standard)


class ClusterInfo(Struct, rename="camel", kw_only=True):
    """Clusters and their brokers, by name."""

    broker_addr_table: dict[str, BrokerData] | None = None
    cluster_addr_table: dict[str, list[str]] | None = None


class BrokerMemberGroup(Struct, rename="camel", kw_only=True):
    """The brokers of one name, by id."""

    broker_addrs: dict[int, str] = field(default_factory=dict)
    broker_name: str | None = None
    cluster: str | None = None


class GetBrokerMemberGroupResponseBody(Struct, rename="camel", kw_only=True):
    """The brokers of the name that was asked for."""

    broker_member_group: BrokerMemberGroup | None = None
