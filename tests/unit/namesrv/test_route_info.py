"""Brokers register, stay and leave; what happens to their topics."""

from __future__ import annotations

import msgspec
import pytest

from roquet.model.topic_config import TopicConfig
from roquet.model.topic_queue_mapping import TopicQueueMappingInfo
from roquet.namesrv.config import NamesrvConfig
from roquet.remoting.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.base import decode_header
from roquet.remoting.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    BrokerNameRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    RegisterBrokerResponseHeader,
)
from tests.unit.namesrv.kit import (
    FakeConnection,
    Server,
    addresses,
    cluster_info,
    perms,
    register_body,
)

ACTING = NamesrvConfig(support_acting_master=True)
NOTIFYING = NamesrvConfig(support_acting_master=True, notify_min_broker_id_changed=True)


def test_a_broker_and_its_topics_are_found() -> None:
    server = Server()
    server.register(register_body("T", "U"))
    assert server.route("T") == TopicRouteData(
        broker_datas=[
            BrokerData(broker_addrs={0: "broker-a:10911"}, broker_name="broker-a", cluster="C")
        ],
        queue_datas=[
            QueueData(broker_name="broker-a", perm=6, read_queue_nums=4, write_queue_nums=4)
        ],
    )
    assert server.route("V") is None


def test_a_slave_learns_where_its_master_is() -> None:
    server = Server()
    assert server.register(register_body("T", "U")).ext_fields == {}
    answer = server.register(register_body("T", "U"), broker_id=1)
    assert decode_header(RegisterBrokerResponseHeader, answer.ext_fields) == (
        RegisterBrokerResponseHeader(
            ha_server_address="broker-a:20911", master_address="broker-a:10911"
        )
    )
    assert addresses(server, "T") == {0: "broker-a:10911", 1: "broker-a:10912"}


def test_a_slave_that_comes_first_learns_nothing_and_ids_are_in_order() -> None:
    server = Server()
    assert server.register(register_body("T", "U"), broker_id=1).ext_fields == {}
    server.register(register_body("T", "U"))
    text = server.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
    assert b'{0:"broker-a:10911",1:"broker-a:10912"}' in text


def test_topics_of_a_slave_are_ignored_while_the_master_is_registered() -> None:
    server = Server()
    server.register(register_body("T", "U"))
    server.register(register_body("T", "SlaveOnly"), broker_id=1)
    assert server.route("SlaveOnly") is None


def test_topics_of_an_old_slave_are_always_ignored() -> None:
    server = Server()
    server.register(register_body("T", "U"), broker_id=1, acting=None)
    assert server.route("T") is None
    server.register(register_body("T", "U"), broker_id=1, acting=False)
    # The version is known by now, but the topics are not.
    assert addresses(server, "T") == {1: "broker-a:10912"}
    assert perms(server, "T") == {"broker-a": 6}


def test_a_slave_that_becomes_master_gives_up_its_old_id() -> None:
    server = Server()
    server.register(register_body("T", "U"), broker_id=1, address="h:1")
    server.register(register_body("T", "U"), broker_id=0, address="h:1")
    assert addresses(server, "T") == {0: "h:1"}


def test_an_acting_master_that_becomes_master_is_writable_at_once() -> None:
    server = Server(ACTING)
    server.register(register_body("T", "U"), broker_id=1, address="h:1", acting=True)
    assert perms(server, "T") == {"broker-a": 4}
    server.register(register_body("T", "U"), broker_id=0, address="h:1", acting=True)
    assert perms(server, "T") == {"broker-a": 6}


def test_the_slave_with_the_least_id_acts_as_master() -> None:
    server = Server(ACTING)
    for broker_id in (0, 2, 1):
        server.register(register_body("T", "U"), broker_id=broker_id, acting=True)
    server.unregister()
    assert addresses(server, "T") == {0: "broker-a:10912", 2: "broker-a:10913"}
    assert perms(server, "T") == {"broker-a": 4}
    sync = Server(ACTING)
    topic = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
    sync.register(register_body(topic, "T"), broker_id=1, acting=True)
    assert addresses(sync, topic) == {1: "broker-a:10912"}
    assert addresses(sync, "T") == {0: "broker-a:10912"}


@pytest.mark.parametrize("config", [NamesrvConfig(), ACTING])
def test_no_slave_acts_as_master_unless_both_sides_allow_it(config: NamesrvConfig) -> None:
    server = Server(config)
    acting = not config.support_acting_master
    server.register(register_body("T", "U"), acting=acting)
    server.register(register_body("T", "U"), broker_id=1, acting=acting)
    server.unregister()
    assert addresses(server, "T") == {1: "broker-a:10912"}
    assert perms(server, "T") == {"broker-a": 4 if acting else 6}
    header = BrokerNameRequestHeader(broker_name="broker-a")
    server.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
    assert addresses(server, "T") == {1: "broker-a:10912"}


def test_a_slave_that_may_be_written_to_does_not_act_as_master() -> None:
    server = Server(ACTING)
    server.register(register_body("T", "U"), broker_id=1, acting=True)
    assert addresses(server, "T") == {0: "broker-a:10912"}
    header = BrokerNameRequestHeader(broker_name="broker-a")
    server.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
    assert addresses(server, "T") == {1: "broker-a:10912"}


def test_topics_stay_writable_when_a_slave_leaves() -> None:
    server = Server(ACTING)
    for broker_id in (0, 1):
        server.register(register_body("T", "U"), broker_id=broker_id, acting=True)
    server.unregister(broker_id=1)
    assert perms(server, "T") == {"broker-a": 6}


def test_a_slave_that_registers_without_its_master_brings_topics_without_write() -> None:
    server = Server(ACTING)
    server.register(register_body("T", "U"), broker_id=1, acting=True)
    assert perms(server, "T") == {"broker-a": 4}
    server.register(register_body("T", "U"), broker_id=0, acting=True)
    assert perms(server, "T") == {"broker-a": 6}
    assert list(addresses(server, "T")) == [0, 1]


def test_brokers_are_notified_of_a_new_minimum_id() -> None:
    server = Server(NOTIFYING)
    server.register(register_body("T", "U"), broker_id=2, acting=True)
    server.register(register_body("T", "U"), broker_id=1, acting=True)
    (change,) = server.told
    assert change.addresses == ["broker-a:10913"]
    assert change.header.min_broker_id == 1
    assert change.header.min_broker_address == "broker-a:10912"
    assert change.header.ha_broker_address == "broker-a:20912"
    server.told.clear()
    server.unregister(broker_id=1)
    (change,) = server.told
    assert change.addresses == ["broker-a:10913"]
    assert change.header.offline_broker_address == "broker-a:10912"
    server.told.clear()
    server.register(register_body("T", "U"), broker_id=5, acting=True)
    server.unregister(broker_id=5)
    assert server.told == []


def test_brokers_are_not_notified_unless_enabled() -> None:
    server = Server(ACTING)
    server.register(register_body("T", "U"), broker_id=2, acting=True)
    server.register(register_body("T", "U"), broker_id=1, acting=True)
    server.unregister(broker_id=1)
    assert server.told == []


def test_a_lower_version_of_the_topics_is_accepted_too() -> None:
    server = Server()
    server.register(register_body("T", "U", counter=9))
    fewer = TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2)
    server.register(register_body(fewer, "U", counter=3))
    route = server.route("T")
    assert route is not None
    assert [queue.read_queue_nums for queue in route.queue_datas] == [2]


def test_the_same_version_changes_no_topic_but_brings_back_a_lost_one() -> None:
    server = Server()
    server.register(register_body("T", "U"))
    server.ask(
        RequestCode.WIPE_WRITE_PERM_OF_BROKER, BrokerNameRequestHeader(broker_name="broker-a")
    )
    server.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicFromNamesrvRequestHeader(topic="U"))
    assert server.route("U") is None
    server.register(register_body("T", "U"))
    assert perms(server, "T") == {"broker-a": 4}
    assert perms(server, "U") == {"broker-a": 6}


def test_an_address_with_an_older_election_does_not_displace_a_living_one() -> None:
    server = Server()
    server.register(register_body("T", "U", state_version=2), address="new:1")
    answer = server.register(register_body("T", "V", state_version=1), address="old:1")
    assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, {})
    assert addresses(server, "T") == {0: "new:1"}
    assert server.route("V") is None
    server.register(register_body("T", "V", state_version=2), address="newer:1")
    assert addresses(server, "T") == {0: "newer:1"}


def test_an_address_that_lost_its_id_must_register_again() -> None:
    server = Server()
    server.register(register_body("T", "U"), address="old:1")
    server.register(register_body("T", "U"), address="new:1")
    assert server.routes.data_version("C", "old:1") is None
    assert server.routes.data_version("C", "new:1") is not None


def test_a_slave_that_an_election_overtook_leaves_its_old_id_too() -> None:
    server = Server()
    server.register(register_body("T", "U", state_version=2), address="h:1")
    server.register(register_body("T", "U", state_version=1), broker_id=1, address="h:2")
    server.register(register_body("T", "U", state_version=1), broker_id=0, address="h:2")
    assert addresses(server, "T") == {0: "h:1"}
    assert server.routes.data_version("C", "h:2") is None


def test_the_displaced_address_removes_nothing_when_it_leaves() -> None:
    server = Server()
    old, new = FakeConnection(), FakeConnection()
    server.register(register_body("T", "U"), address="old:1", connection=old)
    server.register(register_body("T", "U"), address="new:1", connection=new)
    assert server.routes.connection_closed(old) == []
    assert addresses(server, "T") == {0: "new:1"}


def test_a_single_topic_comes_after_the_whole_table() -> None:
    server = Server()
    answer = server.register(register_body("T"))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "register broker failed")
    assert cluster_info(server) == ClusterInfo(broker_addr_table={}, cluster_addr_table={})
    server.register(register_body("T", "U"))
    assert server.register(register_body("V", counter=2)).code == ResponseCode.SUCCESS
    assert server.route("T")
    assert server.route("V")


def test_topics_that_a_broker_no_longer_has_are_removed_only_on_request() -> None:
    keeping = Server()
    dropping = Server(NamesrvConfig(delete_topic_with_broker_registration=True))
    for server in (keeping, dropping):
        server.register(register_body("T", "U"))
        server.register(register_body("T", "U"), name="broker-b")
        server.register(register_body("U", "V", counter=2))
    assert perms(keeping, "T").keys() == {"broker-a", "broker-b"}
    assert perms(dropping, "T").keys() == {"broker-b"}
    dropping.register(register_body("U", "V", counter=2), name="broker-b")
    assert dropping.route("T") is None
    static = register_body("V", "W", counter=3)
    mapping = TopicQueueMappingInfo(broker_name="broker-b", topic="V")
    static.topic_config_serialize_wrapper.topic_queue_mapping_info_map["V"] = mapping
    dropping.register(static, name="broker-b")
    assert perms(dropping, "U").keys() == {"broker-a", "broker-b"}


def test_an_address_under_another_name_leaves_the_first() -> None:
    server = Server()
    server.register(register_body("T", "U"), address="h:1")
    server.register(register_body("T", "U"), name="broker-b", address="h:1")
    info = cluster_info(server)
    assert list(info.broker_addr_table or {}) == ["broker-b"]
    assert info.cluster_addr_table == {"C": ["broker-b"]}
    assert perms(server, "T").keys() == {"broker-b"}


def test_silent_brokers_are_removed_after_their_timeout() -> None:
    server = Server()
    default, short = FakeConnection(), FakeConnection()
    server.register(register_body("T", "U"), connection=default)
    server.register(register_body("T", "U"), name="broker-b", timeout_ms=1000, connection=short)
    server.clock.advance(1000)
    assert server.routes.scan_not_active() == []
    server.clock.advance(1)
    (silent,) = server.routes.scan_not_active()
    assert (silent.address, silent.connection) == ("broker-b:10911", short)
    assert perms(server, "T").keys() == {"broker-a"}
    server.clock.advance(118_999)
    assert server.routes.scan_not_active() == []
    server.clock.advance(1)
    assert [each.connection for each in server.routes.scan_not_active()] == [default]
    assert server.route("T") is None
    assert cluster_info(server) == ClusterInfo(broker_addr_table={}, cluster_addr_table={})


def test_a_heartbeat_and_a_registration_are_signs_of_life() -> None:
    server = Server()
    heartbeat = BrokerHeartbeatRequestHeader(
        cluster_name="C", broker_address="broker-a:10911", broker_name="broker-a"
    )
    server.register(register_body("T", "U"))
    server.clock.advance(100_000)
    assert server.ask(RequestCode.BROKER_HEARTBEAT, heartbeat).code == ResponseCode.SUCCESS
    server.clock.advance(100_000)
    assert server.routes.scan_not_active() == []
    server.register(register_body("T", "U"))
    server.clock.advance(100_000)
    assert server.routes.scan_not_active() == []
    stranger = msgspec.structs.replace(heartbeat, broker_address="h:1")
    assert server.ask(RequestCode.BROKER_HEARTBEAT, stranger).code == ResponseCode.SUCCESS
    server.clock.advance(20_001)
    assert len(server.routes.scan_not_active()) == 1


def test_setting_the_machines_clock_removes_no_broker() -> None:
    server = Server()
    server.register(register_body("T", "U"))
    server.clock.set(server.clock.now_ms() + 86_400_000)
    assert server.routes.scan_not_active() == []


def test_a_closed_connection_removes_all_its_brokers() -> None:
    server = Server(NOTIFYING)
    shared, other = FakeConnection(), FakeConnection()
    server.register(register_body("T", "U"), connection=shared, acting=True)
    server.register(register_body("T", "U"), name="broker-b", connection=shared)
    server.register(register_body("T", "U"), broker_id=1, connection=other, acting=True)
    (change,) = server.routes.connection_closed(shared)
    assert change.header.min_broker_address == "broker-a:10912"
    assert addresses(server, "T") == {0: "broker-a:10912"}
    assert server.routes.connection_closed(FakeConnection()) == []


def test_the_connection_before_the_last_registration_is_ignored() -> None:
    server = Server()
    before, now = FakeConnection(), FakeConnection()
    server.register(register_body("T", "U"), connection=before)
    server.register(register_body("T", "U"), connection=now)
    server.routes.connection_closed(before)
    assert server.route("T")
    server.routes.connection_closed(now)
    assert server.route("T") is None
