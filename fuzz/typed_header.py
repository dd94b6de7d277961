"""What must hold for a header in either codec."""

from __future__ import annotations

from collections.abc import Callable

from fuzz.outcome import refused, size_class
from roquet.errors import ProtocolError
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.base import Header, decode_header, encode_header
from roquet.remoting.headers.table import REQUEST_HEADERS, RESPONSE_HEADERS
from roquet.remoting.json_header import MAX_EXT_FIELDS

_REQUESTS = {int(code): header for code, header in REQUEST_HEADERS.items()}
_RESPONSES = list(dict.fromkeys(RESPONSE_HEADERS.values()))


def fuzz_header(
    data: bytes,
    decode: Callable[[bytes], RemotingCommand],
    encode: Callable[[RemotingCommand], bytes],
) -> str:
    """Read a header, write it, read it again, and read its fields as the code's own.

    Args:
        data: The header.
        decode: The codec's reader.
        encode: The codec's writer.
    """
    try:
        command = decode(data)
    except ProtocolError as error:
        return refused(error)
    fields = command.ext_fields or {}
    assert len(fields) <= MAX_EXT_FIELDS
    assert sum(len(name) + len(value) for name, value in fields.items()) <= 6 * len(data)
    try:
        written = encode(command)
    except ProtocolError as error:
        # A broken byte is read as a replacement character, which is longer.
        return "read, not written: " + refused(error)
    assert encode(decode(written)) == written
    typed = _REQUESTS.get(command.code)
    if typed is None:
        typed = _RESPONSES[command.code % len(_RESPONSES)]
    return f"{command.code % 512} {size_class(len(fields))} {_fuzz_fields(typed, fields)}"


def _fuzz_fields(header_type: type[Header], fields: dict[str, str]) -> str:
    try:
        header = decode_header(header_type, fields)
    except ProtocolError as error:
        return refused(error)
    assert decode_header(header_type, encode_header(header)) == header
    return header_type.__name__
