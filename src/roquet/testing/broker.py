"""A name server and a broker inside a test, on free ports, leaving nothing behind.

Owns :func:`broker` and :class:`RunningBroker`, which it yields.

.. code-block:: text

    async with broker() as b:            # well under a second
        await b.create_topic("Orders")
        ...                              # any client, of any language: b.namesrv
        await b.restart()                # the same address, the same messages

Invariants:

* Real sockets and real files with the settings of ``roquet dev``, except that nothing is synced:
  what a test stores survives the broker, but not a power cut. Temporary files are shorter.
* A slow machine does not fail tests: unless the options say so, the broker never refuses a request
  because earlier ones took long.
* The ports stay reserved until the end, even while broker or name server are stopped, so that they
  restart where clients expect them.
* Everything runs on the caller's loop. Any number of brokers may run there at once.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from roquet.broker.admin.topic import QUEUES_MAX
from roquet.broker.broker import Broker
from roquet.broker.config import BrokerConfig, replace
from roquet.broker.settings import BrokerSettings, load_broker_settings
from roquet.client.message import ReceivedMessage
from roquet.client.record_reader import decode_messages
from roquet.errors import ConfigError, RoquetError
from roquet.model.message_queue import MessageQueue
from roquet.model.topic import topic_fault
from roquet.model.topic_config import PERM_READ, PERM_WRITE, TopicConfig
from roquet.namesrv.config import NamesrvConfig
from roquet.namesrv.namesrv import Namesrv
from roquet.remoting.client import split_address
from roquet.remoting.server import fast_port
from roquet.runtime.files import Files
from roquet.runtime.network import advertised_ip, joined, reserve_port
from roquet.runtime.settings import shown_value
from roquet.store.config import SMALL_SEGMENTS, MessageStoreConfig
from roquet.store.message_store import MessageStore
from roquet.testing.fault_proxy import FaultProxy
from roquet.testing.hooked_files import QuickFiles

__all__ = ["Options", "RunningBroker", "broker"]

log = logging.getLogger(__name__)

Options = Mapping[str, object]
"""Settings of a broker by upstream's keys, such as ``{"flushDiskType": "SYNC_FLUSH"}``.

A value is a string, a number, a path or a boolean.

Example:
    options: Options = {"flushDiskType": "SYNC_FLUSH", "autoCreateTopicEnable": False}
"""

BROKER_NAME = "dev"
_LOOPBACK = "127.0.0.1"
_PROXY_ADDRESS = "127.0.0.2"
_RESERVE_ATTEMPTS = 64
_NEVER_MS = 3_600_000
_SHORT_FILES = MessageStoreConfig(
    commit_log_file_bytes=8 << 20, index_slots=5_000, index_entries=20_000
)
"""Allocating longer files would take most of the time before the first message is stored."""


@asynccontextmanager
async def broker(
    options: Options | None = None,
    *,
    namesrv: str = "",
    folder: Path | None = None,
    files: Files | None = None,
    proxied: bool = False,
) -> AsyncIterator[RunningBroker]:
    """Run a name server and a broker on free ports of loopback while the block runs.

    Args:
        options: Settings of the broker by upstream's keys. An unknown key is an error.
        namesrv: Addresses of running name servers; then none is started. Use this for several
            brokers in one cluster; each gets its own name unless the options set ``brokerName``.
        folder: The data folder, which is kept; by default a temporary folder that is removed.
        files: Access to the file system; by default without syncs.
        proxied: Whether clients reach the broker through :attr:`RunningBroker.proxy`, which
            simulates network faults on demand.

    Raises:
        ConfigError: An option is unknown or its value cannot be used.
        StoreError: The folder holds a store that cannot be opened.

    Example:
        >>> async def example() -> list[str]:
        ...     async with broker({"flushDiskType": "SYNC_FLUSH"}) as b:
        ...         await b.create_topic("Orders", queues=2)
        ...         return [name for name in b.broker.topics.table if name == "Orders"]
        >>> asyncio.run(example())
        ['Orders']
    """
    async with AsyncExitStack() as running:
        is_kept = folder is not None
        if folder is None:
            temporary = tempfile.TemporaryDirectory(
                prefix="roquet-testing-", ignore_cleanup_errors=True
            )
            running.push_async_callback(asyncio.to_thread, temporary.cleanup)
            folder = Path(temporary.name)
        options = options or {}
        settings = _settings(folder, options, namesrv, is_kept=is_kept, proxied=proxied)
        ports = running.enter_context(_reserved(settings.config, proxied=proxied))
        config = replace(settings.config, listen_port=ports.main)
        if ports.namesrv is None and "brokerName" not in options:
            # Brokers with the same name would be one broker to the name server that they share.
            config = replace(config, broker_name=f"{BROKER_NAME}-{ports.main}")
        settings = msgspec.structs.replace(settings, config=config)
        made = RunningBroker(folder, settings, ports.namesrv, files or QuickFiles())
        running.push_async_callback(made.stop)
        await made.start()
        if proxied:
            host, port = split_address(made.address)
            proxy = FaultProxy(made.listens_on, host=host, port=port)
            ports.of_proxy.close()
            made.use_proxy(await running.enter_async_context(proxy))
        yield made


class RunningBroker:
    """A broker for a test, with its name server; created by :func:`broker`.

    Attributes:
        folder: The data folder.
        namesrv: The name server's address, for clients.
        address: The broker's address, as in routes.
        listens_on: Where the broker itself listens, if that is another address.

    Example:
        async with broker(proxied=True) as running:
            await running.create_topic("Orders")
            async with Producer(running.namesrv, group="billing") as producer:
                await producer.send(Message("Orders", b"paid"))
            assert [message.body for message in running.messages("Orders")] == [b"paid"]
    """

    def __init__(
        self, folder: Path, settings: BrokerSettings, namesrv_port: int | None, files: Files
    ) -> None:
        self.folder = folder
        self._settings = settings
        self._files = files
        self._namesrv_config = None
        host = settings.config.bind_address
        self.namesrv = settings.config.namesrv_address
        if namesrv_port is not None:
            self.namesrv = joined(advertised_ip(host), namesrv_port)
            self._settings = msgspec.structs.replace(
                settings, config=replace(settings.config, namesrv_address=self.namesrv)
            )
            self._namesrv_config = NamesrvConfig.in_folder(
                folder / "namesrv", bind_address=host, listen_port=namesrv_port
            )
        config = settings.config
        self.address = joined(advertised_ip(config.broker_ip1 or host), config.listen_port)
        self.listens_on = joined(advertised_ip(host), config.listen_port)
        self._broker: Broker | None = None
        self._namesrv: Namesrv | None = None
        self._proxy: FaultProxy | None = None

    @property
    def broker(self) -> Broker:
        """The broker itself: its tables, its statistics, its connections.

        Raises:
            RoquetError: It is stopped.

        Example:
            print(sorted(b.broker.topics.table))
        """
        if self._broker is None:
            raise RoquetError("The broker is stopped.", hint="Call start_broker() first.")
        return self._broker

    @property
    def store(self) -> MessageStore:
        """The messages.

        Example:
            await b.create_topic("Orders", queues=1)
            assert b.store.max_offset_in_queue("Orders", 0) == 0
        """
        return self.broker.store

    @property
    def proxy(self) -> FaultProxy:
        """The proxy between clients and the broker, for network faults.

        The fast port, for clients with a VIP channel, is not proxied.

        Raises:
            RoquetError: There is none.

        Example:
            b.proxy.to_client.delay(5)
            await b.proxy.heal()
        """
        if self._proxy is None:
            raise RoquetError(
                "This broker has no proxy.", hint="Start it with broker(proxied=True)."
            )
        return self._proxy

    def use_proxy(self, proxy: FaultProxy) -> None:
        """Use a running proxy, which listens at the address in the routes.

        Example:
            async with FaultProxy(b.listens_on) as proxy:
                b.use_proxy(proxy)
        """
        self._proxy = proxy

    @property
    def name(self) -> str:
        """The broker's name, as in routes and queues.

        Example:
            queue = MessageQueue("Orders", b.name, 0)
        """
        return self._settings.config.broker_name

    @property
    def cluster(self) -> str:
        """The name of its cluster.

        Example:
            assert b.cluster == "DefaultCluster"
        """
        return self._settings.config.cluster_name

    async def create_topic(
        self, name: str, queues: int = 4, *, perm: int = PERM_READ | PERM_WRITE, order: bool = False
    ) -> None:
        """Create or update a topic; the name server knows it when this returns.

        Args:
            name: The topic.
            queues: How many queues it has.
            perm: 4 read, 2 write, or their sum.
            order: Whether producers keep to the queues that the name server lists.

        Raises:
            ConfigError: The name or the number of queues cannot be used.

        Example:
            await b.create_topic("Orders", queues=8)
        """
        fault = topic_fault(name)
        if fault is None and not 1 <= queues <= QUEUES_MAX:
            fault = f"A topic has 1 to {QUEUES_MAX} queues, not {queues}."
        if fault is not None:
            raise ConfigError(fault, code="topic")
        topic = TopicConfig(
            topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm, order=order
        )
        self.broker.topics.stage_all([topic])
        await self.broker.topics.committed()
        await self.broker.wait_registered()

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return all stored messages of a topic, consumed or not, in log order.

        Messages of a batch that is stored as one record are returned one by one.

        Example:
            >>> async def example() -> list[bytes]:
            ...     async with broker() as b:
            ...         return [message.body for message in b.messages("Orders")]
            >>> asyncio.run(example())
            []
        """
        config, store = self.broker.topics.select(topic), self.store
        queues = 0 if config is None else max(config.read_queue_nums, config.write_queue_nums)
        places = {
            store.physical_offset_in_queue(topic, queue_id, queue_offset): queue_id
            for queue_id in range(queues)
            for queue_offset in range(
                max(store.min_offset_in_queue(topic, queue_id), 0),
                store.max_offset_in_queue(topic, queue_id),
            )
        }
        found: list[ReceivedMessage] = []
        for physical_offset, queue_id in sorted(places.items()):
            record = store.select_one(physical_offset)
            if record is not None:
                queue = MessageQueue(topic, self.name, queue_id)
                found += decode_messages(bytes(record), queue)[0]
        return found

    async def restart(self) -> None:
        """Shut the broker down cleanly and start it again, with the same address and data.

        Clients lose their connections, and reconnect on their own.

        Example:
            address = b.address
            await b.restart()
            assert b.address == address
        """
        await self.stop_broker()
        await self.start_broker()

    async def start_broker(self) -> None:
        """Start and register the broker; does nothing if it runs.

        Raises:
            StoreError: The store cannot be opened.

        Example:
            await b.stop_broker()
            await b.start_broker()
        """
        if self._broker is not None:
            return
        settings = self._settings
        made = Broker(settings.config, settings.store, tls=settings.tls_settings, files=self._files)
        _report(await made.start())
        self._broker = made
        await made.wait_registered()

    async def stop_broker(self) -> None:
        """Shut the broker down cleanly; does nothing if it does not run. Clients are refused.

        Example:
            await b.stop_broker()  # what does the program say now?
            await b.start_broker()
        """
        stopped, self._broker = self._broker, None
        if stopped is not None:
            await stopped.stop()

    async def start_namesrv(self) -> None:
        """Start the name server; does nothing if it runs or is an external one.

        It knows no routes until the broker registers again, which the broker does within seconds.

        Example:
            await b.stop_namesrv()
            await b.start_namesrv()
        """
        if self._namesrv is not None or self._namesrv_config is None:
            return
        tls = self._settings.tls.not_enforced()  # the broker itself connects in plain text
        made = Namesrv(self._namesrv_config, tls=tls, files=self._files)
        _report(await made.start())
        self._namesrv = made

    async def stop_namesrv(self) -> None:
        """Stop the name server; does nothing if it does not run or is an external one.

        Example:
            await b.stop_namesrv()
            await b.start_namesrv()
        """
        stopped, self._namesrv = self._namesrv, None
        if stopped is not None:
            await stopped.stop()

    async def start(self) -> None:
        """Start the broker and the name server, if they do not run.

        Example:
            await b.start()  # nothing: all of it runs
        """
        await self.start_namesrv()
        await self.start_broker()

    async def stop(self) -> None:
        """Stop the broker and the name server, if they run.

        Example:
            await b.stop()
            await b.start()
        """
        try:
            await self.stop_broker()
        finally:
            await self.stop_namesrv()


class _Ports(NamedTuple):
    """The ports of a broker and its name server.

    Attributes:
        main: The broker's; the fast port is two below, where clients with a VIP channel expect it,
            and the one for slaves is above.
        namesrv: The name server's; ``None`` if none is started.
        of_proxy: Reserves the main port at the proxy's address until the proxy starts.
    """

    main: int
    namesrv: int | None
    of_proxy: ExitStack


@contextmanager
def _reserved(config: BrokerConfig, *, proxied: bool) -> Iterator[_Ports]:
    """Reserve ports while the block runs; free ones, unless the options name a port."""
    host = config.bind_address
    with ExitStack() as held:
        of_proxy = held.enter_context(ExitStack())
        try:
            main = config.listen_port or _reserve_ports(
                host, held, of_proxy, config.broker_ip1 if proxied else ""
            )
            namesrv = None
            if not config.namesrv_address:
                namesrv = held.enter_context(reserve_port(host)).getsockname()[1]
        except OSError as error:
            raise ConfigError(
                f"Cannot listen on {host}.",
                code="listen",
                detail=str(error),
                hint="Omit bindAddress, or set an address of this machine.",
            ) from None
        yield _Ports(main, namesrv, of_proxy)


def _reserve_ports(host: str, held: ExitStack, of_proxy: ExitStack, proxy_host: str) -> int:
    for _ in range(_RESERVE_ATTEMPTS):
        with ExitStack() as pair:
            main: int = pair.enter_context(reserve_port(host)).getsockname()[1]
            try:
                pair.enter_context(reserve_port(host, fast_port(main)))
                pair.enter_context(reserve_port(host, main + 1))
                if proxy_host:
                    # Connections of an earlier proxy may still linger at this port.
                    of_proxy.enter_context(reserve_port(proxy_host, main))
            except OSError:
                continue
            held.push(pair.pop_all())
            return main
    raise ConfigError(f"No three free ports were found on {host}.", code="listen")


def _settings(
    folder: Path, options: Options, namesrv: str, *, is_kept: bool, proxied: bool
) -> BrokerSettings:
    own = {
        "bindAddress": _LOOPBACK,
        # Routes contain the broker's own port, so the proxy uses the same port on another address.
        "brokerIP1": _PROXY_ADDRESS if proxied else "",
        "listenPort": 0,
        "storePathRootDir": folder / "store",
        "namesrvAddr": namesrv,
        "brokerFastFailureEnable": False,
        "osPageCacheBusyTimeOutMills": _NEVER_MS,
    }
    settings = load_broker_settings(
        None,
        {key: shown_value(value) for key, value in {**own, **options}.items()},
        origin="the options of the test",
        base=BrokerConfig(broker_name=BROKER_NAME),
        # The folder may hold a store of ``roquet dev``.
        store_base=SMALL_SEGMENTS if is_kept else _SHORT_FILES,
    )
    unknown = [each for each in settings.warnings if each.code == "config_unknown_key"]
    if unknown:
        raise unknown[0]
    return settings


def _report(problems: Iterable[ConfigError]) -> None:
    for problem in problems:
        log.warning("%s", problem)
