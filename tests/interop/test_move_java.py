"""A broker name moves from Apache RocketMQ to Roquet and back, while a producer goes on sending.

The steps are those of docs/guides/replication.md. A Java slave copies tables for the first time a
minute after its start.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from roquet.admin import Admin
from roquet.client import Message, Producer
from roquet.errors import RoquetError
from roquet.remoting.bodies.broker import HARuntimeInfo
from roquet.remoting.bodies.client import MessageRequestMode, SetMessageRequestModeRequestBody
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.codes import RequestCode
from tests.interop.agent import wait_until
from tests.interop.cluster import APACHE, ROQUET, ask
from tests.interop.ha_pair import BROKER_NAME, HaPair
from tests.interop.slave_tables import (
    GROUP,
    TOPIC,
    fill,
    make_topic,
    table_of,
    told,
    wait_copied,
)
from tests.patience import TIMEOUT_MS

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

JAVA, OURS = 0, 1


class Load:
    """A producer that sends numbered messages until it is stopped.

    Attributes:
        acknowledged: The numbers of those that were acknowledged.
    """

    def __init__(self, pair: HaPair) -> None:
        self._pair = pair
        self.acknowledged: list[int] = []
        self._is_stopped = False
        self._task = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        number = 0
        async with Producer(
            self._pair.namesrv, group="Load", send_timeout_ms=TIMEOUT_MS
        ) as producer:
            while not self._is_stopped:
                number += 1
                try:
                    await producer.send(Message(TOPIC, b"n%d" % number, keys=f"n{number}"))
                except RoquetError:
                    await asyncio.sleep(0.1)  # the broker name has no master now
                else:
                    self.acknowledged.append(number)
                    await asyncio.sleep(0.002)

    async def wait_more(self) -> None:
        """Wait until further messages were acknowledged."""
        count = len(self.acknowledged)
        while len(self.acknowledged) < count + 50:  # noqa: ASYNC110 - the other side is a process
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        self._is_stopped = True
        await self._task


async def hand_over(pair: HaPair, admin: Admin) -> None:
    """Make the slave the master, and the master its slave."""
    await admin.clusters.forbid_writes(BROKER_NAME)
    await wait_level(admin)
    old, new = pair.master, 1 - pair.master
    for number in (old, new):
        await asyncio.to_thread(pair.stop, number)
    pair.master = new
    for number in (new, old):
        await asyncio.to_thread(pair.start, number)


async def wait_level(admin: Admin) -> None:
    """Wait until the slave has all of its master's log."""
    while True:
        try:
            found = (await admin.clusters.replica_lag()).answers
        except RoquetError:
            found = {}
        if [each.behind_bytes for each in found.values()] == [0]:
            return
        await asyncio.sleep(0.2)


def wait_followed(pair: HaPair) -> None:
    """Wait until the Java slave has copied an offset and a topic that only Roquet knows."""
    make_topic(pair, "New")
    told(
        pair,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        consumerGroup=GROUP,
        topic=TOPIC,
        queueId="2",
        commitOffset="1",
    )

    def is_copied() -> bool:
        offsets = table_of(pair, JAVA, "consumerOffset.json", "offsetTable")
        topics = table_of(pair, JAVA, "topics.json", "topicConfigTable")
        return "New" in topics and offsets.get(f"{TOPIC}@{GROUP}") == {1: 2, 2: 1}

    wait_until(is_copied, lambda: pair.broker(JAVA).error("does not copy tables"), 150)


async def numbers_of(admin: Admin) -> dict[int, list[int]]:
    """The numbers that the queues of the topic hold, in order."""
    found: dict[int, list[int]] = {}
    messages = await admin.messages.by_time(TOPIC, 0, 4_102_444_800_000, max_messages=1_000_000)
    for message in sorted(messages.messages, key=lambda each: each.queue_offset):
        if message.body.startswith(b"n"):
            found.setdefault(message.queue_id, []).append(int(message.body[1:]))
    return found


def runtime(pair: HaPair, number: int) -> HARuntimeInfo:
    answer = ask(pair.broker(number), RequestCode.GET_BROKER_HA_STATUS)
    return decode_body(HARuntimeInfo, answer.body)


@pytest.mark.usefixtures("java_toolkit")
async def test_a_broker_name_moves_to_roquet_and_back(tmp_path: Path) -> None:
    settings = {"timerWheelEnable": "false"}
    with HaPair(tmp_path, (APACHE, ROQUET), settings) as pair:
        for number in (JAVA, OURS):
            await asyncio.to_thread(pair.start, number)
        await fill(pair)
        mode = SetMessageRequestModeRequestBody(
            topic=TOPIC, consumer_group=GROUP, mode=MessageRequestMode.POP, pop_share_queue_nums=3
        )
        told(pair, RequestCode.SET_MESSAGE_REQUEST_MODE, encode_body(mode))
        async with Admin(pair.namesrv) as admin:
            load = Load(pair)
            await load.wait_more()
            await asyncio.to_thread(wait_copied, pair)
            assert TOPIC in table_of(pair, OURS, "messageRequestMode.json", "messageRequestModeMap")
            assert not runtime(pair, OURS).master
            await hand_over(pair, admin)
            await load.wait_more()
            # Java's files already had the rest: a new topic and offset show that it copies.
            await asyncio.to_thread(wait_followed, pair)
            await hand_over(pair, admin)
            await load.wait_more()
            await load.stop()
            await wait_level(admin)
            found = await numbers_of(admin)
        assert sorted(load.acknowledged) == load.acknowledged
        stored = [number for numbers in found.values() for number in numbers]
        assert set(load.acknowledged) <= set(stored)
        # A retry may have stored a number twice, but never behind a later one of its queue.
        assert all(numbers == sorted(numbers) for numbers in found.values())
        for number in (JAVA, OURS):
            pair.stop(number)
        assert pair.log(JAVA) == pair.log(OURS)
