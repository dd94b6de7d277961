"""The header of a command as JSON.

Encodes and decodes JSON headers in fastjson's layout:

.. code-block:: text

    {"code":310,"extFields":{"a":"group",…},"flag":0,"language":"JAVA","opaque":7,
     "remark":"…","serializeTypeCurrentRPC":"JSON","version":493}

Members are written in this order, without white space; ``extFields`` and ``remark`` are omitted if
there are none. ``extFields`` keeps the order it was given.

Members may come in any order, and none is required. A header that differs from Java's goes through
a second, lenient reader: numbers and booleans among the ext fields (C++ clients), a number for the
language, nulls, fastjson's liberties with quotes.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from roquet.errors import ProtocolError
from roquet.model.fastjson import JsonKey, JsonSyntaxError, JsonValue, dumps, loads
from roquet.remoting.codes import LanguageCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import SerializeType

__all__ = ["MAX_EXT_FIELDS", "decode_json_header", "encode_json_header"]

MAX_EXT_FIELDS = 1024
"""How many ext fields a header may have; real ones have fewer than thirty."""

INT_MIN = -(2**31)
INT_MAX = 2**31 - 1
DIALECT_HEADER_BYTES_MAX = 1 << 14
"""Longer headers must be standard JSON: reading the dialect costs about a microsecond a byte."""

_Int = Annotated[int, Meta(ge=INT_MIN, le=INT_MAX)]


class _Incoming(Struct, rename="camel"):
    code: _Int = 0
    ext_fields: dict[str, str] | None = None
    flag: _Int = 0
    language: str = "JAVA"
    opaque: _Int = 0
    remark: str | None = None
    version: _Int = 0


class _Outgoing(Struct, rename="camel", omit_defaults=True, kw_only=True):
    code: int
    ext_fields: dict[str, str] | None = None
    flag: int
    language: str
    opaque: int
    remark: str | None = None
    serialize_type: str = field(name="serializeTypeCurrentRPC")
    version: int


_decoder = msgspec.json.Decoder(_Incoming)
_encoder = msgspec.json.Encoder()
_LANGUAGES = {code.name: code for code in LanguageCode}
_LANGUAGE_NUMBERS = {int(code): code for code in LanguageCode}


def decode_json_header(header: bytes) -> RemotingCommand:
    """Decode a header into a command without a body.

    Raises:
        ProtocolError: The header is not a JSON object, or a member is invalid.

    Example:
        >>> command = decode_json_header(b'{"code":105,"extFields":{"topic":"T"},"language":"GO"}')
        >>> command.code, command.language.name, command.ext_fields
        (105, 'GO', {'topic': 'T'})
    """
    try:
        incoming = _decoder.decode(header)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        incoming = _read_patiently(header)
    ext_fields = incoming.ext_fields
    if ext_fields is not None and len(ext_fields) > MAX_EXT_FIELDS:
        raise ProtocolError(
            f"Header with {len(ext_fields)} ext fields", detail=f"at most {MAX_EXT_FIELDS}"
        )
    return RemotingCommand(
        code=incoming.code,
        language=_LANGUAGES.get(incoming.language, LanguageCode.OTHER),
        version=incoming.version,
        opaque=incoming.opaque,
        flag=incoming.flag,
        remark=incoming.remark,
        ext_fields=ext_fields,
        serialize_type=SerializeType.JSON,
    )


def encode_json_header(command: RemotingCommand) -> bytes:
    """Encode the header of a command, byte for byte as Java does."""
    outgoing = _Outgoing(
        code=command.code,
        ext_fields=command.ext_fields,
        flag=command.flag,
        language=command.language.name,
        opaque=command.opaque,
        remark=command.remark,
        serialize_type="JSON",
        version=command.version,
    )
    try:
        return _encoder.encode(outgoing)
    except UnicodeEncodeError:
        outgoing.remark = command.remark and _as_java_writes(command.remark)
        outgoing.ext_fields = command.ext_fields and {
            _as_java_writes(name): _as_java_writes(text)
            for name, text in command.ext_fields.items()
        }
        return _encoder.encode(outgoing)


def _as_java_writes(text: str) -> str:
    """The text with a question mark for each lone surrogate."""
    return text.encode("utf-8", "replace").decode()


def _read_patiently(header: bytes) -> _Incoming:
    try:
        if len(header) > DIALECT_HEADER_BYTES_MAX:
            members: JsonValue = msgspec.json.decode(header)
        else:
            members = loads(header)
    except (JsonSyntaxError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ProtocolError(
            "Header that is not JSON", detail=f"{header[:40]!r} …: {error}"
        ) from error
    if not isinstance(members, dict):
        raise ProtocolError("Header that is not a JSON object", detail=f"{header[:40]!r}")
    remark = members.get("remark")
    return _Incoming(
        code=_integer(members.get("code"), "code"),
        ext_fields=_texts(members.get("extFields")),
        flag=_integer(members.get("flag"), "flag"),
        language=_language(members.get("language")),
        opaque=_integer(members.get("opaque"), "opaque"),
        remark=None if remark is None else _text(remark, "remark"),
        version=_integer(members.get("version"), "version"),
    )


def _integer(value: JsonValue, name: str) -> int:
    match value:
        case None:
            return 0
        case bool():
            pass
        case int() if INT_MIN <= value <= INT_MAX:
            return value
        case str() if value.isascii() and value.removeprefix("-").isdigit() and len(value) < 12:
            return _integer(int(value), name)
    raise ProtocolError(f"Header with a bad {name}", detail=f"{name} is a 32-bit number")


def _language(value: JsonValue) -> str:
    match value:
        case None:
            return LanguageCode.JAVA.name
        case str():
            return value
        case int():
            return _LANGUAGE_NUMBERS.get(value, LanguageCode.OTHER).name
    return LanguageCode.OTHER.name


def _texts(value: JsonValue) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ProtocolError("Header with bad extFields", detail="extFields is an object")
    return {
        _text(name, "name"): _text(item, str(name))
        for name, item in value.items()
        if item is not None
    }


def _text(value: JsonValue | JsonKey, name: str) -> str:
    match value:
        case str():
            return value
        case bool() | int() | float():
            return dumps(value)
    raise ProtocolError(f"Header with a bad {name[:40]}", detail="the value is no text")
