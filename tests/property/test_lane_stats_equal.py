"""The lanes of the wire and the reference path count the same.

Two brokers get the same bytes in the same reads under the same clock, one with a lane and one
without; afterwards every counter is the same on both sides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.broker.stats.broker_stats import STATS_NAMES, BrokerStats
from roquet.remoting.codes import RequestCode
from roquet.store.config import MessageStoreConfig
from tests.property.test_wire_lanes_equal import CONFIG, LANES, QUIETLY, SYNC, takes
from tests.property.wire_requests import (
    BATCH,
    ENTRIES,
    PRELUDE,
    PULL,
    SEND,
    both_codecs,
    json_frame,
    streams,
)
from tests.property.wire_sides import LaneKind, Side

Figures = dict[tuple[str, str], tuple[int, int]]


@pytest.fixture(autouse=True, scope="module")
def lane_on() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROQUET_PURE", "0")
        patch.setattr("os.fsync", lambda _fd: None)
        patch.setattr("os.fdatasync", lambda _fd: None)
        yield


def figures(stats: BrokerStats) -> Figures:
    """Sum and times of every counter."""
    stats.sample()
    items = stats._items
    return {
        (name, key): (item.value, item.times)
        for name in sorted(STATS_NAMES)
        for key, item in sorted(items[name].items())
    }


async def played(
    root: Path, kind: LaneKind | None, config: MessageStoreConfig, play: Sequence[Sequence[bytes]]
) -> tuple[Side, Figures]:
    side = Side(root, config, lane=kind)
    for chunks in (PRELUDE, *play):
        await side.feed(chunks)
        side.clock.advance(3)
        side.flush()
        for _ in range(4):
            await asyncio.sleep(0)
    found = figures(side.stats)
    side.close()
    return side, found


def compare(
    kind: LaneKind, config: MessageStoreConfig, play: Sequence[Sequence[bytes]]
) -> tuple[Side, Side, Figures]:
    """Play on both sides; what they counted."""

    async def run(first: Path, second: Path) -> tuple[Side, Side, Figures]:
        with_lane, counted = await played(first, kind, config, play)
        without, expected = await played(second, None, config, play)
        assert counted == expected
        return with_lane, without, counted

    with TemporaryDirectory() as first, TemporaryDirectory() as second:
        return asyncio.run(run(Path(first), Path(second)))


@LANES
@QUIETLY
@given(st.lists(streams(), min_size=1, max_size=3), st.sampled_from([CONFIG, CONFIG, SYNC]))
def test_the_lanes_count_the_same(
    kind: LaneKind, play: list[list[bytes]], config: MessageStoreConfig
) -> None:
    compare(kind, config, play)


@LANES
@pytest.mark.parametrize("config", [CONFIG, SYNC], ids=["async", "sync"])
def test_plain_requests_are_counted(kind: LaneKind, config: MessageStoreConfig) -> None:
    batch = [json_frame(RequestCode.SEND_BATCH_MESSAGE, 7, 0, BATCH, ENTRIES)]
    oneway = both_codecs(RequestCode.SEND_MESSAGE_V2, 8, 2, SEND, b"body")
    play = [
        [json_frame(RequestCode.PULL_MESSAGE, 9, 0, PULL, b"")],
        [b"".join(both_codecs(RequestCode.SEND_MESSAGE_V2, 6, 0, SEND, b"body"))],
        batch,
        oneway,
        both_codecs(RequestCode.PULL_MESSAGE, 5, 0, PULL),
    ]
    with_lane, without, counted = compare(kind, config, play)
    assert with_lane.lane is not None
    assert with_lane.lane.requests_taken > (11 if takes(kind, RequestCode.PULL_MESSAGE) else 5)
    sent = len([name for name in PRELUDE if b'"Orders"' in name])
    assert counted["TOPIC_PUT_NUMS", "Orders"] == (sent + 3 + 2 + 3, sent + 3 + 1 + 3)
    wait_ms = 3 if config is SYNC else 0
    times = 2 + 3 + 1 + 3
    assert counted["TOPIC_PUT_LATENCY", "0@Orders"] == (times * wait_ms, times)
    assert counted["GROUP_GET_LATENCY", "0@Orders@readers"] == (0, 4)
    # The prelude has two messages with the tag in this queue, the play seven more.
    assert counted["GROUP_GET_NUMS", "Orders@readers"] == (2 + 3 * 9, 4)
    assert with_lane.stats.fall_size_bytes == without.stats.fall_size_bytes
    assert with_lane.stats.fall_time_ms == without.stats.fall_time_ms
    assert with_lane.stats.fall_time_ms == {"0@Orders@readers": 3}


@LANES
@pytest.mark.parametrize("ends", ["expired", "failed"])
def test_sends_that_wait_are_counted_when_they_are_stored(kind: LaneKind, ends: str) -> None:
    chunks = [b"".join(both_codecs(RequestCode.SEND_MESSAGE_V2, 5, 0, SEND, b"body"))]

    async def run(root: str, lane: LaneKind | None) -> Figures:
        side = Side(Path(root), SYNC, lane=lane)
        await side.feed(PRELUDE)
        side.flush()
        await asyncio.sleep(0)
        before = side.stats.total("TOPIC_PUT_NUMS", "Orders")
        await side.feed(chunks)
        assert side.stats.total("TOPIC_PUT_NUMS", "Orders") == before
        side.clock.advance(60_000)
        if ends == "expired":
            side.store.acks.expire()
        else:
            side.store.acks.fail()
        await asyncio.sleep(0)
        counted = figures(side.stats)
        assert counted["TOPIC_PUT_NUMS", "Orders"][0] == before + (3 if ends == "expired" else 0)
        side.close()
        return counted

    with TemporaryDirectory() as first, TemporaryDirectory() as second:
        assert asyncio.run(run(first, kind)) == asyncio.run(run(second, None))
