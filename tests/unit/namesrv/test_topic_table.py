"""The table of topics: work for a broker that leaves is bounded by its own topics, in steps."""

from __future__ import annotations

import sys

import pytest

from roquet.model.topic_config import TopicConfig
from roquet.model.topic_queue_mapping import TopicQueueMappingInfo
from roquet.namesrv.config import NamesrvConfig
from roquet.namesrv.registration import BrokerRegistration
from roquet.namesrv.route_info import TOPICS_A_STEP
from roquet.namesrv.topic_table import TopicTable
from roquet.remoting.bodies.route import QueueData
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.namesrv import RegisterTopicRequestHeader
from tests.unit.namesrv.kit import FakeConnection, Server, register_body


def queues(broker_name: str, perm: int = 6) -> QueueData:
    return QueueData(broker_name=broker_name, perm=perm, read_queue_nums=4, write_queue_nums=4)


def table_of(**topics_by_broker: int) -> TopicTable:
    table = TopicTable()
    for name, count in topics_by_broker.items():
        for number in range(count):
            table.put(f"T{number}", queues(name))
    return table


def test_a_broker_that_left_is_in_no_route_and_swept_in_steps() -> None:
    table = table_of(a=10, b=3)
    table.leave("a")
    assert [name for number in range(10) for name in table.of(f"T{number}")] == ["b"] * 3
    assert table.size == 13
    table.sweep(4)
    assert (table.size, table.is_swept) == (9, False)
    table.sweep(6)
    assert table.size == 3
    table.sweep(0)
    assert table.is_swept
    assert {topic: set(of) for topic, of in table.queues.items()} == {
        f"T{number}": {"b"} for number in range(3)
    }


def test_a_sweep_spares_what_was_registered_again() -> None:
    table = table_of(a=3)
    table.leave("a")
    table.put("T1", queues("a", perm=4))
    assert list(table.of("T0")) == []
    table.sweep()
    assert list(table.queues) == ["T1"]
    assert table.of("T1")["a"].perm == 4
    assert table.size == 1
    table.leave("a")
    table.sweep()
    assert table.size == 0
    assert table.queues == {}


def test_a_swept_table_frees_its_memory() -> None:
    table = table_of(a=20_000, b=3)
    table.leave("a")
    while not table.is_swept:
        table.sweep()
    assert list(table.queues) == ["T0", "T1", "T2"]
    assert sys.getsizeof(table.queues) < 1_000


def test_mappings_are_swept_too() -> None:
    table = TopicTable()
    for name in ("a", "b"):
        table.put_mapping("T", name, TopicQueueMappingInfo(broker_name=name, topic="T"))
    table.leave("a")
    mappings = table.mappings("T")
    assert mappings is not None
    assert list(mappings) == ["b"]
    table.leave("b")
    assert table.mappings("T") is None
    table.sweep(1)
    assert table.size == 1
    table.sweep(1)
    assert (table.size, table.mappings("T")) == (0, None)


def test_equal_queues_of_a_broker_are_one_object() -> None:
    table = table_of(a=2)
    assert table.of("T0")["a"] is table.of("T1")["a"]
    assert table.forbid_writes("a") == 2
    assert table.of("T0")["a"] is table.of("T1")["a"]
    assert table.of("T1")["a"].perm == 4


def test_only_the_topics_of_the_broker_that_leaves_are_touched() -> None:
    server = Server()
    for number in range(3):
        names = [f"T{number}-{each}" for each in range(5)]
        server.register(register_body(*names), name=f"broker-{number}")
    table = server.routes._topics
    touched: list[tuple[str, str]] = []
    remove = table._remove_entry

    def count(kind: dict[str, dict[str, QueueData]], topic: str, name: str) -> None:
        touched.append((topic, name))
        remove(kind, topic, name)

    table._remove_entry = count  # type: ignore[assignment, method-assign]
    server.unregister(name="broker-1")
    assert sorted(touched) == [(f"T1-{each}", "broker-1") for each in range(5)]


def test_brokers_of_a_connection_are_dropped_a_few_at_a_time() -> None:
    server = Server()
    connection = FakeConnection()
    for number in range(5):
        server.register(
            register_body(f"T{number}", "U"), name=f"broker-{number}", connection=connection
        )
    server.routes.connection_closed(connection, limit=2)
    assert server.routes.has_brokers_of(connection)
    assert len(server.routes.cluster_info().broker_addr_table or {}) == 3
    server.routes.connection_closed(connection, limit=3)
    assert not server.routes.has_brokers_of(connection)
    assert server.routes.all_topics().topic_list == []


def registration(
    server: Server, topics: int, *, queue_count: int = 4, counter: int = 1
) -> BrokerRegistration:
    configs = (
        TopicConfig(
            topic_name=f"T{number}", read_queue_nums=queue_count, write_queue_nums=queue_count
        )
        for number in range(topics)
    )
    body = register_body(*configs, counter=counter)
    return BrokerRegistration(
        cluster_name="C",
        broker_name="broker-a",
        broker_id=0,
        address="broker-a:10911",
        ha_server_address="broker-a:20911",
        topics=body.topic_config_serialize_wrapper,
        connection=server,
    )


def test_a_large_registration_is_applied_in_steps() -> None:
    server = Server()
    steps = server.routes.register_in_steps(registration(server, 2 * TOPICS_A_STEP + 1))
    next(steps)
    assert len(server.routes.all_topics().topic_list) == TOPICS_A_STEP
    next(steps)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value is not None
    assert len(server.routes.all_topics().topic_list) == 2 * TOPICS_A_STEP + 1


def test_a_broker_that_leaves_ends_its_registration() -> None:
    server = Server()
    steps = server.routes.register_in_steps(registration(server, 2 * TOPICS_A_STEP))
    next(steps)
    server.routes.connection_closed(server)
    assert next(steps, "ended") == "ended"
    assert server.routes.all_topics().topic_list == []
    assert server.routes._topics.size == 0


def test_a_registration_that_another_one_ends_leaves_no_old_queues() -> None:
    server = Server()
    count = TOPICS_A_STEP + 1
    server.routes.register(registration(server, count))
    newer = registration(server, count, queue_count=8, counter=2)
    steps = server.routes.register_in_steps(newer)
    next(steps)
    version = newer.topics.data_version
    assert server.routes.is_data_version_changed(*newer.key, version), "not everything is applied"
    server.routes.register(registration(server, count, queue_count=8, counter=2))
    assert next(steps, "ended") == "ended"
    route = server.routes.route(f"T{count - 1}")
    assert route is not None
    assert [each.read_queue_nums for each in route.queue_datas] == [8]
    assert not server.routes.is_data_version_changed(*newer.key, version)


def test_a_body_that_is_read_in_a_thread_registers_like_a_short_one() -> None:
    server = Server()
    names = [f"{'T' * 200}-{number}" for number in range(400)]
    assert server.register(register_body(*names)).code == ResponseCode.SUCCESS
    assert server.routes.all_topics().topic_list == names


def test_topics_beyond_the_limit_are_refused_and_change_nothing() -> None:
    server = Server(NamesrvConfig(topic_routes_max=4))
    assert server.register(register_body("T", "U")).code == ResponseCode.SUCCESS
    answer = server.register(register_body("T", "U", "V"), name="broker-b")
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "the name server has no room for more topics of brokers: maxTopicRoutes is 4",
    )
    assert list(server.routes.cluster_info().broker_addr_table or {}) == ["broker-a"]
    assert server.register(register_body("T", "U", "V", "W"), name="broker-a").code == 0
    answer = server.ask(
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RegisterTopicRequestHeader(topic="X"),
        body=b'{"queueDatas":[{"brokerName":"broker-a"}]}',
    )
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert server.route("X") is None
    # A broker whose topics are all registered can always register again.
    assert server.register(register_body("T", "U", "V", "W", counter=2)).code == 0
    server.unregister()
    assert server.register(register_body("T", "U"), name="broker-b").code == ResponseCode.SUCCESS


def test_brokers_beyond_the_limit_are_refused() -> None:
    server = Server(NamesrvConfig(brokers_max=2))
    for name in ("broker-a", "broker-b"):
        assert server.register(register_body("T", "U"), name=name).code == ResponseCode.SUCCESS
    answer = server.register(register_body("T", "U"), name="broker-c")
    assert answer.remark == "the name server has no room for more brokers: maxBrokers is 2"
    assert server.register(register_body("T", "U"), name="broker-a").code == ResponseCode.SUCCESS
