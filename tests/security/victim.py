"""What hostile peers attack: a server, a name server or a broker in a process of its own.

    python -m tests.security.victim broker FOLDER

It prints one line of JSON with its port, then one with facts about itself for every line that it
reads, and stops cleanly when its standard input ends: it never outlives the test that started it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import uvloop

from roquet.namesrv.config import NamesrvConfig
from roquet.namesrv.namesrv import Namesrv
from roquet.remoting.server import RemotingServer
from roquet.runtime.log import LineFormatter
from roquet.runtime.open_files import raise_open_files_limit
from roquet.store.config import MessageStoreConfig
from tests.patience import NEVER_MS
from tests.unit.remoting.net_kit import LOOPBACK, serving

STORE = MessageStoreConfig(
    commit_log_file_bytes=32 << 20,
    index_slots=10_000,
    index_entries=40_000,
    os_page_cache_busy_timeout_ms=NEVER_MS,
)


@asynccontextmanager
async def started(kind: str, folder: Path) -> AsyncIterator[tuple[int, RemotingServer]]:
    """Start one, and give its port and its server."""
    match kind:
        case "server":
            async with serving() as running:
                yield running.port, running.server
        case "namesrv":
            config = NamesrvConfig(
                listen_port=0,
                bind_address=LOOPBACK,
                kv_config_path=str(folder / "kvConfig.json"),
                config_store_path=str(folder / "namesrv.properties"),
            )
            async with Namesrv(config) as namesrv:
                yield namesrv.port, namesrv._server
        case "broker":
            from roquet.broker.broker import Broker
            from roquet.broker.config import BrokerConfig

            settings = BrokerConfig(
                listen_port=0,
                bind_address=LOOPBACK,
                store_root=str(folder / "store"),
                property_filter=True,
                wait_ms_in_send_queue=NEVER_MS,
            )
            async with Broker(settings, STORE) as broker:
                yield broker.port, broker._server
        case _:
            raise ValueError(kind)


async def main(kind: str, folder: Path) -> None:
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    async with started(kind, folder) as (port, server):
        say({"port": port})
        while await orders.readline():
            say(
                {
                    "tasks": len(asyncio.all_tasks()),
                    "connections": len(server.connections),
                    "in_flight": server.in_flight,
                    **msgspec.structs.asdict(server.statistics),
                }
            )


def say(facts: dict[str, int]) -> None:
    print(json.dumps(facts), flush=True)  # noqa: T201  how it talks to the test


if __name__ == "__main__":
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    raise_open_files_limit()
    uvloop.run(main(sys.argv[1], Path(sys.argv[2])))
