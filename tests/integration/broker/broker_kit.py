"""A broker with sockets, and the requests of its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

from roquet.broker.broker import Broker
from roquet.broker.config import BrokerConfig
from roquet.format.commit_log import decode_record
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.pull import PullMessageRequestHeader
from roquet.store.config import FlushDiskType, MessageStoreConfig
from tests.patience import NEVER_MS, TIMEOUT_MS
from tests.request_kit import send_header

TOPIC = "Orders"
GROUP = "billing"


def store_config(flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH) -> MessageStoreConfig:
    return MessageStoreConfig(
        commit_log_file_bytes=1 << 20,
        consume_queue_file_bytes=20_000,
        index_slots=1000,
        index_entries=4000,
        flush_disk_type=flush,
        sync_flush_timeout_ms=NEVER_MS,
        os_page_cache_busy_timeout_ms=NEVER_MS,
    )


def config(root: Path, *, namesrv: str = "") -> BrokerConfig:
    return BrokerConfig(
        broker_name="broker-a",
        listen_port=0,
        store_root=str(root / "store"),
        namesrv_address=namesrv,
        fast_failure=False,
    )


async def send(
    client: RemotingClient,
    broker: Broker,
    body: bytes,
    *,
    queue_id: int = 0,
    properties: str = "TAGS\x01paid\x02",
    topic: str = TOPIC,
) -> RemotingCommand:
    header = send_header(topic, queue_id=queue_id, properties=properties)
    return await client.invoke(
        broker.address, RequestCode.SEND_MESSAGE_V2, header, body=body, timeout_ms=TIMEOUT_MS
    )


async def pull(
    client: RemotingClient, broker: Broker, queue_offset: int, *, suspend_ms: int = 0
) -> RemotingCommand:
    header = PullMessageRequestHeader(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=0,
        queue_offset=queue_offset,
        max_msg_nums=32,
        sys_flag=4 | (2 if suspend_ms else 0),
        commit_offset=0,
        suspend_timeout_ms=suspend_ms,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )
    return await client.invoke(
        broker.address, RequestCode.PULL_MESSAGE, header, timeout_ms=TIMEOUT_MS
    )


async def until(condition: Callable[[], bool]) -> None:
    """Run the loop until a condition holds; the test's time-out bounds it."""
    while not condition():  # noqa: ASYNC110 - counters have no event to wait for
        await asyncio.sleep(0)


def bodies(answer: RemotingCommand) -> Iterator[bytes]:
    position = 0
    while position < len(answer.body):
        record = decode_record(memoryview(answer.body), position, len(answer.body))
        yield record.body
        position += record.store_size
