"""The header of a command in RocketMQ's own binary form.

Owns the layout below. Integers are big-endian and signed, strings are UTF-8.

.. code-block:: text

    offset   bytes   field
    0        2       code
    2        1       language
    3        2       version
    5        4       opaque
    9        4       flag
    13       4       length of the remark
    17       r       remark
    17 + r   4       length of all ext fields
    21 + r   e       ext fields, each: name length 2, name, value length 4, value

A code has 16 bits here, so the POP codes (200050 and up) do not fit; upstream truncates them
silently, and no peer understands the result. Here, encoding such a code raises an error.

Upstream reads an empty value as no value; here it stays an empty string, so that a header can be
written back unchanged. An empty remark is read as none, because the two look alike.

Invariant: every length is checked against the remaining bytes before it is used.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from roquet.errors import ProtocolError
from roquet.remoting.codes import LanguageCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import SerializeType
from roquet.remoting.json_header import MAX_EXT_FIELDS

__all__ = ["MIN_HEADER_BYTES", "decode_binary_header", "encode_binary_header"]

MIN_HEADER_BYTES = 21

_FIXED = struct.Struct(">hbhiii")
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_NAME_BYTES_MAX = 2**15 - 1
_KNOWN_NAME_MAX = 64
_LANGUAGES = {int(code): code for code in LanguageCode}


def decode_binary_header(header: bytes) -> RemotingCommand:
    """Decode a header into a command without a body.

    Raises:
        ProtocolError: A length does not fit the bytes.
    """
    if len(header) < MIN_HEADER_BYTES:
        raise _bad_length("header", len(header), MIN_HEADER_BYTES)
    code, language, version, opaque, flag, remark_bytes = _FIXED.unpack_from(header)
    ext_start = _FIXED.size + remark_bytes + _INT.size
    if remark_bytes < 0 or ext_start > len(header):
        raise _bad_length("remark", remark_bytes, len(header))
    (ext_bytes,) = _INT.unpack_from(header, ext_start - _INT.size)
    if ext_bytes != len(header) - ext_start:
        raise _bad_length("ext fields", ext_bytes, len(header))
    remark = header[_FIXED.size : ext_start - _INT.size]
    return RemotingCommand(
        code=code,
        language=_LANGUAGES.get(language, LanguageCode.OTHER),
        version=version,
        opaque=opaque,
        flag=flag,
        remark=remark.decode("utf-8", "replace") or None,
        ext_fields=_decode_ext_fields(header, ext_start) if ext_bytes else None,
        serialize_type=SerializeType.ROCKETMQ,
    )


def _decode_ext_fields(header: bytes, position: int) -> dict[str, str]:
    ext_fields: dict[str, str] = {}
    end = len(header)
    unpack_length = _INT.unpack_from
    # Slicing one decoded text is quick; slices that are not ASCII are decoded as UTF-8 again.
    text = header.decode("latin-1")
    try:
        while position < end:
            name_length_high = header[position]
            name_start = position + 2
            name_end = name_start + (name_length_high << 8 | header[position + 1])
            (value_bytes,) = unpack_length(header, name_end)
            value_start = name_end + 4
            position = value_start + value_bytes
            if name_length_high > 127 or value_bytes < 0 or position > end:
                raise _bad_length("value", value_bytes, end)
            name = text[name_start:name_end]
            value = text[value_start:position]
            if not value.isascii():
                value = header[value_start:position].decode("utf-8", "replace")
            if not name.isascii():
                name = header[name_start:name_end].decode("utf-8", "replace")
            ext_fields[name] = value
    except (IndexError, struct.error):
        raise _bad_length("name", end - position, end) from None
    if len(ext_fields) > MAX_EXT_FIELDS:
        raise ProtocolError(
            f"Header with {len(ext_fields)} ext fields", detail=f"at most {MAX_EXT_FIELDS}"
        )
    return ext_fields


def _bad_length(what: str, length: int, header_bytes: int) -> ProtocolError:
    return ProtocolError(
        f"Binary header with a bad length of its {what}",
        detail=f"{length} bytes; the whole header has {header_bytes}",
    )


def encode_binary_header(command: RemotingCommand) -> bytes:
    """Encode the header of a command.

    Raises:
        ProtocolError: A number or name does not fit the layout.
    """
    remark = (command.remark or "").encode("utf-8", "replace")
    pairs: list[bytes] = []
    for name, value in (command.ext_fields or {}).items():
        name_field = _name_field(name) if len(name) < _KNOWN_NAME_MAX else _encode_name(name)
        value_data = value.encode("utf-8", "replace")
        pairs += (name_field, _INT.pack(len(value_data)), value_data)
    ext = b"".join(pairs)
    try:
        fixed = _FIXED.pack(
            command.code,
            command.language,
            command.version,
            command.opaque,
            command.flag,
            len(remark),
        )
    except struct.error as error:
        raise ProtocolError(
            f"Command {command.code_name} does not fit a binary header",
            detail=(
                f"code {command.code} and version {command.version} have 16 bits there, "
                f"opaque {command.opaque} and flag {command.flag} have 32"
            ),
            hint="Use the JSON header; POP works only with it.",
        ) from error
    return b"".join((fixed, remark, _INT.pack(len(ext)), ext))


def _encode_name(name: str) -> bytes:
    """The name of an ext field, prefixed with its length."""
    data = name.encode("utf-8", "replace")
    if len(data) > _NAME_BYTES_MAX:
        raise ProtocolError("Ext field whose name is too long", detail=f"{name[:40]!r}")
    return _SHORT.pack(len(data)) + data


_name_field = lru_cache(maxsize=1024)(_encode_name)
