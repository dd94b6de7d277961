"""Static topics over two brokers: sends, pulls and offsets, before and after a remapping."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from roquet.broker.service.register_body import RegisterBody
from roquet.format.commit_log import decode_record
from roquet.model.topic_queue_mapping import TopicQueueMappingDetail
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.register import RegisterBrokerBody
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import admin as headers
from roquet.remoting.headers import offset as offsets
from tests.integration.broker.static_kit import (
    BLOCK,
    GROUP,
    NOT_LEADER,
    TOPIC,
    A,
    B,
    Pair,
    static_pair,
)

HOUR_MS = 3_600_000


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with static_pair(tmp_path) as running:
        yield running


def bodies(answer: RemotingCommand) -> list[str]:
    found, position = [], 0
    while position < len(answer.body):
        record = decode_record(memoryview(answer.body), position, len(answer.body))
        found.append(record.body.decode())
        position += record.store_size
    return found


def place(answer: RemotingCommand) -> dict[str, int]:
    fields = answer.ext_fields or {}
    names = ("nextBeginOffset", "minOffset", "maxOffset", "offsetDelta")
    return {name: int(fields[name]) for name in names}


async def moved(pair: Pair, messages: int = 3) -> None:
    """A queue with some messages that moved from A to B, which has none yet."""
    await pair.create(1, A)
    for number in range(messages):
        await pair.send(A, 0, body=f"a{number}")
    await pair.remap(B)


async def test_the_route_shows_the_mapping(pair: Pair) -> None:
    await pair.create(3, A, B)
    mappings = (await pair.route()).topic_queue_mapping_by_broker or {}
    leaders = {queue_id: name for name, info in mappings.items() for queue_id in info.current_ids}
    assert sorted(leaders) == [0, 1, 2]
    assert set(leaders.values()) == {A, B}
    assert mappings[A].epoch == mappings[B].epoch


async def test_only_the_leader_takes_messages(pair: Pair) -> None:
    await pair.create(2, A)
    assert [await pair.send(A, 1), await pair.send(A, 1)] == [(1, 0), (1, 1)]
    assert await pair.send(A, -1) == (0, 0)
    assert await pair.send(B, 1, accept=NOT_LEADER) == (-1, -1)
    assert await pair.send(A, 2, accept=NOT_LEADER) == (-1, -1)


async def test_an_ordinary_topic_becomes_static_at_once(pair: Pair) -> None:
    """The approval of the compiled path no longer holds."""
    pair.brokers[A].topics.create_in_send(
        TOPIC, default_topic="TBW102", default_queue_nums=4, sys_flag=0
    )
    for _ in range(3):
        await pair.send(A, 0)
    detail = TopicQueueMappingDetail(broker_name=A, epoch=1, topic=TOPIC, total_queues=1)
    await put(pair, A, detail)
    assert await pair.send(A, 0, accept=NOT_LEADER) == (-1, -1)
    await pair.ask(
        A, RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopicRequestHeader(topic=TOPIC)
    )
    assert TOPIC not in pair.brokers[A].components.mappings.table


async def test_a_moved_queue_continues_in_the_next_block(pair: Pair) -> None:
    await moved(pair)
    assert await pair.send(A, 0, accept=NOT_LEADER) == (-1, -1)
    assert await pair.send(B, 0, body="b0") == (0, BLOCK)
    old = await pair.pull(B, 0, 1)
    assert (old.code, bodies(old)) == (ResponseCode.SUCCESS, ["a1", "a2"])
    assert place(old) == {
        "nextBeginOffset": 3,
        "minOffset": 0,
        "maxOffset": BLOCK,
        "offsetDelta": 0,
    }
    end = await pair.pull(B, 0, 3)
    assert (end.code, bodies(end)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, [])
    assert place(end)["nextBeginOffset"] == BLOCK
    new = await pair.pull(B, 0, BLOCK)
    assert (new.code, bodies(new)) == (ResponseCode.SUCCESS, ["b0"])
    assert place(new) == {
        "nextBeginOffset": BLOCK + 1,
        "minOffset": BLOCK,
        "maxOffset": BLOCK + 1,
        "offsetDelta": BLOCK,
    }
    refused = await pair.pull(A, 0, 0)
    assert refused.code == ResponseCode.NOT_LEADER_FOR_QUEUE


async def test_a_held_pull_of_a_moved_queue_is_woken(pair: Pair) -> None:
    await moved(pair)
    await pair.send(B, 0, body="b0")
    waiting = asyncio.ensure_future(pair.pull(B, 0, BLOCK + 1, sys_flag=4 | 2))
    # A response to a later request on the same connection shows that the pull was accepted.
    await pair.committed(B, 0)
    await pair.send(B, 0, body="b1")
    woken = await waiting
    assert (woken.code, bodies(woken)) == (ResponseCode.SUCCESS, ["b1"])
    assert place(woken)["nextBeginOffset"] == BLOCK + 2


async def test_a_held_pull_completes_after_a_remapping(pair: Pair) -> None:
    await pair.create(1, A)
    waiting = asyncio.ensure_future(pair.pull(A, 0, 0, sys_flag=4 | 2))
    await pair.committed(A, 0)
    await pair.remap(B)
    woken = await waiting
    assert woken.code == ResponseCode.NOT_LEADER_FOR_QUEUE


async def test_a_pull_commits_to_the_item_that_holds_the_offset(pair: Pair) -> None:
    await moved(pair)
    await pair.send(B, 0)
    await pair.pull(B, 0, BLOCK, sys_flag=4 | 1, commit_offset=BLOCK + 1)
    assert await pair.committed(B, 0) == BLOCK + 1
    # The other item's offset is left to the client's next commit.
    await pair.pull(B, 0, BLOCK, sys_flag=4 | 1, commit_offset=2)
    assert await pair.committed(B, 0) == BLOCK + 1


async def test_committed_offsets_are_found_wherever_they_are(pair: Pair) -> None:
    await moved(pair)
    assert await pair.committed(B, 0) == "Not found, maybe this group consumer boot first"
    await pair.commit(B, 0, 2)
    assert pair.brokers[A].offsets.query(GROUP, TOPIC, 0) == 2
    assert await pair.committed(B, 0) == 2
    await pair.commit(B, 0, BLOCK + 1)
    assert pair.brokers[B].offsets.query(GROUP, TOPIC, 0) == 1
    assert await pair.committed(B, 0) == BLOCK + 1


async def test_offsets_of_a_moved_queue(pair: Pair) -> None:
    await moved(pair)
    queue = {"topic": TOPIC, "queue_id": 0}
    least = offsets.GetMinOffsetRequestHeader(**queue)  # type: ignore[arg-type]
    most = offsets.GetMaxOffsetRequestHeader(**queue)  # type: ignore[arg-type]

    async def found(timestamp_ms: int) -> int | str | None:
        header = offsets.SearchOffsetRequestHeader(
            topic=TOPIC, queue_id=0, timestamp_ms=timestamp_ms
        )
        return await pair.offset(B, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    assert await pair.offset(B, RequestCode.GET_MIN_OFFSET, least) == 0
    assert await pair.offset(B, RequestCode.GET_MAX_OFFSET, most) == BLOCK
    assert [await found(0), await found(1 << 60)] == [0, BLOCK]
    await pair.send(B, 0)
    assert await pair.offset(B, RequestCode.GET_MAX_OFFSET, most) == BLOCK + 1
    assert [await found(0), await found(1 << 60)] == [0, BLOCK + 1]
    earliest = offsets.GetEarliestMsgStoretimeRequestHeader(**queue)  # type: ignore[arg-type]
    answer = await pair.ask(B, RequestCode.GET_EARLIEST_MSG_STORETIME, earliest)
    stored_ms = pair.brokers[A].store.earliest_message_time_in_queue_ms(TOPIC, 0)
    assert answer.ext_fields == {"timestamp": str(stored_ms)}


async def test_the_other_broker_is_unreachable(pair: Pair) -> None:
    await moved(pair)
    await pair.brokers[A].stop()
    answer = await pair.pull(B, 0, 0)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert await pair.send(B, 0) == (0, BLOCK)
    await pair.start(A)
    old = await pair.pull(B, 0, 0)
    assert bodies(old) == ["a0", "a1", "a2"]


async def test_a_restart_keeps_the_mapping(pair: Pair) -> None:
    await moved(pair)
    await pair.send(B, 0, body="b0")
    before = pair.mapping(B)
    await pair.restart(B)
    assert pair.mapping(B) == before
    assert await pair.send(B, 0) == (0, BLOCK + 1)
    assert bodies(await pair.pull(B, 0, BLOCK))[0] == "b0"
    assert ((await pair.route()).topic_queue_mapping_by_broker or {})[B].current_ids == {0: 0}


async def test_messages_of_an_undecided_leader_get_their_offsets_later(pair: Pair) -> None:
    """Between the first and the fourth step of a remapping, consumers read the old leader only."""
    await moved(pair)
    decided = pair.mapping(B)
    opened = encode_body(decided).replace(b'"logicOffset":10000', b'"logicOffset":-1')
    pair.brokers[B].components.mappings.table.clear()
    await put(pair, B, opened)
    assert await pair.send(B, 0, body="early") == (0, -1)
    assert bodies(await pair.pull(B, 0, 0)) == ["a0", "a1", "a2"]
    assert (await pair.pull(B, 0, 3)).code == ResponseCode.PULL_NOT_FOUND
    await put(pair, B, decided)
    assert bodies(await pair.pull(B, 0, BLOCK)) == ["early"]


async def put(pair: Pair, broker: str, detail: TopicQueueMappingDetail | bytes) -> None:
    header = headers.CreateTopicRequestHeader(
        topic=TOPIC,
        default_topic="TBW102",
        read_queue_nums=4,
        write_queue_nums=4,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )
    body = detail if isinstance(detail, bytes) else encode_body(detail)
    await pair.ask(broker, RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, header, body=body)


async def test_a_registration_is_standard_json(pair: Pair) -> None:
    """A name server reads fastjson's dialect only up to some length."""
    await pair.create(1, A)
    broker = pair.brokers[A]
    body = RegisterBody(broker.config, broker.topics, broker.components.mappings)
    (part,) = body.parts()
    text, _ = await body.encode(part)
    read = msgspec.json.decode(text, type=RegisterBrokerBody).topic_config_serialize_wrapper
    assert read.topic_queue_mapping_info_map == {TOPIC: pair.mapping(A).to_info()}


async def test_a_mapping_of_a_thousand_queues(pair: Pair) -> None:
    await pair.create(1000, A, B)
    assert await pair.send(A, next(iter(pair.mapping(A).to_info().current_ids))) is not None


# ---------------------------------------------------------------------------------- cleaning


async def test_expired_items_are_dropped(pair: Pair) -> None:
    await moved(pair, messages=0)
    await pair.send(B, 0)
    await pair.cleaner(B, hour_ms=HOUR_MS).run_once()
    assert len(pair.mapping(B).hosted_queues[0]) == 2, "it is not the hour of deleteWhen"
    await pair.cleaner(B).run_once()
    (item,) = pair.mapping(B).hosted_queues[0]
    assert (item.broker_name, item.logic_offset) == (B, BLOCK)
    least = offsets.GetMinOffsetRequestHeader(topic=TOPIC, queue_id=0)
    assert await pair.offset(B, RequestCode.GET_MIN_OFFSET, least) == BLOCK


async def test_items_with_messages_stay(pair: Pair) -> None:
    await moved(pair)
    before = pair.mapping(B)
    await pair.cleaner(B).run_once()
    assert pair.mapping(B) is before


async def test_former_leaders_forget_a_queue(pair: Pair) -> None:
    await moved(pair)
    await pair.cleaner(A).run_once()
    assert list(pair.mapping(A).hosted_queues) == [0], "it was the last leader"
    pair.brokers[A].components.mappings.table[TOPIC].hosted_queues[0][-1].broker_name = "broker-c"
    await pair.cleaner(A).run_once()
    assert pair.mapping(A).hosted_queues == {}
