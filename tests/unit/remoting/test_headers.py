"""Ext fields as typed headers: Java's numbers, refusals, names."""

from __future__ import annotations

import pytest

from roquet.errors import ProtocolError
from roquet.remoting.headers.base import (
    Header,
    Int32,
    Int64,
    TopicHeader,
    decode_header,
    encode_header,
    header_fields,
)
from roquet.remoting.headers.offset import BoundaryType, SearchOffsetRequestHeader
from roquet.remoting.headers.pull import PopMessageRequestHeader, PullMessageRequestHeader
from roquet.remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from roquet.remoting.headers.table import REQUEST_HEADERS, RESPONSE_HEADERS

LONG = {
    "producerGroup": "pg",
    "topic": "T",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "-1",
    "sysFlag": "0",
    "bornTimestamp": "1794728091332",
    "flag": "0",
    "properties": "TAGS\x01a\x02",
    "reconsumeTimes": "0",
    "unitMode": "false",
    "maxReconsumeTimes": "16",
    "batch": "true",
    "bname": "broker-a",
}
SHORT = dict(zip("abcdefghijklmn", LONG.values(), strict=True))


class Numbers(Header, kw_only=True):
    small: Int32 | None = None
    large: Int64 | None = None
    flag: bool = False


def test_long_and_short_names_are_equivalent() -> None:
    long = decode_header(SendMessageRequestHeader, LONG)
    short = decode_header(SendMessageRequestHeaderV2, SHORT)
    names = SendMessageRequestHeader.__struct_fields__
    assert [getattr(long, name) for name in names] == [getattr(short, name) for name in names]
    assert (short.topic, short.queue_id, short.batch) == ("T", -1, True)
    assert (short.born_timestamp_ms, short.broker_name) == (1794728091332, "broker-a")
    assert isinstance(short, SendMessageRequestHeader)


def test_both_are_written_in_order() -> None:
    long = encode_header(decode_header(SendMessageRequestHeader, LONG))
    short = encode_header(decode_header(SendMessageRequestHeaderV2, SHORT))
    assert list(long.items()) == list(LONG.items())
    assert list(short.items()) == list(SHORT.items())


def test_fields_that_all_requests_share_come_last() -> None:
    header = TopicHeader(namespace="n", namespaced=True, broker_name="b", oneway=False)
    header.logical = True
    assert list(encode_header(header).items()) == [
        ("lo", "true"),
        ("ns", "n"),
        ("nsd", "true"),
        ("bname", "b"),
        ("oway", "false"),
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("+5", 5),
        ("007", 7),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
    ],
)
def test_numbers_as_java_reads_them(text: str, value: int) -> None:
    assert decode_header(Numbers, {"small": text, "large": text}) == Numbers(
        small=value, large=value
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "zero",
        " 1",
        "1 ",
        "1_0",
        "+_5",
        "1.0",
        "1e3",
        "0x10",
        "--1",
        "+",
        "-",
        "²",
        "9" * 5000,
    ],
)
@pytest.mark.parametrize("name", ["small", "large"])
def test_bad_numbers_name_the_field(name: str, text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_header(Numbers, {name: text})
    assert caught.value.message == (
        f'the custom field <{name}> is no number. For input string: "{text[:40]}"'
    )
    assert caught.value.code == "bad_header_field"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("small", "2147483648"),
        ("small", "-2147483649"),
        ("large", str(2**63)),
        ("large", str(-(2**63) - 1)),
    ],
)
def test_numbers_out_of_range(name: str, text: str) -> None:
    with pytest.raises(ProtocolError, match=f"<{name}> is no number"):
        decode_header(Numbers, {name: text})


def test_the_ends_of_a_long() -> None:
    for value in (2**63 - 1, -(2**63)):
        assert decode_header(Numbers, {"large": str(value)}).large == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("TRUE", True), ("True", True), ("false", False), ("1", False), ("", False)],
)
def test_booleans_as_java_reads_them(text: str, value: bool) -> None:  # noqa: FBT001
    assert decode_header(Numbers, {"flag": text}).flag is value


def test_enums_by_name_with_a_default() -> None:
    fields = {"topic": "T", "queueId": "0", "timestamp": "5"}
    for text, expected in [
        ("UPPER", BoundaryType.UPPER),
        ("upper", BoundaryType.UPPER),
        ("LOWER", BoundaryType.LOWER),
        ("sideways", BoundaryType.LOWER),
    ]:
        header = decode_header(SearchOffsetRequestHeader, {**fields, "boundaryType": text})
        assert header.boundary_type is expected
    header = decode_header(SearchOffsetRequestHeader, fields)
    assert header.boundary_type is None
    header.boundary_type = BoundaryType.UPPER
    assert encode_header(header)["boundaryType"] == "UPPER"


@pytest.mark.parametrize("missing", ["a", "b", "e", "g", "h"])
def test_a_missing_field_is_named_in_upstreams_words(missing: str) -> None:
    fields = {name: text for name, text in SHORT.items() if name != missing}
    with pytest.raises(ProtocolError) as caught:
        decode_header(SendMessageRequestHeaderV2, fields)
    assert caught.value.message == f"the custom field <{missing}> is null"
    assert caught.value.code == "missing_header_field"


def test_no_ext_fields_at_all() -> None:
    with pytest.raises(ProtocolError, match="the custom field <consumerGroup> is null") as caught:
        decode_header(PullMessageRequestHeader, None)
    assert "subVersion" in str(caught.value.detail)
    assert decode_header(Numbers, None) == Numbers()


def test_fields_that_are_primitive_in_java_may_be_missing() -> None:
    header = decode_header(PopMessageRequestHeader, {"consumerGroup": "g", "topic": "T"})
    assert (header.queue_id, header.max_msg_nums, header.order) == (0, 0, False)


def test_unknown_fields_are_ignored() -> None:
    fields = {**SHORT, "AccessKey": "k", "Signature": "s", "ns": "n"}
    header = decode_header(SendMessageRequestHeaderV2, fields)
    assert header.namespace == "n"


def test_a_misspelled_name_stays_misspelled() -> None:
    names = {field.name: field.wire_name for field in header_fields(PullMessageRequestHeader)}
    assert names["proxy_forward_client_id"] == "proxyFrowardClientId"


@pytest.mark.parametrize(
    "header_type", dict.fromkeys([*REQUEST_HEADERS.values(), *RESPONSE_HEADERS.values()])
)
def test_every_type_writes_and_reads_all_of_its_fields(header_type: type[Header]) -> None:
    samples = {"string": "text", "int": "-7", "long": str(2**40), "boolean": "true"}
    fields = {
        field.wire_name: samples.get(field.type_name, "UPPER")
        for field in header_fields(header_type)
    }
    header = decode_header(header_type, fields)
    assert encode_header(header) == fields
    assert list(encode_header(header)) == list(fields)


def test_an_unsupported_type_is_refused() -> None:
    class Bad(Header, kw_only=True):
        items: list[str]

    with pytest.raises(TypeError, match="has no form among ext fields"):
        decode_header(Bad, {"items": "x"})
