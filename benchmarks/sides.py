"""The two brokers that are compared: Apache RocketMQ 5.4.0 and Roquet.

Owns starting and stopping a name server and a broker of either side as separate processes, with the
same settings, each on its own ports and in its own folder. A side is returned once it has stored
its first message; ``start_s`` is how long that took. :mod:`benchmarks.pairs` puts masters and
slaves together from the same parts.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.load import BenchmarkError, Peer
from roquet.runtime.memory import physical_memory_bytes
from tests.interop import javabuild
from tests.interop.javabroker import JavaBroker, JavaNamesrv
from tests.interop.process import ChildProcess, Listening, find_free_port

START_TIMEOUT_S = 120
FIRST_TOPIC = "Started"
POLL_S = 0.005

HEAP_GB = 4

Settings = Mapping[str, str | int]


@dataclass
class Running:
    """A name server and a broker that have stored their first message.

    Attributes:
        address: Where the broker listens.
        namesrv_address: Where the name server listens.
        start_s: From the start to the first message.
        slave: The slave of the broker, if it has one.
    """

    namesrv: ChildProcess
    broker: ChildProcess
    address: str
    namesrv_address: str
    start_s: float
    slave: ChildProcess | None = None

    @property
    def pid(self) -> int:
        """The broker's process."""
        return self.broker.pid

    def stop(self) -> None:
        """End all cleanly, the name server last."""
        if self.slave is not None:
            self.slave.stop()
        self.broker.stop()
        self.namesrv.stop()

    def kill(self) -> None:
        """End all at once."""
        if self.slave is not None:
            self.slave.kill()
        self.broker.kill()
        self.namesrv.kill()


class Side(Protocol):
    """Something that can be measured."""

    name: str

    def start(self, folder: Path, settings: Settings) -> Running:
        """Start a name server and a broker, and wait until a message is stored."""
        ...


class RoquetServer(ChildProcess):
    """A name server or a broker of Roquet; ``address`` is where it listens."""

    def __init__(
        self, role: str, folder: Path, settings: Settings, environment: Mapping[str, str]
    ) -> None:
        self.address = f"127.0.0.1:{settings['listenPort']}"
        folder.mkdir(parents=True, exist_ok=True)
        config = _write_settings(folder / f"{role}.conf", settings)
        super().__init__(
            role,
            [sys.executable, "-m", "roquet", role, "-c", config],
            folder=folder,
            environment=environment,
        )


Server = JavaNamesrv | JavaBroker | RoquetServer


class Parts(Protocol):
    """What starts the servers of one implementation, without waiting for them."""

    def namesrv(self, folder: Path) -> Server:
        """Start a name server."""
        ...

    def broker(
        self, folder: Path, namesrv: Listening, settings: Settings, *, port: int | None = None
    ) -> Server:
        """Start a broker whose store is ``store`` in its folder."""
        ...


class JavaSide:
    """Apache RocketMQ 5.4.0, run as its own script runs it, with a smaller heap.

    Args:
        brokers: How many of its brokers run at the same time.

    Raises:
        BenchmarkError: Java or Maven is missing, or the jars are not available.
    """

    name = "java"

    def __init__(self, *, brokers: int = 1) -> None:
        try:
            self._toolkit = javabuild.build()
        except (javabuild.OracleMissingError, javabuild.OracleBuildError) as error:
            raise BenchmarkError(
                f"Apache RocketMQ cannot be run: {error}\n--skip-java measures Roquet alone."
            ) from error
        each_gb = physical_memory_bytes() / (1 << 30) / brokers
        self.heap_mb = HEAP_GB * 1024 if each_gb >= 2 * HEAP_GB else int(each_gb * 400)

    def namesrv(self, folder: Path) -> Server:
        """Start a name server."""
        return JavaNamesrv(self._toolkit, folder / "namesrv")

    def broker(
        self, folder: Path, namesrv: Listening, settings: Settings, *, port: int | None = None
    ) -> Server:
        """Start a broker whose store is ``store`` in its folder."""
        options = (
            *("-server", f"-Xms{self.heap_mb}m", f"-Xmx{self.heap_mb}m"),
            *("-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25"),
            *("-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0"),
            *("-XX:-OmitStackTraceInFastThrow", "-XX:-UseLargePages"),
        )
        return JavaBroker(
            self._toolkit,
            folder,
            namesrv,
            folder / "store",
            settings,
            port=port,
            jvm_options=options,
        )

    def start(self, folder: Path, settings: Settings) -> Running:
        """Start a name server and a broker, and wait until a message is stored."""
        return _start(self, folder, settings)


class RoquetSide:
    """Roquet, by its own command.

    Args:
        checkout: Another checkout of Roquet, with its compiled modules built; this one if ``None``.
    """

    def __init__(self, *, checkout: Path | None = None) -> None:
        self.name = "roquet"
        self._environment = {**os.environ, "ROQUET_PURE": "0"}
        if checkout is not None:
            self.name += f" of {checkout}"
            self._environment["PYTHONPATH"] = str(checkout.resolve() / "src")

    def namesrv(self, folder: Path) -> Server:
        """Start a name server."""
        settings: Settings = {
            "listenPort": find_free_port(),
            "bindAddress": "127.0.0.1",
            "kvConfigPath": str(folder / "kvConfig.json"),
            "configStorePath": str(folder / "namesrv.properties"),
        }
        return RoquetServer("namesrv", folder, settings, self._environment)

    def broker(
        self, folder: Path, namesrv: Listening, settings: Settings, *, port: int | None = None
    ) -> Server:
        """Start a broker whose store is ``store`` in its folder."""
        port = find_free_port(-2, 1) if port is None else port
        settings = {
            "brokerName": f"roquet-{port}",
            "bindAddress": "127.0.0.1",
            "brokerIP1": "127.0.0.1",
            "listenPort": port,
            "namesrvAddr": namesrv.address,
            "storePathRootDir": str(folder / "store"),
            **settings,
        }
        return RoquetServer("broker", folder, settings, self._environment)

    def start(self, folder: Path, settings: Settings) -> Running:
        """Start a name server and a broker, and wait until a message is stored."""
        return _start(self, folder, settings)


@contextmanager
def stopping(running: Running) -> Iterator[Running]:
    """Stop a side cleanly, or at once after a failure."""
    try:
        yield running
        running.stop()
    except BaseException:
        running.kill()
        raise


def _write_settings(path: Path, values: Settings) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return str(path)


def _start(parts: Parts, folder: Path, settings: Settings) -> Running:
    begin = time.monotonic()
    with ExitStack() as stack:
        namesrv = parts.namesrv(folder)
        stack.callback(namesrv.kill)
        wait_listens(namesrv, namesrv.address)
        broker = parts.broker(folder, namesrv, settings)
        stack.callback(broker.kill)
        wait_stores(broker, broker.address)
        stack.pop_all()
    return Running(namesrv, broker, broker.address, namesrv.address, time.monotonic() - begin)


def wait_listens(process: ChildProcess, address: str) -> None:
    """Wait until a process that was just started takes connections."""
    wait_for(process, lambda: _listens(address))


def wait_stores(process: ChildProcess, address: str) -> None:
    """Wait until a broker that was just started has stored a message."""
    wait_for(process, lambda: _stores(address))


def wait_for(
    process: ChildProcess, condition: Callable[[], bool], timeout_s: float = START_TIMEOUT_S
) -> None:
    """Wait until something is the case with a process that runs.

    Raises:
        BenchmarkError: The process has ended, or it takes too long.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if not process.is_running():
            raise BenchmarkError(f"a process ended too early\n{process.log_tail()}")
        if time.monotonic() > deadline:
            raise BenchmarkError(f"not ready within {timeout_s} s\n{process.log_tail()}")
        time.sleep(POLL_S)


def _listens(address: str) -> bool:
    try:
        Peer(address).close()
    except OSError:
        return False
    return True


def _stores(address: str) -> bool:
    try:
        with Peer(address, timeout_s=5.0) as peer:
            peer.send(FIRST_TOPIC, 0)
            return peer.answer().code == 0
    except OSError:
        return False
