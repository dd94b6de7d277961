"""Responses of the hot path: templates to fill in, and pending responses.

Owns the templates. The reference path builds a response with placeholders for the parts that vary,
and its encoders write it, so that the hot path cannot diverge from them.

With SYNC_FLUSH or SYNC_MASTER the responses to the sends of one burst wait together. If the store
confirms them they are sent as they are; otherwise they are decoded and rebuilt with its status.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from roquet.broker.hot.counts import SendCounts, add_sends
from roquet.broker.processor.send_answer import SendAnswers
from roquet.broker.service.flow_control import FlowControl
from roquet.broker.stats.broker_stats import BrokerStats
from roquet.model.host import Host
from roquet.remoting.binary_header import encode_binary_header
from roquet.remoting.codec import decode_command, encode_command
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand, create_request, create_response
from roquet.remoting.connection import Connection
from roquet.remoting.frame import FrameDecoder
from roquet.remoting.headers.offset import UpdateConsumerOffsetResponseHeader
from roquet.remoting.json_header import encode_json_header
from roquet.runtime import compiled
from roquet.runtime.clock import Clock
from roquet.store.results import AppendResult, PutMessageResult, PutMessageStatus

if compiled.is_built("roquet.remoting._frame"):
    from roquet.remoting import _frame

__all__ = ["WaitingResponses", "ipv4_peer", "response_templates", "templates"]

_OPAQUE = "opaque"
_OPAQUE_MARK = 1_987_654_321
_BINARY_EXT_SIZE_AT = 17
_LENGTH_BYTES = 4
_MARKS = re.compile(rb"@roquet-slot:(\w+)@|(?<=\"opaque\":)1987654321(?=,)")


def response_templates(
    answers: SendAnswers,
) -> dict[str, tuple[_frame.Template, _frame.Template]]:
    """Return the templates for sends, batches without a unique key, and commits."""
    commit = create_request(RequestCode.UPDATE_CONSUMER_OFFSET, opaque=0)
    header = UpdateConsumerOffsetResponseHeader()
    return {
        "sent": templates(_sent(answers, "")),
        "batch": templates(_sent(answers, None)),
        "committed": templates(create_response(commit, ResponseCode.SUCCESS, header)),
    }


def templates(response: RemotingCommand) -> tuple[_frame.Template, _frame.Template]:
    """Turn a response, which is modified, into templates for JSON and binary headers.

    The opaque and the ext fields that compiled code fills in are slots. In a binary header, the
    length of a value is part of its slot.
    """
    response.opaque = _OPAQUE_MARK
    if response.ext_fields is not None:
        response.ext_fields = {
            name: f"@roquet-slot:{name}@" if name in _frame.SLOT_NAMES else value
            for name, value in response.ext_fields.items()
        }
    json = _parts(encode_json_header(response))
    binary = [
        (literal[:-_LENGTH_BYTES] if slot else literal, slot)
        for literal, slot in _parts(encode_binary_header(response))
    ]
    ext_size_at = _BINARY_EXT_SIZE_AT + len((response.remark or "").encode())
    return _frame.Template(json, -1), _frame.Template(binary, ext_size_at)


def _parts(header: bytes) -> list[tuple[bytes, int]]:
    """Split into literals, each with the number of the slot that follows it; 0 at the end."""
    parts: list[tuple[bytes, int]] = []
    position = 0
    for mark in _MARKS.finditer(header):
        name = mark[1].decode() if mark[1] else _OPAQUE
        parts.append((header[position : mark.start()], _frame.SLOT_NAMES[name]))
        position = mark.end()
    parts.append((header[position:], 0))
    return parts


def _sent(answers: SendAnswers, unique_key: str | None) -> RemotingCommand:
    """Return the response to a successful send."""
    request = create_request(RequestCode.SEND_MESSAGE_V2, opaque=0)
    return answers.of(request, _stored(PutMessageStatus.PUT_OK), 0, unique_key)


class WaitingResponses:
    """Responses to the sends of one burst, which wait for the disk or a slave.

    Args:
        connection: The connection of the producer.
        frames: The responses in case of success.
        count: How many sends wait for one.
        counts: The counts to add once the messages are stored.
        answers: Builds responses to sends.
        flow: Counts the waiting sends.
        stats: Counts the stored messages.
        clock: The time.
    """

    __slots__ = (
        "_answers", "_began_ms", "_clock", "_connection", "_count", "_counts", "_flow", "_frames",
        "_stats",
    )  # fmt: skip

    def __init__(
        self,
        connection: Connection,
        frames: bytes,
        count: int,
        counts: Sequence[SendCounts],
        *,
        answers: SendAnswers,
        flow: FlowControl,
        stats: BrokerStats,
        clock: Clock,
    ) -> None:
        self._connection = connection
        self._frames = frames
        self._count = count
        self._counts = counts
        self._answers = answers
        self._flow = flow
        self._stats = stats
        self._clock = clock
        self._began_ms = clock.now_ms()
        flow.sends_waiting += count

    def __call__(self, result: PutMessageResult) -> None:
        """Send the responses with the store's status."""
        self._flow.sends_waiting -= self._count
        if result.is_stored:
            latency_ms = self._clock.now_ms() - self._began_ms
            add_sends(self._stats, self._counts, latency_ms=latency_ms)
        frames = self._frames
        if result.status is not PutMessageStatus.PUT_OK:
            frames = self._restated(result.status)
        if frames:
            self._connection.write_frames(frames)

    def _restated(self, status: PutMessageStatus) -> bytes:
        """Rebuild the responses with a status other than success."""
        decoder = FrameDecoder()
        decoder.feed(self._frames)
        restated: list[bytes] = []
        for frame in decoder:
            made = decode_command(frame)
            response = self._answers.of(made, _stored(status), 0, None)
            response.serialize_type = made.serialize_type
            if "msgId" in (response.ext_fields or {}):
                response.ext_fields = made.ext_fields
            restated.append(encode_command(response))
        return b"".join(restated)


def ipv4_peer(connection: Connection) -> Host | None:
    """Return the peer's address as records name it; ``None`` if it is not IPv4."""
    try:
        host = Host.parse(connection.remote_address)
    except ValueError:
        return None
    address = ipaddress.ip_address(host.ip)
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return None
        return Host(address.ipv4_mapped.packed, host.port)
    return host


def _stored(status: PutMessageStatus) -> PutMessageResult:
    return PutMessageResult(status, AppendResult(0, 0, 0, 0, (0,)))
