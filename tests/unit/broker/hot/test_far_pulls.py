"""Plain pulls far from the end of the log: when the read-ahead is called, and open files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("roquet.broker.hot._requests", reason="the hot path is not built")

from roquet.broker.hot import _pull
from roquet.remoting.codes import RequestCode
from roquet.runtime.files import OpenFile
from roquet.store.config import MessageStoreConfig
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.read_ahead import ReadAhead
from tests.property.wire_requests import PULL, json_frame
from tests.property.wire_sides import Side
from tests.unit.store.kit import message, put

pytestmark = pytest.mark.usefixtures("compiled_on")

CONFIG = MessageStoreConfig(
    commit_log_file_bytes=1 << 16,
    consume_queue_file_bytes=400,
    index_slots=100,
    index_entries=200,
    access_message_in_memory_max_ratio=0,
)


class Calls:
    """The calls of the read-ahead; it wants the next one at the offsets of ``mark``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[int, int, int]] = []
        self.mark: tuple[int, int] = (0, 0)
        calls = self

        def advance(
            _: ReadAhead, queue: ConsumeQueue, first_offset: int, next_offset: int
        ) -> tuple[int, int]:
            calls.seen.append((queue.queue_id, first_offset, next_offset))
            return calls.mark

        monkeypatch.setattr(ReadAhead, "advance", advance)

    def take(self) -> list[tuple[int, int, int]]:
        seen, self.seen = self.seen, []
        return seen


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[[], Side]]:
    sides: list[Side] = []

    def make() -> Side:
        side = Side(tmp_path, CONFIG, is_hot=True)
        sides.append(side)
        put(side.store, *(message(topic="Orders", queue_id=number % 2) for number in range(100)))
        return side

    yield make
    for side in sides:
        side.close()


async def pull(side: Side, offset: int, *, queue_id: int = 0, group: str = "readers") -> None:
    """Pull ten messages, by the hot path."""
    values = {
        "consumerGroup": group,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "10",
        "subscription": "*",
    }
    pairs = [(name, values.get(name, value)) for name, value in PULL]
    before = side.requests_taken
    await side.feed([json_frame(RequestCode.PULL_MESSAGE, 1, 0, pairs, b"")])
    assert side.requests_taken == before + 1
    assert b'"remark":"FOUND"' in side.answers()[-1][0]


async def test_recent_messages_are_not_read_ahead(made: Callable[[], Side], calls: Calls) -> None:
    side = made()
    for offset in range(0, 50, 10):
        await pull(side, offset)
    assert calls.seen == []


async def test_the_read_ahead_is_called_when_it_asks_to_be(
    made: Callable[[], Side], calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pull, "RECENT_BYTES", 0)
    side = made()
    calls.mark = (10, 30)
    await pull(side, 0)
    assert calls.take() == [(0, 0, 10)]
    await pull(side, 10)
    await pull(side, 20)
    assert calls.take() == [], "they end at the mark at the latest"
    calls.mark = (20, 50)
    await pull(side, 30)
    assert calls.take() == [(0, 30, 40)]
    await pull(side, 10)
    assert calls.take() == [(0, 10, 20)], "a reader that went back"


async def test_queues_and_groups_have_marks_of_their_own(
    made: Callable[[], Side], calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pull, "RECENT_BYTES", 0)
    side = made()
    await pull(side, 0, group="others")  # a new group: all plans are made again
    calls.take()
    calls.mark = (0, 50)
    await pull(side, 0)
    await pull(side, 0, queue_id=1)
    await pull(side, 0, group="others")
    assert calls.take() == [(0, 0, 10), (1, 0, 10), (0, 0, 10)]
    await pull(side, 10)
    await pull(side, 10, queue_id=1)
    await pull(side, 10, group="others")
    assert calls.take() == []


async def test_old_queue_files_are_kept_open(made: Callable[[], Side]) -> None:
    side = made()

    def reading() -> OpenFile | None:
        queue = side.store.find_consume_queue("Orders", 0)
        assert queue is not None
        return queue.entries.reading

    await pull(side, 45)
    assert reading() is None, "the tail is open anyway"
    await pull(side, 0)
    first = reading()
    assert first is not None
    await pull(side, 10)
    assert reading() is first
    await pull(side, 20)
    assert reading() is not first
    assert first.fd == -1, "one a queue"
