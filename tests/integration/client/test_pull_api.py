"""Pulls and offsets of a broker in this process, and responses that no correct broker gives."""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import AsyncIterator, Container, Iterator

import pytest

from roquet.client import ClientInstance, PullApi, PullStatus, Sql, record_reader, subscription_of
from roquet.client.record_reader import decode_messages, decode_on_loop
from roquet.errors import BadBody, BrokerRefused, NoRoute, ProtocolError
from roquet.format.batch import BatchEntry, decode_batch, encode_batch
from roquet.format.commit_log import encode_record
from roquet.model import sys_flag as flags
from roquet.model.host import LOOPBACK
from roquet.model.message_queue import MessageQueue
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.pull import PullFlag, PullMessageRequestHeader
from roquet.testing.broker import RunningBroker, broker
from tests.integration.client.pull_kit import GROUP, TOPIC, opened, queue_of, store

ALL = subscription_of(TOPIC, "*", version_ms=0)
FAR_MS = 60_000


@pytest.fixture
async def running() -> AsyncIterator[RunningBroker]:
    async with broker({"enablePropertyFilter": True}) as made:
        await made.create_topic(TOPIC, queues=2)
        made.broker.groups.find(GROUP)  # which makes it
        yield made


@pytest.fixture
async def client(running: RunningBroker) -> AsyncIterator[ClientInstance]:
    async with opened(running) as made:
        yield made


@pytest.fixture
def api(client: ClientInstance) -> PullApi:
    return PullApi(client, GROUP)


async def test_a_pull_finds_messages(
    running: RunningBroker, client: ClientInstance, api: PullApi
) -> None:
    await store(client, running, b"1", b"2", b"3", properties={"TAGS": "eu", "KEYS": "17"})
    queue = queue_of(running)
    found = await api.pull(queue, 1, subscription=ALL)
    assert found.status is PullStatus.FOUND
    assert (found.next_offset, found.min_offset, found.max_offset) == (3, 0, 3)
    assert [each.body for each in found.messages] == [b"2", b"3"]
    first = found.messages[0]
    assert (first.queue, first.queue_offset, first.tags, first.keys) == (queue, 1, "eu", ["17"])
    one = await api.pull(queue, 0, subscription=ALL, max_messages=1)
    assert [each.body for each in one.messages] == [b"1"]
    assert one.next_offset == 1


async def test_a_pull_finds_nothing(
    running: RunningBroker, client: ClientInstance, api: PullApi
) -> None:
    queue = queue_of(running)
    await store(client, running, b"1", properties={"TAGS": "eu"})
    nothing_new = await api.pull(queue, 1, subscription=ALL)
    assert (nothing_new.status, nothing_new.next_offset) == (PullStatus.NO_NEW_MESSAGE, 1)
    other = subscription_of(TOPIC, "us", version_ms=0)
    unmatched = await api.pull(queue, 0, subscription=other)
    assert (unmatched.status, unmatched.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 1)
    moved = await api.pull(queue, 17, subscription=ALL)
    assert (moved.status, moved.next_offset) == (PullStatus.OFFSET_ILLEGAL, 1)
    assert nothing_new.messages == unmatched.messages == moved.messages == []


async def test_a_pull_waits_for_a_message(
    running: RunningBroker, client: ClientInstance, api: PullApi
) -> None:
    flag = PullFlag.SUSPEND | PullFlag.SUBSCRIPTION
    waiting = asyncio.ensure_future(
        api.pull(queue_of(running), 0, subscription=ALL, sys_flag=flag, suspend_ms=FAR_MS)
    )
    await store(client, running, b"late")
    assert [each.body for each in (await waiting).messages] == [b"late"]


async def test_tags_with_equal_hashes_are_distinguished(
    running: RunningBroker, client: ClientInstance, api: PullApi
) -> None:
    await store(client, running, b"1", properties={"TAGS": "Aa"})
    await store(client, running, b"2", properties={"TAGS": "BB"})
    wanted = subscription_of(TOPIC, "BB", version_ms=0)
    found = await api.pull(queue_of(running), 0, subscription=wanted)
    assert [each.body for each in found.messages] == [b"2"]
    assert found.next_offset == 2


async def test_conditions(running: RunningBroker, client: ClientInstance, api: PullApi) -> None:
    await store(client, running, b"1", properties={"price": "5"})
    await store(client, running, b"2", properties={"price": "50"})
    wanted = subscription_of(TOPIC, Sql("price > 10"), version_ms=0)
    found = await api.pull(queue_of(running), 0, subscription=wanted)
    assert [each.body for each in found.messages] == [b"2"]
    bad = subscription_of(TOPIC, Sql("price >"), version_ms=0)
    with pytest.raises(BrokerRefused) as caught:
        await api.pull(queue_of(running), 0, subscription=bad)
    assert caught.value.hint == "The filter expression cannot be parsed."


async def test_offsets_of_a_queue(
    running: RunningBroker, client: ClientInstance, api: PullApi
) -> None:
    queue = queue_of(running)
    assert await api.max_offset(queue) == 0
    await store(client, running, b"1", b"2")
    assert (await api.min_offset(queue), await api.max_offset(queue)) == (0, 2)
    stored_ms = (await api.pull(queue, 0, subscription=ALL)).messages[0].store_timestamp_ms
    assert await api.earliest_store_time_ms(queue) == stored_ms
    assert await api.search_offset(queue, stored_ms) == 0
    assert await api.search_offset(queue, stored_ms + FAR_MS) == 2


async def test_progress_of_a_group(
    running: RunningBroker, client: ClientInstance, api: PullApi
) -> None:
    queue = queue_of(running)
    await store(client, running, b"1", b"2")
    await api.update_offset(queue, 2)
    assert await api.query_offset(queue) == 2
    assert await PullApi(client, "other").query_offset(queue_of(running, 1)) in {0, None}
    flag = PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET
    await api.pull(queue, 0, subscription=ALL, sys_flag=flag, commit_offset=1)
    assert await api.query_offset(queue) == 1


async def test_an_unknown_broker(api: PullApi) -> None:
    stranger = MessageQueue(TOPIC, "stranger", 0)
    with pytest.raises(NoRoute, match="stranger"):
        await api.pull(stranger, 0, subscription=ALL)
    with pytest.raises(NoRoute, match="stranger"):
        await api.max_offset(stranger)


async def test_a_body_that_does_not_decompress_is_returned(
    running: RunningBroker, client: ClientInstance, api: PullApi
) -> None:
    await store(client, running, b"1")
    await store(client, running, b"no zlib", sys_flag=flags.COMPRESSED)
    await store(client, running, zlib.compress(b"3"), sys_flag=flags.COMPRESSED)
    first, bad, last = (await api.pull(queue_of(running), 0, subscription=ALL)).messages
    assert (first.body, last.body, bad.raw_body) == (b"1", b"3", b"no zlib")
    with pytest.raises(BadBody):
        _ = bad.body


# ---------------------------------------------------------------------- bytes of a response


def record(queue_offset: int, body: bytes, *, sys_flag: int = 0) -> bytes:
    return bytes(
        encode_record(
            topic=TOPIC.encode(),
            body=body,
            properties=b"TAGS\x01outer\x02",
            queue_id=3,
            flag=1,
            sys_flag=sys_flag,
            born_timestamp_ms=11,
            born_host=LOOPBACK.pack(),
            store_host=LOOPBACK.pack(),
            reconsume_times=0,
            prepared_transaction_offset=0,
            queue_offset=queue_offset,
            physical_offset=777,
            store_timestamp_ms=12,
        )
    )


QUEUE = MessageQueue(TOPIC, "broker-a", 9)


def test_a_static_topic_has_other_offsets() -> None:
    (found,), is_whole = decode_messages(record(5, b"x"), QUEUE, offset_delta=100)
    assert is_whole
    assert (found.queue, found.queue_offset) == (QUEUE, 105)


def test_bytes_that_are_not_a_message() -> None:
    found, is_whole = decode_messages(record(5, b"x") + b"rubbish", QUEUE)
    assert ([each.queue_offset for each in found], is_whole) == ([5], False)
    with pytest.raises(ProtocolError, match="broker-a") as caught:
        decode_messages(b"rubbish" + record(5, b"x"), QUEUE)
    assert caught.value.detail
    assert decode_messages(b"", QUEUE) == ([], True)


@pytest.mark.parametrize("compressed", [False, True])
def test_batches_of_one_record(*, compressed: bool) -> None:
    entries = [(7, b"a", b"TAGS\x01one\x02"), (8, b"b", b"TAGS\x01two\x02")]
    body = encode_batch(entries)
    flag = flags.INNER_BATCH | flags.NEED_UNWRAP
    if compressed:
        body, flag = zlib.compress(body), flag | flags.COMPRESSED
    found, _ = decode_messages(record(5, body, sys_flag=flag) + record(7, b"c"), QUEUE)
    assert [each.body for each in found] == [b"a", b"b", b"c"]
    assert [each.tags for each in found] == ["one", "two", "outer"]
    assert [each.flag for each in found] == [7, 8, 1]
    assert [each.queue_offset for each in found] == [5, 6, 7]


@pytest.mark.parametrize(
    ("body", "is_compressed", "in_thread"),
    [(b"a", False, False), (b"a", True, False), (b"a" * 65_536, False, True),
     (b"a" * 65_536, True, True)],
)  # fmt: skip
async def test_long_batches_are_read_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, body: bytes, *, is_compressed: bool, in_thread: bool
) -> None:
    readers: list[int] = []

    def noting(data: bytes) -> Iterator[BatchEntry]:
        readers.append(threading.get_ident())
        return decode_batch(data)

    monkeypatch.setattr(record_reader, "decode_batch", noting)
    entries = [(7, body, b""), (8, b"b", b"")]
    packed, flag = encode_batch(entries), flags.INNER_BATCH | flags.NEED_UNWRAP
    if is_compressed:
        packed, flag = zlib.compress(packed), flag | flags.COMPRESSED
    records = record(4, b"x") + record(5, packed, sys_flag=flag) + record(7, b"c")
    found, is_whole = await decode_on_loop(records, QUEUE)
    assert is_whole
    assert [each.body for each in found] == [b"x", body, b"b", b"c"]
    assert [each.queue_offset for each in found] == [4, 5, 6, 7]
    assert [each != threading.get_ident() for each in readers] == [in_thread]


async def test_a_batch_that_would_be_too_long_is_returned_whole() -> None:
    packed = zlib.compress(encode_batch([(7, bytes(1 << 20), b"")]))
    flag = flags.INNER_BATCH | flags.NEED_UNWRAP | flags.COMPRESSED
    data = record(5, packed, sys_flag=flag)
    (found,), _ = await decode_on_loop(data, QUEUE, max_body_bytes=1 << 20)
    assert found.raw_body == packed
    with pytest.raises(BadBody):
        _ = found.body


def test_a_batch_that_cannot_be_read_is_returned_whole() -> None:
    flag = flags.INNER_BATCH | flags.NEED_UNWRAP
    (found,), _ = decode_messages(record(5, b"no batch", sys_flag=flag), QUEUE)
    assert (found.body, found.queue_offset) == (b"no batch", 5)


async def test_a_version_4_broker_gets_the_only_pull_it_knows(
    running: RunningBroker,
    client: ClientInstance,
    api: PullApi,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await store(client, running, b"1", b"2")
    asked: list[tuple[int, int]] = []
    ask = client.ask

    async def ask_old(
        address: str,
        code: int,
        header: PullMessageRequestHeader,
        *,
        timeout_ms: int,
        accept: Container[int],
    ) -> RemotingCommand:
        asked.append((code, header.sys_flag))
        if code == RequestCode.LITE_PULL_MESSAGE:
            raise BrokerRefused("", response_code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        return await ask(address, code, header, timeout_ms=timeout_ms, accept=accept)

    await api.max_offset(queue_of(running))
    monkeypatch.setattr(client, "ask", ask_old)
    flag = PullFlag.SUBSCRIPTION | PullFlag.LITE_PULL
    for queue_offset in range(2):
        found = await api.pull(queue_of(running), queue_offset, subscription=ALL, sys_flag=flag)
        assert found.next_offset == 2
    assert asked == [
        (RequestCode.LITE_PULL_MESSAGE, flag),
        (RequestCode.PULL_MESSAGE, PullFlag.SUBSCRIPTION),
        (RequestCode.PULL_MESSAGE, PullFlag.SUBSCRIPTION),
    ]
