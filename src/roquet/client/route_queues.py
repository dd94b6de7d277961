"""Turns the route of a topic into the queues of a client.

Owns the three rules of Apache RocketMQ's client: which queues are writable, which are readable, and
which broker currently has a queue of a static topic. The order of the queues is Java's, because
producers use it for round robin.
"""

from __future__ import annotations

from collections.abc import Iterable

from roquet.errors import ProtocolError
from roquet.model.message_queue import MessageQueue
from roquet.model.topic_config import PERM_READ, PERM_WRITE
from roquet.model.topic_queue_mapping import (
    MOCK_BROKER_PREFIX,
    TopicQueueMappingInfo,
    leaders_of,
    mock_broker_name,
)
from roquet.remoting.bodies.route import MASTER_ID, TopicRouteData

__all__ = [
    "QUEUES_MAX",
    "check_route",
    "endpoints_of_static_topic",
    "publish_queues",
    "subscribe_queues",
]

QUEUES_MAX = 100_000
"""How many queues a topic may have on all its brokers; a route with more is invalid."""

STATIC_BROKER_NONE = f"{MOCK_BROKER_PREFIX}none__"


def check_route(topic: str, data: TopicRouteData) -> None:
    """Check that listing the queues of a route would not exhaust the memory.

    Raises:
        ProtocolError: The route has too many queues.
    """
    counts = [max(each.read_queue_nums, each.write_queue_nums) for each in data.queue_datas]
    counts += [each.total_queues for each in (data.topic_queue_mapping_by_broker or {}).values()]
    counts += [count for _, count in _ordered_counts(data.order_topic_conf or "")]
    if sum(max(count, 0) for count in counts) > QUEUES_MAX:
        raise ProtocolError(
            f"The route of {topic} has too many queues",
            detail=f"more than {QUEUES_MAX}",
            hint="Is that a name server?",
        )


def publish_queues(topic: str, data: TopicRouteData) -> tuple[list[MessageQueue], bool]:
    """Return the writable queues, and whether the name server fixes them for ordering."""
    if data.order_topic_conf:
        return list(_ordered_queues(topic, data.order_topic_conf)), True
    if data.order_topic_conf is None and data.topic_queue_mapping_by_broker:
        endpoints = endpoints_of_static_topic(topic, data)
        return sorted(endpoints, key=lambda queue: queue.queue_id), False
    masters = {each.broker_name for each in data.broker_datas if MASTER_ID in each.broker_addrs}
    queues = [
        MessageQueue(topic, each.broker_name, queue_id)
        for each in sorted(data.queue_datas, key=lambda each: each.broker_name or "")
        if each.perm & PERM_WRITE and each.broker_name is not None and each.broker_name in masters
        for queue_id in range(each.write_queue_nums)
    ]
    return queues, False


def subscribe_queues(topic: str, data: TopicRouteData) -> Iterable[MessageQueue]:
    """Return the readable queues."""
    if data.topic_queue_mapping_by_broker:
        return endpoints_of_static_topic(topic, data)
    return [
        MessageQueue(topic, each.broker_name, queue_id)
        for each in data.queue_datas
        if each.perm & PERM_READ and each.broker_name is not None
        for queue_id in range(each.read_queue_nums)
    ]


def endpoints_of_static_topic(topic: str, data: TopicRouteData) -> dict[MessageQueue, str]:
    """Return the current broker by queue of a static topic; empty for any other topic."""
    by_scope: dict[str, list[TopicQueueMappingInfo]] = {}
    for info in (data.topic_queue_mapping_by_broker or {}).values():
        by_scope.setdefault(info.scope, []).append(info)
    return {
        queue: name
        for scope, infos in by_scope.items()
        for queue, name in _endpoints_of_scope(topic, scope, infos).items()
    }


def _endpoints_of_scope(
    topic: str, scope: str, infos: list[TopicQueueMappingInfo]
) -> dict[MessageQueue, str]:
    owners = leaders_of(infos)
    shown = mock_broker_name(scope)
    endpoints: dict[MessageQueue, str] = {}
    for queue_id in range(max(info.total_queues for info in infos)):
        owner = owners.get(queue_id)
        name = STATIC_BROKER_NONE if owner is None else owner.broker_name or STATIC_BROKER_NONE
        endpoints[MessageQueue(topic, shown, queue_id)] = name
    return endpoints


def _ordered_queues(topic: str, order_conf: str) -> Iterable[MessageQueue]:
    for name, count in _ordered_counts(order_conf):
        for queue_id in range(count):
            yield MessageQueue(topic, name, queue_id)


def _ordered_counts(order_conf: str) -> Iterable[tuple[str, int]]:
    """Parse names and counts from ``broker-a:4;broker-b:2``; invalid parts are skipped."""
    for part in order_conf.split(";"):
        name, _, count = part.partition(":")
        if name and count.isascii() and count.isdecimal() and len(count) < 10:
            yield name, int(count)
