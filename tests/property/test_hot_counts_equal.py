"""The hot path and the reference path count the same.

Two brokers get the same bytes in the same reads under the same clock, one with the hot path and
one without; afterwards every counter is the same on both sides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.broker.stats.broker_stats import STATS_NAMES, BrokerStats
from roquet.remoting.codes import RequestCode
from roquet.store.config import MessageStoreConfig
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
from tests.property.wire_sides import CONFIG, SYNC, Side, on_both_sides

pytest.importorskip("roquet.broker.hot._requests", reason="the hot path is not built")

pytestmark = pytest.mark.usefixtures("compiled_on", "unsynced_disk")

Figures = dict[tuple[str, str], tuple[int, int]]


def figures(stats: BrokerStats) -> Figures:
    """Sum and times of every counter."""
    list(stats.sampling())
    items = stats._items
    return {
        (name, key): (item.value, item.times)
        for name in sorted(STATS_NAMES)
        for key, item in sorted(items[name].items())
    }


def compare(
    config: MessageStoreConfig, play: Sequence[Sequence[bytes]]
) -> tuple[Side, Side, Figures]:
    """Play on both sides; return their counters."""

    async def run(side: Side) -> tuple[Side, Figures]:
        for chunks in (PRELUDE, *play):
            await side.play(chunks, wait_ms=3)
        return side, figures(side.stats)

    (hot, counted), (without, expected) = (each.result for each in on_both_sides(config, run))
    assert counted == expected
    return hot, without, counted


@given(st.lists(streams(), min_size=1, max_size=3), st.sampled_from([CONFIG, CONFIG, SYNC]))
def test_both_paths_count_the_same(play: list[list[bytes]], config: MessageStoreConfig) -> None:
    compare(config, play)


@pytest.mark.parametrize("config", [CONFIG, SYNC], ids=["async", "sync"])
def test_plain_requests_are_counted(config: MessageStoreConfig) -> None:
    batch = [json_frame(RequestCode.SEND_BATCH_MESSAGE, 7, 0, BATCH, ENTRIES)]
    oneway = both_codecs(RequestCode.SEND_MESSAGE_V2, 8, 2, SEND, b"body")
    play = [
        [json_frame(RequestCode.PULL_MESSAGE, 9, 0, PULL, b"")],
        [b"".join(both_codecs(RequestCode.SEND_MESSAGE_V2, 6, 0, SEND, b"body"))],
        batch,
        oneway,
        both_codecs(RequestCode.PULL_MESSAGE, 5, 0, PULL),
    ]
    hot, without, counted = compare(config, play)
    assert hot.requests_taken > 11
    sent = len([name for name in PRELUDE if b'"Orders"' in name])
    assert counted["TOPIC_PUT_NUMS", "Orders"] == (sent + 3 + 2 + 3, sent + 3 + 1 + 3)
    wait_ms = 3 if config is SYNC else 0
    times = 2 + 3 + 1 + 3
    assert counted["TOPIC_PUT_LATENCY", "0@Orders"] == (times * wait_ms, times)
    assert counted["GROUP_GET_LATENCY", "0@Orders@readers"] == (0, 4)
    # The prelude has two messages with the tag in this queue, the play seven more.
    assert counted["GROUP_GET_NUMS", "Orders@readers"] == (2 + 3 * 9, 4)
    assert hot.stats.fall_size_bytes == without.stats.fall_size_bytes
    assert hot.stats.fall_time_ms == without.stats.fall_time_ms
    assert hot.stats.fall_time_ms == {"0@Orders@readers": 3}


@pytest.mark.parametrize("ends", ["expired", "failed"])
def test_sends_that_wait_are_counted_when_they_are_stored(ends: str) -> None:
    chunks = [b"".join(both_codecs(RequestCode.SEND_MESSAGE_V2, 5, 0, SEND, b"body"))]

    async def run(side: Side) -> Figures:
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
        return counted

    hot, without = on_both_sides(SYNC, run)
    assert hot.result == without.result
