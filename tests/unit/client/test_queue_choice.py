"""Which queue is next, and which brokers are avoided."""

from __future__ import annotations

import pytest

from roquet.client import Message, MessageQueue, select_by_random, select_by_sharding_key
from roquet.client.fault import LatencyFaults, avoided_ms
from roquet.client.queue_choice import RoundRobinQueues, select_by_hash
from roquet.errors import BadMessage
from roquet.runtime.clock import ManualClock
from roquet.runtime.randomness import seeded

SEED = 17
QUEUES = [MessageQueue("T", name, queue_id) for name in "abc" for queue_id in range(2)]
MESSAGE = Message("T", b"x")


def test_each_queue_has_its_turn() -> None:
    turn = RoundRobinQueues(seeded(SEED))
    chosen = [turn.choose("T", QUEUES) for _ in range(12)]
    start = QUEUES.index(chosen[0])
    assert chosen == [QUEUES[(start + step) % 6] for step in range(12)]


def test_topics_take_turns_apart() -> None:
    turn = RoundRobinQueues(seeded(SEED))
    first = turn.choose("T", QUEUES)
    turn.choose("Other", QUEUES)
    assert turn.choose("T", QUEUES) == QUEUES[(QUEUES.index(first) + 1) % 6]


def test_the_broker_that_failed_is_skipped() -> None:
    turn = RoundRobinQueues(seeded(SEED))
    for _ in range(20):
        assert turn.choose("T", QUEUES, after_broker="b").broker_name != "b"
    only = QUEUES[:2]
    assert turn.choose("T", only, after_broker="a") in only


def test_rounds_continue_after_the_largest_number() -> None:
    turn = RoundRobinQueues(seeded(SEED))
    turn.indexes["T"] = 0x7FFFFFFF
    assert turn.choose("T", QUEUES) == QUEUES[0]


@pytest.mark.parametrize(
    ("latency_ms", "for_ms"),
    [
        (0, 0),
        (549, 0),
        (550, 2_000),
        (1_799, 2_000),
        (1_800, 5_000),
        (3_000, 6_000),
        (5_000, 10_000),
        (14_999, 10_000),
        (15_000, 30_000),
    ],
)
def test_how_long_a_slow_broker_is_avoided(latency_ms: int, for_ms: int) -> None:
    assert avoided_ms(latency_ms) == for_ms
    clock = ManualClock()
    faults = LatencyFaults(clock)
    faults.succeeded("a", latency_ms)
    if for_ms:
        clock.advance(for_ms - 1)
        assert not faults.is_available("a")
        clock.advance(1)
    assert faults.is_available("a")
    assert faults.is_reachable("a")


def test_a_quick_response_does_not_shorten_the_time() -> None:
    clock = ManualClock()
    faults = LatencyFaults(clock)
    faults.failed("a", is_reachable=False)
    faults.succeeded("a", 1)
    assert faults.is_reachable("a")
    assert not faults.is_available("a")
    faults.succeeded("a", 550)
    clock.advance(2_000)
    assert not faults.is_available("a")
    clock.advance(8_000)
    assert faults.is_available("a")


def test_faulty_brokers_are_avoided_while_possible() -> None:
    clock = ManualClock()
    faults = LatencyFaults(clock)
    turn = RoundRobinQueues(seeded(SEED), faults)
    faults.failed("a", is_reachable=False)
    faults.failed("b", is_reachable=True)
    assert {turn.choose("T", QUEUES).broker_name for _ in range(20)} == {"c"}
    assert {turn.choose("T", QUEUES, after_broker="c").broker_name for _ in range(20)} == {"b"}
    faults.failed("b", is_reachable=False)
    faults.failed("c", is_reachable=False)
    assert {turn.choose("T", QUEUES).broker_name for _ in range(20)} == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("arg", "index"),
    [
        ("", 0),
        ("a", 97 % 6),
        ("polygenelubricants", (1 << 31) % 6),
        (-7, 1),
        (2**31, 2),
        (-(2**31) - 1, 2),
        (2**40 + 3, (2**8 ^ 3) % 6),
    ],
)
def test_hashes_equal_javas(arg: object, index: int) -> None:
    assert select_by_hash(QUEUES, MESSAGE, arg) == QUEUES[index]


def test_other_selectors() -> None:
    selector = select_by_random(seeded(SEED))
    assert {selector(QUEUES, MESSAGE, None) for _ in range(200)} == set(QUEUES)
    with pytest.raises(BadMessage):
        select_by_sharding_key(QUEUES, MESSAGE, None)
