"""Typed headers: from ext fields, which are strings, to values and back.

Owns the conversion and the fields that all requests share. A header type is a struct whose fields
say everything: the Python name, the name on the wire (camel case unless stated), the type, and
whether it may be missing. One table per type is built from that, once.

======== =============================================== =========================================
type     Java                                            text
======== =============================================== =========================================
``str``  ``String``                                      as it is
Int32    ``Integer``, ``int``                            ``Integer.parseInt``: sign and digits
Int64    ``Long``, ``long``                              ``Long.parseLong``: sign and digits
``bool`` ``Boolean``, ``boolean``                        true in any case; everything else is false
enum     by its name; an unknown one is the default      the name
======== =============================================== =========================================

A field that is ``None`` is not written. Ext fields unknown to a type stay in the command.

Upstream does not refuse a header without a required field or with a bad number; it continues with
null and responds with a NullPointerException or NumberFormatException as SYSTEM_ERROR. Here both
are a :class:`~roquet.errors.ProtocolError` that names the field, in upstream's words where it has
any; the response code is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import (
    Annotated,
    ClassVar,
    NamedTuple,
    NoReturn,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import msgspec
from msgspec import Meta, Struct, field

from roquet.errors import ProtocolError

__all__ = [
    "Header",
    "HeaderField",
    "Int32",
    "Int64",
    "RpcHeader",
    "TopicHeader",
    "TopicQueueHeader",
    "decode_header",
    "encode_header",
    "header_fields",
]

Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Header(Struct, rename="camel", kw_only=True, gc=False):
    """The ext fields of a request or response."""

    encode_last: ClassVar[tuple[str, ...]] = ()
    """Fields of a base type, which upstream writes after those of the type itself."""


class RpcHeader(Header, kw_only=True):
    """Fields that any request may carry.

    Attributes:
        namespace: The namespace of the names in the header.
        namespaced: Whether the names already contain it.
        broker_name: The target broker, if there is a proxy in between.
        oneway: Whether the request is one-way; repeats the flag.
    """

    encode_last: ClassVar[tuple[str, ...]] = ("namespace", "namespaced", "broker_name", "oneway")

    namespace: str | None = field(default=None, name="ns")
    namespaced: bool | None = field(default=None, name="nsd")
    broker_name: str | None = field(default=None, name="bname")
    oneway: bool | None = field(default=None, name="oway")


class TopicHeader(RpcHeader, kw_only=True):
    """Fields that a request about a topic may carry.

    Attributes:
        logical: Whether queue ids are those of a static topic.
    """

    encode_last: ClassVar[tuple[str, ...]] = ("logical", *RpcHeader.encode_last)

    logical: bool | None = field(default=None, name="lo")


class TopicQueueHeader(TopicHeader, kw_only=True):
    """Fields that a request about a queue may carry."""


class HeaderField(NamedTuple):
    """One field of a header type."""

    name: str
    wire_name: str
    type_name: str
    required: bool


class _Codec(NamedTuple):
    fields: tuple[HeaderField, ...]
    wire_names: tuple[str, ...]
    values_of: Callable[[Header], tuple[object, ...]]
    readers: dict[str, tuple[str, Callable[[str], object] | None]]
    """By wire name: the Python name, and the parser unless it stays text."""


_H = TypeVar("_H", bound=Header)


def decode_header(header_type: type[_H], ext_fields: Mapping[str, str] | None) -> _H:
    """Decode the ext fields of a command into a header.

    Raises:
        ProtocolError: A required field is missing or a number is invalid; the message names it.

    Example:
        >>> class Example(Header, kw_only=True):
        ...     topic: str
        ...     queue_id: Int32
        ...     order: bool = False
        >>> decode_header(Example, {"topic": "T", "queueId": "3", "ReqT": "x"})
        Example(topic='T', queue_id=3, order=False)
    """
    values: dict[str, object] = {}
    wire_name = ""
    text = ""
    readers = _codec(header_type).readers
    try:
        for wire_name, text in (ext_fields or {}).items():
            entry = readers.get(wire_name)
            if entry is not None:
                name, read = entry
                if read is None:
                    values[name] = text
                elif read is _read_int32 and len(text) < 10 and text.isdecimal():
                    values[name] = int(text)
                else:
                    values[name] = read(text)
        return header_type(**values)
    except ValueError:
        raise ProtocolError(
            f'the custom field <{wire_name}> is no number. For input string: "{text[:40]}"',
            code="bad_header_field",
            detail=header_type.__name__,
        ) from None
    except TypeError:
        _refuse_missing(header_type, values)


def _refuse_missing(header_type: type[Header], values: Mapping[str, object]) -> NoReturn:
    missing = [
        each.wire_name
        for each in _codec(header_type).fields
        if each.required and each.name not in values
    ]
    raise ProtocolError(
        f"the custom field <{missing[0]}> is null",
        code="missing_header_field",
        detail=f"{header_type.__name__} needs {', '.join(missing)}",
    ) from None


def encode_header(header: Header) -> dict[str, str]:
    """Encode a header as ext fields, in the order of upstream's binary form.

    Example:
        >>> encode_header(TopicHeader(logical=True))
        {'lo': 'true'}
    """
    codec = _codec(type(header))
    ext_fields: dict[str, str] = {}
    for wire_name, value in zip(codec.wire_names, codec.values_of(header), strict=True):
        if type(value) is str:
            ext_fields[wire_name] = value
        elif type(value) is int:
            ext_fields[wire_name] = f"{value}"
        elif value is not None:
            ext_fields[wire_name] = _written(value)
    return ext_fields


def header_fields(header_type: type[Header]) -> tuple[HeaderField, ...]:
    """The fields of a header type, in the order in which they are written."""
    return _codec(header_type).fields


def _written(value: object) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    return value.name if isinstance(value, Enum) else str(value)


@cache
def _codec(header_type: type[Header]) -> _Codec:
    last = header_type.encode_last
    infos = sorted(
        msgspec.structs.fields(header_type),
        key=lambda info: last.index(info.name) + 1 if info.name in last else 0,
    )
    fields: list[HeaderField] = []
    readers: dict[str, tuple[str, Callable[[str], object] | None]] = {}
    for info in infos:
        type_name, read = _reader_of(info.type)
        fields.append(HeaderField(info.name, info.encode_name, type_name, info.required))
        readers[info.encode_name] = (info.name, read)
    names = [each.name for each in fields]
    return _Codec(
        tuple(fields),
        tuple(each.wire_name for each in fields),
        _values_of(names),
        readers,
    )


def _values_of(names: list[str]) -> Callable[[Header], tuple[object, ...]]:
    if len(names) > 1:
        getter: Callable[[Header], tuple[object, ...]] = attrgetter(*names)
        return getter
    return lambda header: tuple(getattr(header, name) for name in names)


def _reader_of(annotation: object) -> tuple[str, Callable[[str], object] | None]:
    if annotation is str:
        return "string", None
    if annotation is bool:
        return "boolean", _read_bool
    if annotation == Int32:
        return "int", _read_int32
    if annotation == Int64:
        return "long", _read_int64
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(annotation.__members__), _enum_reader(annotation)
    if get_origin(annotation) in {Union, UnionType}:
        parts = [part for part in get_args(annotation) if part is not NoneType]
        if len(parts) == 1:
            return _reader_of(parts[0])
    raise TypeError(f"{annotation!r} has no form among ext fields")


def _read_bool(text: str) -> bool:
    return text != "false" and text.lower() == "true"


def _read_int32(text: str) -> int:
    value = int(text)
    if not (-0x80000000 <= value <= 0x7FFFFFFF and (text.isdecimal() or _is_signed(text))):
        raise ValueError(text)
    return value


def _read_int64(text: str) -> int:
    value = int(text)
    if not (
        -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF
        and (text.isdecimal() or _is_signed(text))
    ):
        raise ValueError(text)
    return value


def _is_signed(text: str) -> bool:
    """Whether a text is a sign and digits; Python also accepts white space and underscores."""
    return text[0] in "+-" and text[1:].isdecimal()


def _enum_reader(kind: type[Enum]) -> Callable[[str], object]:
    members = {name.lower(): member for name, member in kind.__members__.items()}
    default = next(iter(kind))

    def read(text: str) -> Enum:
        return members.get(text.lower(), default)

    return read
