"""What the lanes of the wire say: answers with places to fill in, and answers that wait.

Owns the cutting of answers at the places that differ. The reference path makes an answer with marks
in these places, and its encoders write it, so that a lane cannot drift apart from them.

With SYNC_FLUSH or SYNC_MASTER the answers to the sends of one read wait together. When the store is
content they leave as they are; otherwise they are read and said anew with the store's word.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from roquet.broker.processor.send_answer import SendAnswers
from roquet.broker.service.flow_control import FlowControl
from roquet.broker.stats.broker_stats import BrokerStats
from roquet.broker.stats.lane_counts import SendCounts, add_sends
from roquet.model.host import Host
from roquet.remoting.binary_header import encode_binary_header
from roquet.remoting.codec import decode_command, encode_command
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand, create_request
from roquet.remoting.connection import Connection
from roquet.remoting.frame import FrameDecoder
from roquet.remoting.json_header import encode_json_header
from roquet.runtime.clock import Clock
from roquet.store.results import AppendResult, PutMessageResult, PutMessageStatus

__all__ = ["AnswerForm", "Part", "WaitingAnswers", "cut_answer", "ipv4_peer", "sent_answer"]

OPAQUE = "opaque"
"""The name of the place of a JSON answer's opaque; a binary one has it at offset 5."""

_OPAQUE_MARK = 1_987_654_321
_BINARY_EXT_SIZE_AT = 17
_LENGTH_BYTES = 4
_MARKS = re.compile(rb"@roquet-slot:(\w+)@|(?<=\"opaque\":)1987654321(?=,)")

Part = tuple[bytes, str | None]
"""A literal and the name of what follows it; ``None`` at the end."""


class AnswerForm(NamedTuple):
    """An answer's header, cut at the places that differ.

    Attributes:
        json: The header as JSON.
        binary: The binary header; the length of a value is part of its place.
        ext_size_at: Where the binary header has the length of its ext fields.
    """

    json: list[Part]
    binary: list[Part]
    ext_size_at: int


def cut_answer(answer: RemotingCommand, names: Collection[str]) -> AnswerForm:
    """Cut an answer, which is changed, at its opaque and at the ext fields of these names."""
    answer.opaque = _OPAQUE_MARK
    if answer.ext_fields is not None:
        answer.ext_fields = {
            name: f"@roquet-slot:{name}@" if name in names else value
            for name, value in answer.ext_fields.items()
        }
    binary = [
        (literal[:-_LENGTH_BYTES] if name else literal, name)
        for literal, name in _parts(encode_binary_header(answer))
    ]
    ext_size_at = _BINARY_EXT_SIZE_AT + len((answer.remark or "").encode())
    return AnswerForm(_parts(encode_json_header(answer)), binary, ext_size_at)


def _parts(header: bytes) -> list[Part]:
    parts: list[Part] = []
    position = 0
    for mark in _MARKS.finditer(header):
        parts.append((header[position : mark.start()], mark[1].decode() if mark[1] else OPAQUE))
        position = mark.end()
    parts.append((header[position:], None))
    return parts


def sent_answer(answers: SendAnswers, unique_key: str | None) -> RemotingCommand:
    """The answer to a send of which all is well."""
    request = create_request(RequestCode.SEND_MESSAGE_V2, opaque=0)
    return answers.of(request, _stored(PutMessageStatus.PUT_OK), 0, unique_key)


class WaitingAnswers:
    """Answers to the sends of one read, which wait for the disk or a slave.

    Args:
        connection: Who hears them.
        answers: Makes answers to sends.
        flow: What counts the sends that wait.
        stats: What counts those that are stored.
        clock: The time.
    """

    __slots__ = (
        "_answers", "_began_ms", "_clock", "_connection", "_count", "_counts", "_flow", "_frames",
        "_stats",
    )  # fmt: skip

    def __init__(
        self,
        connection: Connection,
        answers: SendAnswers,
        flow: FlowControl,
        stats: BrokerStats,
        clock: Clock,
    ) -> None:
        self._connection = connection
        self._answers = answers
        self._flow = flow
        self._stats = stats
        self._clock = clock
        self._began_ms = clock.now_ms()
        self._frames = b""
        self._count = 0
        self._counts: Sequence[SendCounts] = ()

    def hold(self, frames: bytes, count: int, counts: Sequence[SendCounts]) -> None:
        """Keep the answers back, with what they are to be counted as."""
        self._frames = frames
        self._count = count
        self._counts = counts
        self._flow.sends_waiting += count

    def __call__(self, result: PutMessageResult) -> None:
        """Send the answers in the store's words."""
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
        """The answers with another word of the store than that all is well."""
        decoder = FrameDecoder()
        decoder.feed(self._frames)
        restated: list[bytes] = []
        for frame in decoder:
            said = decode_command(frame)
            answer = self._answers.of(said, _stored(status), 0, None)
            answer.serialize_type = said.serialize_type
            if "msgId" in (answer.ext_fields or {}):
                answer.ext_fields = said.ext_fields
            restated.append(encode_command(answer))
        return b"".join(restated)


def ipv4_peer(connection: Connection) -> Host | None:
    """Who is at the other side, as records name it; ``None`` if not by IPv4."""
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
