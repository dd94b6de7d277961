"""Which queues a client makes of a route, by the rules of the Java client."""

from __future__ import annotations

import pytest

from roquet.client.route_queues import (
    QUEUES_MAX,
    check_route,
    endpoints_of_static_topic,
    publish_queues,
    subscribe_queues,
)
from roquet.errors import ProtocolError
from roquet.model.message_queue import MessageQueue
from roquet.model.topic_queue_mapping import TopicQueueMappingInfo
from roquet.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from tests.unit.client.client_kit import route_of


def named(queues: list[MessageQueue]) -> list[str]:
    return [f"{queue.broker_name}:{queue.queue_id}" for queue in queues]


def test_queues_to_write_go_broker_by_broker_in_the_order_of_names() -> None:
    data = route_of(("b", {0: "h:2"}), ("a", {0: "h:1"}))
    queues, is_ordered = publish_queues("T", data)
    assert named(queues) == ["a:0", "a:1", "b:0", "b:1"]
    assert not is_ordered


def test_a_broker_without_a_master_can_only_be_read() -> None:
    data = route_of(("a", {0: "h:1"}), ("b", {1: "h:2"}))
    assert named(publish_queues("T", data)[0]) == ["a:0", "a:1"]
    assert named(sorted(subscribe_queues("T", data))) == ["a:0", "a:1", "b:0", "b:1"]


def test_permissions_and_both_counts_are_kept() -> None:
    data = TopicRouteData(
        broker_datas=[BrokerData(broker_name=name, broker_addrs={0: "h:1"}) for name in "abc"],
        queue_datas=[
            QueueData(broker_name="a", perm=6, read_queue_nums=1, write_queue_nums=2),
            QueueData(broker_name="b", perm=4, read_queue_nums=1, write_queue_nums=1),
            QueueData(broker_name="c", perm=2, read_queue_nums=1, write_queue_nums=1),
            QueueData(broker_name="gone", perm=6, read_queue_nums=1, write_queue_nums=1),
        ],
    )
    assert named(publish_queues("T", data)[0]) == ["a:0", "a:1", "c:0"]
    assert named(sorted(subscribe_queues("T", data))) == ["a:0", "b:0", "gone:0"]


def test_a_name_server_may_fix_the_queues_of_an_ordered_topic() -> None:
    data = route_of(("a", {0: "h:1"}))
    data.order_topic_conf = "b:2;a:1;broken;c:x;:3"
    queues, is_ordered = publish_queues("T", data)
    assert named(queues) == ["b:0", "b:1", "a:0"]
    assert is_ordered


def static_route() -> TopicRouteData:
    return TopicRouteData(
        topic_queue_mapping_by_broker={
            "a": TopicQueueMappingInfo(
                broker_name="a", current_ids={0: 0, 1: 1}, epoch=1, total_queues=4
            ),
            "b": TopicQueueMappingInfo(
                broker_name="b", current_ids={1: 0, 2: 1}, epoch=2, total_queues=4
            ),
        }
    )


def test_a_queue_of_a_static_topic_is_where_the_latest_epoch_has_it() -> None:
    endpoints = endpoints_of_static_topic("T", static_route())
    assert {queue.queue_id: name for queue, name in endpoints.items()} == {
        0: "a",
        1: "b",
        2: "b",
        3: "__syslo__none__",
    }
    assert {queue.broker_name for queue in endpoints} == {"__syslo__global__"}


def test_a_static_topic_is_written_and_read_by_its_own_queues() -> None:
    data = static_route()
    expected = [f"__syslo__global__:{queue_id}" for queue_id in range(4)]
    assert named(publish_queues("T", data)[0]) == expected
    assert named(sorted(subscribe_queues("T", data))) == expected


def test_an_ordinary_topic_has_no_endpoints() -> None:
    assert endpoints_of_static_topic("T", route_of(("a", {0: "h:1"}))) == {}


@pytest.mark.parametrize("queues", [QUEUES_MAX, QUEUES_MAX + 1])
def test_the_queues_of_a_route_are_bounded(queues: int) -> None:
    ordered = TopicRouteData(order_topic_conf=f"a:{queues}")
    static = TopicRouteData(
        topic_queue_mapping_by_broker={"a": TopicQueueMappingInfo(total_queues=queues)}
    )
    for data in (route_of(("a", {0: "h:1"}), queues=queues), ordered, static):
        if queues <= QUEUES_MAX:
            check_route("T", data)
        else:
            with pytest.raises(ProtocolError, match="too many queues"):
                check_route("T", data)
