"""A name server and a broker in this process, and faces that remember what they were asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from roquet.broker.broker import Broker
from roquet.broker.config import BrokerConfig
from roquet.client.message import ReceivedMessage
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SubscriptionData
from roquet.namesrv.config import NamesrvConfig
from roquet.namesrv.namesrv import Namesrv
from roquet.remoting.bodies.client import (
    CMResult,
    ConsumeFromWhere,
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
)
from roquet.remoting.headers.send import CheckTransactionStateRequestHeader
from roquet.store.config import MessageStoreConfig
from roquet.testing.hooked_files import QuickFiles

LOOPBACK = "127.0.0.1"

STORE = MessageStoreConfig(
    commit_log_file_bytes=1 << 20,
    consume_queue_file_bytes=20_000,
    index_slots=100,
    index_entries=400,
)


@asynccontextmanager
async def name_server(folder: Path, *, port: int = 0) -> AsyncIterator[Namesrv]:
    settings = NamesrvConfig(
        bind_address=LOOPBACK,
        listen_port=port,
        kv_config_path=str(folder / "kvConfig.json"),
        config_store_path=str(folder / "namesrv.properties"),
    )
    async with Namesrv(settings) as running:
        yield running


@asynccontextmanager
async def broker(
    folder: Path, namesrv: str, *, name: str = "broker-a", port: int = 0
) -> AsyncIterator[Broker]:
    settings = BrokerConfig(
        broker_name=name,
        bind_address=LOOPBACK,
        listen_port=port,
        store_root=str(folder / name),
        namesrv_address=namesrv,
    )
    async with Broker(settings, STORE, files=QuickFiles()) as running:
        yield running


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something is so; the test's time-out bounds it."""
    while not condition():  # noqa: ASYNC110 - counters have no event to wait for
        await asyncio.sleep(0.001)


class Producer:
    """A producer that remembers what it was asked."""

    def __init__(self, *topics: str, takes_replies: bool = True) -> None:
        self.topics = topics
        self.takes_replies = takes_replies
        self.checks: list[tuple[ReceivedMessage, CheckTransactionStateRequestHeader, str]] = []
        self.replies: list[ReceivedMessage] = []

    def publish_topics(self) -> Collection[str]:
        return self.topics

    def check_transaction(
        self,
        message: ReceivedMessage,
        header: CheckTransactionStateRequestHeader,
        broker_address: str,
    ) -> None:
        self.checks.append((message, header, broker_address))

    def reply_arrived(self, message: ReceivedMessage) -> bool:
        if self.takes_replies:
            self.replies.append(message)
        return self.takes_replies


class Consumer:
    """A consumer that remembers what it was asked."""

    def __init__(self, group: str, *topics: str) -> None:
        self.group = group
        self.topics = topics
        self.rebalances = 0
        self.persisted = 0
        self.resets: list[tuple[str, dict[MessageQueue, int]]] = []
        self.consumed: list[tuple[ReceivedMessage, str]] = []
        self.offsets: dict[MessageQueue, int] = {}

    def heartbeat_data(self) -> ConsumerData:
        return ConsumerData(
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            group_name=self.group,
            message_model=MessageModel.CLUSTERING,
            subscription_data_set=[
                SubscriptionData(topic=topic, sub_string="*") for topic in self.topics
            ],
        )

    def rebalance_now(self) -> None:
        self.rebalances += 1

    async def persist_offsets(self) -> None:
        self.persisted += 1

    def reset_offsets(self, topic: str, queue_offsets: Mapping[MessageQueue, int]) -> None:
        self.resets.append((topic, dict(queue_offsets)))

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        return {queue: at for queue, at in self.offsets.items() if queue.topic == topic}

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(properties={"PROP_CONSUMER_START_TIMESTAMP": "17"})

    async def consume_directly(
        self, message: ReceivedMessage, broker_name: str
    ) -> ConsumeMessageDirectlyResult:
        self.consumed.append((message, broker_name))
        return ConsumeMessageDirectlyResult(consume_result=CMResult.CR_SUCCESS)
