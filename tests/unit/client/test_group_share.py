"""Where a group begins to read a queue."""

from __future__ import annotations

from typing import cast

import pytest

from roquet.client.group_share import start_offset
from roquet.client.offset_store import OffsetStore
from roquet.client.pull_api import PullApi
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.client import ConsumeFromWhere

QUEUE = MessageQueue("T", "broker-a", 0)


class Offsets:
    """A broker's responses, one query after the other."""

    def __init__(self, *answers: int | None) -> None:
        self.answers = list(answers)

    async def read(self, queue: MessageQueue) -> int | None:
        assert queue == QUEUE
        return self.answers.pop(0)


class Queues:
    """A queue with an end."""

    def __init__(self, end: int) -> None:
        self.end = end

    async def max_offset(self, queue: MessageQueue) -> int:
        assert queue == QUEUE
        return self.end


@pytest.mark.parametrize(
    ("answers", "end", "start"),
    [
        pytest.param([7], 9, 7, id="the group has an offset"),
        pytest.param([None], 0, 0, id="an empty queue"),
        pytest.param([None, None], 9, 9, id="a queue that others have read for long"),
        pytest.param([None, -1], 9, 9, id="unknown to the broker"),
        pytest.param([None, 0], 1, 0, id="the first message came between the queries"),
    ],
)
async def test_a_new_group_begins_at_the_end(
    answers: list[int | None], end: int, start: int
) -> None:
    offsets = Offsets(*answers)
    found = await start_offset(
        QUEUE,
        cast("OffsetStore", offsets),
        cast("PullApi", Queues(end)),
        where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        timestamp_ms=0,
    )
    assert found == start
    assert offsets.answers == []
