"""Requests, responses, and the choice of a header codec."""

from __future__ import annotations

import pytest

from roquet.remoting.codec import decode_command, encode_command, encode_command_head
from roquet.remoting.codes import LanguageCode, RequestCode, ResponseCode, version_name
from roquet.remoting.command import (
    CURRENT_VERSION,
    RemotingCommand,
    create_request,
    create_response,
)
from roquet.remoting.frame import Frame, FrameDecoder, SerializeType
from roquet.remoting.headers.admin import TopicRequestHeader
from roquet.remoting.headers.offset import OffsetResponseHeader


def only_frame(data: bytes) -> Frame:
    decoder = FrameDecoder()
    decoder.feed(data)
    (frame,) = list(decoder)
    return frame


def test_request() -> None:
    request = create_request(
        RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic="T"), opaque=5, body=b"x"
    )
    assert request == RemotingCommand(
        code=351,
        language=LanguageCode.PYTHON,
        version=493,
        opaque=5,
        flag=0,
        ext_fields={"topic": "T"},
        body=b"x",
        serialize_type=SerializeType.JSON,
    )
    assert (request.is_response, request.is_oneway) == (False, False)
    assert request.code_name == "GET_TOPIC_CONFIG"


def test_oneway_request() -> None:
    request = create_request(RequestCode.HEART_BEAT, opaque=5, oneway=True)
    assert (request.is_response, request.is_oneway, request.flag) == (False, True, 2)
    assert request.ext_fields is None


def test_response() -> None:
    request = create_request(
        RequestCode.GET_MAX_OFFSET, opaque=77, serialize_type=SerializeType.ROCKETMQ
    )
    response = create_response(request, ResponseCode.SUCCESS, OffsetResponseHeader(queue_offset=9))
    assert response == RemotingCommand(
        code=0,
        language=LanguageCode.JAVA,
        version=CURRENT_VERSION,
        opaque=77,
        flag=1,
        ext_fields={"offset": "9"},
    )
    assert response.is_response
    assert response.code_name == "SUCCESS"


def test_response_with_a_remark() -> None:
    request = create_request(9999, opaque=1)
    response = create_response(
        request,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        remark=f" request type {request.code_name} not supported",
    )
    assert response.remark == " request type 9999 not supported"


def test_our_version_is_5_4_0() -> None:
    assert version_name(CURRENT_VERSION) == "V5_4_0"


@pytest.mark.parametrize("serialize_type", SerializeType)
def test_both_codecs(serialize_type: SerializeType) -> None:
    request = create_request(
        RequestCode.GET_TOPIC_CONFIG,
        TopicRequestHeader(topic="T"),
        opaque=5,
        body=b"body",
        serialize_type=serialize_type,
    )
    data = encode_command(request)
    frame = only_frame(data)
    assert frame.serialize_type is serialize_type
    assert decode_command(frame) == request
    assert encode_command_head(request, body_bytes=4) + b"body" == data
