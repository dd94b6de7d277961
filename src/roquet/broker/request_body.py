"""The JSON bodies of requests, read within a limit.

Owns the limits: reading JSON costs time on the event loop that all clients share, so a body that
is longer than its family ever needs is refused before it is looked at.
"""

from __future__ import annotations

from typing import TypeVar

from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.codes import ResponseCode
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import RequestContext

__all__ = ["ADMIN_BODY_BYTES_MAX", "CLIENT_BODY_BYTES_MAX", "read_body"]

CLIENT_BODY_BYTES_MAX = 1 << 20
"""What a client says of itself: heartbeats, locks, expressions. Some thousand subscriptions."""

ADMIN_BODY_BYTES_MAX = 4 << 20
"""Lists of topics and groups to create. Some ten thousand."""

_T = TypeVar("_T")


def read_body(context: RequestContext, body_type: type[_T], *, max_bytes: int) -> _T:
    """Read the body of a request.

    Raises:
        RequestRefused: It is too long.
        ProtocolError: It is missing, no JSON, or not of this shape.
    """
    body = context.request.body
    if len(body) > max_bytes:
        raise RequestRefused(
            f"the body of {context.request.code_name} has {len(body)} bytes, "
            f"more than {max_bytes} are not read",
            response_code=ResponseCode.INVALID_PARAMETER,
        )
    return decode_body(body_type, body)
