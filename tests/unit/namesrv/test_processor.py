"""Responses of the name server: codes, remarks, dialects, and hostile requests."""

from __future__ import annotations

import struct
import zlib

import pytest

from roquet.model.data_version import DataVersion
from roquet.namesrv.config import NamesrvConfig
from roquet.remoting.bodies import register
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.bodies.register import encode_register_body
from roquet.remoting.bodies.route import QueueData, TopicRouteData
from roquet.remoting.codes import Handler, RequestCode, ResponseCode, version_ordinal
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.namesrv import (
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    KVKeyRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterTopicRequestHeader,
)
from roquet.remoting.processor import Port
from tests.unit.namesrv.kit import Server, register_body


def register_with(
    server: Server,
    body: bytes,
    *,
    crc: int = 0,
    compressed: bool = False,
    version: int = version_ordinal("V5_4_0"),
) -> RemotingCommand:
    header = RegisterBrokerRequestHeader(
        broker_name="broker-a",
        broker_address="broker-a:10911",
        cluster_name="C",
        ha_server_address="broker-a:10912",
        broker_id=0,
        compressed=compressed,
        body_crc32=crc,
    )
    return server.ask(RequestCode.REGISTER_BROKER, header, body=body, version=version)


def route_text(
    server: Server, version: str, *, standard: bool | None = None, zone: str | None = None
) -> str:
    header = GetRouteInfoRequestHeader(topic="T", accept_standard_json_only=standard)
    fields = {} if zone is None else {"__ZONE_MODE": "true", "__ZONE_NAME": zone}
    answer = server.ask(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        header,
        version=version_ordinal(version),
        ext_fields=fields,
    )
    assert answer.code == ResponseCode.SUCCESS
    return answer.body.decode()


def test_every_code_of_the_name_server_has_a_processor() -> None:
    ours = {code for code in RequestCode if Handler.NAMESRV in code.handlers}
    assert ours == set(Server().registry.table(Port.MAIN))


def test_unknown_codes_and_missing_fields() -> None:
    server = Server()
    answer = server.ask(9999)
    assert (answer.code, answer.remark) == (
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        " request type 9999 not supported",
    )
    answer = server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "the custom field <topic> is null",
    )


def test_dialect_of_a_route() -> None:
    server = Server()
    server.register(register_body("T", "U"))
    server.register(register_body("T", "U"), broker_id=1)
    old = '{"brokerAddrs":{0:"broker-a:10911",1:"broker-a:10912"},'
    standard = '{"brokerAddrs":{"0":"broker-a:10911","1":"broker-a:10912"},'
    assert old in route_text(server, "V4_9_3")
    assert standard in route_text(server, "V4_9_4")
    assert old in route_text(server, "V4_5_2", standard=False)
    assert standard in route_text(server, "V4_5_2", standard=True)


def test_order_topics_are_in_routes_if_enabled() -> None:
    put = PutKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4")
    off, on = Server(), Server(NamesrvConfig(order_message=True))
    for server in (off, on):
        server.ask(RequestCode.PUT_KV_CONFIG, put)
        server.register(register_body("T", "U"))
    assert "orderTopicConf" not in route_text(off, "V5_4_0")
    assert '"orderTopicConf":"broker-a:4"' in route_text(on, "V5_4_0")
    route = on.route("U")
    assert route is not None
    assert route.order_topic_conf is None


def test_brokers_learn_the_order_topics_when_they_register() -> None:
    put = PutKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4")
    server = Server()
    silent = Server(NamesrvConfig(return_order_topic_config_to_broker=False))
    assert server.register(register_body("T", "U")).body == b""
    for each in (server, silent):
        each.ask(RequestCode.PUT_KV_CONFIG, put)
    assert server.register(register_body("T", "U")).body == b'{"table":{"T":"broker-a:4"}}'
    assert silent.register(register_body("T", "U")).body == b""


def test_a_zone_keeps_to_itself_unless_a_master_is_missing() -> None:
    server = Server()
    server.register(register_body("T", "U", filter_servers=["f:1"]), name="east", zone="East")
    server.register(register_body("T", "U", filter_servers=["f:2"]), name="west", zone="West")
    server.register(register_body("T", "U"), name="lost", broker_id=1, zone="West")
    route = decode_body(TopicRouteData, route_text(server, "V5_4_0", zone="east").encode())
    assert [data.broker_name for data in route.broker_datas] == ["east", "lost"]
    assert [queue.broker_name for queue in route.queue_datas] == ["east", "lost"]
    assert list(route.filter_server_table) == ["east:10911"]
    whole = decode_body(TopicRouteData, route_text(server, "V5_4_0", zone=" ").encode())
    assert len(whole.broker_datas) == 3


def test_routes_are_refused_for_some_time_after_the_start() -> None:
    server = Server(NamesrvConfig(need_wait_for_service=True, wait_seconds_for_service=45))
    server.register(register_body("T", "U"))
    header = GetRouteInfoRequestHeader(topic="T")
    server.clock.advance(44_999)
    answer = server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "name server not ready")
    server.clock.advance(1)
    assert server.route("T")


def test_the_crc_of_a_registration_is_checked() -> None:
    server = Server()
    body = encode_register_body(register_body("T", "U"))
    crc = zlib.crc32(body) & 0x7FFFFFFF
    answer = register_with(server, body, crc=crc ^ 1)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
    assert server.route("T") is None
    assert register_with(server, body, crc=crc).code == ResponseCode.SUCCESS
    assert register_with(server, body, crc=0).code == ResponseCode.SUCCESS


def test_compressed_registrations_are_read() -> None:
    server = Server()
    body = encode_register_body(register_body("T", "U"), compressed=True)
    crc = zlib.crc32(body) & 0x7FFFFFFF
    assert register_with(server, body, crc=crc, compressed=True).code == ResponseCode.SUCCESS
    assert server.route("U")


def test_a_decompression_bomb_is_refused_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register, "DECOMPRESSED_BYTES_MAX", 1 << 16)
    server = Server()
    fits = encode_body(DataVersion())
    fits = struct.pack(">i", len(fits)) + fits
    for size in ((1 << 16) + 1, 1 << 24):
        bomb = zlib.compress(fits + bytes(size - len(fits)), level=9)
        answer = register_with(server, bomb, compressed=True)
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "Failed to decode RegisterBrokerBody",
        )
    assert server.routes.cluster_info().broker_addr_table == {}


@pytest.mark.parametrize(
    ("body", "compressed"),
    [
        (b"{", False),
        (b"[]", False),
        (b"[" * 100_000, False),
        (b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":7}}}', False),
        (b"\xff\xfe", False),
        (b"{}", True),
        (zlib.compress(b"\x7f\xff\xff\xff"), True),
        (zlib.compress(b"\x00\x00\x00\x02{}\x7f\xff\xff\xff"), True),
        (zlib.compress(b"\x00\x00\x00\x02{}\x00\x00\x00\x01\x00\x00\x00\x01T"), True),
    ],
)
def test_damaged_registrations_are_refused(body: bytes, compressed: bool) -> None:  # noqa: FBT001
    server = Server()
    answer = register_with(server, body, compressed=compressed)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "Failed to decode RegisterBrokerBody",
    )
    assert server.routes.cluster_info().broker_addr_table == {}


def test_registrations_of_brokers_before_3_0_11_have_topics_only() -> None:
    server = Server()
    topics = register_body("T", "U").topic_config_serialize_wrapper
    old = version_ordinal("V3_0_10")
    answer = register_with(server, encode_body(topics), version=old)
    assert answer.code == ResponseCode.SUCCESS
    assert server.route("T")


def test_a_registration_without_a_body_keeps_a_broker_alive() -> None:
    server = Server()
    assert register_with(server, b"").code == ResponseCode.SUCCESS
    assert list(server.routes.cluster_info().broker_addr_table or {}) == ["broker-a"]


def test_query_of_a_data_version_is_a_sign_of_life() -> None:
    server = Server()
    header = QueryDataVersionRequestHeader(
        broker_name="broker-a", broker_address="broker-a:10911", cluster_name="C", broker_id=0
    )

    def query(version: DataVersion | None) -> tuple[dict[str, str] | None, bytes]:
        body = b"" if version is None else encode_body(version)
        answer = server.ask(RequestCode.QUERY_DATA_VERSION, header, body=body)
        assert answer.code == ResponseCode.SUCCESS
        return answer.ext_fields, answer.body

    assert query(DataVersion(counter=5)) == ({"changed": "true"}, b"")
    server.register(register_body("T", "U", counter=5))
    known = b'{"counter":5,"stateVersion":0,"timestamp":0}'
    server.clock.advance(119_000)
    assert query(DataVersion(counter=5)) == ({"changed": "false"}, known)
    server.clock.advance(119_000)
    assert server.routes.scan_not_active() == []
    assert query(DataVersion(counter=4)) == ({"changed": "true"}, known)
    assert query(None) == ({"changed": "true"}, known)


def test_a_single_topic_is_registered_if_its_brokers_are_here() -> None:
    server = Server()
    server.register(register_body("T", "U"))

    def register_topic(topic: str, *brokers: str) -> int:
        queues = [QueueData(broker_name=name, perm=6, write_queue_nums=2) for name in brokers]
        body = encode_body(TopicRouteData(queue_datas=queues))
        header = RegisterTopicRequestHeader(topic=topic)
        return server.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, header, body=body).code

    assert register_topic("V", "broker-a") == ResponseCode.SUCCESS
    assert register_topic("W", "broker-a", "nobody") == ResponseCode.SUCCESS
    assert register_topic("X") == ResponseCode.SUCCESS
    assert register_topic("T", "broker-a") == ResponseCode.SUCCESS
    assert server.route("V")
    assert server.route("W") is None
    assert server.route("X") is None
    route = server.route("T")
    assert route is not None
    assert [queue.write_queue_nums for queue in route.queue_datas] == [2]


def test_lists_of_topics_can_be_disabled() -> None:
    server = Server(NamesrvConfig(all_topic_list=False, topic_list=False))
    server.register(register_body("T", "U"))
    by_cluster = GetTopicsByClusterRequestHeader(cluster="C")
    answers = [
        server.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        server.ask(RequestCode.GET_TOPICS_BY_CLUSTER, by_cluster),
        server.ask(RequestCode.GET_UNIT_TOPIC_LIST),
        server.ask(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST),
        server.ask(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
    ]
    assert {(each.code, each.remark) for each in answers} == {
        (ResponseCode.SYSTEM_ERROR, "disable")
    }
    assert server.topics(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS) == ["C", "broker-a"]


def test_values_are_set_shown_and_deleted() -> None:
    server = Server()
    key = KVKeyRequestHeader(namespace="ns", key="k")
    namespace = GetKVListByNamespaceRequestHeader(namespace="ns")
    answer = server.ask(RequestCode.GET_KV_CONFIG, key)
    assert (answer.code, answer.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        "No config item, Namespace: ns Key: k",
    )
    answer = server.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace)
    assert (answer.code, answer.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        "No config item, Namespace: ns",
    )
    put = PutKVConfigRequestHeader(namespace="ns", key="k", value="v")
    assert server.ask(RequestCode.PUT_KV_CONFIG, put).code == ResponseCode.SUCCESS
    assert server.ask(RequestCode.GET_KV_CONFIG, key).ext_fields == {"value": "v"}
    answer = server.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace)
    assert answer.body == b'{"table":{"k":"v"}}'
    assert server.ask(RequestCode.DELETE_KV_CONFIG, key).code == ResponseCode.SUCCESS
    assert server.ask(RequestCode.GET_KV_CONFIG, key).code == ResponseCode.QUERY_NOT_FOUND
    answer = server.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace)
    assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b'{"table":{}}')


@pytest.mark.parametrize(
    ("text", "code", "remark"),
    [
        ("", 0, None),
        ("orderMessageEnable=true", 0, None),
        ("kvConfigPath=/etc/cron.d/x", 16, "Can not update config in black list."),
        ("configStorePath=x", 16, "Can not update config in black list."),
        ("rocketmqHome=x", 16, "Can not update config in black list."),
        ("configBlackList=", 16, "Can not update config in black list."),
        (
            "listenPort=1",
            16,
            "listenPort cannot be changed by a request. "
            "Change it in the configuration file and restart the name server.",
        ),
        ("clusterTest=true", 16, "clusterTest has no effect here."),
        (
            "orderMessageEnabled=true",
            29,
            "There is no setting 'orderMessageEnabled'. Did you mean orderMessageEnable?",
        ),
        ("waitSecondsForService=soon", 29, "The value of waitSecondsForService cannot be used."),
        ("waitSecondsForService=-1", 29, "The value of waitSecondsForService cannot be used."),
        ("orderMessageEnable=\\u00", 29, "Malformed \\uxxxx encoding. write a backslash as \\\\"),
    ],
)
def test_only_harmless_settings_are_changed_by_a_request(
    text: str, code: int, remark: str | None
) -> None:
    server = Server()
    before = server.configuration.text()
    answer = server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=text.encode())
    assert (answer.code, answer.remark) == (code, remark)
    after = server.ask(RequestCode.GET_NAMESRV_CONFIG).body.decode()
    assert (after != before) == (code == 0 and text != "")


def test_an_update_with_one_bad_setting_changes_none() -> None:
    server = Server()
    before = server.configuration.text()
    body = b"orderMessageEnable=true\nkvConfigPath=x\n"
    assert server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body).code == 16
    assert server.configuration.text() == before
    assert server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"\xff").code == 1
    assert server.configuration.text() == before


def test_an_update_takes_effect_at_once() -> None:
    server = Server()
    server.register(register_body("T", "U"))
    server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"enableAllTopicList=false")
    answer = server.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "disable")
