"""The broker of :mod:`roquet.testing.broker` for tests without an event loop.

Owns :func:`background_broker`, which runs it on a loop of its own in a thread, and its blocking
proxy, :class:`BackgroundBroker`.

Invariants:

* Only the broker's own thread touches the broker; the proxy hands work over and waits.
* The thread ends with the block, however the block ends.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from roquet.client.message import ReceivedMessage
from roquet.errors import RoquetError
from roquet.runtime.background_loop import BackgroundLoop
from roquet.testing.broker import Options, RunningBroker, broker

__all__ = ["BackgroundBroker", "background_broker"]

_T = TypeVar("_T")


class BackgroundBroker:
    """A broker that runs in a thread; created by :func:`background_broker`.

    Attributes:
        running: The broker itself; use it only through :meth:`call` and :meth:`run`.
        namesrv: The name server's address, for clients.
        address: The broker's address.
        name: The broker's name.
        cluster: The name of its cluster.
        folder: The data folder.

    Example:
        with background_broker() as background:
            background.create_topic("Orders")
            print(background.namesrv)
    """

    def __init__(self, running: RunningBroker, loop: BackgroundLoop) -> None:
        self.running = running
        self.namesrv = running.namesrv
        self.address = running.address
        self.name = running.name
        self.cluster = running.cluster
        self.folder = running.folder
        self._loop = loop

    def create_topic(self, name: str, queues: int = 4) -> None:
        """As :meth:`RunningBroker.create_topic <roquet.testing.broker.RunningBroker>`.

        Raises:
            ConfigError: The name or the number of queues cannot be used.

        Example:
            background.create_topic("Orders", queues=8)
        """
        self.run(lambda: self.running.create_topic(name, queues))

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return all stored messages of a topic, consumed or not, in log order.

        Example:
            assert background.messages("Orders") == []
        """
        return self.call(lambda: self.running.messages(topic))

    def restart(self) -> None:
        """Shut the broker down cleanly and start it again at the same address.

        Example:
            background.restart()
        """
        self.run(self.running.restart)

    def start_broker(self) -> None:
        """Start the broker; does nothing if it runs.

        Example:
            background.stop_broker()
            background.start_broker()
        """
        self.run(self.running.start_broker)

    def stop_broker(self) -> None:
        """Stop the broker; does nothing if it does not run.

        Example:
            background.stop_broker()  # what does the program say now?
            background.start_broker()
        """
        self.run(self.running.stop_broker)

    def start_namesrv(self) -> None:
        """Start the name server; does nothing if it runs.

        Example:
            background.stop_namesrv()
            background.start_namesrv()
        """
        self.run(self.running.start_namesrv)

    def stop_namesrv(self) -> None:
        """Stop the name server; does nothing if it does not run.

        Example:
            background.stop_namesrv()
            background.start_namesrv()
        """
        self.run(self.running.stop_namesrv)

    def run(self, work: Callable[[], Coroutine[object, object, _T]]) -> _T:
        """Run a coroutine function on the broker's loop, and return its result.

        Raises:
            WrongThread: This is the broker's own thread.
            RoquetError: The broker's block has ended.

        Example:
            background.run(background.running.restart)
        """
        return self._running_loop.run(work)

    def call(self, work: Callable[[], _T]) -> _T:
        """Run a function on the broker's loop, and return its result.

        Raises:
            WrongThread: This is the broker's own thread.
            RoquetError: The broker's block has ended.

        Example:
            >>> with background_broker() as b:
            ...     b.create_topic("Orders")
            ...     b.call(lambda: b.running.store.max_offset_in_queue("Orders", 0))
            0
        """
        return self._running_loop.call(work)

    @property
    def _running_loop(self) -> BackgroundLoop:
        if not self._loop.is_open:
            raise RoquetError("The broker has stopped.", hint="Use it only inside its with block.")
        return self._loop


@contextmanager
def background_broker(
    options: Options | None = None,
    *,
    namesrv: str = "",
    folder: Path | None = None,
    proxied: bool = False,
) -> Iterator[BackgroundBroker]:
    """Run a name server and a broker in a thread while the block runs.

    Args:
        options: As for :func:`roquet.testing.broker.broker`, like the others.
        namesrv: Addresses of running name servers.
        folder: The data folder, which is kept.
        proxied: Whether clients reach the broker through a proxy.

    Raises:
        ConfigError: An option is unknown or its value cannot be used.
        StoreError: The folder holds a store that cannot be opened.

    Example:
        with background_broker({"flushDiskType": "SYNC_FLUSH"}) as background:
            background.create_topic("Orders")
            print(background.namesrv)
    """
    loop = BackgroundLoop("roquet-broker")
    loop.start()
    try:
        made = broker(options, namesrv=namesrv, folder=folder, proxied=proxied)
        running = loop.run(made.__aenter__)
        try:
            yield BackgroundBroker(running, loop)
        finally:
            loop.run(lambda: made.__aexit__(None, None, None))
    finally:
        loop.close()
