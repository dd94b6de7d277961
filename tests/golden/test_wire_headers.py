"""Typed headers: those of Apache RocketMQ 5.4.0, and those of the golden runs."""

from __future__ import annotations

from collections import Counter
from typing import TypedDict, cast

import pytest

from roquet.errors import ProtocolError
from roquet.remoting.codec import decode_command
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers import send
from roquet.remoting.headers.base import (
    Header,
    decode_header,
    encode_header,
    header_fields,
)
from roquet.remoting.headers.table import REQUEST_HEADERS, RESPONSE_HEADERS
from tests.golden.wire_frames import GoldenFrame, golden_frames, protocol


class JavaHeader(TypedDict):
    code: int | None
    fields: list[tuple[str, str, bool]]


JAVA_TYPES = {
    "String": "string",
    "Integer": "int",
    "int": "int",
    "Long": "long",
    "long": "long",
    "Boolean": "boolean",
    "boolean": "boolean",
    "BoundaryType": "LOWER or UPPER",
}

# Ours for several of theirs, or under a name that says request.
OUR_NAMES = {
    "AddWritePermOfBrokerRequestHeader": "BrokerNameRequestHeader",
    "ConsumeMessageDirectlyResultRequestHeader": "ConsumeMessageDirectlyRequestHeader",
    "CreateAclRequestHeader": "AclRequestHeader",
    "CreateUserRequestHeader": "UserRequestHeader",
    "DeleteKVConfigRequestHeader": "KVKeyRequestHeader",
    "DeleteUserRequestHeader": "UserRequestHeader",
    "ExchangeHAInfoRequestHeader": "ExchangeHAInfoHeader",
    "ExchangeHAInfoResponseHeader": "ExchangeHAInfoHeader",
    "GetAclRequestHeader": "AclRequestHeader",
    "GetConsumeStatsInBrokerHeader": "GetConsumeStatsInBrokerRequestHeader",
    "GetKVConfigRequestHeader": "KVKeyRequestHeader",
    "GetMaxOffsetResponseHeader": "OffsetResponseHeader",
    "GetMinOffsetResponseHeader": "OffsetResponseHeader",
    "GetTopicConfigRequestHeader": "TopicRequestHeader",
    "GetTopicStatsInfoRequestHeader": "TopicRequestHeader",
    "GetUserRequestHeader": "UserRequestHeader",
    "QueryConsumerOffsetResponseHeader": "OffsetResponseHeader",
    "QueryCorrectionOffsetHeader": "QueryCorrectionOffsetRequestHeader",
    "QueryTopicConsumeByWhoRequestHeader": "TopicRequestHeader",
    "ResetMasterFlushOffsetHeader": "ResetMasterFlushOffsetRequestHeader",
    "SearchOffsetResponseHeader": "OffsetResponseHeader",
    "UnRegisterBrokerRequestHeader": "UnregisterBrokerRequestHeader",
    "UpdateAclRequestHeader": "AclRequestHeader",
    "UpdateUserRequestHeader": "UserRequestHeader",
    "WipeWritePermOfBrokerRequestHeader": "BrokerNameRequestHeader",
}

# Belong to no request code of 5.4.0.
UNUSED = {
    "InitConsumerOffsetRequestHeader",
    "RegisterOrderTopicRequestHeader",
    "StatisticsMessagesRequestHeader",
}

# Required by upstream's annotation, but clients before 5.3.4 send no header at all.
OPTIONAL_HERE = {"topicSeq", "groupSeq"}

TYPES: dict[str, type[Header]] = {
    each.__name__: each for each in [*REQUEST_HEADERS.values(), *RESPONSE_HEADERS.values()]
}


def java_headers() -> dict[str, JavaHeader]:
    return cast("dict[str, JavaHeader]", protocol()["headers"])


@pytest.mark.parametrize("java_name", sorted(set(java_headers()) - UNUSED))
def test_fields_are_upstreams(java_name: str) -> None:
    ours = TYPES[OUR_NAMES.get(java_name, java_name)]
    theirs = {
        name: (JAVA_TYPES[java_type], required and name not in OPTIONAL_HERE)
        for name, java_type, required in java_headers()[java_name]["fields"]
    }
    if ours is send.SendMessageRequestHeaderV2:
        theirs.pop("bname")  # n says the same
    assert {f.wire_name: (f.type_name, f.required) for f in header_fields(ours)} == theirs


def test_every_request_of_upstream_has_its_header() -> None:
    for name, java in java_headers().items():
        if java["code"] is not None and name.endswith("RequestHeader"):
            ours = REQUEST_HEADERS[RequestCode(java["code"])]
            assert ours.__name__ == OUR_NAMES.get(name, name)


def test_our_own_types_match_upstream() -> None:
    named = {OUR_NAMES.get(name, name) for name in java_headers()}
    # Upstream adds the two fields of a heartbeat's response by hand.
    assert set(TYPES) - named == {"HeartbeatResponseHeader"}


def header_type_of(golden: GoldenFrame) -> type[Header] | None:
    code = golden.known_code
    if code is None:
        return None
    return (RESPONSE_HEADERS if golden.is_response else REQUEST_HEADERS).get(code)


# What hooks and other helpers of upstream add beside a header.
FOREIGN = {"ReqT", "TRACE_ON", "MSG_REGION", "_UNIQUE_KEY_QUERY"}

REFUSED = {
    'the custom field <e> is no number. For input string: "zero"',
    "the custom field <b> is null",
}


def test_every_header_of_the_runs_round_trips() -> None:
    kinds = Counter[str]()
    refused: set[str] = set()
    for golden in golden_frames():
        header_type = header_type_of(golden)
        ext_fields = decode_command(golden.frame).ext_fields
        failed = golden.is_response and golden.header["code"] != 0
        if header_type is None or ext_fields is None or failed:
            continue
        try:
            header = decode_header(header_type, ext_fields)
        except ProtocolError as error:
            refused.add(error.message)
            continue
        known = {each.wire_name for each in header_fields(header_type)}
        others = {name: text for name, text in ext_fields.items() if name not in known}
        assert set(others) <= FOREIGN, golden.place
        assert {**encode_header(header), **others} == ext_fields, golden.place
        kinds[header_type.__name__] += 1
    assert refused == REFUSED
    assert len(kinds) == 55
    assert sum(kinds.values()) == 2142


def test_binary_order_of_hot_headers() -> None:
    """Upstream writes the fields of its hot headers in their order, then those of hooks."""
    checked = 0
    for golden in golden_frames():
        header_type = header_type_of(golden)
        if golden.frame.serialize_type == 1 and golden.request_code in {310, 320, 325, 11, 361}:
            assert header_type is not None
            ext_fields = decode_command(golden.frame).ext_fields or {}
            try:
                ours = encode_header(decode_header(header_type, ext_fields))
            except ProtocolError:
                continue
            if next(iter(ext_fields)) in {"a", "consumerGroup"}:
                assert list(ours) == [name for name in ext_fields if name in ours], golden.place
                checked += 1
    assert checked > 180
