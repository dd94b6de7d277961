"""One listening socket, and the way of a connection until its first byte is known.

Owns accepting. With TLS the first byte is looked at without taking it, and decides what kind of
transport the connection gets; both kinds share the port.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl

from roquet.errors import ConfigError
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import Endpoint
from roquet.remoting.processor import Port
from roquet.remoting.tls import TLS_FIRST_BYTE, ServerTls, TlsMode

__all__ = ["Listener", "bind"]

log = logging.getLogger(__name__)

BACKLOG = 1024
_ACCEPTS_PER_TURN = 128
_HANDSHAKE_TIMEOUT_S = 10.0
_ACCEPT_PAUSE_S = 1.0
"""How long nothing is accepted after the process ran out of descriptors or memory."""


async def bind(host: str, port: int) -> socket.socket:
    """A socket with an address of this machine, not yet listening.

    Raises:
        ConfigError: The address cannot be had.
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


class Listener:
    """One listening socket.

    Args:
        listening: A bound socket.
        endpoint: What its connections share.
        port: Which of the server's ports this is.
        tls: The TLS of the server.
    """

    def __init__(
        self, listening: socket.socket, endpoint: Endpoint, *, port: Port, tls: ServerTls
    ) -> None:
        self._listening = listening
        self._endpoint = endpoint
        self._port = port
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._unknown: dict[socket.socket, asyncio.TimerHandle] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None

    @property
    def port_number(self) -> int:
        """The number of the port."""
        number: int = self._listening.getsockname()[1]
        return number

    def start(self) -> None:
        """Begin to accept."""
        self._listening.settimeout(0)
        self._listening.listen(BACKLOG)
        self._loop.add_reader(self._listening.fileno(), self._accept)

    async def stop(self) -> None:
        """Accept no more, and drop connections that did not say anything yet."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listening.fileno())
        self._listening.close()
        for accepted in list(self._unknown):
            self._drop(accepted)
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                accepted, _address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("Nothing is accepted for %.0f s: %s", _ACCEPT_PAUSE_S, error)
                self._loop.remove_reader(self._listening.fileno())
                self._pause = self._loop.call_later(_ACCEPT_PAUSE_S, self._resume)
                return
            self._welcome(accepted)

    def _resume(self) -> None:
        self._pause = None
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
            return
        accepted.settimeout(0)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls.mode is TlsMode.DISABLED:
            self._serve(accepted, None)
            return
        endpoint.handshakes.add(accepted)
        self._unknown[accepted] = self._loop.call_later(
            endpoint.limits.idle_timeout_ms / 1000, self._expire, accepted
        )
        self._loop.add_reader(accepted.fileno(), self._look, accepted)

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
        self._unknown.pop(accepted).cancel()
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
