"""A broker process that dies in the middle of delays, transactions and retries, again and again.

A producer sends delayed and half messages, a consumer sends back all that it gets. The broker is
killed, or stopped cleanly, and started again on the same store. In the end every acknowledged
delayed message is delivered, none of them early; every half message is ended as its producer
decided, after a check if it had not ended it itself; every message that was sent back as often as
its group allows is a dead letter.

Duplicates are allowed where upstream allows them: what was delivered, or ended, since tables were
last written is repeated after a kill. After a clean shutdown nothing is.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from roquet.model.delay_level import DelayLevels
from roquet.model.message import StoredMessage
from roquet.model.topic import SCHEDULE_TOPIC, retry_topic
from tests.campaign import campaign
from tests.crash.services_client import (
    CONSUMERS,
    DELAYED,
    ENDED,
    QUEUES,
    RETRIES_MAX,
    RETRY_LEVEL,
    Load,
    Verdict,
    load,
)
from tests.interop.cluster import RoquetBroker, Settings
from tests.interop.process import find_free_port

ROUNDS = int(os.environ.get("ROQUET_CRASH_ROUNDS", "1"))
SHORT = [("mixed", 2)]
LONG = [("kill", 5), ("clean", 5), ("mixed", 5)]
STEPS_MAX = 90
IN_FLIGHT = 12
DONE_TIMEOUT_S = 120
POLL_S = 0.1
DELAYS = "1s 2s 3s"
LEVELS = DelayLevels(DELAYS)
SETTINGS: Settings = {
    "namesrvAddr": "",
    "messageDelayLevel": DELAYS,
    "transactionTimeOut": 300,
    "transactionCheckInterval": 400,
    "transactionCheckMax": 1_000,
    "transactionOpBatchInterval": 300,
    "mappedFileSizeCommitLog": 1 << 20,
}


class Session:
    """Lives of one broker, driven by a seed."""

    def __init__(self, folder: Path, rng: random.Random, mode: str) -> None:
        self.rng = rng
        self.mode = mode
        self.kills = 0
        self._folder = folder
        self._port = find_free_port(-2, 1)
        self._numbers = 0
        self.broker = self._start()

    def _start(self) -> RoquetBroker:
        return RoquetBroker(
            self._folder / "broker", "", self._folder / "store", self._port, SETTINGS
        )

    async def live(self, clients: Load) -> None:
        """Let the clients work for a while, then end the broker under them and start it again."""
        await clients.introduce()
        steps = self.rng.randrange(10, STEPS_MAX)
        waiting = {asyncio.create_task(self.step(clients)) for _ in range(IN_FLIGHT)}
        for _ in range(steps):
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
                waiting.add(asyncio.create_task(self.step(clients)))
        # Sent messages come due during this run or the next.
        await asyncio.sleep(self.rng.choice((0, 0.1, 0.7, 1.2)))
        await asyncio.to_thread(self.end)
        await asyncio.gather(*waiting)
        self.broker = await asyncio.to_thread(self._start)

    def end(self) -> None:
        """How a run ends."""
        if self.mode == "kill" or (self.mode == "mixed" and self.rng.random() < 0.5):
            self.kills += 1
            self.broker.kill()
        else:
            self.broker.stop()

    async def step(self, clients: Load) -> None:
        """Send one message."""
        self._numbers += 1
        key, queue_id = f"K{self._numbers}", self.rng.randrange(QUEUES)
        match self.rng.choice("ddhhhr"):
            case "d":
                await clients.send_delayed(key, queue_id, self.rng.randint(1, LEVELS.max_level))
            case "h":
                await clients.send_half(
                    key,
                    queue_id,
                    self.rng.choice(list(Verdict)),
                    ends=self.rng.random() < 0.5,
                    silent=self.rng.choice((0, 0, 1, 2)),
                )
            case _:
                await clients.send_tried(key, queue_id)


async def wait_for(what: str, is_done: Callable[[], Awaitable[set[str]]], clients: Load) -> None:
    """Wait until nothing is missing."""
    deadline = asyncio.get_running_loop().time() + DONE_TIMEOUT_S
    while missing := await is_done():
        assert not clients.faults, clients.faults[:5]
        late = asyncio.get_running_loop().time() > deadline
        assert not late, f"{what}: {len(missing)} are missing, {sorted(missing)[:5]}"
        await asyncio.sleep(POLL_S)


async def check_delays(clients: Load, session: Session) -> None:
    async def missing() -> set[str]:
        return set(clients.delayed) - set(await clients.read_topic(DELAYED))

    await wait_for("delayed messages", missing, clients)
    due_ms: dict[str, int] = {}
    for level in range(1, LEVELS.max_level + 1):
        for message in await clients.read_all((SCHEDULE_TOPIC, level - 1)):
            due = LEVELS.deliver_timestamp_ms(level, message.store_timestamp_ms)
            due_ms.setdefault(message.unique_key or "", due)
    for key, messages in (await clients.read_topic(DELAYED)).items():
        assert len(messages) <= 1 + session.kills, f"{key} came {len(messages)} times"
        for message in messages:
            assert message.store_timestamp_ms >= due_ms[key], f"{key} is early"
            assert message.body == key.encode()


async def check_transactions(clients: Load, session: Session) -> None:
    wanted = {key for key, verdict in clients.halves.items() if verdict is Verdict.COMMIT}

    async def missing() -> set[str]:
        return wanted - set(await clients.read_topic(ENDED))

    await wait_for("committed messages", missing, clients)
    # Producers that did not end a transaction were checked, also those that roll back.
    silent = {key for key in clients.halves if key not in clients.ended}

    async def unasked() -> set[str]:
        return silent - set(clients.asked)

    await wait_for("half messages", unasked, clients)
    for key, messages in (await clients.read_topic(ENDED)).items():
        assert clients.verdicts[key] is Verdict.COMMIT, f"{key} was to be rolled back"
        assert len(messages) <= clients.commits[key], f"{key} came {len(messages)} times"
        if not session.kills and key in clients.ended and not clients.asked[key]:
            assert len(messages) == 1


async def check_retries(clients: Load, session: Session) -> None:
    async def missing() -> set[str]:
        return clients.tried - set(await clients.read_dead())

    await wait_for("dead letters", missing, clients)
    dead = await clients.read_dead()
    again: dict[tuple[str, int], list[StoredMessage]] = {}
    for message in await clients.read_all((retry_topic(CONSUMERS), 0)):
        again.setdefault((message.unique_key or "", message.reconsume_times), []).append(message)
    for key in clients.tried:
        for times in range(1, RETRIES_MAX + 1):
            given_back_ms = clients.sent_back_ms[key, times - 1]
            due = LEVELS.deliver_timestamp_ms(RETRY_LEVEL, given_back_ms)
            early = min(message.store_timestamp_ms for message in again[key, times]) < due
            assert not early or key in clients.unsure, f"{key} came again too early"
        if not session.kills and key not in clients.unsure:
            assert dead[key] == 1, f"{key} died {dead[key]} times"


@pytest.mark.parametrize(("mode", "lives"), campaign(SHORT, LONG))
async def test_nothing_is_lost_early_or_forgotten(
    mode: str, lives: int, seed: int, tmp_path: Path
) -> None:
    rng = random.Random(f"{seed} {mode}")
    session = Session(tmp_path, rng, mode)
    try:
        async with load(session.broker.address) as clients:
            consumer = asyncio.create_task(clients.consume())
            for life in range(lives * ROUNDS):
                await session.live(clients)
                assert not clients.faults, f"life {life}, seed {seed}: {clients.faults[:5]}"
            await clients.introduce()
            await check_delays(clients, session)
            await check_transactions(clients, session)
            await check_retries(clients, session)
            assert not clients.faults, clients.faults[:5]
            consumer.cancel()
        session.broker.stop()
        assert "Traceback" not in session.broker.log_text()
    finally:
        session.broker.kill()
