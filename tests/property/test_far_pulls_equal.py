"""Pulls of messages far from the end of the log: equal with and without the hot path.

Both sides have the same pages in memory; a thread loads the others.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from msgspec import structs

from roquet.remoting.codes import RequestCode
from roquet.runtime.files import Files
from roquet.store.config import MessageStoreConfig
from tests.property.wire_requests import PULL, binary_frame, json_frame
from tests.property.wire_sides import CONFIG, Side, on_both_sides
from tests.residency import patch_residency
from tests.unit.remoting.net_kit import until
from tests.unit.store.kit import message, put

pytest.importorskip("roquet.broker.hot._requests", reason="the hot path is not built")

pytestmark = pytest.mark.usefixtures("compiled_on", "unsynced_disk")

FAR = structs.replace(
    CONFIG,
    access_message_in_memory_max_ratio=0,
    consume_queue_file_bytes=600,
    transfer_count_in_memory_max=8,
    transfer_count_in_disk_max=3,
    transfer_bytes_in_disk_max=1000,
)
FAR_BY_DISTANCE = structs.replace(FAR, message_in_disk_by_distance=True)
QUEUES = 2


class OwnFiles(Files):
    """Not plain files: compiled code asks the segments, not the kernel, what is in memory."""


class Played(NamedTuple):
    """Messages (queue, tag, length), bytes that are not in memory (shares of the log), and pulls
    (queue, share of the queue, messages, subscription)."""

    messages: list[tuple[int, str, int]]
    cold: list[float]
    pulls: list[tuple[int, float, int, str]]


@st.composite
def plays(draw: DrawFn) -> Played:
    share = st.floats(0, 1, exclude_max=True)
    return Played(
        draw(
            st.lists(
                st.tuples(st.integers(0, QUEUES - 1), st.sampled_from("AB"), st.integers(1, 400)),
                min_size=1,
                max_size=40,
            )
        ),
        draw(st.lists(share, max_size=4)),
        draw(
            st.lists(
                st.tuples(
                    st.integers(0, QUEUES - 1),
                    share,
                    st.sampled_from([1, 2, 5, 32]),
                    st.sampled_from(["*", "*", "A", "B", "none"]),
                ),
                min_size=1,
                max_size=8,
            )
        ),
    )


def pull_frame(number: int, queue_id: int, offset: int, count: int, subscription: str) -> bytes:
    values = {
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(count),
        "subscription": subscription,
    }
    pairs = [(name, values.get(name, value)) for name, value in PULL]
    if number % 2:
        return json_frame(RequestCode.PULL_MESSAGE, number, 0, pairs, b"")
    return binary_frame(RequestCode.PULL_MESSAGE, number, 0, pairs, b"")


async def pulled(side: Side, play: Played, cold: set[int]) -> tuple[int, list[bytes]]:
    """How many pulls the hot path took, and all responses."""
    put(
        side.store,
        *(
            message(b"x" * size_bytes, topic="Orders", queue_id=queue_id, TAGS=tag)
            for queue_id, tag, size_bytes in play.messages
        ),
    )
    log_end = side.store.max_physical_offset
    cold.clear()
    cold.update(int(share * log_end) for share in play.cold)
    responses: list[bytes] = []
    for number, (queue_id, share, count, subscription) in enumerate(play.pulls):
        end_offset = side.store.max_offset_in_queue("Orders", queue_id)
        if not end_offset:
            continue
        frame = pull_frame(number, queue_id, int(share * end_offset), count, subscription)
        await side.feed([frame])
        transport = side.transports[-1]
        await until(partial(bool, transport.written))  # a thread may read
        responses.append(b"".join(transport.written))
    return side.requests_taken, responses


def compare(play: Played, config: MessageStoreConfig) -> int:
    """Pull on both sides; return how many pulls the hot path took."""
    cold: set[int] = set()

    def is_resident(start: int, size_bytes: int) -> bool:
        return not any(start <= offset < start + size_bytes for offset in cold)

    def make_resident(start: int, size_bytes: int) -> None:
        cold.difference_update(range(start, start + size_bytes))

    with pytest.MonkeyPatch.context() as patch:
        patch_residency(patch, is_resident=is_resident, make_resident=make_resident)
        hot, without = on_both_sides(
            config, lambda side: pulled(side, play, cold), files=OwnFiles()
        )
    assert hot.result[1] == without.result[1]
    return hot.result[0]


@given(plays(), st.sampled_from([FAR, FAR_BY_DISTANCE]))
def test_far_pulls_are_equal(play: Played, config: MessageStoreConfig) -> None:
    compare(play, config)


@pytest.mark.parametrize("config", [FAR, FAR_BY_DISTANCE], ids=["residency", "distance"])
def test_far_pulls_are_plain_if_the_messages_are_in_memory(config: MessageStoreConfig) -> None:
    messages = [(number % QUEUES, "AB"[number % 3 > 0], 50) for number in range(40)]
    pulls = [
        (queue_id, share / 10, 32, subscription)
        for queue_id in range(QUEUES)
        for share in range(10)
        for subscription in ("*", "A", "B")
    ]
    assert compare(Played(messages, [], pulls), config) == len(pulls)


def test_a_pull_that_has_enough_does_not_wait_for_the_disk() -> None:
    messages = [(0, "A", 50)] * 20
    assert compare(Played(messages, [0.5], [(0, 0.3, 32, "*")]), FAR) == 1
    assert compare(Played(messages, [0.5], [(0, 0.45, 32, "*")]), FAR) == 0
