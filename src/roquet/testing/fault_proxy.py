"""A TCP proxy that simulates a bad network while a test runs.

Owns :class:`FaultProxy`, its port and its connections; :mod:`roquet.testing.fault_link` handles
their bytes. Bytes are passed on unchanged, so it works for any protocol, with or without TLS.

.. code-block:: text

                 to_server ──►
    client ◄────► proxy ◄────► server          delay   bytes come later, in order, none is lost
                 ◄── to_client                 dribble a few bytes at a time
                                               hold    nothing comes until it is released
    cut           an orderly end (FIN)         refuse  no new connection is taken
    reset         a sudden one (RST)

Invariants:

* A lasting fault applies to open and new connections until it is healed.
* Without a fault nothing is changed, not even how a connection ends: a half-close is passed on as a
  half-close, a reset as a reset.
* The proxy holds back at most :data:`HELD_BYTES_MAX` bytes per connection and direction; then it
  stops reading, like a slow network.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Self

from roquet.errors import ConfigError
from roquet.remoting.client import split_address
from roquet.runtime.network import joined, reserve_port
from roquet.testing.fault_link import HELD_BYTES_MAX, Direction, Link, Signal

__all__ = ["HELD_BYTES_MAX", "Direction", "FaultProxy"]


class FaultProxy:
    """Sits between clients and a server, and applies faults to their connections.

    Args:
        target: The server's address, ``host:port``.
        host: The address that clients connect to.
        port: The port; 0 for any free one.

    Attributes:
        to_server: The faults of the clients' bytes.
        to_client: The faults of the server's bytes.

    Example:
        >>> async def example() -> bytes:
        ...     async def hello(reader, writer):
        ...         writer.write(b"hello")
        ...         writer.close()
        ...     server = await asyncio.start_server(hello, "127.0.0.1", 0)
        ...     port = server.sockets[0].getsockname()[1]
        ...     async with server, FaultProxy(f"127.0.0.1:{port}") as proxy:
        ...         proxy.to_client.cut_after(4)
        ...         reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
        ...         received = await reader.read()
        ...         writer.close()
        ...         return received
        >>> asyncio.run(example())
        b'hell'
    """

    def __init__(self, target: str, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.host = host
        self.port = port
        self._target = split_address(target)
        self.to_server = Direction()
        self.to_client = Direction()
        self._links: dict[asyncio.Task[None], Link] = {}
        self._changed = Signal()
        self._server: asyncio.Server | None = None
        self._held = ExitStack()

    @property
    def address(self) -> str:
        """The address for clients.

        Example:
            async with Producer(proxy.address, group="billing") as producer:
                pass  # its requests to the name server go through the proxy
        """
        return joined(self.host, self.port)

    @property
    def connection_count(self) -> int:
        """The number of client connections.

        Example:
            assert proxy.connection_count == 0
        """
        return len(self._links)

    async def wait_connections(self, count: int) -> None:
        """Wait until there are exactly this many connections.

        Example:
            await proxy.wait_connections(0)
        """
        while len(self._links) != count:
            await self._changed.wait()

    # ---------------------------------------------------------------------- start and stop

    async def start(self) -> None:
        """Start accepting connections.

        Raises:
            ConfigError: The proxy cannot listen at the address.

        Example:
            other = FaultProxy(namesrv)
            await other.start()
            await other.stop()
        """
        try:
            held = self._held.enter_context(reserve_port(self.host, self.port))
            self.port = held.getsockname()[1]
            await self.accept()
        except OSError as error:
            self._held.close()
            raise ConfigError(
                f"Cannot listen on {self.address}", code="listen", detail=str(error)
            ) from None

    async def stop(self) -> None:
        """Stop accepting connections, and drop the open ones.

        Example:
            await proxy.stop()
        """
        await self.refuse()
        links = list(self._links)
        for task in links:
            task.cancel()
        await asyncio.gather(*links, return_exceptions=True)
        self._held.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # ------------------------------------------------------------------------------ faults

    def cut(self) -> None:
        """Close all connections in an orderly way; what is held back is lost.

        Example:
            proxy.cut()
        """
        for link in self._links.values():
            link.cut()

    def reset(self) -> None:
        """Reset both ends of all connections.

        Example:
            proxy.reset()
        """
        for link in self._links.values():
            link.reset()

    async def refuse(self) -> None:
        """Refuse new connections, as if no program listened; open ones stay.

        Example:
            await proxy.refuse()
            await proxy.accept()
        """
        server, self._server = self._server, None
        if server is not None:
            server.close()

    async def accept(self) -> None:
        """Accept new connections again.

        Example:
            await proxy.refuse()
            await proxy.accept()
        """
        if self._server is None:
            self._server = await asyncio.start_server(
                self._connected, self.host, self.port, reuse_address=True
            )

    async def heal(self) -> None:
        """End all faults, and release what was held back.

        Example:
            proxy.to_client.hold()
            await proxy.heal()
        """
        self.to_server.heal()
        self.to_client.heal()
        await self.accept()

    # -------------------------------------------------------------------------- connections

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(self.to_server, self.to_client)
        link.client.attach(reader, writer)
        task = asyncio.get_running_loop().create_task(link.run(*self._target))
        self._links[task] = link
        self._changed.tell()
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._links.pop(task).drop()
        self._changed.tell()
