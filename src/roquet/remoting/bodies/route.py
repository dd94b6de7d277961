"""Bodies of routes: the brokers and queues of a topic, the brokers of a cluster.

A name server writes a route in one of two dialects. Clients before 4.9.4, including all Go clients,
parse broker ids by hand and need them without quotes or white space; later ones, and those that
request it, get standard JSON. The cluster is always written the first way.
"""

from __future__ import annotations

from msgspec import Struct, field

from roquet.model.topic_queue_mapping import TopicQueueMappingInfo
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.codes import version_ordinal

__all__ = [
    "MASTER_ID",
    "BrokerData",
    "BrokerMemberGroup",
    "ClusterInfo",
    "GetBrokerMemberGroupResponseBody",
    "QueueData",
    "TopicRouteData",
    "encode_route",
]

MASTER_ID = 0
"""The broker id of a master."""

STANDARD_JSON_VERSION = version_ordinal("V4_9_4")


class QueueData(Struct, rename="camel", kw_only=True, gc=False):
    """The number of queues that a topic has on a broker."""

    broker_name: str | None = None
    perm: int = 0
    read_queue_nums: int = 0
    topic_sys_flag: int = 0
    write_queue_nums: int = 0


class BrokerData(Struct, rename="camel", kw_only=True):
    """The brokers of one name.

    Attributes:
        broker_addrs: The addresses by broker id; 0 is the master.
        enable_acting_master: Whether a slave may act as master.
    """

    broker_addrs: dict[int, str] = field(default_factory=dict)
    broker_name: str | None = None
    cluster: str | None = None
    enable_acting_master: bool = False
    zone_name: str | None = None


class TopicRouteData(Struct, rename="camel", kw_only=True):
    """Where a topic is.

    Attributes:
        order_topic_conf: Queues of an ordered topic, as ``broker:count`` separated by semicolons.
    """

    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = field(default_factory=list)
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


def encode_route(
    route: TopicRouteData, *, client_version: int, standard_json_only: bool = False
) -> bytes:
    """Encode a route as this client needs it.

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
    """The brokers of the requested name."""

    broker_member_group: BrokerMemberGroup | None = None
