"""The master of a SYNC_MASTER pair is killed under load: its slave has all that was acknowledged.

ROQUET_CRASH_ROUNDS makes more rounds of it.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from roquet.client import Message, Producer
from roquet.client.message import SendResult, SendStatus
from roquet.errors import ClientError
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from tests.interop.cluster import APACHE, ROQUET, Settings
from tests.interop.ha_pair import SETTINGS, TOPIC, HaPair, producer_of

pytestmark = [pytest.mark.interop, pytest.mark.slow]

ROUNDS = int(os.environ.get("ROQUET_CRASH_ROUNDS", "1"))
SENDERS = 32
FILES = MessageStoreConfig(
    commit_log_file_bytes=int(SETTINGS["mappedFileSizeCommitLog"]),
    consume_queue_file_bytes=int(SETTINGS["mappedFileSizeConsumeQueue"]),
    index_slots=int(SETTINGS["maxHashSlotNum"]),
    index_entries=int(SETTINGS["maxIndexNum"]),
)
SYNC: Settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}


class Load:
    """Sends until it is stopped, each message once.

    Attributes:
        acknowledged: The bodies and results of sends that are safe.
    """

    def __init__(self, producer: Producer, rng: random.Random) -> None:
        self._producer = producer
        self._rng = rng
        self._number = 0
        self._is_stopped = False
        self.acknowledged: list[tuple[bytes, SendResult]] = []

    async def run(self) -> None:
        """Send with several senders."""
        await asyncio.gather(*(self._send() for _ in range(SENDERS)))

    def stop(self) -> None:
        """End after the current sends."""
        self._is_stopped = True

    async def _send(self) -> None:
        while not self._is_stopped:
            self._number += 1
            body = b"%d:" % self._number + self._rng.randbytes(self._rng.choice((1, 100, 3000)))
            try:
                result = await self._producer.send(Message(TOPIC, body), timeout_ms=5000)
            except ClientError:
                await asyncio.sleep(0.01)
                continue
            if result.status is SendStatus.SEND_OK:
                self.acknowledged.append((body, result))


def lost(store: Path, acknowledged: list[tuple[bytes, SendResult]]) -> list[SendResult]:
    """Which of the acknowledged messages a store does not have where they should be."""
    opened = DefaultMessageStore(store, FILES)
    opened.load()
    try:
        missing: list[SendResult] = []
        for body, result in acknowledged:
            found = opened.look_message(int(result.offset_message_id[-16:], 16))
            place = None if found is None else (found.topic, found.queue_id, found.queue_offset)
            if (
                found is None
                or found.body != body
                or place
                != (
                    TOPIC,
                    result.queue.queue_id,
                    result.queue_offset,
                )
            ):
                missing.append(result)
        return missing
    finally:
        opened.lifecycle.abandon()


@pytest.mark.usefixtures("java_toolkit")
@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize(
    "sides", [(ROQUET, ROQUET), (ROQUET, APACHE), (APACHE, ROQUET)], ids="-".join
)
async def test_a_killed_masters_slave_has_every_acknowledged_message(
    sides: tuple[str, str], number: int, seed: int, tmp_path: Path
) -> None:
    rng = random.Random(f"{seed} {number} {sides}")
    with HaPair(tmp_path, sides, SYNC) as pair:
        await asyncio.gather(*(asyncio.to_thread(pair.start, each) for each in (0, 1)))
        async with producer_of(pair) as producer:
            await producer.send(Message(TOPIC, b"first"))
            await asyncio.to_thread(pair.wait_same)
            load = Load(producer, rng)
            sending = asyncio.create_task(load.run())
            await asyncio.sleep(rng.uniform(0.5, 3))
            fault = rng.choice(("none", "slave frozen", "slave killed", "slave restarted"))
            if fault == "slave frozen":
                with pair.broker(1).frozen():
                    await asyncio.sleep(rng.uniform(0.1, 4))
                    pair.broker(0).kill()
            elif fault != "none":
                pair.broker(1).kill()
                await asyncio.sleep(rng.uniform(0, 1))
                if fault == "slave restarted":
                    await asyncio.to_thread(pair.start, 1)
                    await asyncio.sleep(rng.uniform(0, 8))
            pair.broker(0).kill()
            load.stop()
            await sending
        pair.broker(1).kill()
        assert load.acknowledged, fault
        assert lost(pair.store(1), load.acknowledged) == [], fault
