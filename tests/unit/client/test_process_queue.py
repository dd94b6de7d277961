"""The state of a queue in a push consumer."""

from __future__ import annotations

import random

import pytest

from roquet.client.message import ReceivedMessage
from roquet.client.process_queue import LOCK_LIVES_MS, PULL_IDLE_MS_MAX, ProcessQueue
from roquet.runtime.clock import ManualClock


def messages(*offsets: int, body: bytes = b"hello") -> list[ReceivedMessage]:
    return [ReceivedMessage(topic="T", raw_body=body, queue_offset=each) for each in offsets]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> ProcessQueue:
    return ProcessQueue(clock)


def is_locked(queue: ProcessQueue) -> bool:
    return queue.is_locked


def is_pull_overdue(queue: ProcessQueue) -> bool:
    return queue.is_pull_overdue


def offsets_of(found: list[ReceivedMessage]) -> list[int]:
    return [each.queue_offset for each in found]


def test_nothing_is_committed_past_an_unfinished_message(queue: ProcessQueue) -> None:
    batch = messages(10, 11, 12)
    queue.put(batch)
    assert queue.finish([batch[2]]) == 10
    assert queue.finish([batch[0]]) == 11
    assert queue.finish([batch[1]]) == 13
    assert queue.finish([batch[1]]) is None


def test_counts_follow_what_is_put_and_finished(queue: ProcessQueue) -> None:
    batch = messages(1, 2, 5)
    queue.put(batch)
    queue.put(messages(2, 5))
    assert (queue.cached_messages, queue.cached_bytes, queue.span) == (3, 15, 4)
    assert batch[0] in queue
    queue.finish([batch[0], batch[0]])
    assert (queue.cached_messages, queue.cached_bytes, queue.span) == (2, 10, 3)
    assert batch[0] not in queue
    queue.finish(batch)
    assert (queue.cached_messages, queue.cached_bytes, queue.span) == (0, 0, 0)
    assert queue.min_offset is None


def test_the_span_covers_what_is_left(queue: ProcessQueue) -> None:
    batch = messages(*range(100))
    queue.put(batch)
    queue.finish(batch[1:])
    assert queue.span == 0
    queue.put(messages(100))
    assert queue.span == 100


def test_a_pull_from_an_earlier_offset_is_sorted_in(queue: ProcessQueue) -> None:
    queue.put(messages(7, 8))
    queue.put(messages(3))
    assert (queue.min_offset, queue.max_offset) == (3, 8)
    assert offsets_of(queue.take(9)) == [3, 7, 8]


def test_any_order_of_finishing_commits_the_smallest_that_is_left(queue: ProcessQueue) -> None:
    seed = 20260817
    print(f"seed {seed}")  # noqa: T201 - a failure must be repeatable
    chance = random.Random(seed)
    left: dict[int, ReceivedMessage] = {}
    next_offset = 0
    for _ in range(2_000):
        if left and chance.random() < 0.55:
            chosen = chance.sample(sorted(left), k=min(len(left), chance.randint(1, 3)))
            expected_after = {offset for offset in left if offset not in chosen}
            found = queue.finish([left.pop(offset) for offset in chosen])
            assert found == min(expected_after, default=next_offset)
        else:
            batch = messages(*range(next_offset, next_offset + chance.randint(1, 4)))
            next_offset += len(batch)
            queue.put(batch)
            left |= {each.queue_offset: each for each in batch}
        assert queue.cached_messages == len(left)
        assert queue.span == (max(left) - min(left) if left else 0)


def test_only_one_caller_is_told_to_start(queue: ProcessQueue) -> None:
    assert not queue.put([])
    assert queue.put(messages(1))
    assert not queue.put(messages(2))
    assert offsets_of(queue.take(5)) == [1, 2]
    assert not queue.put(messages(3))
    assert offsets_of(queue.take(5)) == [3]
    assert queue.take(5) == []
    assert queue.put(messages(4))


def test_taken_messages_count_until_they_are_committed(queue: ProcessQueue) -> None:
    queue.put(messages(1, 2, 3))
    assert offsets_of(queue.take(2)) == [1, 2]
    assert queue.cached_messages == 3
    assert queue.commit() == 3
    assert (queue.cached_messages, queue.cached_bytes) == (1, 5)
    assert queue.commit() is None
    assert queue.min_offset == 3


def test_a_rollback_gives_the_same_messages_again(queue: ProcessQueue) -> None:
    queue.put(messages(1, 2, 3))
    queue.take(2)
    queue.rollback()
    assert queue.cached_messages == 3
    assert offsets_of(queue.take(9)) == [1, 2, 3]
    assert queue.commit() == 4


def test_some_of_the_taken_are_put_back(queue: ProcessQueue) -> None:
    queue.put(messages(1, 2, 3))
    taken = queue.take(3)
    queue.put_back(taken[1:])
    assert queue.commit() == 2
    assert offsets_of(queue.take(9)) == [2, 3]


def test_a_message_that_is_taken_is_not_taken_in_again(queue: ProcessQueue) -> None:
    queue.put(messages(1))
    queue.take(1)
    queue.put(messages(1, 2))
    assert queue.cached_messages == 2
    assert offsets_of(queue.take(9)) == [2]


def test_the_first_message_is_overdue_when_its_handler_hangs(
    queue: ProcessQueue, clock: ManualClock
) -> None:
    batch = messages(1, 2)
    queue.put(batch)
    assert queue.overdue(1_000) is None
    queue.begin(batch, clock.monotonic_ns())
    clock.advance(1_000)
    assert queue.overdue(1_000) is None
    clock.advance(1)
    assert queue.overdue(1_000) is batch[0]
    queue.finish([batch[0]])
    assert queue.overdue(1_000) is batch[1]
    queue.finish([batch[1]])
    assert queue.overdue(1_000) is None


def test_a_lock_expires_regardless_of_the_wall_clock(
    queue: ProcessQueue, clock: ManualClock
) -> None:
    assert not is_locked(queue)
    queue.note_lock()
    assert is_locked(queue)
    clock.advance(LOCK_LIVES_MS)
    assert is_locked(queue)
    clock.advance(1)
    clock.set(0)
    assert not is_locked(queue)
    queue.note_lock()
    queue.lose_lock()
    assert not is_locked(queue)


def test_a_pull_that_stopped_is_detected(queue: ProcessQueue, clock: ManualClock) -> None:
    clock.advance(PULL_IDLE_MS_MAX)
    assert not is_pull_overdue(queue)
    clock.advance(1)
    assert is_pull_overdue(queue)
    queue.note_pull()
    assert not is_pull_overdue(queue)


def test_a_cleared_queue_is_empty(queue: ProcessQueue) -> None:
    queue.put(messages(1, 2))
    queue.take(1)
    queue.clear()
    assert (queue.cached_messages, queue.cached_bytes, queue.min_offset) == (0, 0, None)
    queue.put(messages(1))
    assert queue.finish(messages(1)) == 2


def test_the_running_info_shows_the_cache(queue: ProcessQueue, clock: ManualClock) -> None:
    queue.put(messages(4, 6, 9, body=b"x" * 600_000))
    queue.take(1)
    clock.advance(50)
    queue.note_pull()
    queue.note_lock()
    queue.is_dropped = True
    info = queue.info(3)
    assert (info.cached_msg_count, info.cached_msg_min_offset, info.cached_msg_max_offset) == (
        2,
        6,
        9,
    )
    assert (info.transaction_msg_count, info.transaction_msg_min_offset) == (1, 4)
    assert (info.cached_msg_size_in_mib, info.commit_offset) == (1, 3)
    assert info.locked
    assert info.dropped
    assert info.last_pull_timestamp_ms == clock.now_ms()
    assert info.last_consume_timestamp_ms == clock.now_ms() - 50
