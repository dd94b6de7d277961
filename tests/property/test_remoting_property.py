"""The protocol's codecs undo each other, and bad bytes are always refused cleanly."""

from __future__ import annotations

import base64
import contextlib
import json
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from roquet.errors import ProtocolError
from roquet.model.fastjson import dumps
from roquet.model.message_queue import MessageQueue
from roquet.remoting.binary_header import decode_binary_header, encode_binary_header
from roquet.remoting.bodies.client import ConsumerRunningInfo, HeartbeatData, LockBatchRequestBody
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.bodies.offset import ConsumeStats, OffsetWrapper
from roquet.remoting.bodies.register import decode_register_body
from roquet.remoting.bodies.route import BrokerData, ClusterInfo, TopicRouteData
from roquet.remoting.bodies.table import REQUEST_BODIES, RESPONSE_BODIES
from roquet.remoting.codec import decode_command, encode_command
from roquet.remoting.codes import LanguageCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import Frame, FrameDecoder, SerializeType, encode_frame
from roquet.remoting.headers.base import Header, decode_header, encode_header, header_fields
from roquet.remoting.headers.table import REQUEST_HEADERS, RESPONSE_HEADERS
from roquet.remoting.json_header import decode_json_header, encode_json_header
from tests.campaign import examples

WIRE = Path(__file__).parents[1] / "golden" / "data" / "wire"

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
HEADER_TYPES: list[type[Header]] = list(
    dict.fromkeys([*REQUEST_HEADERS.values(), *RESPONSE_HEADERS.values()])
)
BODY_TYPES: list[type[Struct]] = list(
    dict.fromkeys([*REQUEST_BODIES.values(), *RESPONSE_BODIES.values()])
)

JSON_COMMANDS = st.builds(
    RemotingCommand,
    code=INT32,
    language=st.sampled_from(LanguageCode),
    version=INT32,
    opaque=INT32,
    flag=INT32,
    remark=st.none() | TEXT,
    ext_fields=st.none() | st.dictionaries(TEXT, TEXT, max_size=8),
    body=st.binary(max_size=50),
    serialize_type=st.just(SerializeType.JSON),
)
# An empty remark or map of fields looks like a missing one in this form.
BINARY_COMMANDS = st.builds(
    RemotingCommand,
    code=INT16,
    language=st.sampled_from(LanguageCode),
    version=INT16,
    opaque=INT32,
    flag=INT32,
    remark=st.none() | TEXT.filter(bool),
    ext_fields=st.none() | st.dictionaries(TEXT, TEXT, min_size=1, max_size=8),
    body=st.binary(max_size=50),
    serialize_type=st.just(SerializeType.ROCKETMQ),
)


def golden_heads() -> list[bytes]:
    return [
        base64.b64decode(json.loads(line)["head"])
        for run in ("json", "binary")
        for line in (WIRE / f"{run}.jsonl").read_text("utf-8").splitlines()[::25]
    ]


GOLDEN_HEADS = golden_heads()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A golden header with some bytes changed, cut out or put in."""
    data = bytearray(draw(st.sampled_from(GOLDEN_HEADS)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        data[place : place + draw(st.integers(0, 5))] = draw(st.binary(max_size=5))
    return bytes(data)


ANY_BYTES = st.binary(max_size=200) | damaged()


# ------------------------------------------------------------------------------------- round trips


@given(JSON_COMMANDS | BINARY_COMMANDS)
def test_commands_round_trip(command: RemotingCommand) -> None:
    decoder = FrameDecoder()
    decoder.feed(encode_command(command))
    (frame,) = list(decoder)
    assert decode_command(frame) == command


@given(JSON_COMMANDS)
def test_json_headers_equal_fastjsons(command: RemotingCommand) -> None:
    """The quick writer and the exact writer of the dialect agree on every header."""
    assert encode_json_header(command).decode() == dumps(
        {
            "code": command.code,
            "extFields": command.ext_fields,
            "flag": command.flag,
            "language": command.language.name,
            "opaque": command.opaque,
            "remark": command.remark,
            "serializeTypeCurrentRPC": "JSON",
            "version": command.version,
        }
    )


@given(BINARY_COMMANDS)
def test_binary_headers_are_canonical(command: RemotingCommand) -> None:
    header = encode_binary_header(command)
    assert encode_binary_header(decode_binary_header(header)) == header


@given(
    st.lists(st.tuples(st.sampled_from(SerializeType), st.binary(max_size=60), st.binary())),
    st.lists(st.integers(1, 40), min_size=1),
)
def test_a_stream_may_be_cut_anywhere(
    parts: list[tuple[SerializeType, bytes, bytes]], steps: list[int]
) -> None:
    frames = [Frame(*part) for part in parts]
    stream = b"".join(encode_frame(*frame) for frame in frames)
    decoder = FrameDecoder()
    found: list[Frame] = []
    position = turn = 0
    while position < len(stream):
        step = steps[turn % len(steps)]
        decoder.feed(stream[position : position + step])
        found += list(decoder)
        position += step
        turn += 1
    assert found == frames
    assert decoder.buffered_bytes == 0


@st.composite
def header_values(draw: st.DrawFn) -> tuple[type[Header], dict[str, str]]:
    header_type = draw(st.sampled_from(HEADER_TYPES))
    texts = {
        "string": TEXT,
        "int": INT32.map(str),
        "long": INT64.map(str),
        "boolean": st.sampled_from(["true", "false"]),
        "LOWER or UPPER": st.sampled_from(["LOWER", "UPPER"]),
    }
    fields = {
        field.wire_name: draw(texts[field.type_name])
        for field in header_fields(header_type)
        if field.required or draw(st.booleans())
    }
    return header_type, fields


@given(header_values())
def test_ext_fields_round_trip(case: tuple[type[Header], dict[str, str]]) -> None:
    header_type, fields = case
    written = encode_header(decode_header(header_type, fields))
    assert {name: written[name] for name in fields} == fields
    assert decode_header(header_type, written) == decode_header(header_type, fields)


QUEUES = st.builds(MessageQueue, TEXT, TEXT, INT32)
BROKERS = st.builds(
    BrokerData,
    broker_addrs=st.dictionaries(st.integers(0, 2**53), TEXT, max_size=4),
    broker_name=st.none() | TEXT,
    zone_name=st.none() | TEXT,
)


@given(
    st.builds(
        TopicRouteData,
        broker_datas=st.lists(BROKERS, max_size=3),
        filter_server_table=st.dictionaries(TEXT, st.lists(TEXT, max_size=2), max_size=3),
        order_topic_conf=st.none() | TEXT,
    ),
    st.booleans(),
)
def test_routes_round_trip_in_both_dialects(route: TopicRouteData, standard: bool) -> None:  # noqa: FBT001
    data = encode_body(route, standard=standard)
    assert decode_body(TopicRouteData, data) == route
    if standard:
        assert json.loads(data) is not None


@given(
    st.builds(
        ConsumeStats,
        consume_tps=st.floats(allow_nan=False, allow_infinity=False),
        offset_table=st.dictionaries(
            QUEUES, st.builds(OffsetWrapper, broker_offset=INT64, pull_offset=INT64), max_size=4
        ),
    )
)
def test_queues_as_keys_round_trip(stats: ConsumeStats) -> None:
    assert decode_body(ConsumeStats, encode_body(stats)) == stats


# ------------------------------------------------------------------------------------ hostile bytes


def only_protocol_errors(decode: Callable[[], object]) -> None:
    with contextlib.suppress(ProtocolError):
        decode()


@given(ANY_BYTES)
@example(b'{"code":1e400}')
@example(b'{"extFields":{"\\u0000":"\\uD83D"}}')
def test_json_headers_fail_only_by_refusal(data: bytes) -> None:
    only_protocol_errors(lambda: decode_json_header(data))


@given(ANY_BYTES)
def test_binary_headers_fail_only_by_refusal(data: bytes) -> None:
    only_protocol_errors(lambda: decode_binary_header(data))


def cut_and_decode(data: bytes) -> None:
    decoder = FrameDecoder()
    decoder.feed(data)
    for frame in decoder:
        assert len(frame.header) + len(frame.body) <= len(data)
        decode_command(frame)


@given(ANY_BYTES)
def test_frames_fail_only_by_refusal(data: bytes) -> None:
    only_protocol_errors(lambda: cut_and_decode(data))


@given(ANY_BYTES, st.sampled_from(SerializeType))
def test_frames_around_bad_headers_fail_only_by_refusal(
    data: bytes, serialize_type: SerializeType
) -> None:
    only_protocol_errors(lambda: cut_and_decode(encode_frame(serialize_type, data)))


@given(st.sampled_from(HEADER_TYPES), st.dictionaries(st.text(max_size=8), st.text(max_size=20)))
def test_headers_fail_only_by_refusal(header_type: type[Header], fields: dict[str, str]) -> None:
    only_protocol_errors(lambda: decode_header(header_type, fields))


@given(st.sampled_from(HEADER_TYPES), st.data())
def test_headers_with_any_texts_fail_only_by_refusal(
    header_type: type[Header], data: st.DataObject
) -> None:
    names = [field.wire_name for field in header_fields(header_type)]
    fields = {name: data.draw(st.text(max_size=12)) for name in names}
    only_protocol_errors(lambda: decode_header(header_type, fields))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: (
        st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4)
    ),
    max_leaves=15,
)


@st.composite
def odd_bodies(draw: st.DrawFn) -> tuple[type[Struct], bytes]:
    """A body type, and an object with its member names and any values."""
    body_type = draw(st.sampled_from(BODY_TYPES))
    names = st.sampled_from(body_type.__struct_encode_fields__)
    members = draw(st.dictionaries(names, JSON_VALUES, max_size=6))
    return body_type, json.dumps(members).encode()


@given(odd_bodies() | st.tuples(st.sampled_from(BODY_TYPES), st.binary(max_size=80)))
@example((HeartbeatData, b'{"clientID":"\\uD800"}'))
@example((ClusterInfo, b'{"brokerAddrTable":{"a":{"brokerAddrs":{99999999999999999999:"x"}}}}'))
@example((ConsumerRunningInfo, b'{"mqTable":{{"a":1}:{}}}'))
@example((LockBatchRequestBody, b'{"mqSet":[{"topic":null,"brokerName":"b","queueId":1}]}'))
def test_bodies_fail_only_by_refusal(case: tuple[type[Struct], bytes]) -> None:
    body_type, data = case
    only_protocol_errors(lambda: decode_body(body_type, data))


@given(odd_bodies())
def test_bodies_that_are_read_can_be_written(case: tuple[type[Struct], bytes]) -> None:
    body_type, data = case
    try:
        body = decode_body(body_type, data)
    except ProtocolError:
        return
    assert decode_body(body_type, encode_body(body)) == body


@given(ANY_BYTES, st.booleans())
def test_register_bodies_fail_only_by_refusal(data: bytes, packed: bool) -> None:  # noqa: FBT001
    body = zlib.compress(data) if packed else data
    only_protocol_errors(lambda: decode_register_body(body, compressed=True, broker_version=493))


# ----------------------------------------------------------------------------------- no allocation


def decode_all(data: bytes) -> None:
    only_protocol_errors(lambda: cut_and_decode(data))
    only_protocol_errors(lambda: decode_binary_header(data))
    only_protocol_errors(lambda: decode_json_header(data))


@settings(max_examples=examples(30))
@given(st.binary(max_size=400))
def test_false_lengths_reserve_no_memory(data: bytes) -> None:
    """Whatever lengths the bytes claim, decoding them stays near their own size."""
    claims = [
        data,
        b"\x00\xff\xff\xf0\x00\x00\x00\x10" + data,
        b"\x00\xff\xff\xf0\x01\x0f\xff\xff" + data,
        bytes(13) + b"\x7f\xff\xff\xff" + data,
        bytes(17) + b"\x7f\xff\xff\xff" + data,
        bytes(17) + len(data).to_bytes(4, "big") + data,
    ]
    for claim in claims:
        decode_all(claim)  # what is imported or compiled at first use is not counted
        tracemalloc.start()
        try:
            decode_all(claim)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes < 64 * 1024
