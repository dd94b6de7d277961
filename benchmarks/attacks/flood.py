"""Raw connections that send prepared bytes and count the responses.

Owns :class:`Flood`: any number of sockets driven by one selector, so that the attacker uses little
CPU compared with the server. Frames are built before an attack begins.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Mapping, Sequence

from roquet.remoting.codec import encode_command
from roquet.remoting.command import RemotingCommand

READ_BYTES = 1 << 18
CONNECT_TIMEOUT_S = 30.0

_LENGTH = struct.Struct(">i")


def frame(
    code: int,
    fields: Mapping[str, str] | None = None,
    *,
    body: bytes = b"",
    opaque: int = 0,
) -> bytes:
    """The frame of a request."""
    return encode_command(
        RemotingCommand(
            code=code,
            version=493,
            opaque=opaque,
            ext_fields=None if fields is None else dict(fields),
            body=body,
        )
    )


class _Flow:
    """One connection: what is left to send, and how many responses came."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.unsent = memoryview(b"")
        self.responses = 0
        self.is_open = True
        self._missing_bytes = 0
        self._head = b""

    def count(self, data: bytes) -> None:
        """Count the frames that end within ``data``, without keeping their bytes."""
        position = 0
        while position < len(data):
            if self._missing_bytes:
                step = min(self._missing_bytes, len(data) - position)
                self._missing_bytes -= step
                position += step
                self.responses += self._missing_bytes == 0
                continue
            needed = _LENGTH.size - len(self._head)
            self._head += data[position : position + needed]
            position += needed
            if len(self._head) == _LENGTH.size:
                (self._missing_bytes,) = _LENGTH.unpack(self._head)
                self._head = b""


class Flood:
    """Connections of one attacker.

    Args:
        address: The address to attack.
        connections: How many connections to open.
    """

    def __init__(self, address: str, connections: int) -> None:
        host, _, port = address.rpartition(":")
        self._flows: list[_Flow] = []
        for _ in range(connections):
            each = socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S)
            each.settimeout(0)
            self._flows.append(_Flow(each))

    @property
    def responses(self) -> int:
        """Responses on all connections so far."""
        return sum(flow.responses for flow in self._flows)

    @property
    def open_connections(self) -> int:
        """Connections that the server has not closed, as far as reads or writes have shown."""
        return sum(flow.is_open for flow in self._flows)

    def send(self, data: bytes | Sequence[bytes]) -> None:
        """Queue bytes on every connection, or one item of a sequence on each."""
        for number, flow in enumerate(self._flows):
            flow.unsent = memoryview(data if isinstance(data, bytes) else data[number])

    def run(self, *, seconds: float, responses_each: int = 0, reads: bool = True) -> None:
        """Write what is queued and read until every connection is done, closed or out of time.

        Args:
            seconds: The limit.
            responses_each: How many responses a connection waits for.
            reads: Whether responses are read at all.
        """
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            for flow in self._flows:
                if flow.is_open:
                    events = self._events(flow, responses_each, reads=reads)
                    if events:
                        selector.register(flow.socket, events, flow)
            while selector.get_map() and (left := deadline - time.monotonic()) > 0:
                for key, ready in selector.select(min(left, 0.5)):
                    flow = key.data
                    self._step(flow, ready)
                    events = self._events(flow, responses_each, reads=reads)
                    if not (events and flow.is_open):
                        selector.unregister(flow.socket)
                    elif events != key.events:
                        selector.modify(flow.socket, events, flow)

    @staticmethod
    def _events(flow: _Flow, responses_each: int, *, reads: bool) -> int:
        events = selectors.EVENT_WRITE if flow.unsent else 0
        if reads and flow.responses < responses_each:
            events |= selectors.EVENT_READ
        return events

    @staticmethod
    def _step(flow: _Flow, ready: int) -> None:
        try:
            if ready & selectors.EVENT_READ:
                data = flow.socket.recv(READ_BYTES)
                flow.is_open = bool(data)
                flow.count(data)
            if ready & selectors.EVENT_WRITE and flow.is_open:
                flow.unsent = flow.unsent[flow.socket.send(flow.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            flow.is_open = False

    def close(self) -> None:
        """Close every connection."""
        for flow in self._flows:
            flow.socket.close()
