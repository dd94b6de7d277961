"""Starts a real Apache RocketMQ name server and broker on loopback.

    with start_namesrv(toolkit, folder) as namesrv:
        with start_broker(toolkit, folder, namesrv, store, {"maxIndexNum": 200}) as broker:
            ...
            broker.stop()       # SIGTERM and a clean store; leaving the block alone is kill -9

A broker is handed out when it has recovered its store and listens; its registration with the name
server may come later (`JavaClient.wait_registered`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.interop.javabuild import JavaToolkit
from tests.interop.javaprocess import QUICK_JVM, JavaProcess
from tests.interop.process import Listening, ProcessError, find_free_port

NAMESRV_CLASS = "org.apache.rocketmq.namesrv.NamesrvStartup"
BROKER_CLASS = "org.apache.rocketmq.broker.BrokerStartup"
START_TIMEOUT_S = 120

# Every flush reads all of the timer wheel, which takes an eighth of a core of an idle broker.
QUIET_BROKER = {"timerFlushIntervalMs": 60_000}

# Another process may take a port between the moment it was found free and the broker's start.
START_TRIES = 3


class JavaNamesrv(JavaProcess):
    """A running name server; `address` is its `host:port`."""

    def __init__(self, toolkit: JavaToolkit, folder: Path, port: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        port = find_free_port() if port is None else port
        self.address = f"127.0.0.1:{port}"
        config = folder / "namesrv.conf"
        config.write_text(f"listenPort={port}\nbindAddress=127.0.0.1\n")
        super().__init__(
            toolkit, "namesrv", NAMESRV_CLASS, arguments=["-c", str(config)], folder=folder
        )


class JavaBroker(JavaProcess):
    """A running broker.

    Attributes:
        broker_name: Its name, unique per process unless the configuration says another: brokers
            may share a name server.
        address: Where it listens, `host:port`.
        store: Its store directory.
    """

    def __init__(
        self,
        toolkit: JavaToolkit,
        folder: Path,
        namesrv: Listening,
        store: Path,
        config: Mapping[str, str | int],
        *,
        port: int | None = None,
        jvm_options: Sequence[str] = QUICK_JVM,
    ) -> None:
        self.store = store
        port = find_free_port(-2, 1) if port is None else port
        self.address = f"127.0.0.1:{port}"
        self.broker_name = str(config.get("brokerName", f"java-{port}"))
        home = folder / self.broker_name
        home.mkdir(parents=True, exist_ok=True)
        values: dict[str, str | int] = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": self.broker_name,
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": port,
            "namesrvAddr": namesrv.address,
            "storePathRootDir": str(store),
            **config,
        }
        path = home / "broker.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        super().__init__(
            toolkit,
            self.broker_name,
            BROKER_CLASS,
            arguments=["-c", str(path)],
            folder=home,
            jvm_options=jvm_options,
        )


def start_namesrv(toolkit: JavaToolkit, folder: Path, *, port: int | None = None) -> JavaNamesrv:
    """Starts a name server and waits until it listens."""
    namesrv = JavaNamesrv(toolkit, folder, port)
    _wait_started(namesrv, "The Name Server boot success")
    return namesrv


def start_broker(
    toolkit: JavaToolkit,
    folder: Path,
    namesrv: Listening,
    store: Path,
    config: Mapping[str, str | int],
    *,
    port: int | None = None,
) -> JavaBroker:
    """Starts a broker on `store` and waits until it has recovered and listens.

    Args:
        toolkit: The built classpath.
        folder: Where its home and log go.
        namesrv: The name server to register with.
        store: The store directory, existing or not.
        config: Keys of `broker.conf` beyond names, addresses and paths.
        port: Where to listen, when it must be the one of a broker before.
    """
    tries = START_TRIES if port is None else 1
    while True:
        broker = JavaBroker(toolkit, folder, namesrv, store, {**QUIET_BROKER, **config}, port=port)
        tries -= 1
        try:
            started = f"The broker[{broker.broker_name}, {broker.address}] boot success"
            _wait_started(broker, started)
        except ProcessError:
            if tries == 0 or "Address already in use" not in broker.log_text():
                raise
        else:
            return broker


def _wait_started(process: JavaProcess, text: str) -> None:
    try:
        process.wait_log(text, START_TIMEOUT_S)
    except BaseException:
        process.kill()
        raise


def write_topics(store: Path, queue_counts: Mapping[str, int]) -> None:
    """Writes `config/topics.json`, which tells a broker that the store's topics exist."""
    table = {
        topic: {
            "attributes": {},
            "order": False,
            "perm": 6,
            "readQueueNums": queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic,
            "topicSysFlag": 0,
            "writeQueueNums": queues,
        }
        for topic, queues in queue_counts.items()
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": 0}
    path = store / "config" / "topics.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"dataVersion": version, "topicConfigTable": table}, indent=1))
