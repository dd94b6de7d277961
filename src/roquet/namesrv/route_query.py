"""Transforms a route before it is sent to a client.

Owns two rules, both as functions from route to route:

* The acting master: where a broker name has lost its master and allows it, the slave with the
  lowest id is listed as master, so that reads, locks and offsets keep working. Its queues are
  without write permission by then.
* The zone: a client that requests it gets only the brokers of its own zone, and those without a
  master in any zone.
"""

from __future__ import annotations

import msgspec

from roquet.model.topic_config import PERM_WRITE
from roquet.remoting.bodies.route import MASTER_ID, BrokerData, TopicRouteData

__all__ = ["SYNC_BROKER_MEMBER_GROUP_PREFIX", "in_zone", "with_acting_masters"]

SYNC_BROKER_MEMBER_GROUP_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
"""The prefix of topics with which the brokers of a name find each other, unchanged."""


def with_acting_masters(topic: str, route: TopicRouteData) -> TopicRouteData:
    """The route with acting masters where needed."""
    if topic.startswith(SYNC_BROKER_MEMBER_GROUP_PREFIX):
        return route
    read_only = {queue.broker_name for queue in route.queue_datas if not queue.perm & PERM_WRITE}
    brokers = [
        _acting(data) if data.broker_name in read_only else data for data in route.broker_datas
    ]
    return msgspec.structs.replace(route, broker_datas=brokers)


def _acting(data: BrokerData) -> BrokerData:
    addresses = data.broker_addrs
    if not addresses or MASTER_ID in addresses or not data.enable_acting_master:
        return data
    least = min(addresses)
    others = {each: address for each, address in addresses.items() if each != least}
    return msgspec.structs.replace(data, broker_addrs={MASTER_ID: addresses[least], **others})


def in_zone(route: TopicRouteData, zone_name: str) -> TopicRouteData:
    """The route without brokers of other zones."""
    kept = [
        data
        for data in route.broker_datas
        if MASTER_ID not in data.broker_addrs
        or (data.zone_name or "").casefold() == zone_name.casefold()
    ]
    names = {data.broker_name for data in kept}
    gone = [data for data in route.broker_datas if data.broker_name not in names]
    gone_names = {data.broker_name for data in gone}
    gone_addresses = {address for data in gone for address in data.broker_addrs.values()}
    return msgspec.structs.replace(
        route,
        broker_datas=kept,
        queue_datas=[each for each in route.queue_datas if each.broker_name not in gone_names],
        filter_server_table={
            address: servers
            for address, servers in route.filter_server_table.items()
            if address not in gone_addresses
        },
    )
