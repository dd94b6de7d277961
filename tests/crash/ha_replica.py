"""A replica of a pair, as a process that is killed; it says on its output what it does.

Started as ``python -m tests.crash.ha_replica ROOT ROLE ADDRESS LIFE SEED``. The master listens at a
port of its own; ADDRESS is a slave's master. One line an event:

    at PORT                     the HA port listens
    in-sync                     a master has a slave; it sends once it reads a line
    put PRODUCER QUEUE VALUE    a send is about to begin
    ack VALUE OFFSET            it was acknowledged
    maybe VALUE                 it is stored, but perhaps on no slave
    following                   a slave's log is the beginning of its master's
    fault TEXT                  it is not
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from pathlib import Path

from roquet.ha import follower
from roquet.ha.service import HaService
from roquet.model.message import BrokerMessage
from roquet.model.properties import encode_properties
from roquet.runtime.clock import SystemClock
from roquet.store.config import BrokerRole, MessageStoreConfig, replace
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.results import PutMessageResult, PutMessageStatus
from tests.crash.writer import QUEUES, TOPIC, config_of, say

PRODUCERS = 8
POLL_S = 0.005


def replica_config(role: BrokerRole) -> MessageStoreConfig:
    """Small files and short intervals."""
    return replace(
        config_of("async"),
        broker_role=role,
        ha_heartbeat_interval_ms=200,
        ha_housekeeping_interval_ms=2000,
        slave_timeout_ms=1000,
    )


async def produce(store: DefaultMessageStore, name: str, rng: random.Random) -> None:
    """Send one message after the other."""
    number = 0
    loop = asyncio.get_running_loop()
    while True:
        number += 1
        value, queue = f"{name}-{number}", rng.randrange(QUEUES)
        done: asyncio.Future[PutMessageResult] = loop.create_future()
        body = f"{value}:".encode() + rng.randbytes(rng.choice((0, 10, 300, 5000)))
        say("put", name, queue, value)
        store.submit(
            BrokerMessage(
                topic=TOPIC,
                queue_id=queue,
                body=body,
                properties=encode_properties({"KEYS": value}),
                born_timestamp_ms=0,
            ),
            done.set_result,
        )
        store.finish_burst()
        result = await done
        if result.status is PutMessageStatus.PUT_OK and result.append is not None:
            say("ack", value, result.append.queue_offset)
        else:
            assert result.is_stored, result
            say("maybe", value)
            await asyncio.sleep(POLL_S)


async def run(root: Path, role: BrokerRole, address: str, life: str, seed: str) -> None:
    """Be a replica until killed."""
    clock = SystemClock()
    loop = asyncio.get_running_loop()

    def post(function: Callable[[], None]) -> None:
        loop.call_soon_threadsafe(function)

    store = DefaultMessageStore(root, replica_config(role), clock=clock, post=post)
    store.load()
    store.start()
    ha = HaService(store, clock)
    if role is BrokerRole.SLAVE:
        ha.update_ha_master_address(address)
    await ha.start()
    say("at", ha.listen_port)
    if role is BrokerRole.SLAVE:
        follower.RECONNECT_PAUSE_S = 0.1
        said = ""
        while True:
            status = ha.status()
            words = "following" if status.is_connected else f"fault {status.fault}"
            if words not in {said, "fault "}:
                say(words)
                said = words
            await asyncio.sleep(POLL_S)
    while not ha.status().in_sync_slaves:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(POLL_S)
    say("in-sync")
    await loop.run_in_executor(None, sys.stdin.readline)
    rng = random.Random(f"{seed} {life}")
    names = [f"l{life}p{number}" for number in range(PRODUCERS)]
    await asyncio.gather(*(produce(store, name, rng) for name in names))


def main() -> None:
    """Run with the arguments of the command line."""
    root, role, address, life, seed = sys.argv[1:]
    asyncio.run(run(Path(root), BrokerRole(role), address, life, seed))


if __name__ == "__main__":
    main()
