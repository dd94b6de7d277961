"""Bodies within limits."""

from __future__ import annotations

from typing import cast

import pytest

from roquet.broker.request_body import DIALECT_BYTES_MAX, NULLS_BYTES_MAX, read_body
from roquet.errors import ProtocolError
from roquet.remoting.bodies.client import HeartbeatData, ProducerData
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import create_request
from roquet.remoting.connection import Connection
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import PUBLIC, RequestContext

MANY = 1 << 21


def read(body: bytes, *, max_bytes: int = MANY) -> HeartbeatData:
    request = create_request(RequestCode.HEART_BEAT, opaque=1, body=body)
    context = RequestContext(cast("Connection", None), request, PUBLIC)
    return read_body(context, HeartbeatData, max_bytes=max_bytes)


def padded(text: str, length: int) -> bytes:
    """A text that is at least so long, with blanks in it."""
    return text.replace(" ", " " * length, 1).encode()


STANDARD = '{ "clientID":"c","producerDataSet":[{"groupName":"P"}]}'
WITH_NULLS = '{ "clientID":"c","producerDataSet":[{"groupName":"P"}],"consumerDataSet":null}'
DIALECT = '{ clientID:\'c\',"producerDataSet":[{groupName:"P"}]}'
EXPECTED = HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name="P")])


@pytest.mark.parametrize("length", [1, DIALECT_BYTES_MAX + 1, NULLS_BYTES_MAX + 1])
def test_standard_json_of_any_length(length: int) -> None:
    assert read(padded(STANDARD, length)) == EXPECTED


def test_nulls_up_to_a_length() -> None:
    assert read(padded(WITH_NULLS, 1)) == EXPECTED
    assert read(padded(WITH_NULLS, DIALECT_BYTES_MAX)) == EXPECTED
    with pytest.raises(ProtocolError, match="Body that is no HeartbeatData"):
        read(padded(WITH_NULLS, NULLS_BYTES_MAX))


def test_the_dialect_up_to_a_length() -> None:
    assert read(padded(DIALECT, 1)) == EXPECTED
    with pytest.raises(ProtocolError, match="Body that is no HeartbeatData"):
        read(padded(DIALECT, DIALECT_BYTES_MAX))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b'{"clientID":[]}',
        b'"' + b"\xff" * DIALECT_BYTES_MAX,
        b"[" * (DIALECT_BYTES_MAX + 1),
        b'{"a":' * DIALECT_BYTES_MAX,
        b'{"clientID":{}' + b" " * DIALECT_BYTES_MAX + b"}",
        b"[" * MANY,
        b'{"x":[' + b"{}," * (MANY // 4),
    ],
)
def test_malformed_heartbeats(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="Body that is no HeartbeatData"):
        read(body)


def test_oversized_bodies_are_not_read() -> None:
    with pytest.raises(RequestRefused) as caught:
        read(padded(STANDARD, 10), max_bytes=10)
    assert caught.value.response_code == ResponseCode.INVALID_PARAMETER
    assert read(STANDARD.encode(), max_bytes=len(STANDARD)) == EXPECTED
