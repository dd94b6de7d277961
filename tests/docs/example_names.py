"""What the examples in docstrings can use: a broker, its clients, and messages."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import cast

import pytest

import roquet.admin
import roquet.client
import roquet.sync
from roquet import errors
from roquet.client import (
    ClientInstance,
    ClientOptions,
    ConsumeFromWhere,
    Message,
    MessageQueue,
    PullApi,
    ReceivedMessage,
    RemoteBrokerOffsetStore,
    TraceDispatcher,
    TransactionState,
)
from roquet.remoting.command import RemotingCommand
from roquet.remoting.connection import Connection
from roquet.remoting.hooks import RpcCall
from roquet.testing import files, history
from roquet.testing.background import BackgroundBroker, background_broker
from roquet.testing.broker import Options, RunningBroker, broker
from roquet.testing.fault_proxy import HELD_BYTES_MAX, Direction, FaultProxy
from tests.integration.admin.admin_kit import prepared
from tests.unit.client import client_kit

QUEUE = MessageQueue("Orders", "dev", 0)
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Listener:
    """A listener whose transactions all succeed."""

    def execute(self, message: Message, transaction_id: str) -> TransactionState:
        assert (message.body, bool(transaction_id)) == (b"paid", True)
        return TransactionState.COMMIT

    def check(self, message: ReceivedMessage) -> TransactionState:
        assert message.body
        return TransactionState.COMMIT


LISTENER = Listener()


@contextmanager
def server() -> Iterator[dict[str, object]]:
    """A broker with everything that examples need, under plain names."""
    with background_broker({"enablePropertyFilter": True}) as background:

        async def prepare() -> dict[str, object]:
            running = background.running
            async with (
                roquet.admin.Admin(running.namesrv) as admin,
                roquet.client.Producer(running.namesrv, group="preparing") as producer,
            ):
                sent = await prepared(running, admin)
                (running.folder / "examples").mkdir()
                await admin.groups.create("examples")
                for topic in ("Parcels", "Letters"):
                    await running.create_topic(topic)
                message = Message("Orders", b"paid", tags="paid", keys="17")
                await producer.send(message, queue=QUEUE)
            record = running.store.select_one(running.messages("Orders")[-1].physical_offset)
            return {
                "namesrv": running.namesrv,
                "broker_address": running.address,
                "message_id": sent.message_id,
                "offset_message_id": sent.offset_message_id,
                "received": running.messages("Orders")[-1],
                "record": record,
                "folder": background.folder / "examples",
                "queue": QUEUE,
                "listener": LISTENER,
                "call": RpcCall(cast("Connection", None), RemotingCommand(code=105)),
                "print": lambda *words: None,  # noqa: ARG005 - not used
            }

        yield background.run(prepare)


GENERAL: dict[str, object] = {
    **{name: getattr(errors, name) for name in errors.__all__},
    "Sequence": Sequence,
    "Path": Path,
    "asyncio": asyncio,
    "pytest": pytest,
    "random": random,
    "threading": threading,
}
PUBLIC: dict[str, dict[str, object]] = {
    "client": {name: getattr(roquet.client, name) for name in roquet.client.__all__},
    "admin": {name: getattr(roquet.admin, name) for name in roquet.admin.__all__},
    "sync": {name: getattr(roquet.sync, name) for name in roquet.sync.__all__},
    "testing": {
        **{name: getattr(files, name) for name in files.__all__},
        **{name: getattr(history, name) for name in history.__all__},
        "BackgroundBroker": BackgroundBroker,
        "Direction": Direction,
        "FaultProxy": FaultProxy,
        "HELD_BYTES_MAX": HELD_BYTES_MAX,
        "Options": Options,
        "RunningBroker": RunningBroker,
        "background_broker": background_broker,
        "broker": broker,
    },
}


def public_of(package: str) -> dict[str, object]:
    """The classes that an example of a package uses without importing them."""
    seen = ("client", "admin", "testing") if package != "sync" else ("testing", "sync")
    return GENERAL | {name: value for each in seen for name, value in PUBLIC[each].items()}


# ----------------------------------------------------------------------- what runs on a loop


@asynccontextmanager
async def producer(namesrv: str) -> AsyncIterator[object]:
    async with roquet.client.Producer(namesrv, group="examples", check=LISTENER.check) as made:
        yield made


@asynccontextmanager
async def transaction_producer(namesrv: str) -> AsyncIterator[object]:
    made = roquet.client.TransactionProducer(namesrv, group="transactions", listener=LISTENER)
    async with made:
        yield made


@asynccontextmanager
async def consumer(namesrv: str) -> AsyncIterator[object]:
    made = roquet.client.LitePullConsumer(namesrv, group="examples", consume_from=FIRST)
    async with made:
        await made.subscribe("Orders")
        while QUEUE not in made.assignment:
            await made.poll(timeout_ms=10)
        await made.seek_to_begin(QUEUE)
        yield made


@asynccontextmanager
async def push_consumer(namesrv: str) -> AsyncIterator[object]:
    made = roquet.client.PushConsumer(namesrv, group="pushed", handler=lambda _: None)
    made.subscribe("Orders")
    async with made:
        yield made


@asynccontextmanager
async def reader(namesrv: str) -> AsyncIterator[object]:
    async with roquet.client.SimplePull(namesrv, QUEUE, group="examples") as made:
        yield made


@asynccontextmanager
async def admin(namesrv: str) -> AsyncIterator[object]:
    async with roquet.admin.Admin(namesrv) as made:
        yield made


@asynccontextmanager
async def client(namesrv: str) -> AsyncIterator[ClientInstance]:
    options = ClientOptions(namesrv=namesrv, instance_name="examples")
    async with await ClientInstance.open(options) as made:
        yield made


@asynccontextmanager
async def api(namesrv: str) -> AsyncIterator[PullApi]:
    async with client(namesrv) as made:
        await made.routes.route("Orders")
        yield PullApi(made, "examples")


@asynccontextmanager
async def store(namesrv: str) -> AsyncIterator[object]:
    async with api(namesrv) as made:
        yield RemoteBrokerOffsetStore(made)


@asynccontextmanager
async def dispatcher(namesrv: str) -> AsyncIterator[object]:
    async with client(namesrv) as made:
        running = TraceDispatcher(made, "examples", "PRODUCE")
        yield running
        await running.close()


@asynccontextmanager
async def producer_callbacks(_namesrv: str) -> AsyncIterator[object]:
    yield client_kit.Producer("Orders")


@asynccontextmanager
async def consumer_callbacks(_namesrv: str) -> AsyncIterator[object]:
    yield client_kit.Consumer("billing", "Orders")


@asynccontextmanager
async def b(_namesrv: str) -> AsyncIterator[object]:
    async with broker(proxied=True) as running:
        yield running


@asynccontextmanager
async def proxy(namesrv: str) -> AsyncIterator[object]:
    async with FaultProxy(namesrv) as running:
        yield running


# -------------------------------------------------------------------------- what blocks


@contextmanager
def blocking_producer(namesrv: str) -> Iterator[object]:
    with roquet.sync.Producer(namesrv, group="examples", check=LISTENER.check) as made:
        yield made


@contextmanager
def blocking_transaction_producer(namesrv: str) -> Iterator[object]:
    made = roquet.sync.TransactionProducer(namesrv, group="transactions", listener=LISTENER)
    with made:
        yield made


@contextmanager
def blocking_consumer(namesrv: str) -> Iterator[object]:
    made = roquet.sync.LitePullConsumer(namesrv, group="examples", consume_from=FIRST)
    with made:
        made.subscribe("Orders")
        while QUEUE not in made.assignment:
            made.poll(timeout_ms=10)
        made.seek_to_begin(QUEUE)
        yield made


@contextmanager
def blocking_push_consumer(namesrv: str) -> Iterator[object]:
    made = roquet.sync.PushConsumer(namesrv, group="pushed", handler=lambda _: None)
    made.subscribe("Orders")
    with made:
        yield made


@contextmanager
def blocking_reader(namesrv: str) -> Iterator[object]:
    with roquet.sync.SimplePull(namesrv, QUEUE, group="examples") as made:
        yield made


@contextmanager
def blocking_admin(namesrv: str) -> Iterator[object]:
    with roquet.sync.Admin(namesrv) as made:
        yield made


@contextmanager
def background(_namesrv: str) -> Iterator[object]:
    with background_broker() as running:
        yield running


ON_LOOP = {
    each.__name__: each
    for each in (
        producer,
        transaction_producer,
        consumer,
        push_consumer,
        reader,
        admin,
        client,
        api,
        store,
        dispatcher,
        producer_callbacks,
        consumer_callbacks,
        b,
        proxy,
    )
}
BLOCKING = {
    "producer": blocking_producer,
    "transaction_producer": blocking_transaction_producer,
    "consumer": blocking_consumer,
    "push_consumer": blocking_push_consumer,
    "reader": blocking_reader,
    "admin": blocking_admin,
    "background": background,
}


async def enter(
    package: str, wanted: set[str], namesrv: str, running: AsyncExitStack
) -> dict[str, object]:
    """Start what an example uses."""
    names: dict[str, object] = {}
    for name in sorted(wanted):
        if package != "sync" and name in ON_LOOP:
            names[name] = await running.enter_async_context(ON_LOOP[name](namesrv))
        elif package in {"sync", "testing"} and name in BLOCKING:
            names[name] = running.enter_context(BLOCKING[name](namesrv))
    return names
