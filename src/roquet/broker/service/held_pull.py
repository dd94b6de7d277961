"""One held pull, and how it is packed while it waits.

Upstream's PullRequest. A connection may have thousands of pulls that hardly differ: packed, they
share what is equal, and the request is decoded again when the pull is woken.
"""

from __future__ import annotations

import msgspec

from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.base import decode_header
from roquet.remoting.headers.pull import PullMessageRequestHeader
from roquet.remoting.processor import Permission, RequestContext
from roquet.store.reader import MessageFilter

__all__ = ["LONG_PULL_BYTES", "HeldPull", "QueueKey"]

LONG_PULL_BYTES = 1 << 10
"""Pulls with more fields and body than clients send are also limited in bytes."""

_SAME_DEADLINE_NS = 250_000_000
"""A difference that is negligible beside the sweep's five seconds."""

QueueKey = tuple[str, int]

_pack = msgspec.msgpack.encode
_unpack = msgspec.msgpack.Decoder(RemotingCommand).decode


class HeldPull:
    """One held pull.

    Attributes:
        connection: The connection it came from.
        key: The queue it waits for.
        queue_offset: The first offset it requests.
        consumer_group: Its consumer group.
        message_filter: Its filter; ``None`` for every message.
        deadline_ns: When it times out, on the monotonic clock.
        is_due: Whether it only waits for its turn to be woken.
        is_dropped: Whether its connection has closed.
        long_bytes: The length of its request if that is long, otherwise 0.
    """

    __slots__ = (
        "_context",
        "_header",
        "_opaque",
        "_packed",
        "connection",
        "consumer_group",
        "deadline_ns",
        "is_dropped",
        "is_due",
        "key",
        "long_bytes",
        "message_filter",
        "queue_offset",
    )

    def __init__(
        self,
        context: RequestContext,
        header: PullMessageRequestHeader,
        message_filter: MessageFilter | None,
        *,
        deadline_ns: int,
    ) -> None:
        self.connection = context.connection
        self.key: QueueKey = (header.topic, header.queue_id)
        self.queue_offset = header.queue_offset
        self.consumer_group = header.consumer_group
        self.message_filter = message_filter
        self.deadline_ns = deadline_ns
        self.is_due = False
        self.is_dropped = False
        size_bytes = _size_bytes(context.request)
        self.long_bytes = size_bytes if size_bytes > LONG_PULL_BYTES else 0
        self._context: RequestContext | None = context
        self._header: PullMessageRequestHeader | None = header
        self._packed: tuple[bytes, Permission] | None = None
        self._opaque = 0

    @property
    def context(self) -> RequestContext:
        """The request, and the means to respond to it."""
        if self._context is None:
            assert self._packed is not None, "a pull without its context is packed"
            request = _unpack(self._packed[0])
            request.opaque = self._opaque
            self._context = RequestContext(self.connection, request, self._packed[1])
        return self._context

    @property
    def header(self) -> PullMessageRequestHeader:
        """Its header; decoded from the request if the pull was packed."""
        if self._header is None:
            self._header = decode_header(PullMessageRequestHeader, self.context.request.ext_fields)
        return self._header

    def pack(self, like: HeldPull) -> None:
        """Store the request as bytes until it is needed.

        ``like`` is another pull of the queue, or this one: parts that are equal are stored once.
        """
        request, permission = self.context.request, self.context.permission
        assert permission is not None, "incoming requests have one"
        self._opaque = request.opaque
        try:
            packed = (_pack(msgspec.structs.replace(request, opaque=0)), permission)
        except UnicodeEncodeError:
            # Half a surrogate pair: kept as it is.
            return
        self._packed = like._packed if packed == like._packed else packed
        self._context = self._header = None
        self.key = like.key
        if 0 <= self.deadline_ns - like.deadline_ns < _SAME_DEADLINE_NS:
            self.deadline_ns = like.deadline_ns
        if self.consumer_group == like.consumer_group:
            self.consumer_group = like.consumer_group


def _size_bytes(request: RemotingCommand) -> int:
    fields = request.ext_fields or {}
    return len(request.body) + sum(len(name) + len(value) for name, value in fields.items())
