"""One listening socket, and its connections until their first byte is known.

Accepts connections, and refuses them before the process runs out of descriptors, which the store
needs as well: such a connection is closed at once, so that its peer can go elsewhere. Peers that
never sent a byte are then disconnected to make room. With TLS the first byte is peeked at and
decides what kind of transport the connection gets; both share the port.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass

from roquet.errors import ConfigError
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import Endpoint
from roquet.remoting.processor import Port
from roquet.remoting.tls import TLS_FIRST_BYTE, ServerTls, TlsMode
from roquet.runtime.open_files import DescriptorBudget

__all__ = ["Listener", "SpareDescriptor", "bind"]

log = logging.getLogger(__name__)

BACKLOG = 1024
_ACCEPTS_PER_TURN = 128
_HANDSHAKE_TIMEOUT_S = 10.0
_ACCEPT_PAUSE_S = 1.0
"""How long nothing is accepted after the process ran out of descriptors or memory."""
_SILENCE_NS = 3_000_000_000
"""How long a peer may be silent when there is no room for others."""
_CLEARED_PART = 8


async def bind(host: str, port: int) -> socket.socket:
    """Return a bound socket that is not yet listening.

    Raises:
        ConfigError: The address cannot be used.
    """
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = infos[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on {host}:{port}",
            code="listen",
            detail=str(error),
            hint="Another program may use the port, or the address is not this machine's.",
        ) from None
    return bound


class SpareDescriptor:
    """Lets a listener close connections that it has no descriptor for.

    Left in the backlog, such a connection looks open to its peer, which would wait for a timeout
    instead of going elsewhere.
    """

    def __init__(self) -> None:
        self._kept: socket.socket | None = socket.socket()

    def turn_away(self, listening: socket.socket) -> None:
        """Accept and close one connection; raises ``OSError`` if that fails."""
        self.close()
        try:
            accepted, _address = listening.accept()
            accepted.close()
        finally:
            self.refill()

    def refill(self) -> None:
        """Reserve a descriptor again if one is free."""
        if self._kept is None:
            with suppress(OSError):
                self._kept = socket.socket()

    def close(self) -> None:
        """Release the descriptor."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None


@dataclass(frozen=True, slots=True)
class _Unknown:
    """A connection whose first byte, TLS or plain text, has not arrived."""

    accepted_ns: int
    expiry: asyncio.TimerHandle


class Listener:
    """One listening socket.

    Args:
        listening: A bound socket.
        endpoint: What its connections share.
        port: Which of the server's ports this is.
        tls: The TLS of the server.
        budget: How many descriptors connections may use.
    """

    def __init__(
        self,
        listening: socket.socket,
        endpoint: Endpoint,
        *,
        port: Port,
        tls: ServerTls,
        budget: DescriptorBudget,
    ) -> None:
        self._listening = listening
        self._endpoint = endpoint
        self._port = port
        self._tls = tls
        self._budget = budget
        self._spare = SpareDescriptor()
        self._loop = asyncio.get_running_loop()
        self._unknown: dict[socket.socket, _Unknown] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._next_clearing_ns = 0

    @property
    def port_number(self) -> int:
        """The port number."""
        number: int = self._listening.getsockname()[1]
        return number

    def start(self) -> None:
        """Start accepting."""
        self._listening.settimeout(0)
        self._listening.listen(BACKLOG)
        self._loop.add_reader(self._listening.fileno(), self._accept)

    async def stop(self) -> None:
        """Stop accepting, and drop connections that have not sent anything yet."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listening.fileno())
        self._listening.close()
        self._spare.close()
        for accepted in list(self._unknown):
            self._drop(accepted)
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                accepted = self._next()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("Nothing is accepted for %.0f s: %s", _ACCEPT_PAUSE_S, error)
                self._loop.remove_reader(self._listening.fileno())
                self._pause = self._loop.call_later(_ACCEPT_PAUSE_S, self._resume)
                return
            if accepted is not None:
                self._welcome(accepted)

    def _next(self) -> socket.socket | None:
        """Accept a connection; ``None`` if it was closed for lack of a descriptor."""
        try:
            return self._listening.accept()[0]
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
        self._spare.turn_away(self._listening)
        self._refuse_for_files()
        return None

    def _resume(self) -> None:
        self._pause = None
        self._spare.refill()
        self._loop.add_reader(self._listening.fileno(), self._accept)

    def _welcome(self, accepted: socket.socket) -> None:
        endpoint = self._endpoint
        if not endpoint.has_room:
            endpoint.statistics.connections_refused += 1
            more = endpoint.log_limiter.allow("too many connections")
            if more is not None:
                limit = endpoint.limits.max_connections
                log.warning("A connection is refused, there are %d%s", limit, more)
            accepted.close()
            self._clear_silent()
            return
        connections = len(endpoint.connections) + len(endpoint.handshakes)
        if not self._budget.has_room(connections, accepted.fileno()):
            accepted.close()
            self._refuse_for_files()
            return
        accepted.settimeout(0)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls.mode is TlsMode.DISABLED:
            self._serve(accepted, None)
            return
        endpoint.handshakes.add(accepted)
        idle_timeout_s = endpoint.limits.idle_timeout_ms / 1000
        self._unknown[accepted] = _Unknown(
            accepted_ns=endpoint.clock.monotonic_ns(),
            expiry=self._loop.call_later(idle_timeout_s, self._expire, accepted),
        )
        self._loop.add_reader(accepted.fileno(), self._look, accepted)

    def _refuse_for_files(self) -> None:
        endpoint = self._endpoint
        endpoint.statistics.connections_refused += 1
        more = endpoint.log_limiter.allow("too many open files")
        if more is not None:
            log.warning(
                "A connection is refused, there are %d: the limit of open files is %d, and the "
                "store needs its share. Raise it with 'ulimit -n', or LimitNOFILE= of the "
                "service%s",
                len(endpoint.connections),
                self._budget.limit,
                more,
            )
        self._clear_silent()

    def _clear_silent(self) -> None:
        """Close some connections on which nothing ever arrived, the oldest first.

        An eighth of all at most, and not too often, because every connection is checked. A peer
        that has sent anything keeps its connection.
        """
        endpoint = self._endpoint
        now_ns = endpoint.clock.monotonic_ns()
        if now_ns < self._next_clearing_ns:
            return
        self._next_clearing_ns = now_ns + _SILENCE_NS
        latest_ns = now_ns - _SILENCE_NS
        silent = [
            connection
            for connection in endpoint.connections
            if connection.input.is_silent and connection.last_activity_ns() <= latest_ns
        ]
        silent.sort(key=lambda connection: connection.id)
        count = max((len(endpoint.connections) + len(self._unknown)) // _CLEARED_PART, 1)
        for connection in silent[:count]:
            endpoint.statistics.idle_closed += 1
            connection.abort()
        for accepted, unknown in list(self._unknown.items())[:count]:
            if unknown.accepted_ns <= latest_ns:
                self._expire(accepted)

    def _look(self, accepted: socket.socket) -> None:
        try:
            first = accepted.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if not first:
            self._drop(accepted)
        elif first[0] == TLS_FIRST_BYTE:
            self._forget(accepted)
            self._serve(accepted, self._tls.context)
        elif self._tls.mode is TlsMode.ENFORCING:
            self._refuse("plain text where TLS is enforced")
            self._drop(accepted)
        else:
            self._forget(accepted)
            self._serve(accepted, None)

    def _expire(self, accepted: socket.socket) -> None:
        self._endpoint.statistics.idle_closed += 1
        self._drop(accepted)

    def _forget(self, accepted: socket.socket) -> None:
        self._unknown.pop(accepted).expiry.cancel()
        self._endpoint.handshakes.discard(accepted)
        self._loop.remove_reader(accepted.fileno())

    def _drop(self, accepted: socket.socket) -> None:
        self._forget(accepted)
        accepted.close()

    def _serve(self, accepted: socket.socket, context: ssl.SSLContext | None) -> None:
        connection = Connection(self._endpoint, port=self._port)
        self._endpoint.handshakes.add(connection)
        task = self._loop.create_task(self._connect(connection, accepted, context))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _connect(
        self, connection: Connection, accepted: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=context,
                ssl_handshake_timeout=None if context is None else _HANDSHAKE_TIMEOUT_S,
            )
        except OSError as error:
            self._refuse(str(error))
            accepted.close()
        finally:
            self._endpoint.handshakes.discard(connection)

    def _refuse(self, reason: str) -> None:
        self._endpoint.statistics.tls_refused += 1
        more = self._endpoint.log_limiter.allow("tls")
        if more is not None:
            log.warning("A connection is refused: %s%s", reason, more)
