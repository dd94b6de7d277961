"""The tables of a pair: something for each of them, and whether the slave's files have it."""

from __future__ import annotations

from typing import cast

from roquet.client import Message, Producer
from roquet.model.fastjson import loads
from roquet.model.subscription import SubscriptionGroupConfig
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.codes import RequestCode, ResponseCode
from tests.interop.agent import wait_until
from tests.interop.cluster import ask
from tests.interop.ha_pair import HaPair
from tests.patience import TIMEOUT_MS

TOPIC = "Copied"
GROUP = "billing"

Table = dict[str, object]


def table_of(pair: HaPair, number: int, name: str, key: str) -> Table:
    """A table in a file of one of them; empty if there is no such file yet."""
    path = pair.store(number) / "config" / name
    if not path.exists() or not (text := path.read_bytes()):
        return {}
    return cast("Table", cast("Table", loads(text))[key])


def told(pair: HaPair, code: RequestCode, body: bytes = b"", **fields: str) -> None:
    answer = ask(pair.broker(pair.master), code, body, **fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def make_topic(pair: HaPair, name: str) -> None:
    told(
        pair,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic=name,
        defaultTopic="TBW102",
        readQueueNums="3",
        writeQueueNums="3",
        perm="6",
        topicFilterType="SINGLE_TAG",
        topicSysFlag="0",
        order="true",
    )


async def fill(pair: HaPair) -> None:
    """Give every table of the master something to copy."""
    make_topic(pair, TOPIC)
    group = SubscriptionGroupConfig(group_name=GROUP, retry_max_times=7)
    told(pair, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, encode_body(group))
    async with Producer(pair.namesrv, group="Writers", send_timeout_ms=TIMEOUT_MS) as producer:
        for number in range(9):
            await producer.send(Message(TOPIC, b"%d" % number))
        await producer.send(Message(TOPIC, b"late", delay_level=1))
    told(
        pair,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        consumerGroup=GROUP,
        topic=TOPIC,
        queueId="1",
        commitOffset="2",
    )


def wait_copied(pair: HaPair) -> None:
    """Wait until the files of the slave have what the master has."""
    master, slave = pair.master, 1 - pair.master

    def is_copied() -> bool:
        topics = table_of(pair, slave, "topics.json", "topicConfigTable")
        groups = table_of(pair, slave, "subscriptionGroup.json", "subscriptionGroupTable")
        offsets = table_of(pair, slave, "consumerOffset.json", "offsetTable")
        delays = table_of(pair, slave, "delayOffset.json", "offsetTable")
        return (
            topics.get(TOPIC) == table_of(pair, master, "topics.json", "topicConfigTable")[TOPIC]
            and cast("Table", groups.get(GROUP) or {}).get("retryMaxTimes") == 7
            and offsets.get(f"{TOPIC}@{GROUP}") == {1: 2}
            and delays.get(1) == 1  # type: ignore[call-overload]
        )

    wait_until(is_copied, lambda: pair.broker(slave).error("has not copied the tables"), 150)
