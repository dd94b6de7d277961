"""A name server and a broker, each of Apache RocketMQ or of Roquet, as processes on loopback.

A broker is stopped (SIGTERM) or killed (SIGKILL) and started again on the same port and store.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.offset import GetConsumerStatusBody
from roquet.remoting.bodies.route import ClusterInfo
from roquet.remoting.bodies.topic import TopicStatsTable
from roquet.remoting.codec import decode_command, encode_command
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand, create_request
from roquet.remoting.frame import FrameDecoder
from tests.interop import javabuild
from tests.interop.agent import Agent, AgentError, wait_until
from tests.interop.javabroker import JavaBroker, JavaNamesrv, start_broker, start_namesrv
from tests.interop.oracle import PATIENT
from tests.interop.process import ChildProcess, Listening, find_free_port

APACHE = "apache"
# The last of the old line whose servers are published.
APACHE_4 = "apache-4.9.7"
ROQUET = "roquet"

START_TIMEOUT_S = 120

# Of the environment, what Roquet's servers are given too.
KEPT = ("ROQUET_", "PYTHONPATH")

Settings = Mapping[str, str | int]
EMPTY: Settings = {}

# Small enough for many stores in one run; the load of a restart still rolls no file.
BROKER_CONFIG: Settings = {
    "mappedFileSizeCommitLog": 16 << 20,
    "mappedFileSizeConsumeQueue": 20 * 30_000,
    "maxHashSlotNum": 50_000,
    "maxIndexNum": 200_000,
    "flushConsumerOffsetInterval": 500,
    **PATIENT,
}

CHECKS_MAX = 10

HASTY_CONFIG: Settings = {
    "transactionTimeOut": 500,
    "transactionCheckInterval": 500,
    "transactionCheckMax": CHECKS_MAX,
    # Apache RocketMQ checks again what it has not yet written down as ended.
    "transactionOpBatchInterval": 50,
    "messageDelayLevel": " ".join(["1s"] * 18),
    "useServerSideResetOffset": "false",
}

_topic_numbers = count(1)


class RoquetServer(ChildProcess):
    """A server of Roquet, started by its command.

    Attributes:
        address: Where it listens, `host:port`.
    """

    def __init__(self, name: str, role: str, folder: Path, config: Settings) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.address = f"127.0.0.1:{config['listenPort']}"
        path = folder / f"{name}.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        super().__init__(
            name,
            [sys.executable, "-m", "roquet", role, "-c", str(path)],
            folder=folder,
            environment={
                **{key: value for key, value in os.environ.items() if key.startswith(KEPT)},
                "HOME": str(folder),
                "LC_ALL": "C.UTF-8",
            },
        )
        try:
            self._wait_listening()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stops it by a signal, as an operator does, which must be a clean end."""
        super().stop()
        if self.exit_code != 0:
            raise self.error(f"ended with {self.exit_code} when it was stopped")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        if kind is None and "Traceback" in self.log_text():
            raise self.error("something went wrong inside")

    def _wait_listening(self) -> None:
        host, _, port = self.address.rpartition(":")
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
            except OSError:
                if not self.is_running():
                    raise self.error("ended before it listened") from None
                if time.monotonic() > deadline:
                    raise self.error(f"did not listen within {START_TIMEOUT_S} s") from None
                time.sleep(0.02)
            else:
                return


class RoquetBroker(RoquetServer):
    """A broker of Roquet.

    Attributes:
        broker_name: Its name, unique per port unless the settings say another.
    """

    def __init__(
        self, folder: Path, namesrv: str, store: Path, port: int, settings: Settings
    ) -> None:
        self.broker_name = str(settings.get("brokerName", f"roquet-{port}"))
        super().__init__(
            self.broker_name,
            "broker",
            folder,
            {
                "brokerClusterName": "DefaultCluster",
                "brokerName": self.broker_name,
                "brokerIP1": "127.0.0.1",
                "bindAddress": "127.0.0.1",
                "listenPort": port,
                "namesrvAddr": namesrv,
                "storePathRootDir": str(store),
                **BROKER_CONFIG,
                **settings,
            },
        )


def start_roquet_namesrv(folder: Path, port: int, settings: Settings) -> RoquetServer:
    """A name server of Roquet."""
    return RoquetServer(
        "namesrv",
        "namesrv",
        folder,
        {
            "listenPort": port,
            "bindAddress": "127.0.0.1",
            "kvConfigPath": str(folder / "kvConfig.json"),
            "configStorePath": str(folder / "namesrv.properties"),
            **settings,
        },
    )


@dataclass
class Cluster:
    """One name server and one broker.

    Args:
        namesrv_side: Whose name server, `APACHE`, `APACHE_4` or `ROQUET`.
        broker_side: Whose broker.
        folder: Where everything of it lies.
        namesrv_settings: Of Roquet's name server, beyond the usual ones.
        broker_settings: Of the broker, beyond the usual ones.
    """

    namesrv_side: str
    broker_side: str
    folder: Path
    namesrv_settings: Settings = field(default_factory=dict)
    broker_settings: Settings = field(default_factory=dict)
    _namesrv: JavaNamesrv | RoquetServer = field(init=False)
    _broker: JavaBroker | RoquetBroker | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._namesrv = self._start_namesrv(find_free_port())
        try:
            self.start_broker()
        except BaseException:
            self._namesrv.kill()
            raise

    def _start_namesrv(self, port: int) -> JavaNamesrv | RoquetServer:
        folder = self.folder / "namesrv"
        if self.namesrv_side == ROQUET:
            return start_roquet_namesrv(folder, port, self.namesrv_settings)
        return start_namesrv(_toolkit_of(self.namesrv_side), folder, port=port)

    @property
    def namesrv(self) -> str:
        """The name server's address."""
        return self._namesrv.address

    @property
    def address(self) -> str:
        """Where a client begins: the name server's address."""
        return self._namesrv.address

    @property
    def broker(self) -> JavaBroker | RoquetBroker:
        assert self._broker is not None
        return self._broker

    @property
    def broker_name(self) -> str:
        return self.broker.broker_name

    def start_broker(self) -> None:
        """Starts the broker, again on the port of the one before."""
        store = self.folder / "store"
        port = None if self._broker is None else _port_of(self._broker)
        if self.broker_side != ROQUET:
            config = {**BROKER_CONFIG, **self.broker_settings}
            toolkit = _toolkit_of(self.broker_side)
            self._broker = start_broker(
                toolkit, self.folder, self._namesrv, store, config, port=port
            )
        else:
            port = find_free_port(-2, 1) if port is None else port
            self._broker = RoquetBroker(
                self.folder / "broker", self.namesrv, store, port, self.broker_settings
            )

    def start_other_broker(
        self, side: str, settings: Settings = EMPTY, *, port: int | None = None
    ) -> JavaBroker | RoquetBroker:
        """One more broker at the same name server, of either side; the caller ends it."""
        folder, store = self.folder / "other", self.folder / "other-store"
        if side == APACHE:
            config = {**BROKER_CONFIG, **settings}
            return start_broker(javabuild.build(), folder, self._namesrv, store, config, port=port)
        port = find_free_port(-2, 1) if port is None else port
        return RoquetBroker(folder, self.namesrv, store, port, settings)

    def restart_namesrv(self) -> None:
        """Kills the name server and starts it on the same port, knowing nothing."""
        self.kill_namesrv()
        self.start_namesrv()

    def frozen_namesrv(self) -> AbstractContextManager[None]:
        """Suspends the name server within the block."""
        return self._namesrv.frozen()

    def kill_namesrv(self) -> None:
        """Kills the name server at once."""
        self._namesrv.kill()

    def start_namesrv(self) -> None:
        """Starts the name server again on its port, knowing nothing."""
        self._namesrv = self._start_namesrv(_port_of(self._namesrv))

    def wait_registered(self) -> None:
        """Waits until the name server knows the broker.

        A broker of Apache RocketMQ that starts registers before it has found its name servers, and
        again after ten seconds, unless its permissions are set.
        """

        def is_registered() -> bool:
            if self.is_registered():
                return True
            if self.broker_side != ROQUET:
                ask(self.broker, RequestCode.UPDATE_BROKER_CONFIG, b"brokerPermission=6")
            return False

        wait_until(is_registered, lambda: self.broker.error("did not register"))

    def wait_other_registered(self, other: JavaBroker | RoquetBroker) -> None:
        """Waits until the name server knows another broker."""

        def is_registered() -> bool:
            if self._knows(other.broker_name):
                return True
            if isinstance(other, JavaBroker):
                ask(other, RequestCode.UPDATE_BROKER_CONFIG, b"brokerPermission=6")
            return False

        wait_until(is_registered, lambda: other.error("did not register"))

    def is_registered(self) -> bool:
        """Whether the name server knows the broker."""
        return self._knows(self.broker_name)

    def _knows(self, broker_name: str) -> bool:
        answer = ask(self._namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)
        info = decode_body(ClusterInfo, answer.body)
        return broker_name in (info.broker_addr_table or {})

    def create_topic(self, agent: Agent, name: str, *, queues: int) -> str:
        """Makes a topic with the client's own call and waits until it can be routed."""
        topic = f"{name}_{next(_topic_numbers)}"

        def is_created() -> bool:
            try:
                agent.create_topic(self.namesrv, topic, queues=queues, address=self.broker.address)
            except AgentError:
                # The broker may not have registered yet, so its address is unknown.
                return False
            return self.is_routed(agent, topic)

        wait_until(is_created, lambda: self.broker.error(f"{topic} was not made"))
        return topic

    def wait_stored(self, topic: str, count: int) -> None:
        """Waits until the queues of a topic have so many messages, or more.

        A Java broker acknowledges messages before they are in their queues.
        """

        def is_stored() -> bool:
            answer = ask(self.broker, RequestCode.GET_TOPIC_STATS_INFO, topic=topic)
            queues = decode_body(TopicStatsTable, answer.body).offset_table.values()
            return sum(each.max_offset - each.min_offset for each in queues) >= count

        wait_until(is_stored, lambda: self.broker.error(f"{topic} has not {count} messages"))

    def wait_taken(self, group: str, topic: str) -> None:
        """Waits until the clients of a group count all messages of a topic as consumed.

        Otherwise a Go client that is stopped does not commit what its listener has just taken.
        """
        answer = ask(self.broker, RequestCode.GET_TOPIC_STATS_INFO, topic=topic)
        queues = decode_body(TopicStatsTable, answer.body).offset_table
        ends = {queue: found.max_offset for queue, found in queues.items() if found.max_offset}

        def is_taken() -> bool:
            code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
            answer = ask(self.broker, code, group=group, topic=topic, clientAddr="")
            clients = decode_body(GetConsumerStatusBody, answer.body).consumer_table.values()
            counted = {queue: at for offsets in clients for queue, at in offsets.items()}
            return counted.items() >= ends.items()

        wait_until(is_taken, lambda: self.broker.error(f"{group} does not count all as consumed"))

    def is_routed(self, agent: Agent, topic: str) -> bool:
        """Whether the name server has a route of the topic."""
        try:
            agent.route(self.namesrv, topic)
        except AgentError:
            return False
        return True

    def __enter__(self) -> Self:
        try:
            self.wait_registered()
        except BaseException:
            self.broker.kill()
            self._namesrv.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._broker is not None:
            self._broker.__exit__(kind, error, trace)
        self._namesrv.__exit__(kind, error, trace)


def _toolkit_of(side: str) -> javabuild.JavaToolkit:
    _, _, version = side.partition("-")
    return javabuild.build(javabuild.SERVER_PROJECT, version) if version else javabuild.build()


def _port_of(server: Listening) -> int:
    return int(server.address.rpartition(":")[2])


def ask(server: Listening, code: RequestCode, body: bytes = b"", **fields: str) -> RemotingCommand:
    """A server's response to a request."""
    decoder = FrameDecoder()
    request = create_request(code, opaque=1, body=body)
    request.ext_fields = fields or None
    with socket.create_connection(("127.0.0.1", _port_of(server)), timeout=60) as asking:
        asking.sendall(encode_command(request))
        while (frame := decoder.next_frame()) is None:
            received = asking.recv(1 << 16)
            assert received, f"no response to {code!r}"
            decoder.feed(received)
    return decode_command(frame)
