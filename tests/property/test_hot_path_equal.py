"""The hot path and the reference path: same bytes in, same responses and files out.

Two brokers get the same bytes in the same reads under the same clock, one with the hot path and
one without.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from roquet.format.batch import encode_batch
from roquet.model.plain_send import is_reserved
from roquet.remoting.codes import RequestCode
from roquet.remoting.processor import Port
from roquet.store.config import MessageStoreConfig
from tests.property.wire_requests import (
    BATCH,
    COMMIT,
    ENTRIES,
    KEYED_BATCH,
    LONG_SEND,
    PRELUDE,
    PULL,
    RESERVED,
    SEND,
    UNIQUE_KEY,
    Pairs,
    both_codecs,
    json_frame,
    streams,
)
from tests.property.wire_sides import BATCHED, CONFIG, SYNC, Side, on_both_sides

pytest.importorskip("roquet.broker.hot._requests", reason="the hot path is not built")

pytestmark = pytest.mark.usefixtures("compiled_on", "unsynced_disk")

Seen = tuple[object, ...]


def seen(side: Side) -> Seen:
    """All that must be equal on both sides, but for the files."""
    stats = side.store.stats
    return (
        side.answers(),
        side.offsets.table,
        side.flow.sends_waiting,
        (stats.put_messages, stats.put_bytes, stats.get_found, stats.get_messages),
        side.endpoint.statistics,
    )


def compare(
    play: Sequence[Sequence[bytes]],
    config: MessageStoreConfig,
    *,
    port: Port = Port.MAIN,
) -> tuple[int, int]:
    """Feed both sides; return how many requests of the play the hot path took, and the total."""

    async def run(side: Side) -> tuple[int, int, Seen]:
        await side.play(PRELUDE, port=port)
        before = side.requests_taken
        for chunks in play:
            await side.play(chunks, port=port)
        taken = side.requests_taken - before
        return taken, side.endpoint.statistics.requests, seen(side)

    hot, without = on_both_sides(config, run)
    taken, requests_in_all, seen_hot = hot.result
    assert seen_hot == without.result[-1]
    assert list(hot.files) == list(without.files)
    for name, data in hot.files.items():
        assert data == without.files[name], name
    return taken, requests_in_all


@given(st.lists(streams(), min_size=1, max_size=3), st.sampled_from([CONFIG, CONFIG, SYNC]))
def test_both_paths_are_equal(play: list[list[bytes]], config: MessageStoreConfig) -> None:
    compare(play, config)


@given(st.lists(streams(), min_size=1, max_size=2))
def test_both_paths_are_equal_on_the_fast_port(play: list[list[bytes]]) -> None:
    compare(play, CONFIG, port=Port.FAST)


@pytest.mark.parametrize("config", [CONFIG, SYNC], ids=["async", "sync"])
@pytest.mark.parametrize(
    ("code", "pairs", "body"),
    [
        (RequestCode.SEND_MESSAGE_V2, SEND, b"body"),
        (RequestCode.SEND_MESSAGE, LONG_SEND, b"body"),
        (RequestCode.SEND_BATCH_MESSAGE, BATCH, ENTRIES),
        (RequestCode.SEND_BATCH_MESSAGE, KEYED_BATCH, ENTRIES),
        (RequestCode.PULL_MESSAGE, PULL, b""),
        (RequestCode.UPDATE_CONSUMER_OFFSET, COMMIT, b""),
    ],
    ids=["send", "send under long names", "batch", "batch with a key", "pull", "commit"],
)
def test_plain_requests_are_taken(
    config: MessageStoreConfig, code: int, pairs: Pairs, body: bytes
) -> None:
    play = [both_codecs(code, opaque, 0, pairs, body) for opaque in range(3)]
    made = json_frame(RequestCode.PULL_MESSAGE, 99, 0, PULL, b"")
    roomy = structs.replace(config, index_entries=600)
    taken, requests_in_all = compare([[made], *play], roomy)
    assert requests_in_all == len(PRELUDE) + 1 + 9
    assert taken >= 9


@pytest.mark.parametrize("name", [*RESERVED, "PRICE", "__SHARDINGKEY"])
def test_reserved_names_are_left_to_the_reference(name: str) -> None:
    properties = f"UNIQ_KEY\x01{UNIQUE_KEY}\x02{name}\x011\x02"
    pairs = [(field, properties if field == "i" else value) for field, value in SEND]
    entries = encode_batch([(0, b"one", properties.encode())])
    taken, _ = compare(
        [
            both_codecs(RequestCode.SEND_MESSAGE_V2, 5, 0, pairs, b"body"),
            both_codecs(RequestCode.SEND_BATCH_MESSAGE, 6, 0, BATCH, entries),
        ],
        structs.replace(CONFIG, index_entries=600),
    )
    assert taken == (0 if is_reserved(name) else 6)


@pytest.mark.parametrize("config", [CONFIG, SYNC], ids=["async", "sync"])
def test_topics_with_batch_queues_are_left_to_the_reference(config: MessageStoreConfig) -> None:
    sends = [(name, BATCHED if name == "b" else value) for name, value in SEND]
    batches = [(name, BATCHED if name == "b" else value) for name, value in KEYED_BATCH]
    pulls = [(name, BATCHED if name == "topic" else value) for name, value in PULL]
    play = [
        both_codecs(RequestCode.SEND_BATCH_MESSAGE, 1, 0, batches, ENTRIES),
        both_codecs(RequestCode.SEND_MESSAGE_V2, 2, 0, sends, b"body"),
        both_codecs(RequestCode.PULL_MESSAGE, 3, 0, pulls),
        both_codecs(RequestCode.SEND_BATCH_MESSAGE, 4, 0, batches, ENTRIES),
    ]
    taken, requests_in_all = compare([[b"".join(frames)] for frames in play], config)
    assert requests_in_all == len(PRELUDE) + 12
    assert taken == 0


@pytest.mark.parametrize("config", [CONFIG, SYNC], ids=["async", "sync"])
def test_topics_of_both_types_may_share_a_read(config: MessageStoreConfig) -> None:
    batches = [(name, BATCHED if name == "b" else value) for name, value in KEYED_BATCH]
    frames = [
        frame
        for number in range(20)
        for frame in (
            json_frame(RequestCode.SEND_MESSAGE_V2, number, 0, SEND, b"body", style=1),
            json_frame(RequestCode.SEND_BATCH_MESSAGE, number, 0, batches, ENTRIES, style=1),
        )
    ]
    taken, _ = compare([[b"".join(frames)]], config)
    assert taken > 0


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.UPDATE_CONSUMER_OFFSET])
def test_one_way_requests_are_taken_and_get_no_response(code: int) -> None:
    pairs = SEND if code == RequestCode.SEND_MESSAGE_V2 else COMMIT
    made = json_frame(RequestCode.PULL_MESSAGE, 99, 0, PULL, b"")
    taken, _ = compare([[made], both_codecs(code, 5, 2, pairs, b"body")], CONFIG)
    assert taken >= 3


@pytest.mark.parametrize("config", [CONFIG, SYNC], ids=["async", "sync"])
def test_a_reader_may_start_to_send_and_continue_reading(config: MessageStoreConfig) -> None:
    pull = json_frame(RequestCode.PULL_MESSAGE, 1, 0, PULL, b"")
    commit = json_frame(RequestCode.UPDATE_CONSUMER_OFFSET, 2, 0, COMMIT, b"")
    send = json_frame(RequestCode.SEND_MESSAGE_V2, 3, 0, SEND, b"body", style=1)
    mixed = pull + commit + send + pull + send
    play = [pull, pull, mixed, mixed, pull, pull + commit, pull + mixed[:20], mixed[20:], pull]
    taken, requests_in_all = compare([play], config)
    assert requests_in_all == len(PRELUDE) + 22
    assert taken >= 20


@pytest.mark.parametrize("config", [CONFIG, SYNC], ids=["async", "sync"])
def test_long_reads_run_over_the_ends_of_files(config: MessageStoreConfig) -> None:
    frames = [
        frame
        for number in range(60)
        for frame in both_codecs(RequestCode.SEND_MESSAGE_V2, number, 0, SEND, b"body")
    ]
    data = b"".join(frames)
    taken, requests_in_all = compare([[data], [data[:5000], data[5000:]]], config)
    assert requests_in_all == len(PRELUDE) + 2 * len(frames)
    assert taken > len(frames)


@pytest.mark.parametrize("ends", ["expired", "failed"])
def test_sends_that_wait_for_the_disk_get_the_stores_remarks(ends: str) -> None:
    chunks = [b"".join(both_codecs(RequestCode.SEND_MESSAGE_V2, 5, 0, SEND, b"body"))]

    async def run(side: Side) -> list[list[bytes]]:
        await side.feed(PRELUDE)
        side.flush()
        await side.feed(chunks)
        assert side.flow.sends_waiting == 3
        if ends == "expired":
            side.clock.advance(60_000)
            side.store.acks.expire()
        else:
            side.store.acks.fail()
        await asyncio.sleep(0)
        assert side.flow.sends_waiting == 0
        return side.answers()

    hot, without = on_both_sides(SYNC, run)
    assert len(hot.result[1]) == 3
    assert hot.result == without.result
