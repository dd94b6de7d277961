"""A master and a slave, each of Apache RocketMQ or of Roquet, as processes on loopback."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from roquet.client import Message, Producer
from roquet.client.message import ReceivedMessage
from roquet.client.transaction import TransactionState
from roquet.remoting.codes import RequestCode
from tests.interop import javabuild
from tests.interop.agent import wait_until
from tests.interop.cluster import ROQUET, RoquetBroker, Settings, ask, start_roquet_namesrv
from tests.interop.javabroker import START_TIMEOUT_S, JavaBroker, start_broker
from tests.interop.oracle import PATIENT
from tests.interop.process import find_free_port
from tests.patience import TIMEOUT_MS

BROKER_NAME = "pair"
TOPIC = "Replicated"
TOGETHER = 25

SETTINGS: Settings = {
    "brokerName": BROKER_NAME,
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20 * 30_000,
    "maxHashSlotNum": 50_000,
    "maxIndexNum": 200_000,
    "messageDelayLevel": " ".join(["1s"] * 18),
    "haSendHeartbeatInterval": 1000,
    **PATIENT,
}

Broker = JavaBroker | RoquetBroker


class HaPair:
    """Two brokers of one name, a name server, and their stores.

    Args:
        folder: Where everything of it lies.
        sides: Whose master and whose slave.
        settings: Of both, beyond the usual ones.

    Attributes:
        master: Which of them starts as the master.
    """

    def __init__(self, folder: Path, sides: tuple[str, str], settings: Settings) -> None:
        self.master = 0
        self._folder = folder
        self._sides = sides
        self._settings = settings
        self._ports = (find_free_port(-2, 1), find_free_port(-2, 1))
        self._namesrv = start_roquet_namesrv(folder / "namesrv", find_free_port(), {})
        self._brokers: dict[int, Broker] = {}

    @property
    def namesrv(self) -> str:
        """The name server's address."""
        return self._namesrv.address

    def broker(self, number: int) -> Broker:
        """The master (0) or the slave (1)."""
        return self._brokers[number]

    def store(self, number: int) -> Path:
        """The store of the master or the slave."""
        return self._folder / f"store-{number}"

    def start(self, number: int) -> None:
        """Start one of them, again on its port and store."""
        port = self._ports[number]
        role: dict[str, str | int] = {
            "haListenPort": port + 1,
            "brokerId": 0 if number == self.master else 1,
            "brokerRole": "ASYNC_MASTER",
            **self._settings,
        }
        is_roquet = self._sides[number] == ROQUET
        if number != self.master:
            role["brokerRole"] = "SLAVE"
            if is_roquet:  # Java's slave forgets it while it starts, and asks the name server
                role["haMasterAddress"] = f"127.0.0.1:{self._ports[self.master] + 1}"
        settings = {**SETTINGS, **role}
        folder = self._folder / f"broker-{number}"
        store = self.store(number)
        if is_roquet:
            started = RoquetBroker(folder, self.namesrv, store, port, settings)
            self._brokers[number] = started
            started.wait_log("boot success", START_TIMEOUT_S)  # it registers before
            return
        java = javabuild.build()
        broker = start_broker(java, folder, self._namesrv, store, settings, port=port)
        self._brokers[number] = broker
        # Otherwise it registers, and learns where its master is, only after ten seconds.
        ask(broker, RequestCode.UPDATE_BROKER_CONFIG, b"brokerPermission=6")

    def stop(self, number: int) -> None:
        """Stop one of them cleanly."""
        self._brokers.pop(number).stop()

    def log(self, number: int) -> tuple[str, bytes]:
        """The first segment's name, and the log without the zeros at its end."""
        paths = sorted((self.store(number) / "commitlog").glob("[0-9]*"))
        whole = b"".join(path.read_bytes() for path in paths)
        return (paths[0].name if paths else ""), whole.rstrip(b"\0")

    def wait_same(self) -> int:
        """Wait until both logs are the same; return their length."""
        wait_until(
            lambda: self.log(0) == self.log(1),
            lambda: self.broker(1).error(
                f"has {len(self.log(1)[1])} of {len(self.log(0)[1])} bytes of the log, "
                f"beginning with {self.log(1)[0]}, {self.log(0)[0]}"
            ),
        )
        return len(self.log(0)[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with ExitStack() as stack:
            stack.callback(self._namesrv.__exit__, kind, error, trace)
            for broker in self._brokers.values():
                stack.callback(broker.__exit__, kind, error, trace)


def commit(_message: Message, _transaction_id: str) -> TransactionState:
    """Commit every transaction."""
    return TransactionState.COMMIT


def committed(_message: ReceivedMessage) -> TransactionState:
    """The same, if a broker asks."""
    return TransactionState.COMMIT


async def send_some(producer: Producer, first: int, count: int) -> None:
    """Send messages of every kind, some at a time."""
    for start in range(first, first + count, TOGETHER):
        numbers = range(start, min(start + TOGETHER, first + count))
        await asyncio.gather(*(_send(producer, number) for number in numbers))


async def _send(producer: Producer, number: int) -> None:
    body = b"%d," % number * (number % 300)
    tag, key = f"t{number % 3}", f"k{number}"
    if number % 10 == 0:
        batch = [Message(TOPIC, b"%d-%d" % (number, each), tags=tag) for each in range(4)]
        await producer.send_batch(batch)
    elif number % 50 == 7:
        await producer.send(Message(TOPIC, body * 20, keys=key))  # is compressed
    elif number % 50 == 13:
        await producer.send(Message(TOPIC, body, delay_level=1))
    elif number % 50 == 23:
        await producer.send_in_transaction(Message(TOPIC, body, keys=key), commit)
    else:
        await producer.send(Message(TOPIC, body, tags=tag, keys=key))


def producer_of(pair: HaPair) -> Producer:
    """A producer at the pair's name server."""
    return Producer(
        pair.namesrv, group="Writers", check=committed, send_timeout_ms=TIMEOUT_MS, retry_times=5
    )


async def settle(pair: HaPair) -> int:
    """Wait until nothing more is delivered and both logs are the same; return their length."""
    length = -1
    while (found := await asyncio.to_thread(pair.wait_same)) != length:
        length = found
        await asyncio.sleep(2)  # delayed messages are still to be delivered
    return length
