"""Bodies: what others write, what is refused, what is bounded."""

from __future__ import annotations

import struct
import zlib
from enum import Enum

import msgspec
import pytest

from roquet.errors import ProtocolError
from roquet.model.data_version import DataVersion
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SubscriptionData
from roquet.model.topic_config import TopicConfig
from roquet.model.topic_queue_mapping import TopicQueueMappingInfo
from roquet.remoting.bodies import codec, register
from roquet.remoting.bodies.broker import KVTable, UserInfo
from roquet.remoting.bodies.client import (
    BatchAck,
    CMResult,
    ConsumeFromWhere,
    ConsumeType,
    HeartbeatData,
    MessageModel,
)
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.bodies.offset import ConsumeStats, OffsetWrapper, ResetOffsetBody
from roquet.remoting.bodies.register import (
    RegisterBrokerBody,
    decode_register_body,
    encode_register_body,
)
from roquet.remoting.bodies.route import BrokerData, TopicRouteData
from roquet.remoting.bodies.topic import TopicConfigAndMappingSerializeWrapper


def test_gos_heartbeat() -> None:
    """Go writes nothing for what it does not know, and null for what is empty."""
    body = decode_body(
        HeartbeatData,
        b'{"clientID":"10.0.0.1@77","producerDataSet":null,"consumerDataSet":[{'
        b'"groupName":"g","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
        b'"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","unitMode":false,'
        b'"subscriptionDataSet":[{"classFilterMode":false,"topic":"T","subString":"*",'
        b'"tagsSet":null,"codeSet":null,"subVersion":1,"expressionType":"TAG"}]}]}',
    )
    assert body.producer_data_set == []
    (consumer,) = body.consumer_data_set
    assert consumer.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert consumer.message_model is MessageModel.CLUSTERING
    assert consumer.subscription_data_set == [
        SubscriptionData(topic="T", sub_string="*", sub_version=1)
    ]


def test_unknown_and_missing_members() -> None:
    body = decode_body(HeartbeatData, b'{"clientID":"c","new":{"a":[1]},"@type":"X"}')
    assert body == HeartbeatData(client_id="c")


def test_numbers_as_texts() -> None:
    assert decode_body(DataVersion, b'{"counter":"5","timestamp":7}') == DataVersion(
        counter=5, timestamp_ms=7
    )


def test_queues_as_keys_in_any_order_of_members() -> None:
    queue = MessageQueue("T", "b", 2)
    text = b'{"offsetTable":{{"topic":"T","queueId":2,"brokerName":"b"}:9}}'
    body = decode_body(ResetOffsetBody, text)
    assert body.offset_table == {queue: 9}
    assert encode_body(body) == b'{"offsetTable":{{"brokerName":"b","queueId":2,"topic":"T"}:9}}'


def test_doubles_are_written_as_java_does() -> None:
    body = ConsumeStats(consume_tps=1e10, offset_table={MessageQueue("T", "b", 0): OffsetWrapper()})
    assert encode_body(body).startswith(b'{"consumeTps":1.0E10,')
    assert decode_body(ConsumeStats, encode_body(body)) == body


def test_integers_of_a_double_field_are_doubles() -> None:
    body = decode_body(ConsumeStats, b'{"consumeTps":3}')
    assert encode_body(body) == b'{"consumeTps":3.0,"offsetTable":{}}'


def test_bits_are_base64() -> None:
    ack = BatchAck(bits=b"\x01\x02", queue_id=3)
    assert encode_body(ack) == b'{"b":"AQI=","it":0,"pt":0,"q":3,"rq":0,"so":0}'
    assert decode_body(BatchAck, encode_body(ack)) == ack


def test_lists_and_maps_are_bodies_too() -> None:
    users = [UserInfo(username="u"), UserInfo(username="v")]
    assert encode_body(users) == b'[{"username":"u"},{"username":"v"}]'
    assert decode_body(list[UserInfo], encode_body(users)) == users
    assert encode_body({"a": "b"}) == b'{"a":"b"}'
    assert decode_body(dict[str, str], b'{"a":"b"}') == {"a": "b"}


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    assert encode_body(KVTable(table={"k": "a\ud800"})) == b'{"table":{"k":"a?"}}'


def test_standard_json_sorts_maps_and_quotes_keys() -> None:
    route = TopicRouteData(
        broker_datas=[BrokerData(broker_addrs={10: "h:10", 2: "h:2", 0: "h:0"})],
        filter_server_table={"z": [], "a": ["f"], "Z": []},
    )
    assert encode_body(route, standard=True) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"h:0","2":"h:2","10":"h:10"},'
        b'"enableActingMaster":false}],'
        b'"filterServerTable":{"Z":[],"a":["f"],"z":[]},"queueDatas":[]}'
    )
    assert b'{10:"h:10",2:"h:2",0:"h:0"}' in encode_body(route)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"7",
        b"{",
        b"\xff",
        b'{"clientID":[]}',
        b'{"consumerDataSet":{}}',
        b'{"consumerDataSet":[{"consumeType":"SOMEHOW"}]}',
        b'{"heartbeatFingerprint":"x"}',
        b'{"heartbeatFingerprint":1.5}',
        b'{"consumerDataSet":[' * 10_000,
        b'{"x":' + b"[" * 100_000,
    ],
)
def test_everything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="Body that is no HeartbeatData"):
        decode_body(HeartbeatData, data)


def test_bad_keys_are_refused() -> None:
    for key in (b'{"topic":"T"}', b'{"topic":"T","brokerName":1,"queueId":"x"}', b"5", b'"x"'):
        with pytest.raises(ProtocolError, match="Body that is no ResetOffsetBody"):
            decode_body(ResetOffsetBody, b'{"offsetTable":{' + key + b":1}}")


def test_long_texts_are_read_only_if_they_are_standard_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(codec, "DIALECT_BODY_BYTES_MAX", 40)
    assert decode_body(KVTable, b'{"table":{"key":"%b"}}' % (b"v" * 40)).table["key"] == "v" * 40
    with pytest.raises(ProtocolError):
        decode_body(KVTable, b"{'table':{'key':'%b'}}" % (b"v" * 40))


def test_values_without_a_form_are_refused() -> None:
    with pytest.raises(TypeError, match="object has no form in a body"):
        encode_body([object()])
    with pytest.raises(TypeError, match="tuple cannot be a key in a body"):
        encode_body([{(1, 2): 3}])


@pytest.mark.parametrize("kind", [ConsumeType, MessageModel, ConsumeFromWhere, CMResult])
def test_every_enum_is_written_as_its_name(kind: type[Enum]) -> None:
    assert all(member.name == member.value for member in kind)
    assert encode_body(list(kind)) == msgspec.json.encode([member.name for member in kind])


# ------------------------------------------------------------------------- compressed registration


def sample() -> RegisterBrokerBody:
    return RegisterBrokerBody(
        filter_server_list=["f:1"],
        topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
            data_version=DataVersion(counter=3, timestamp_ms=5),
            topic_config_table={
                "T": TopicConfig(topic_name="T", attributes={"+message.type": "a b"}),
                "U": TopicConfig(topic_name="U", perm=7, read_queue_nums=1, write_queue_nums=2),
            },
            topic_queue_mapping_info_map={
                "S": TopicQueueMappingInfo(topic="S", current_ids={0: 1}, broker_name="b")
            },
        ),
    )


@pytest.mark.parametrize("compressed", [False, True])
def test_register_body_round_trip(compressed: bool) -> None:  # noqa: FBT001
    data = encode_register_body(sample(), compressed=compressed)
    assert decode_register_body(data, compressed=compressed, broker_version=493) == sample()


def test_brokers_before_5_0_have_no_static_topics() -> None:
    data = encode_register_body(sample(), compressed=True)
    body = decode_register_body(data, compressed=True, broker_version=411)
    assert body.topic_config_serialize_wrapper.topic_queue_mapping_info_map == {}
    assert set(body.topic_config_serialize_wrapper.topic_config_table) == {"T", "U"}


def test_every_cut_of_a_compressed_body_is_refused() -> None:
    data = encode_register_body(sample(), compressed=True)
    plain = zlib.decompress(data)
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            decode_register_body(data[:end], compressed=True, broker_version=493)
    for end in range(len(plain)):
        with pytest.raises(ProtocolError):
            decode_register_body(zlib.compress(plain[:end]), compressed=True, broker_version=493)


def packed(*parts: bytes | int) -> bytes:
    return zlib.compress(
        b"".join(
            struct.pack(">i", part)
            if isinstance(part, int)
            else struct.pack(">i", len(part)) + part
            for part in parts
        )
    )


@pytest.mark.parametrize("count", [-1, 1, 2**31 - 1])
def test_false_counts_and_lengths(count: int) -> None:
    with pytest.raises(ProtocolError, match="bad length"):
        decode_register_body(packed(b"{}", count), compressed=True, broker_version=493)
    with pytest.raises(ProtocolError, match="bad length"):
        decode_register_body(packed(count), compressed=True, broker_version=493)


@pytest.mark.parametrize("line", [b"", b"T", b"T 1 2 3", b"T one 2 6 SINGLE_TAG", b"T 1 2 x Y {}"])
def test_bad_topic_lines(line: bytes) -> None:
    with pytest.raises(ProtocolError, match="bad topic"):
        decode_register_body(packed(b"{}", 1, line, b"[]", 0), compressed=True, broker_version=493)


@pytest.mark.parametrize("line", [b"T 1 2 6 SINGLE_TAG", b"T 1 2 6 SINGLE_TAG "])
def test_topic_lines_without_attributes(line: bytes) -> None:
    data = packed(b"{}", 1, line, b"[]", 0)
    body = decode_register_body(data, compressed=True, broker_version=493)
    assert body.topic_config_serialize_wrapper.topic_config_table["T"] == TopicConfig(
        topic_name="T", read_queue_nums=1, write_queue_nums=2
    )


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register, "DECOMPRESSED_BYTES_MAX", 1 << 16)
    bomb = zlib.compress(bytes(1 << 24))
    with pytest.raises(ProtocolError, match="cut off or too long") as caught:
        decode_register_body(bomb, compressed=True, broker_version=493)
    assert "decompressed 65536 of 65536" in str(caught.value.detail)


def test_not_compressed_at_all() -> None:
    with pytest.raises(ProtocolError, match="is damaged"):
        decode_register_body(b"{}", compressed=True, broker_version=493)


def test_model_values_are_written_with_upstreams_names() -> None:
    names = {field.encode_name for field in msgspec.structs.fields(TopicConfig)}
    assert {"topicName", "readQueueNums", "topicSysFlag"} <= names


@pytest.mark.parametrize("keys", [b"{0:1,-3 : 2}", b'{"0":1, -3:2}', b'{0:1,"-3":2}'])
def test_numbers_as_keys_are_read_at_any_length(keys: bytes) -> None:
    text = b'{"currIdMap":%b,"topic":"a,1:{2:"}' % keys
    found = decode_body(TopicQueueMappingInfo, text, dialect_bytes_max=0)
    assert found.current_ids == {0: 1, -3: 2}
    assert found.topic == "a,1:{2:"


@pytest.mark.parametrize(
    "text", [b"{topic:'x'}", b"{\"topic\":'x'}", b'{"currIdMap":{0:1,}}', b'{"topic":"x', b"{", b""]
)
def test_other_dialect_has_a_limit(text: bytes) -> None:
    with pytest.raises(ProtocolError, match="Body that is no TopicQueueMappingInfo"):
        decode_body(TopicQueueMappingInfo, text, dialect_bytes_max=0)
