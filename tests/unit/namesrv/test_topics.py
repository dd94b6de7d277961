"""Topics of brokers: permissions, clusters, lists, and hostile names."""

from __future__ import annotations

import pytest

from roquet.model.topic_config import TopicConfig
from roquet.model.topic_queue_mapping import TopicQueueMappingInfo
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.route import ClusterInfo, GetBrokerMemberGroupResponseBody
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.namesrv import (
    BrokerNameRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    GetTopicsByClusterRequestHeader,
)
from tests.unit.namesrv.kit import (
    Server,
    cluster_info,
    perms,
    register_body,
)


def test_write_permission_is_removed_and_restored() -> None:
    server = Server()
    read_only = TopicConfig(topic_name="R", perm=4)
    server.register(register_body("T", TopicConfig(topic_name="I", perm=7), read_only))
    server.register(register_body("T", "U"), name="broker-b")
    header = BrokerNameRequestHeader(broker_name="broker-a")
    answer = server.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
    assert answer.ext_fields == {"wipeTopicCount": "3"}
    assert perms(server, "T") == {"broker-a": 4, "broker-b": 6}
    assert perms(server, "I") == {"broker-a": 5}
    answer = server.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
    assert answer.ext_fields == {"addTopicCount": "3"}
    assert [perms(server, topic)["broker-a"] for topic in "TIR"] == [6, 6, 6]
    nobody = BrokerNameRequestHeader(broker_name="nobody")
    answer = server.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, nobody)
    assert answer.ext_fields == {"wipeTopicCount": "0"}


def test_topics_in_several_clusters() -> None:
    server = Server()
    server.register(register_body("T", "A"), name="a", cluster="CA")
    server.register(register_body("T", "B"), name="b", cluster="CB")

    def of(cluster: str) -> list[str]:
        header = GetTopicsByClusterRequestHeader(cluster=cluster)
        return server.topics(RequestCode.GET_TOPICS_BY_CLUSTER, header)

    assert (of("CA"), of("CB"), of("CC")) == (["T", "A"], ["T", "B"], [])
    header = DeleteTopicFromNamesrvRequestHeader(topic="T", cluster_name="CA")
    server.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
    assert perms(server, "T") == {"b": 6}
    server.ask(
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        DeleteTopicFromNamesrvRequestHeader(topic="T", cluster_name="CC"),
    )
    assert perms(server, "T") == {"b": 6}
    server.ask(
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        DeleteTopicFromNamesrvRequestHeader(topic="T", cluster_name="CB"),
    )
    assert server.route("T") is None
    info = cluster_info(server)
    assert info.cluster_addr_table == {"CA": ["a"], "CB": ["b"]}
    assert list(info.broker_addr_table or {}) == ["a", "b"]


def test_a_broker_is_not_unregistered_under_another_name() -> None:
    server = Server()
    server.register(register_body("T", "U"), address="h:1")
    server.register(register_body("T", "U"), name="broker-b", address="h:2")
    assert server.routes.unregister("h:1", "broker-b") is None
    assert server.routes.data_version("C", "h:1") is not None
    assert perms(server, "T").keys() == {"broker-a", "broker-b"}


def test_an_address_in_two_clusters_leaves_both() -> None:
    server = Server()
    server.register(register_body("T", "U"), cluster="C1")
    server.register(register_body("T", "U"), cluster="C2")
    server.unregister(cluster="C1")
    assert server.routes.data_version("C2", "broker-a:10911") is None
    assert server.route("T") is None


def test_a_broker_name_in_two_clusters_leaves_both() -> None:
    server = Server()
    server.register(register_body("T", "U"), cluster="C1")
    server.register(register_body("T", "U"), cluster="C2", broker_id=1)
    assert cluster_info(server).cluster_addr_table == {"C1": ["broker-a"], "C2": ["broker-a"]}
    data = (cluster_info(server).broker_addr_table or {})["broker-a"]
    assert (data.cluster, list(data.broker_addrs)) == ("C1", [0, 1])
    server.clock.advance(120_001)
    assert len(server.routes.scan_not_active()) == 2
    assert cluster_info(server) == ClusterInfo(broker_addr_table={}, cluster_addr_table={})
    assert server.routes.scan_not_active() == []


def test_lists_of_topics() -> None:
    server = Server()
    unit = TopicConfig(topic_name="Unit", topic_sys_flag=1)
    subscribed = TopicConfig(topic_name="Sub", topic_sys_flag=2)
    both = TopicConfig(topic_name="Both", topic_sys_flag=3)
    server.register(register_body("T", unit, subscribed, both))
    assert server.topics(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == [
        "T",
        "Unit",
        "Sub",
        "Both",
    ]
    assert server.topics(RequestCode.GET_UNIT_TOPIC_LIST) == ["Unit", "Both"]
    assert server.topics(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == ["Sub", "Both"]
    assert server.topics(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == ["Sub"]
    assert server.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body == (
        b'{"brokerAddr":"broker-a:10911","topicList":["C","broker-a"]}'
    )


def test_members_of_a_name() -> None:
    server = Server()
    server.register(register_body("T", "U"))
    server.register(register_body("T", "U"), broker_id=1)

    def members(name: str) -> GetBrokerMemberGroupResponseBody:
        header = GetBrokerMemberGroupRequestHeader(cluster_name="C", broker_name=name)
        body = server.ask(RequestCode.GET_BROKER_MEMBER_GROUP, header).body
        return decode_body(GetBrokerMemberGroupResponseBody, body)

    group = members("broker-a").broker_member_group
    assert group is not None
    assert group.broker_addrs == {0: "broker-a:10911", 1: "broker-a:10912"}
    nobody = members("nobody").broker_member_group
    assert nobody is not None
    assert (nobody.broker_name, nobody.cluster, nobody.broker_addrs) == ("nobody", "C", {})


def test_filter_servers_are_in_the_route_until_they_leave() -> None:
    server = Server()
    server.register(register_body("T", "U", filter_servers=["f:1"]))
    server.register(register_body("T", "U"), name="broker-b")
    route = server.route("T")
    assert route is not None
    assert route.filter_server_table == {"broker-a:10911": ["f:1"]}
    server.register(register_body("T", "U"))
    route = server.route("T")
    assert route is not None
    assert route.filter_server_table == {}


def test_mappings_of_static_topics_live_as_long_as_their_broker() -> None:
    server = Server()
    body = register_body("T", "U")
    mapping = TopicQueueMappingInfo(broker_name="broker-a", topic="T", total_queues=4)
    body.topic_config_serialize_wrapper.topic_queue_mapping_info_map["T"] = mapping
    server.register(body)
    route = server.route("T")
    assert route is not None
    assert route.topic_queue_mapping_by_broker == {"broker-a": mapping}
    server.unregister()
    server.register(register_body("T", "U"))
    route = server.route("T")
    assert route is not None
    assert route.topic_queue_mapping_by_broker is None


HOSTILE_NAMES = ["", " ", "a\nb", "a\x00b", "a\u2028b", "\x1b[2J", "n" * 256]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_refused(name: str) -> None:
    server = Server()
    answers = [
        server.register(register_body("T", "U"), name=name, address="h:1"),
        server.register(register_body("T", "U"), cluster=name),
        server.register(register_body("T", "U"), address=name or " "),
    ]
    assert [(answer.code, answer.remark) for answer in answers] == [
        (ResponseCode.SYSTEM_ERROR, f"the custom field <{field}> cannot be used")
        for field in ("brokerName", "clusterName", "brokerAddr")
    ]
    assert cluster_info(server) == ClusterInfo(broker_addr_table={}, cluster_addr_table={})


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_topic_with_a_hostile_name_does_not_hurt_its_neighbours(name: str) -> None:
    server = Server()
    server.register(register_body("T", name, "U"))
    assert server.topics(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == ["T", "U"]


@pytest.mark.parametrize("address", ["h:1,1", 'h:1"', "h 1:1", "{h:1}", "h\\:1"])
def test_addresses_that_would_break_the_routes_of_old_clients_are_refused(address: str) -> None:
    server = Server()
    answer = server.register(register_body("T", "U"), address=address)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "the custom field <brokerAddr> cannot be used",
    )


@pytest.mark.parametrize("name", ["../../etc", 'a"b', "a\\b", "<script>", "主题", "host.example"])
def test_names_that_only_look_odd_are_kept_unchanged(name: str) -> None:
    server = Server()
    server.register(register_body("T", name), name=name, address="h:1")
    route = server.route(name)
    assert route is not None
    assert [queue.broker_name for queue in route.queue_datas] == [name]
