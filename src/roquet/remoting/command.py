"""One request or response.

Owns :class:`RemotingCommand`, the content of a frame once its header is decoded, and the rules for
creating requests and responses.

======= ======================================================
bit     of ``flag``
======= ======================================================
1       a response; otherwise a request
2       one-way: no response is expected
======= ======================================================

A response carries the ``opaque`` of its request on the same connection. Roquet's servers use the
serialize type of the request, which its sender can surely read; Apache RocketMQ 5.4.0 uses its own,
JSON unless configured otherwise. Decoders go by the frame and accept both.
"""

from __future__ import annotations

from msgspec import Struct

from roquet.remoting.codes import LanguageCode, request_code_name, response_code_name
from roquet.remoting.frame import SerializeType
from roquet.remoting.headers.base import Header, encode_header

__all__ = [
    "CURRENT_VERSION",
    "UNSET_REMARK",
    "RemotingCommand",
    "create_request",
    "create_response",
]

CURRENT_VERSION = 493
"""The version that we report: 5.4.0. Peers choose dialects by it."""

UNSET_REMARK = "not set any response code"
"""The default remark of upstream's responses; some successful ones keep it."""

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2


class RemotingCommand(Struct, kw_only=True, gc=False):
    """One request or response.

    Attributes:
        code: A request code, or the response code of a response.
        language: The language in which the sender is written.
        version: The sender's version, as an ordinal.
        opaque: Matches a response to its request.
        flag: Response and one-way bits.
        remark: Why a request failed, for people.
        ext_fields: Fields that depend on the code; upstream distinguishes none from empty.
        body: The payload.
        serialize_type: How the header was written, or is to be written.
    """

    code: int
    language: LanguageCode = LanguageCode.JAVA
    version: int = 0
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    body: bytes = b""
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        """Whether this is a response."""
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        """Whether no response is expected."""
        return bool(self.flag & ONEWAY_FLAG)

    @property
    def code_name(self) -> str:
        """The name of the request or response code."""
        return response_code_name(self.code) if self.is_response else request_code_name(self.code)


def create_request(
    code: int,
    header: Header | None = None,
    *,
    opaque: int,
    body: bytes = b"",
    oneway: bool = False,
    language: LanguageCode = LanguageCode.PYTHON,
    serialize_type: SerializeType = SerializeType.JSON,
) -> RemotingCommand:
    """Make a request.

    Args:
        code: The request code.
        header: Encoded as the ext fields.
        opaque: A number that no other pending request of the connection has.
        body: The body.
        oneway: Whether no response is expected.
        language: The language that we report.
        serialize_type: How the header is to be written.
    """
    return RemotingCommand(
        code=code,
        language=language,
        version=CURRENT_VERSION,
        opaque=opaque,
        flag=ONEWAY_FLAG if oneway else 0,
        ext_fields=None if header is None else encode_header(header),
        body=body,
        serialize_type=serialize_type,
    )


def create_response(
    request: RemotingCommand,
    code: int,
    header: Header | None = None,
    *,
    remark: str | None = None,
    body: bytes = b"",
    serialize_type: SerializeType = SerializeType.JSON,
) -> RemotingCommand:
    """Make the response to a request, as Apache RocketMQ's servers do.

    Args:
        request: The request.
        code: The response code.
        header: Encoded as the ext fields.
        remark: Why the request failed, for people.
        body: The body.
        serialize_type: How this server writes headers.
    """
    return RemotingCommand(
        code=code,
        language=LanguageCode.JAVA,
        version=CURRENT_VERSION,
        opaque=request.opaque,
        flag=RESPONSE_FLAG,
        remark=remark,
        ext_fields=None if header is None else encode_header(header),
        body=body,
        serialize_type=serialize_type,
    )
