"""What the hot path counts of the requests it takes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from roquet.format.batch import encode_batch
from roquet.remoting.codes import RequestCode
from roquet.store.config import MessageStoreConfig

pytest.importorskip("roquet.broker.hot._requests", reason="the hot path is not built")

from roquet.broker.hot._requests import PlainRequests
from roquet.broker.hot.path import HotPath
from tests.property.wire_requests import BATCH, PULL, SEND, json_frame
from tests.property.wire_sides import Side

pytestmark = pytest.mark.usefixtures("compiled_on")

CONFIG = MessageStoreConfig(
    commit_log_file_bytes=1 << 16,
    consume_queue_file_bytes=2000,
    index_slots=1000,
    index_entries=4000,
)
ENTRIES = encode_batch([(0, b"one", b"TAGS\x01A\x02"), (0, b"two", b"TAGS\x01B\x02")])
SENT = json_frame(RequestCode.SEND_MESSAGE_V2, 1, 0, SEND, b"body", style=1)
SENT_BATCH = json_frame(RequestCode.SEND_BATCH_MESSAGE, 2, 0, BATCH, ENTRIES)
PULLED = json_frame(RequestCode.PULL_MESSAGE, 3, 0, PULL, b"")


def plain_of(side: Side) -> PlainRequests:
    assert isinstance(side.hot_path, HotPath)
    return side.hot_path.requests


def test_counts_survive_their_subjects_and_are_returned_once(tmp_path: Path) -> None:
    async def run() -> None:
        side = Side(tmp_path, CONFIG, is_hot=True)
        plain = plain_of(side)
        await side.feed([SENT, SENT + SENT_BATCH])
        queue = side.store.queues.find("Orders", 0)
        assert queue is not None
        units = [queue.unit_at(number) for number in range(4)]
        sizes = [0 if unit is None else unit.size_bytes for unit in units]
        side.clock.advance(7)
        await side.feed([PULLED + PULLED])
        plain.sends.forget_topics()
        plain.pulls.forget_plans()
        # The first send made the topic known; pulls with the tag A get three of four messages.
        assert plain.sends.drain() == [("Orders", 3, sum(sizes[1:]), [(0, 2, 0, 0)])]
        [(plan, messages, size_bytes, queues)] = plain.pulls.drain()
        assert (plan.group, plan.topic, messages) == ("readers", "Orders", 6)
        assert size_bytes == 2 * sum(sizes[:3])
        assert queues == [(0, 2, sizes[3], 7)]
        assert (plain.sends.drain(), plain.pulls.drain()) == ([], [])
        side.close()

    asyncio.run(run())


def test_requests_that_the_hot_path_declines_are_not_counted(tmp_path: Path) -> None:
    async def run() -> None:
        side = Side(tmp_path, CONFIG, is_hot=True)
        missing = [(name, "9" if name == "queueOffset" else value) for name, value in PULL]
        await side.feed([SENT, json_frame(RequestCode.PULL_MESSAGE, 4, 0, missing, b"")])
        assert plain_of(side).sends.drain() == []
        assert all(row[3] == [] for row in plain_of(side).pulls.drain())
        side.close()

    asyncio.run(run())
