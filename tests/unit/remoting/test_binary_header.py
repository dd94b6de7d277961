"""RocketMQ's binary headers: the layout, and lengths that lie."""

from __future__ import annotations

import struct

import pytest

from roquet.errors import ProtocolError
from roquet.remoting.binary_header import (
    MIN_HEADER_BYTES,
    decode_binary_header,
    encode_binary_header,
)
from roquet.remoting.codes import LanguageCode, RequestCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import SerializeType
from roquet.remoting.json_header import MAX_EXT_FIELDS

COMMAND = RemotingCommand(
    code=310,
    language=LanguageCode.GO,
    version=493,
    opaque=-2,
    flag=3,
    remark="né",
    ext_fields={"a": "group", "i": ""},
    serialize_type=SerializeType.ROCKETMQ,
)
DATA = (
    struct.pack(">hbhiii", 310, 9, 493, -2, 3, 3)
    + "né".encode()
    + struct.pack(">i", 19)
    + b"\x00\x01a\x00\x00\x00\x05group"
    + b"\x00\x01i\x00\x00\x00\x00"
)


def with_ext(ext: bytes) -> bytes:
    return struct.pack(">hbhiiii", 1, 0, 0, 0, 0, 0, len(ext)) + ext


def test_layout() -> None:
    assert encode_binary_header(COMMAND) == DATA
    assert decode_binary_header(DATA) == COMMAND


def test_the_shortest_header() -> None:
    command = RemotingCommand(code=0, serialize_type=SerializeType.ROCKETMQ)
    data = encode_binary_header(command)
    assert data == bytes(MIN_HEADER_BYTES)
    assert decode_binary_header(data) == command


def test_none_and_empty_look_alike() -> None:
    command = RemotingCommand(code=0, remark="", ext_fields={})
    assert encode_binary_header(command) == bytes(MIN_HEADER_BYTES)


def test_codes_are_signed() -> None:
    command = RemotingCommand(code=-1000, serialize_type=SerializeType.ROCKETMQ)
    assert decode_binary_header(encode_binary_header(command)) == command


@pytest.mark.parametrize("language", [-1, 14, 127])
def test_unknown_language(language: int) -> None:
    data = struct.pack(">hb", 0, language) + bytes(18)
    assert decode_binary_header(data).language is LanguageCode.OTHER


def test_bytes_that_are_not_utf8_are_replaced_as_in_java() -> None:
    command = decode_binary_header(with_ext(b"\x00\x01a\x00\x00\x00\x01\xff"))
    assert command.ext_fields == {"a": "\ufffd"}


@pytest.mark.parametrize("length", range(MIN_HEADER_BYTES))
def test_too_short(length: int) -> None:
    with pytest.raises(ProtocolError, match="bad length of its header"):
        decode_binary_header(bytes(length))


@pytest.mark.parametrize("remark_bytes", [-1, -(2**31), 1, 2**31 - 1])
def test_false_remark_length(remark_bytes: int) -> None:
    data = bytes(13) + struct.pack(">ii", remark_bytes, 0)
    with pytest.raises(ProtocolError, match="bad length of its remark"):
        decode_binary_header(data)


@pytest.mark.parametrize("ext_bytes", [-1, -(2**31), 1, 2**31 - 1])
def test_false_ext_length(ext_bytes: int) -> None:
    data = bytes(17) + struct.pack(">i", ext_bytes)
    with pytest.raises(ProtocolError, match="bad length of its ext fields"):
        decode_binary_header(data)


def test_bytes_after_the_ext_fields_are_refused() -> None:
    with pytest.raises(ProtocolError, match="bad length of its ext fields"):
        decode_binary_header(DATA + b"\x00")


@pytest.mark.parametrize(
    ("ext", "what"),
    [
        (b"\x00", "name"),
        (b"\xff\xff" + bytes(0xFFFF) + bytes(4), "value"),
        (b"\xff\xffaaaaaaaa", "name"),
        (b"\x7f\xffaaaaaaaa", "name"),
        (b"\x00\x01a", "name"),
        (b"\x00\x01a\x00\x00\x00", "name"),
        (b"\x00\x01a\xff\xff\xff\xff", "value"),
        (b"\x00\x01a\x7f\xff\xff\xff", "value"),
        (b"\x00\x01a\x00\x00\x00\x02b", "value"),
    ],
)
def test_false_lengths_inside_the_ext_fields(ext: bytes, what: str) -> None:
    with pytest.raises(ProtocolError, match=f"bad length of its {what}"):
        decode_binary_header(with_ext(ext))


def test_every_cut_of_a_good_header_is_refused() -> None:
    for end in range(len(DATA)):
        with pytest.raises(ProtocolError):
            decode_binary_header(DATA[:end])


def test_too_many_ext_fields() -> None:
    pairs = [
        b"\x00\x04" + f"{number:04}".encode() + bytes(4) for number in range(MAX_EXT_FIELDS + 1)
    ]
    good = decode_binary_header(with_ext(b"".join(pairs[:-1])))
    assert len(good.ext_fields or {}) == MAX_EXT_FIELDS
    with pytest.raises(ProtocolError, match="1025 ext fields"):
        decode_binary_header(with_ext(b"".join(pairs)))


@pytest.mark.parametrize("code", [RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE, 32768])
def test_pop_codes_are_not_written(code: int) -> None:
    with pytest.raises(ProtocolError, match="does not fit a binary header") as caught:
        encode_binary_header(RemotingCommand(code=code))
    assert "JSON" in str(caught.value.hint)


def test_names_too_long_are_not_written() -> None:
    command = RemotingCommand(code=1, ext_fields={"n" * 32768: "v"})
    with pytest.raises(ProtocolError, match="name is too long"):
        encode_binary_header(command)
