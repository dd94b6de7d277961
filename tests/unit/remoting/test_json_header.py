"""JSON headers: Java's order and omissions, and the dialects of others."""

from __future__ import annotations

import pytest

from roquet.errors import ProtocolError
from roquet.remoting.codes import LanguageCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import SerializeType
from roquet.remoting.json_header import (
    DIALECT_HEADER_BYTES_MAX,
    MAX_EXT_FIELDS,
    decode_json_header,
    encode_json_header,
)


def test_order_and_omissions() -> None:
    command = RemotingCommand(code=0, language=LanguageCode.GO, version=493, opaque=7, flag=1)
    assert encode_json_header(command) == (
        b'{"code":0,"flag":1,"language":"GO","opaque":7,'
        b'"serializeTypeCurrentRPC":"JSON","version":493}'
    )
    command.ext_fields = {}
    command.remark = ""
    assert encode_json_header(command) == (
        b'{"code":0,"extFields":{},"flag":1,"language":"GO","opaque":7,"remark":"",'
        b'"serializeTypeCurrentRPC":"JSON","version":493}'
    )


def test_ext_fields_keep_their_order() -> None:
    command = RemotingCommand(code=1, ext_fields={"z": "1", "a": "2", "m": "3"})
    assert b'"extFields":{"z":"1","a":"2","m":"3"}' in encode_json_header(command)
    read = decode_json_header(encode_json_header(command))
    assert list(read.ext_fields or {}) == ["z", "a", "m"]


def test_strings_are_escaped_as_fastjson_does() -> None:
    command = RemotingCommand(code=1, remark='\x01\x02\x1f\x7f"\\/\b\f\n\r\té\u2028😀')
    expected = '"remark":"\\u0001\\u0002\\u001f\x7f\\"\\\\/\\b\\f\\n\\r\\té\u2028😀"'
    assert expected.encode() in encode_json_header(command)


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    command = RemotingCommand(
        code=1, remark="a\ud800b", version=493, ext_fields={"k": "\udfff", "é": "v"}
    )
    assert encode_json_header(command) == (
        b'{"code":1,"extFields":{"k":"?","\xc3\xa9":"v"},"flag":0,"language":"JAVA","opaque":0,'
        b'"remark":"a?b",'
        b'"serializeTypeCurrentRPC":"JSON","version":493}'
    )


def test_gos_dialect() -> None:
    command = decode_json_header(
        b'{"code":105,"language":"GO","version":317,"opaque":3,"flag":0,"remark":"",'
        b'"extFields":{"topic":"T"}}'
    )
    assert command == RemotingCommand(
        code=105,
        language=LanguageCode.GO,
        version=317,
        opaque=3,
        remark="",
        ext_fields={"topic": "T"},
        serialize_type=SerializeType.JSON,
    )


def test_numbers_and_nulls_among_ext_fields() -> None:
    command = decode_json_header(
        b'{"code":11,"extFields":{"queueId":3,"order":true,"x":null,"rate":0.5,"t":"v"},'
        b'"language":"CPP","remark":null}'
    )
    assert command.ext_fields == {"queueId": "3", "order": "true", "rate": "0.5", "t": "v"}
    assert (command.language, command.remark) == (LanguageCode.CPP, None)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (b'{"language":"PYTHON"}', LanguageCode.PYTHON),
        (b'{"language":"COBOL"}', LanguageCode.OTHER),
        (b'{"language":9}', LanguageCode.GO),
        (b'{"language":99}', LanguageCode.OTHER),
        (b'{"language":[1]}', LanguageCode.OTHER),
        (b'{"language":null}', LanguageCode.JAVA),
        (b"{}", LanguageCode.JAVA),
    ],
)
def test_languages(text: bytes, language: LanguageCode) -> None:
    assert decode_json_header(text).language is language


def test_members_may_be_missing_unknown_or_texts() -> None:
    assert decode_json_header(b"{}") == RemotingCommand(code=0)
    command = decode_json_header(b'{"code":"34","opaque":"-5","new":{"a":[1,2]},"version":null}')
    assert (command.code, command.opaque, command.version) == (34, -5, 0)


def test_fastjsons_liberties() -> None:
    command = decode_json_header(b"{'code':34,extFields:{a:'b'},}")
    assert (command.code, command.ext_fields) == (34, {"a": "b"})


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"34",
        b"{",
        b'{"code":2147483648}',
        b'{"code":-2147483649}',
        b'{"code":1.5}',
        b'{"code":true}',
        b'{"code":"x"}',
        b'{"code":[]}',
        b'{"opaque":"99999999999"}',
        b'{"extFields":[]}',
        b'{"extFields":{"a":{}}}',
        b'{"extFields":{"a":[1]}}',
        b'{"extFields":{{"a":1}:1}}',
        b'{"remark":{}}',
        b'{"remark":"\\ud800"}',
        b'{"remark":"\xff"}',
        b'{"extFields":{"a":"\xff"}}',
        b'{"a":' + b"[" * 100_000,
        b'{"extFields":' + b'{"a":' * 5_000,
        b"\x00" * 50,
    ],
)
def test_everything_else_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_json_header(text)


def test_too_many_ext_fields() -> None:
    fields = ",".join(f'"f{number}":"v"' for number in range(MAX_EXT_FIELDS))
    assert len(decode_json_header(f'{{"extFields":{{{fields}}}}}'.encode()).ext_fields or {}) == (
        MAX_EXT_FIELDS
    )
    with pytest.raises(ProtocolError, match="1025 ext fields"):
        decode_json_header(f'{{"extFields":{{{fields},"g":"v"}}}}'.encode())


def test_long_headers_are_read_only_if_they_are_standard_json() -> None:
    value = "v" * DIALECT_HEADER_BYTES_MAX
    command = decode_json_header(f'{{"code":10,"extFields":{{"n":1,"i":"{value}"}}}}'.encode())
    assert command.ext_fields == {"n": "1", "i": value}
    with pytest.raises(ProtocolError, match="Header that is not JSON"):
        decode_json_header(f"{{'code':10,'remark':'{value}'}}".encode())
