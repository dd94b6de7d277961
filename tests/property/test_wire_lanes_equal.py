"""The lanes of the wire and the reference path: same bytes in, same answers and files out.

Two brokers get the same bytes in the same reads under the same clock, one with a lane, the compiled
one or the one in Python, and one without.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from roquet.remoting.codes import RequestCode
from roquet.remoting.processor import Port
from roquet.store.config import FlushDiskType, MessageStoreConfig
from tests.property.wire_requests import (
    BATCH,
    COMMIT,
    ENTRIES,
    KEYED_BATCH,
    LONG_SEND,
    PRELUDE,
    PULL,
    SEND,
    Pairs,
    both_codecs,
    json_frame,
    streams,
)
from tests.property.wire_sides import LaneKind, Side

IS_BUILT = find_spec("roquet._wire") is not None
LANES = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            LaneKind.COMPILED,
            marks=pytest.mark.skipif(not IS_BUILT, reason="the compiled lane is not built"),
        ),
        LaneKind.PURE,
    ],
)

CONFIG = MessageStoreConfig(
    commit_log_file_bytes=1 << 13,
    consume_queue_file_bytes=200,
    index_slots=7,
    index_entries=60,
    max_message_bytes=1000,
)
SYNC = structs.replace(CONFIG, flush_disk_type=FlushDiskType.SYNC_FLUSH)


@pytest.fixture(autouse=True, scope="module")
def lane_on() -> Iterator[None]:
    """Let the lane be used, also where the suite runs with it switched off; the disk may wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROQUET_PURE", "0")
        patch.setattr("os.fsync", lambda _fd: None)
        patch.setattr("os.fdatasync", lambda _fd: None)
        yield


# -------------------------------------------------------------------------------------- tests


def compare(
    play: Sequence[Sequence[bytes]],
    config: MessageStoreConfig,
    kind: LaneKind,
    *,
    port: Port = Port.MAIN,
) -> tuple[int, int]:
    """Feed both sides; how many requests of the play the lane took, and how many there were."""

    async def run(side: Side) -> int:
        taken = 0
        for chunks in (PRELUDE, *play):
            await side.feed(chunks, port=port)
            side.flush()
            for _ in range(4):
                await asyncio.sleep(0)
            if chunks is PRELUDE and side.lane is not None:
                taken = side.lane.requests_taken
        return 0 if side.lane is None else side.lane.requests_taken - taken

    async def both(lane_root: Path, plain_root: Path) -> tuple[int, int]:
        with_lane = Side(lane_root, config, lane=kind)
        without = Side(plain_root, config, lane=None)
        try:
            taken = await run(with_lane)
            await run(without)
            assert with_lane.answers() == without.answers()
            assert with_lane.offsets.table == without.offsets.table
            assert with_lane.flow.sends_waiting == without.flow.sends_waiting
            for name in ("put_messages", "put_bytes", "get_found", "get_messages"):
                assert getattr(with_lane.store.stats, name) == getattr(without.store.stats, name)
            assert with_lane.endpoint.statistics == without.endpoint.statistics
        finally:
            files = with_lane.close()
            others = without.close()
        assert list(files) == list(others)
        for name in files:
            assert files[name] == others[name], name
        return taken, with_lane.endpoint.statistics.requests

    with TemporaryDirectory() as lane_root, TemporaryDirectory() as plain_root:
        return asyncio.run(both(Path(lane_root), Path(plain_root)))


def takes(kind: LaneKind, code: int) -> bool:
    """Whether a lane takes requests of a kind; the one in Python takes sends of one message."""
    return kind is LaneKind.COMPILED or code in {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
    }


QUIETLY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@LANES
@QUIETLY
@given(st.lists(streams(), min_size=1, max_size=3), st.sampled_from([CONFIG, CONFIG, SYNC]))
def test_the_lanes_are_equal(
    kind: LaneKind, play: list[list[bytes]], config: MessageStoreConfig
) -> None:
    compare(play, config, kind)


@LANES
@QUIETLY
@given(st.lists(streams(), min_size=1, max_size=2))
def test_the_lanes_are_equal_on_the_fast_port(kind: LaneKind, play: list[list[bytes]]) -> None:
    compare(play, CONFIG, kind, port=Port.FAST)


@LANES
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
    kind: LaneKind, config: MessageStoreConfig, code: int, pairs: Pairs, body: bytes
) -> None:
    play = [both_codecs(code, opaque, 0, pairs, body) for opaque in range(3)]
    made = json_frame(RequestCode.PULL_MESSAGE, 99, 0, PULL, b"")
    roomy = structs.replace(config, index_entries=600)
    taken, requests_in_all = compare([[made], *play], roomy, kind)
    assert requests_in_all == len(PRELUDE) + 1 + 9
    assert taken >= 9 if takes(kind, code) else taken == 0


@LANES
@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.UPDATE_CONSUMER_OFFSET])
def test_one_way_requests_are_taken_and_not_answered(kind: LaneKind, code: int) -> None:
    pairs = SEND if code == RequestCode.SEND_MESSAGE_V2 else COMMIT
    made = json_frame(RequestCode.PULL_MESSAGE, 99, 0, PULL, b"")
    taken, _ = compare([[made], both_codecs(code, 5, 2, pairs, b"body")], CONFIG, kind)
    assert taken >= 3 if takes(kind, code) else taken == 0


@pytest.mark.parametrize("config", [CONFIG, SYNC], ids=["async", "sync"])
def test_a_reader_may_begin_to_send_and_go_on_reading(config: MessageStoreConfig) -> None:
    pull = json_frame(RequestCode.PULL_MESSAGE, 1, 0, PULL, b"")
    commit = json_frame(RequestCode.UPDATE_CONSUMER_OFFSET, 2, 0, COMMIT, b"")
    send = json_frame(RequestCode.SEND_MESSAGE_V2, 3, 0, SEND, b"body", style=1)
    mixed = pull + commit + send + pull + send
    play = [pull, pull, mixed, mixed, pull, pull + commit, pull + mixed[:20], mixed[20:], pull]
    taken, requests_in_all = compare([play], config, LaneKind.COMPILED)
    assert requests_in_all == len(PRELUDE) + 22
    assert taken >= 20


@LANES
@pytest.mark.parametrize("config", [CONFIG, SYNC], ids=["async", "sync"])
def test_long_reads_run_over_the_ends_of_files(kind: LaneKind, config: MessageStoreConfig) -> None:
    frames = [
        frame
        for number in range(60)
        for frame in both_codecs(RequestCode.SEND_MESSAGE_V2, number, 0, SEND, b"body")
    ]
    data = b"".join(frames)
    taken, requests_in_all = compare([[data], [data[:5000], data[5000:]]], config, kind)
    assert requests_in_all == len(PRELUDE) + 2 * len(frames)
    assert taken > len(frames)


@LANES
@pytest.mark.parametrize("ends", ["expired", "failed"])
def test_answers_that_wait_are_said_in_the_store_s_words(kind: LaneKind, ends: str) -> None:
    chunks = [b"".join(both_codecs(RequestCode.SEND_MESSAGE_V2, 5, 0, SEND, b"body"))]

    async def run(root: str, *, lane: LaneKind | None) -> list[list[bytes]]:
        side = Side(Path(root), SYNC, lane=lane)
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
        answers = side.answers()
        assert side.flow.sends_waiting == 0
        side.close()
        return answers

    with TemporaryDirectory() as first, TemporaryDirectory() as second:
        said = asyncio.run(run(first, lane=kind))
        assert len(said[1]) == 3
        assert said == asyncio.run(run(second, lane=None))
