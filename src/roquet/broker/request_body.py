"""The JSON bodies of requests, decoded within limits.

Owns the limits: decoding JSON takes time on the event loop that all clients share.

* A body that is longer than its family ever needs is refused without decoding it.
* A body longer than :data:`DIALECT_BYTES_MAX` must be standard JSON, which all clients write: the
  decoder of fastjson's dialect takes microseconds per byte, and a megabyte of brackets would stop
  the broker for seconds.
* A body longer than :data:`NULLS_BYTES_MAX` must not have null where a value belongs. In shorter
  ones such a member counts as missing, as in upstream.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from roquet.errors import ProtocolError
from roquet.model.fastjson import without_nulls
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.codes import ResponseCode
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import RequestContext

__all__ = ["ADMIN_BODY_BYTES_MAX", "CLIENT_BODY_BYTES_MAX", "DIALECT_BYTES_MAX", "read_body"]

CLIENT_BODY_BYTES_MAX = 1 << 20
"""Bodies of clients: heartbeats, locks, expressions. Enough for some thousand subscriptions."""

ADMIN_BODY_BYTES_MAX = 4 << 20
"""Lists of topics and groups to create. Enough for some ten thousand."""

DIALECT_BYTES_MAX = 4 << 10
NULLS_BYTES_MAX = 128 << 10

_T = TypeVar("_T")


def read_body(
    context: RequestContext, body_type: type[_T], *, max_bytes: int, has_bare_keys: bool = False
) -> _T:
    """Decode the body of a request.

    Args:
        context: The request.
        body_type: The type of the body.
        max_bytes: Its maximum length.
        has_bare_keys: Whether it has maps from numbers, whose keys fastjson writes without quotes.
            These do not count as dialect up to 1 MiB.

    Raises:
        RequestRefused: It is too long.
        ProtocolError: It is missing, not JSON, or does not have this type.
    """
    body = context.request.body
    if len(body) > max_bytes:
        raise RequestRefused(
            f"the body of {context.request.code_name} has {len(body)} bytes, "
            f"the limit is {max_bytes}",
            response_code=ResponseCode.INVALID_PARAMETER,
        )
    if has_bare_keys or len(body) <= DIALECT_BYTES_MAX:
        return decode_body(body_type, body, dialect_bytes_max=DIALECT_BYTES_MAX)
    try:
        return msgspec.json.decode(body, type=body_type)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        if len(body) > NULLS_BYTES_MAX:
            raise _bad_body(body_type, error) from error
    try:
        plain = without_nulls(msgspec.json.decode(body))
        return msgspec.convert(plain, body_type, strict=False, str_keys=True)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _bad_body(body_type, error) from error


def _bad_body(body_type: type[_T], error: Exception) -> ProtocolError:
    name = body_type.__name__
    return ProtocolError(f"Body that is no {name}", code="bad_body", detail=str(error))
