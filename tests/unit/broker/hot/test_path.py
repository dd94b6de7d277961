"""The hot path: when it is used, what it forgets, and what garbage does to it."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs

from roquet.broker.hooks import SendMessageContext
from roquet.model.topic_config import TopicConfig
from roquet.remoting.codes import RequestCode
from roquet.remoting.processor import Port
from roquet.runtime.files import Files
from roquet.store.config import MessageStoreConfig
from roquet.testing.files import FaultyFiles

pytest.importorskip("roquet.broker.hot._requests", reason="the hot path is not built")

from tests.property.wire_requests import (
    BATCH,
    COMMIT,
    ENTRIES,
    KEYED_BATCH,
    LONG_SEND,
    MANY_TAGS,
    PRELUDE,
    PULL,
    SEND,
    Pairs,
    binary_frame,
    both_codecs,
    json_frame,
)
from tests.property.wire_sides import Side
from tests.table_changes import drop_topics, put_groups, put_topics

pytestmark = pytest.mark.usefixtures("compiled_on")

CONFIG = MessageStoreConfig(
    commit_log_file_bytes=1 << 20,
    consume_queue_file_bytes=20_000,
    index_slots=1000,
    index_entries=40_000,
    max_message_bytes=4000,
)
PULL_FRAME = json_frame(RequestCode.PULL_MESSAGE, 99, 0, PULL, b"")
COMMIT_FRAME = json_frame(RequestCode.UPDATE_CONSUMER_OFFSET, 98, 0, COMMIT, b"")
SEND_FRAME = json_frame(RequestCode.SEND_MESSAGE_V2, 97, 0, SEND, b"body", style=1)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Side]]:
    sides: list[Side] = []

    def make(config: MessageStoreConfig = CONFIG, files: Files | None = None) -> Side:
        sides.append(Side(tmp_path / str(len(sides)), config, is_hot=True, files=files))
        return sides[-1]

    yield make
    for side in sides:
        side.close()


async def taken(side: Side, frame: bytes, *, port: Port = Port.MAIN) -> int:
    """How many requests of a read the hot path takes."""
    assert side.hot_path is not None
    before = side.hot_path.requests_taken
    await side.feed([frame], port=port)
    return side.hot_path.requests_taken - before


async def ready(side: Side) -> None:
    """Have the topics approved and the plan of the pull made."""
    await side.feed(PRELUDE)
    assert await taken(side, SEND_FRAME) == 1
    assert await taken(side, PULL_FRAME) == 1
    assert await taken(side, COMMIT_FRAME) == 1


async def test_reads_of_compiled_code_are_reported(made: Callable[..., Side]) -> None:
    files = FaultyFiles(only=frozenset({"open", "read_cached_at"}))
    side = made(files=files)
    await ready(side)
    files.calls.clear()
    assert await taken(side, PULL_FRAME) == 1
    assert files.calls[0].name == "read_cached_at", "the queue itself would open the file first"


async def test_a_read_that_fails_once_is_retried(made: Callable[..., Side]) -> None:
    files = FaultyFiles(only=frozenset({"read_cached_at"}))
    side = made(files=files)
    await ready(side)
    files.fail_at = len(files.calls) + 1
    assert await taken(side, PULL_FRAME) == 1
    assert files.failed is not None
    assert len(files.calls) == files.fail_at + 1, "compiled code's, then that of the queue"
    assert b'"remark":"FOUND"' in side.answers()[-1][0]


async def test_a_pull_whose_reads_fail_gets_an_error(made: Callable[..., Side]) -> None:
    files = FaultyFiles(only=frozenset({"read_cached_at"}), and_after=True)
    side = made(files=files)
    await ready(side)
    files.fail_at = len(files.calls) + 1
    assert await taken(side, PULL_FRAME) == 0
    assert b'"code":1,' in side.answers()[-1][0]
    files.heal()
    assert await taken(side, PULL_FRAME) == 1


async def test_a_changed_topic_is_checked_again(made: Callable[..., Side]) -> None:
    side = made()
    await ready(side)
    put_topics(side.topics, TopicConfig(topic_name="Orders", read_queue_nums=4, write_queue_nums=0))
    assert await taken(side, SEND_FRAME) == 0
    assert (
        await taken(side, SEND_FRAME) == 0
    )  # the processor knows it by now, and handles it itself
    put_topics(side.topics, TopicConfig(topic_name="Orders", read_queue_nums=4, write_queue_nums=1))
    assert await taken(side, SEND_FRAME) == 0
    assert await taken(side, SEND_FRAME) == 1


async def test_a_deleted_topic_is_not_sent_to(made: Callable[..., Side]) -> None:
    side = made()
    await ready(side)
    drop_topics(side.topics, "Orders")
    assert await taken(side, SEND_FRAME) == 0
    await side.topics.committed()
    assert side.topics.select("Orders") is not None, "sending has created it again"


async def test_a_changed_group_is_checked_again(made: Callable[..., Side]) -> None:
    side = made()
    await ready(side)
    group = side.groups.find("readers")
    assert group is not None
    put_groups(side.groups, structs.replace(group, consume_enable=False))
    assert await taken(side, PULL_FRAME) == 0
    assert b"subscription group no permission" in side.answers()[-1][0]


async def test_a_reset_reaches_the_group(made: Callable[..., Side]) -> None:
    side = made()
    await ready(side)
    side.offsets.assign_reset_offset("Orders", "readers", 0, 1)
    assert await taken(side, PULL_FRAME) == 0
    assert b"OFFSET_RESET" in side.answers()[-1][0]
    assert await taken(side, PULL_FRAME) == 1


async def test_pulls_by_expressions_are_left_to_the_processor(
    made: Callable[..., Side],
) -> None:
    side = made()
    structs.force_setattr(side.broker_config, "property_filter", bool(1))
    await ready(side)
    by_sql = [
        (name, {"subscription": "TAGS = 'A'", "expressionType": "SQL92"}.get(name, value))
        for name, value in PULL
    ]
    frame = json_frame(RequestCode.PULL_MESSAGE, 99, 0, by_sql, b"")
    for _ in range(2):
        assert await taken(side, frame) == 0
        assert b'"code":0' in side.answers()[-1][0]
    assert await taken(side, PULL_FRAME) == 1, "by tags the hot path still responds"


async def test_long_subscriptions_are_not_remembered(made: Callable[..., Side]) -> None:
    """Plans are many, and live as long as nothing changes."""
    side = made()
    await ready(side)
    for length, requests in ((1024, 1), (1025, 0)):
        tags = "A || " + "B" * (length - 5)
        pull = [(name, {"subscription": tags}.get(name, value)) for name, value in PULL]
        frame = json_frame(RequestCode.PULL_MESSAGE, 99, 0, pull, b"")
        assert await taken(side, frame) == requests


async def test_a_pull_of_an_unknown_queue_does_not_affect_others(made: Callable[..., Side]) -> None:
    """The plan is that of the group: one peer must not drive the others off the hot path."""
    side = made()
    await side.feed(PRELUDE)
    for queue_id, requests in (("9", 0), ("-1", 0), ("0", 1)):
        pull = [(name, {"queueId": queue_id}.get(name, value)) for name, value in PULL]
        frame = json_frame(RequestCode.PULL_MESSAGE, 99, 0, pull, b"")
        assert await taken(side, frame) == requests


async def test_pulls_that_need_new_plans_end_a_burst(made: Callable[..., Side]) -> None:
    """A plan takes a hundred times as long as a pull, and what it returns may be short."""
    side = made()
    await ready(side)
    assert side.hot_path is not None
    reader = side.hot_path.open(side.connect())
    assert reader is not None
    frames = [
        json_frame(
            RequestCode.PULL_MESSAGE,
            number,
            0,
            [(name, {"subVersion": f"-{number}"}.get(name, value)) for name, value in PULL],
            b"",
        )
        for number in range(1, 31)
    ]
    position, requests, _ = reader.take(b"".join(frames), 0)
    assert (position, requests) == (len(b"".join(frames[:2])), 2)
    assert await taken(side, b"".join(frames)) < len(frames)
    assert len(side.answers()[-1]) == len(frames)


@pytest.mark.parametrize(
    ("subscription", "burst"),
    [("A", 24), ("A || B || C", 12), (MANY_TAGS, 3)],
    ids=["one tag", "three tags", "more tags than are compiled"],
)
async def test_pulls_that_check_many_entries_end_a_burst(
    made: Callable[..., Side], subscription: str, burst: int
) -> None:
    side = made()
    await ready(side)
    assert side.hot_path is not None
    reader = side.hot_path.open(side.connect())
    assert reader is not None
    unwanted = [(name, {"i": "UNIQ_KEY\x01u\x02"}.get(name, value)) for name, value in SEND]
    sends = [json_frame(RequestCode.SEND_MESSAGE_V2, 1, 0, unwanted, b"b")] * 700
    assert await taken(side, b"".join(sends)) == len(sends)
    wanted = json_frame(RequestCode.SEND_MESSAGE_V2, 1, 0, SEND, b"b", style=1)
    assert await taken(side, wanted) == 1
    changed = {"queueOffset": "10", "subscription": subscription}
    far = [(name, changed.get(name, value)) for name, value in PULL]
    assert await taken(side, json_frame(RequestCode.PULL_MESSAGE, 99, 0, far, b"")) == 1
    pulls = [json_frame(RequestCode.PULL_MESSAGE, number, 0, far, b"") for number in range(31)]
    _, requests, responses = reader.take(b"".join(pulls), 0)
    assert requests == burst
    assert len(responses) < 20_000
    await side.feed([b"".join(pulls)])
    assert len(side.answers()[-1]) == len(pulls)


async def test_pulls_are_not_served_on_the_fast_port(made: Callable[..., Side]) -> None:
    side = made()
    await ready(side)
    assert await taken(side, PULL_FRAME, port=Port.FAST) == 0
    assert await taken(side, SEND_FRAME, port=Port.FAST) == 1


async def test_hooks_of_sends_see_all_of_them(made: Callable[..., Side]) -> None:
    seen: list[SendMessageContext] = []

    class Hook:
        def before(self, context: SendMessageContext) -> None:
            seen.append(context)

        def after(self, context: SendMessageContext) -> None:
            pass

    side = made()
    await ready(side)
    side.sends.send_hooks.append(Hook())
    assert await taken(side, SEND_FRAME) == 0
    assert len(seen) == 1


async def test_flow_control_refuses_in_its_own_words(made: Callable[..., Side]) -> None:
    side = made()
    await ready(side)
    side.flow.sends_waiting = 10_000
    assert await taken(side, SEND_FRAME) == 0
    assert b"[OVERLOAD]" in side.answers()[-1][0]
    side.flow.sends_waiting = 0
    assert await taken(side, SEND_FRAME) == 1


async def test_a_store_that_refuses_writes_is_not_written_to(made: Callable[..., Side]) -> None:
    side = made()
    await ready(side)
    side.store.put_hooks.append(lambda _message: None)
    assert await taken(side, SEND_FRAME) == 0
    assert await taken(side, PULL_FRAME) == 1


async def test_hooks_of_puts_see_all_of_them(made: Callable[..., Side]) -> None:
    side = made()
    await ready(side)
    side.store.put_hooks.append(lambda _message: None)
    assert await taken(side, SEND_FRAME) == 0
    assert len(side.answers()[-1]) == 1


async def test_fields_of_binary_headers_come_in_any_order(made: Callable[..., Side]) -> None:
    source = random.Random(20261115)
    side = made()
    await ready(side)
    frames = [
        binary_frame(RequestCode.SEND_MESSAGE_V2, number, 0, source.sample(SEND, len(SEND)), b"b")
        for number in range(100)
    ]
    assert await taken(side, b"".join(frames)) == len(frames)
    assert len(set(side.answers()[-1])) == len(frames)


async def test_a_damaged_record_is_left_to_the_reader(made: Callable[..., Side]) -> None:
    side = made()
    await ready(side)
    segment = side.store.commit_log.queue.last
    assert segment is not None
    segment.mapping[90] ^= 1  # the body of the first record
    assert await taken(side, PULL_FRAME) == 0
    assert side.store.reader.damaged_records == 1


async def test_an_error_in_the_rules_leaves_the_frame_to_the_processor(
    made: Callable[..., Side], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    side = made()
    await ready(side)

    def fail(*_: object) -> None:
        raise RuntimeError("made up")

    monkeypatch.setattr(
        "roquet.broker.manager.consumer_offset.ConsumerOffsetManager.commit_pull_at", fail
    )
    before = len(side.transports)
    assert await taken(side, PULL_FRAME) == 0
    assert len(side.answers()[before]) == 1
    assert "the hot path failed" in caplog.text


def mutated(source: random.Random, frame: bytes) -> bytes:
    """A frame with some bytes changed; its outer lengths fit again most of the time."""
    pieces = [
        b'"',
        b"\\",
        b"\\u0001",
        b"\\u00",
        b"{",
        b"}",
        b",",
        b"\0",
        b"\xff",
        b"\x01",
        b"9" * 30,
    ]
    data = bytearray(frame)
    for _ in range(source.choice([1, 1, 1, 2, 3, 6])):
        place = source.randrange(len(data) or 1)
        match source.randrange(5):
            case 0 if data:
                data[place] = source.randrange(256)
            case 1:
                data[place : place + source.randrange(4)] = source.choice(pieces)
            case 2:
                del data[place : place + source.choice([1, 2, 4, 50])]
            case 3 if len(data) > 12:
                value = source.choice([0, 1, 0xFFFFFFFF, 0x7FFFFFFF, len(data)])
                struct.pack_into(">I", data, source.randrange(len(data) - 4), value)
            case _:
                del data[source.randrange(len(data) + 1) :]
    if len(data) > 8 and source.random() < 0.7:
        struct.pack_into(">i", data, 0, len(data) - 4)
        if int.from_bytes(data[5:8], "big") > len(data) - 8:
            data[5:8] = (len(data) - 8).to_bytes(3, "big")
    return bytes(data)


async def test_garbage_is_declined_and_harmless(made: Callable[..., Side]) -> None:
    source = random.Random(20261115)
    requests: list[tuple[int, Pairs, bytes]] = [
        (RequestCode.SEND_MESSAGE_V2, SEND, b"body"),
        (RequestCode.SEND_MESSAGE, LONG_SEND, b"body"),
        (RequestCode.SEND_BATCH_MESSAGE, BATCH, ENTRIES),
        (RequestCode.SEND_BATCH_MESSAGE, KEYED_BATCH, ENTRIES),
        (RequestCode.PULL_MESSAGE, PULL, b""),
        (RequestCode.UPDATE_CONSUMER_OFFSET, COMMIT, b""),
    ]
    frames = [
        frame for code, pairs, body in requests for frame in both_codecs(code, 5, 0, pairs, body)
    ]
    side = made()
    await ready(side)
    assert side.hot_path is not None
    reader = side.hot_path.open(side.connect())
    assert reader is not None
    requests_taken = 0
    for _ in range(5_000):
        data = b"".join(
            mutated(source, source.choice(frames)) for _ in range(source.choice([1, 1, 2]))
        )
        position, count, _answers = reader.take(data, 0)
        assert 0 <= position <= len(data)
        requests_taken += count
        side.store.finish_burst()
        side.flow.end_burst()
    assert requests_taken > 100  # some are still plain, so the hot path did look
    assert await taken(side, SEND_FRAME) == 1
    await asyncio.sleep(0)
