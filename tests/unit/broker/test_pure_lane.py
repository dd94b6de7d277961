"""The lane of the wire in Python: when it is used, what it forgets, and what it leaves."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roquet.broker.hooks import SendMessageContext
from roquet.broker.lane import make_frame_lane
from roquet.broker.pure_lane import PureLane
from roquet.broker.send_frames import SendReader, shape_of
from roquet.model.topic_config import TopicConfig
from roquet.remoting.codes import RequestCode
from roquet.store.config import MessageStoreConfig
from tests.property.wire_requests import (
    LONG_SEND,
    PRELUDE,
    SEND,
    UNIQUE_KEY,
    binary_frame,
    both_codecs,
    json_frame,
)
from tests.property.wire_sides import STORE_HOST, LaneKind, Side

CONFIG = MessageStoreConfig(
    commit_log_file_bytes=1 << 20,
    consume_queue_file_bytes=20_000,
    index_slots=1000,
    index_entries=40_000,
    max_message_bytes=4000,
)
SEND_FRAME = json_frame(RequestCode.SEND_MESSAGE_V2, 97, 0, SEND, b"body", style=1)
BINARY_FRAME = binary_frame(RequestCode.SEND_MESSAGE_V2, 96, 0, SEND, b"body")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Side]]:
    sides: list[Side] = []

    def make(config: MessageStoreConfig = CONFIG) -> Side:
        sides.append(Side(tmp_path / str(len(sides)), config, lane=LaneKind.PURE))
        return sides[-1]

    yield make
    for side in sides:
        side.close()


async def taken(side: Side, frame: bytes) -> int:
    """How many requests the lane takes of a read."""
    assert side.lane is not None
    before = side.lane.requests_taken
    await side.feed([frame])
    return side.lane.requests_taken - before


async def ready(side: Side) -> None:
    """Have the topics approved."""
    await side.feed(PRELUDE)
    assert await taken(side, SEND_FRAME) == 1
    assert await taken(side, BINARY_FRAME) == 1


def test_it_is_there_where_the_store_has_its_quick_way(
    made: Callable[..., Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROQUET_PURE", "1")
    side = made()
    assert side.store.lane is None
    assert side.store.plain is not None
    lane = make_frame_lane(
        side.broker_config, store=side.store, topics=side.topics, groups=side.groups,
        consumers=side.consumers, offsets=side.offsets, sends=side.sends, pulls=side.pulls,
        flow=side.flow, stats=side.stats, clock=side.clock, store_host=STORE_HOST,
    )  # fmt: skip
    assert isinstance(lane, PureLane)


async def test_a_changed_topic_is_looked_at_again(made: Callable[..., Side]) -> None:
    side = made()
    await ready(side)
    side.topics.update(TopicConfig(topic_name="Orders", read_queue_nums=4, write_queue_nums=0))
    for frame in (SEND_FRAME, BINARY_FRAME):
        assert await taken(side, frame) == 0
    side.topics.update(TopicConfig(topic_name="Orders", read_queue_nums=4, write_queue_nums=1))
    assert await taken(side, BINARY_FRAME) == 0
    assert await taken(side, BINARY_FRAME) == 1
    assert await taken(side, SEND_FRAME) == 1


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


async def test_a_store_that_looks_at_every_put_is_not_passed_by(made: Callable[..., Side]) -> None:
    side = made()
    await ready(side)
    side.store.put_hooks.append(lambda _message: None)
    assert await taken(side, SEND_FRAME) == 0
    assert len(side.answers()[-1]) == 1


@pytest.mark.parametrize(
    "where",
    ["roquet.broker.send_frames.SendReader.split", "roquet.store.plain_burst.PlainBurst.append"],
)
async def test_an_error_leaves_the_frames_to_the_processor(
    made: Callable[..., Side],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: str,
) -> None:
    side = made()
    await ready(side)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("made up")

    monkeypatch.setattr(where, fail)
    assert await taken(side, SEND_FRAME + BINARY_FRAME) == 0
    assert len(side.answers()[-1]) == 2
    assert "the lane left frames" in caplog.text


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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("d", ""), ("e", ""), ("e", "01"), ("f", "4"), ("g", "late"), ("g", "٣"), ("h", "x"),
        ("i", ""), ("i", "TAGS\x01A\x02"), ("i", f"UNIQ_KEY\x01{UNIQUE_KEY}\x02DELAY\x013\x02"),
        ("i", f"UNIQ_KEY\x01{UNIQUE_KEY}\x02WAIT\x01false\x02"),
        ("i", "UNIQ_KEY\x01u\x02a\0\x01b\x02"),
        ("i", 'UNIQ_KEY\x01say "hi"\x02'), ("i", f"UNIQ_KEY\x01{'u' * 256}\x02"),
        ("j", "1"), ("j", ""), ("k", "true"), ("l", "x"), ("m", "true"), ("m", ""),
    ],
)  # fmt: skip
async def test_what_is_not_plain_is_left(made: Callable[..., Side], name: str, value: str) -> None:
    side = made()
    await ready(side)
    pairs = list({**dict(SEND), name: value}.items())
    for frame in both_codecs(RequestCode.SEND_MESSAGE_V2, 5, 0, pairs, b"body"):
        assert await taken(side, frame) == 0


async def test_sends_under_long_names_are_taken(made: Callable[..., Side]) -> None:
    side = made()
    await ready(side)
    frames = both_codecs(RequestCode.SEND_MESSAGE, 5, 0, LONG_SEND, b"body")
    assert await taken(side, b"".join(frames)) == len(frames)


def test_shapes_and_parts_of_properties() -> None:
    assert shape_of((b"TAGS", b"UNIQ_KEY", b"KEYS")) == (3, 5, 1, -1, b"\1\2\1\2\1\2")
    assert shape_of((b"UNIQ_KEY", b"UNIQ_KEY")) is None
    assert shape_of((b"UNIQ_KEY", b"CLUSTER")) is None
    split = SendReader(lambda _name: None).split
    assert split("UNIQ_KEY\x01u\x02ключ\x01é\x02".encode()) is not None
    for odd in (b"", b"\x02", b"UNIQ_KEY\x01u", b"UNIQ_KEY\x02u\x01", b"UNIQ_KEY\x01u\x02x\x01\x02",
                b"UNIQ_KEY\x01u\x01v\x02", b"UNIQ_KEY\x01u\x02a\x01\xff\x02"):  # fmt: skip
        assert split(odd) is None, odd
