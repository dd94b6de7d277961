"""Typed bodies: from fastjson's text to structs and back.

Owns the conversion. The text is that of fastjson 2 without white space: the members of an object
are sorted by name, null members are omitted, the entries of a map keep their order, and keys that
are not strings are unquoted, even whole queues:

.. code-block:: text

    {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"brokerOffset":14,…},…}}

Standard JSON goes through msgspec in both directions; only the dialect goes through our own reader
and writer, which are about a hundred times slower.

Unknown and missing members and nulls are accepted, as upstream does.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from roquet.errors import ProtocolError
from roquet.model.fastjson import (
    JsonKey,
    JsonScalar,
    JsonSyntaxError,
    JsonValue,
    ObjectKey,
    WritableJson,
    dumps,
    loads,
)
from roquet.model.message_queue import MessageQueue

__all__ = [
    "DIALECT_BODY_BYTES_MAX",
    "SERVED_DIALECT_BYTES_MAX",
    "decode_body",
    "encode_body",
]

DIALECT_BODY_BYTES_MAX = 4 << 20
"""Longer bodies must be standard JSON: reading the dialect costs about a microsecond a byte."""

NUMBER_KEYS_BYTES_MAX = 1 << 20
"""The same for JSON with unquoted numeric keys, which takes a tenth of the time."""

SERVED_DIALECT_BYTES_MAX = 16 << 10
"""The limit in requests, where reading delays all other clients."""

_T = TypeVar("_T")
Body: TypeAlias = Struct | Sequence[object] | Mapping[str, object]


def decode_body(
    body_type: type[_T],
    data: bytes,
    *,
    dialect_bytes_max: int | None = None,
    number_keys_bytes_max: int | None = None,
) -> _T:
    """Decode a body.

    Args:
        body_type: A struct of this package or of ``roquet.model``, or a list or map of them.
        data: The body.
        dialect_bytes_max: The limit for fastjson's dialect, by default 4 MiB; JSON with unquoted
            numbers as keys may have 1 MiB in any case.
        number_keys_bytes_max: The limit for JSON with unquoted numbers as keys; a caller that sets
            it decodes in a thread.

    Raises:
        ProtocolError: The body is missing, is not JSON, or does not match the type.

    Example:
        >>> from roquet.remoting.bodies.offset import ResetOffsetBody
        >>> text = b'{"offsetTable":{{"brokerName":"b","queueId":2,"topic":"T"}:9}}'
        >>> decode_body(ResetOffsetBody, text).offset_table
        {MessageQueue(topic='T', broker_name='b', queue_id=2): 9}
    """
    try:
        return msgspec.json.decode(data, type=body_type)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        most = DIALECT_BODY_BYTES_MAX if dialect_bytes_max is None else dialect_bytes_max
        quoted_from, quoted_to = most + 1, NUMBER_KEYS_BYTES_MAX
        if number_keys_bytes_max is not None:
            quoted_from, quoted_to = 1, number_keys_bytes_max
        if quoted_from <= len(data) <= quoted_to:
            with suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
                return msgspec.json.decode(_with_quoted_keys(data), type=body_type)
        if len(data) > most or not data:
            raise _bad_body(body_type, error) from error
    try:
        plain = _tidied(loads(data))
        return msgspec.convert(plain, body_type, strict=False, str_keys=True)
    except (JsonSyntaxError, msgspec.MsgspecError) as error:
        raise _bad_body(body_type, error) from error


_TEXT_OR_NUMBER_KEY = re.compile(
    rb'"(?:[^"\\]++|\\.)*+"|([{,][ \t\r\n]*+)(-?[0-9]{1,19}+)(?=[ \t\r\n]*+:)', re.DOTALL
)


def _with_quoted_keys(data: bytes) -> bytes:
    """The same JSON with quotes around integer keys."""
    return _TEXT_OR_NUMBER_KEY.sub(_quoted_key, data)


def _quoted_key(match: re.Match[bytes]) -> bytes:
    before, key = match.groups()
    return match[0] if key is None else b'%b"%b"' % (before, key)


def encode_body(body: Body, *, standard: bool = False) -> bytes:
    """Encode a body as upstream does.

    Args:
        body: A struct of this package or of ``roquet.model``, or a list or map of them.
        standard: Quote all keys and sort map entries, as a name server does for clients that
            require standard JSON, or are of version 4.9.4 or later.

    Example:
        >>> from roquet.remoting.bodies.route import BrokerData
        >>> broker = BrokerData(broker_addrs={0: "h:1"}, broker_name="b", cluster="c")
        >>> encode_body(broker)
        b'{"brokerAddrs":{0:"h:1"},"brokerName":"b","cluster":"c","enableActingMaster":false}'
        >>> encode_body(broker, standard=True)[:24]
        b'{"brokerAddrs":{"0":"h:1'
    """
    writer = _PlainWriter(standard=standard)
    plain = writer.value(body)
    if not writer.needs_dialect:
        try:
            return msgspec.json.encode(plain)
        except UnicodeEncodeError:
            pass  # A lone surrogate, which the other writer replaces with a question mark.
    return dumps(plain).encode()


def _bad_body(body_type: type[_T], error: Exception) -> ProtocolError:
    name = getattr(body_type, "__name__", str(body_type))
    reason = error.detail if isinstance(error, JsonSyntaxError) else str(error)
    return ProtocolError(f"Body that is no {name}", code="bad_body", detail=reason)


def _tidied(value: JsonValue) -> object:
    """The value without null members, and with queues for objects that are keys."""
    match value:
        case dict():
            return {
                _queue(key) if isinstance(key, ObjectKey) else key: _tidied(item)
                for key, item in value.items()
                if item is not None
            }
        case list():
            return [_tidied(item) for item in value]
    return value


def _queue(key: ObjectKey) -> MessageQueue:
    return msgspec.convert(dict(key.members), MessageQueue, strict=False)


class _PlainWriter:
    """Converts structs to plain values, and notes whether they need the dialect."""

    __slots__ = ("needs_dialect", "standard")

    def __init__(self, *, standard: bool) -> None:
        self.standard = standard
        self.needs_dialect = False

    def value(self, value: object) -> WritableJson:
        match value:
            case None | str() | bool() | int():
                return value
            case Struct():
                return {
                    wire_name: self.value(item)
                    for name, wire_name in _members(type(value))
                    if (item := getattr(value, name)) is not None
                }
            case Mapping():
                return self.map(value)
            case list() | tuple() | set() | frozenset():
                return [self.value(item) for item in value]
            case float():
                self.needs_dialect = True
                return value
            case Enum():
                return str(value.value)
            case bytes():
                return b64encode(value).decode()
        raise TypeError(f"{type(value).__name__} has no form in a body")

    def map(self, entries: Mapping[object, object]) -> WritableJson:
        if self.standard:
            keys = sorted(entries, key=_sort_key)
            return {str(key): self.value(entries[key]) for key in keys}
        return {self.key(key): self.value(item) for key, item in entries.items()}

    def key(self, key: object) -> JsonKey:
        if isinstance(key, str):
            return key
        self.needs_dialect = True
        if isinstance(key, int):
            return key
        if isinstance(key, MessageQueue):
            members: dict[str, JsonScalar] = {
                "brokerName": key.broker_name,
                "queueId": key.queue_id,
                "topic": key.topic,
            }
            return ObjectKey.of(members)
        raise TypeError(f"{type(key).__name__} cannot be a key in a body")


def _sort_key(key: object) -> tuple[int, bytes]:
    # Java compares strings by their UTF-16 units.
    return (key, b"") if isinstance(key, int) else (0, str(key).encode("utf-16-be", "replace"))


@cache
def _members(struct_type: type[Struct]) -> tuple[tuple[str, str], ...]:
    fields = msgspec.structs.fields(struct_type)
    return tuple(
        sorted(((each.name, each.encode_name) for each in fields), key=lambda pair: pair[1])
    )
