"""A name server and a broker in this process, and what they hold."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from roquet.broker.broker import Broker
from roquet.broker.config import BrokerConfig
from roquet.client.message import ReceivedMessage
from roquet.namesrv.config import NamesrvConfig
from roquet.namesrv.namesrv import Namesrv
from roquet.store.config import MessageStoreConfig
from roquet.testing.broker import RunningBroker
from roquet.testing.hooked_files import QuickFiles
from tests.patience import NEVER_MS
from tests.unit.client.client_kit import LOOPBACK, until

STORE = MessageStoreConfig(
    commit_log_file_bytes=1 << 20,
    consume_queue_file_bytes=20_000,
    index_slots=100,
    index_entries=400,
    os_page_cache_busy_timeout_ms=NEVER_MS,
)


@asynccontextmanager
async def name_server(folder: Path) -> AsyncIterator[Namesrv]:
    settings = NamesrvConfig(
        bind_address=LOOPBACK,
        listen_port=0,
        kv_config_path=str(folder / "kvConfig.json"),
        config_store_path=str(folder / "namesrv.properties"),
    )
    async with Namesrv(settings) as running:
        yield running


@asynccontextmanager
async def broker(folder: Path, namesrv: str, *, name: str = "broker-a") -> AsyncIterator[Broker]:
    settings = BrokerConfig(
        broker_name=name,
        bind_address=LOOPBACK,
        listen_port=0,
        store_root=str(folder / name),
        namesrv_address=namesrv,
        fast_failure=False,
    )
    async with Broker(settings, STORE, files=QuickFiles()) as running:
        yield running


def stored(running: RunningBroker, topic: str, queue_id: int = 0) -> list[ReceivedMessage]:
    """What a queue holds, from its beginning."""
    return [each for each in running.messages(topic) if each.queue_id == queue_id]


async def stored_soon(
    running: RunningBroker, topic: str, count: int, queue_id: int = 0
) -> list[ReceivedMessage]:
    """What a queue holds, as soon as it is this many."""
    await until(lambda: len(stored(running, topic, queue_id)) >= count)
    return stored(running, topic, queue_id)
