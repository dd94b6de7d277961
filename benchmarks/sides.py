"""The two brokers that are compared: Apache RocketMQ 5.4.0 and Roquet.

Owns starting and stopping a name server and a broker of either side as separate processes, with the
same settings, each on its own ports and in its own folder. A side is returned once it has stored
its first message; ``start_s`` is how long that took.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.load import BenchmarkError, Peer
from roquet.runtime.memory import physical_memory_bytes
from tests.interop import javabuild
from tests.interop.javabroker import JavaBroker, JavaNamesrv
from tests.interop.process import ChildProcess, find_free_port

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
    """

    namesrv: ChildProcess
    broker: ChildProcess
    address: str
    namesrv_address: str
    start_s: float

    @property
    def pid(self) -> int:
        """The broker's process."""
        return self.broker.pid

    def stop(self) -> None:
        """End both cleanly, the broker first."""
        self.broker.stop()
        self.namesrv.stop()

    def kill(self) -> None:
        """End both at once."""
        self.broker.kill()
        self.namesrv.kill()


class Side(Protocol):
    """Something that can be measured."""

    name: str

    def start(self, folder: Path, settings: Settings) -> Running:
        """Start a name server and a broker, and wait until a message is stored."""
        ...


class JavaSide:
    """Apache RocketMQ 5.4.0, run as its own script runs it, with a smaller heap.

    Raises:
        BenchmarkError: Java or Maven is missing, or the jars are not available.
    """

    name = "java"

    def __init__(self) -> None:
        try:
            self._toolkit = javabuild.build()
        except (javabuild.OracleMissingError, javabuild.OracleBuildError) as error:
            raise BenchmarkError(
                f"Apache RocketMQ cannot be run: {error}\n--skip-java measures Roquet alone."
            ) from error
        installed_gb = physical_memory_bytes() / (1 << 30)
        self.heap_mb = HEAP_GB * 1024 if installed_gb >= 2 * HEAP_GB else int(installed_gb * 400)

    def start(self, folder: Path, settings: Settings) -> Running:
        """Start a name server and a broker, and wait until a message is stored."""
        options = (
            *("-server", f"-Xms{self.heap_mb}m", f"-Xmx{self.heap_mb}m"),
            *("-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25"),
            *("-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0"),
            *("-XX:-OmitStackTraceInFastThrow", "-XX:-UseLargePages"),
        )

        begin = time.monotonic()
        namesrv = JavaNamesrv(self._toolkit, folder / "namesrv")

        def broker() -> tuple[ChildProcess, str]:
            started = JavaBroker(
                self._toolkit, folder, namesrv, folder / "store", settings, jvm_options=options
            )
            return started, started.address

        return _wait_started(begin, namesrv, namesrv.address, broker)


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

    def start(self, folder: Path, settings: Settings) -> Running:
        """Start a name server and a broker, and wait until a message is stored."""
        folder.mkdir(parents=True, exist_ok=True)
        namesrv_port, broker_port = find_free_port(), find_free_port(-2, 1)

        namesrv_address = f"127.0.0.1:{namesrv_port}"
        namesrv_conf = _write_settings(
            folder / "namesrv.conf",
            {
                "listenPort": namesrv_port,
                "bindAddress": "127.0.0.1",
                "kvConfigPath": str(folder / "kvConfig.json"),
                "configStorePath": str(folder / "namesrv.properties"),
            },
        )
        broker_conf = _write_settings(
            folder / "broker.conf",
            {
                "brokerName": f"roquet-{broker_port}",
                "bindAddress": "127.0.0.1",
                "brokerIP1": "127.0.0.1",
                "listenPort": broker_port,
                "namesrvAddr": namesrv_address,
                "storePathRootDir": str(folder / "store"),
                **settings,
            },
        )
        begin = time.monotonic()
        namesrv = self._run(folder, "namesrv", namesrv_conf)

        def broker() -> tuple[ChildProcess, str]:
            return self._run(folder, "broker", broker_conf), f"127.0.0.1:{broker_port}"

        return _wait_started(begin, namesrv, namesrv_address, broker)

    def _run(self, folder: Path, role: str, config: str) -> ChildProcess:
        return ChildProcess(
            role,
            [sys.executable, "-m", "roquet", role, "-c", config],
            folder=folder,
            environment=self._environment,
        )


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


def _wait_started(
    begin: float,
    namesrv: ChildProcess,
    namesrv_address: str,
    start_broker: Callable[[], tuple[ChildProcess, str]],
) -> Running:
    try:
        wait_listens(namesrv, namesrv_address)
        broker, address = start_broker()
        try:
            _wait(broker, lambda: _stores(address))
        except BaseException:
            broker.kill()
            raise
    except BaseException:
        namesrv.kill()
        raise
    return Running(namesrv, broker, address, namesrv_address, time.monotonic() - begin)


def wait_listens(process: ChildProcess, address: str) -> None:
    """Wait until a process that was just started takes connections."""
    _wait(process, lambda: _listens(address))


def _wait(process: ChildProcess, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not condition():
        if not process.is_running():
            raise BenchmarkError(f"a process ended while it started\n{process.log_tail()}")
        if time.monotonic() > deadline:
            raise BenchmarkError(f"no start within {START_TIMEOUT_S} s\n{process.log_tail()}")
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
