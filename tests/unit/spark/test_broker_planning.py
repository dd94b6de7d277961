import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import DataLost
from roquet.model.message_queue import MessageQueue
from roquet.spark.broker.planning import (
    BehindLatest,
    QueueRange,
    behind,
    limited,
    losses,
    lost,
    must_wait,
    pending,
    split_ranges,
)

QUEUES = [MessageQueue("T", "a", number) for number in range(6)]
A, B, C = QUEUES[:3]

starts_and_sizes = st.dictionaries(
    st.sampled_from(QUEUES),
    st.tuples(st.integers(0, 10**12), st.integers(0, 10**9)),
    min_size=1,
)


@given(starts_and_sizes, st.integers(1, 10**9))
def test_a_limit_is_used_up_and_never_exceeded(
    queues: dict[MessageQueue, tuple[int, int]], limit: int
) -> None:
    start = {queue: first for queue, (first, _) in queues.items()}
    end = {queue: first + size for queue, (first, size) in queues.items()}
    cut = limited(start, end, limit)
    assert pending(start, cut) == min(limit, pending(start, end))
    assert all(start[queue] <= cut[queue] <= end[queue] for queue in queues)


@given(starts_and_sizes, st.integers(1, 50))
def test_no_queue_waits_for_ever(queues: dict[MessageQueue, tuple[int, int]], limit: int) -> None:
    at = {queue: first for queue, (first, _) in queues.items()}
    waiting = {queue for queue, (_, size) in queues.items() if size}
    end = {queue: first + size for queue, (first, size) in queues.items()}
    for _ in range(len(QUEUES)):
        cut = limited(at, end, limit)
        waiting -= {queue for queue in waiting if cut[queue] > at[queue]}
        at = cut
    assert not waiting


def test_shares_are_in_proportion() -> None:
    end = {A: 1_000, B: 10_000, C: 0}
    assert limited({A: 0, B: 0, C: 0}, end, 1_100) == {A: 100, B: 1_000, C: 0}


def test_a_queue_that_has_no_start_is_left_as_it_is() -> None:
    assert limited({A: 0}, {A: 100, B: 7}, 10) == {A: 10, B: 7}


@pytest.mark.parametrize(
    ("count", "waited_ms", "waits"), [(9, 0, True), (10, 0, False), (9, 1000, False)]
)
def test_a_batch_waits_for_its_minimum_but_not_too_long(
    count: int, waited_ms: int, *, waits: bool
) -> None:
    assert must_wait(count, 10, waited_ms=waited_ms, max_delay_ms=1000) is waits


@given(
    starts_and_sizes,
    st.none() | st.integers(1, 40),
    st.none() | st.integers(10**7, 10**9),
)
def test_every_offset_is_in_one_range(
    queues: dict[MessageQueue, tuple[int, int]],
    min_partitions: int | None,
    max_records: int | None,
) -> None:
    whole = [QueueRange(queue, first, first + size) for queue, (first, size) in queues.items()]
    parts = split_ranges(whole, min_partitions=min_partitions, max_records=max_records)
    again = split_ranges(whole[::-1], min_partitions=min_partitions, max_records=max_records)
    assert parts == again
    for each in whole:
        own = [part for part in parts if part.queue == each.queue]
        edges = [each.start_offset]
        for part in own:
            assert part.start_offset == edges[-1]
            assert part.count > 0
            edges.append(part.end_offset)
        assert edges[-1] == each.end_offset
    if max_records is not None:
        assert all(part.count <= max_records for part in parts)
    total = sum(each.count for each in whole)
    if min_partitions is not None:
        assert len(parts) >= min(min_partitions, total)


def test_one_range_for_each_queue_without_wishes() -> None:
    whole = [QueueRange(B, 0, 5), QueueRange(A, 3, 3), QueueRange(C, 1, 2)]
    assert split_ranges(whole, min_partitions=None, max_records=None) == [whole[0], whole[2]]


def test_what_is_lost_is_said() -> None:
    wanted = [QueueRange(A, 0, 100), QueueRange(B, 90, 120), QueueRange(C, 5, 5)]
    found = losses(wanted, {A: 40, B: 0, C: 9}, {A: 100, B: 119, C: 9})
    assert [(each.queue, each.first_offset, each.end_offset) for each in found] == [
        (A, 0, 40),
        (B, 119, 120),
    ]
    error = lost(found)
    assert isinstance(error, DataLost)
    assert "queue 0 of T on a lacks 40 messages (0 to 39): removed by retention" in error.message
    assert "queue 1 of T on a lacks 1 message (119 to 119): the queue ends at 119" in error.message
    assert "failOnDataLoss" in (error.hint or "")


def test_a_range_that_is_gone_as_a_whole_is_lost_as_a_whole() -> None:
    (found,) = losses([QueueRange(A, 10, 20)], {A: 500}, {A: 600})
    assert (found.first_offset, found.end_offset) == (10, 20)


def test_many_losses_are_cut() -> None:
    wanted = [QueueRange(queue, 0, 10) for queue in QUEUES]
    found = losses(wanted, dict.fromkeys(QUEUES, 5), dict.fromkeys(QUEUES, 10))
    assert lost(found, most=2).message.endswith("; and 4 more")


def test_how_far_behind() -> None:
    assert behind({A: 5, B: 10}, {A: 10, B: 10, C: 3}) == BehindLatest(0, 5, 2.5)
    assert behind({}, {A: 1}) is None
