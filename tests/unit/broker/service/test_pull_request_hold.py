"""Pulls that wait: who is woken when, who is dropped, what is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.service import pull_request_hold
from roquet.broker.service.pull_request_hold import (
    SWEEP_BATCH,
    WAKE_BATCH,
    HeldPull,
    PullRequestHoldService,
    sweep_interval_ms,
)
from roquet.format.consume_queue import UNIT, UNIT_BYTES
from roquet.format.consume_queue_ext import CqExtUnit
from roquet.model.java_string import java_hash
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import create_request
from roquet.remoting.connection import Connection
from roquet.remoting.processor import PUBLIC, RequestContext
from roquet.runtime.clock import ManualClock
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.reader import MessageFilter
from tests.unit.broker.processor.pull_kit import FakeConnection, pull

A, B = java_hash("a"), java_hash("b")


class FakeExt:
    """Ext units by address."""

    def __init__(self) -> None:
        self.units: dict[int, CqExtUnit] = {}

    def get(self, address: int) -> CqExtUnit | None:
        return self.units.get(address)


class FakeQueue:
    """A queue of tags codes; reads are counted."""

    def __init__(self, topic: str = "T", queue_id: int = 0) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.codes: list[int] = []
        self.ext: FakeExt | None = None
        self.reads = 0

    @property
    def max_queue_offset(self) -> int:
        return len(self.codes)

    def read_units(self, queue_offset: int, count: int) -> bytes:
        self.reads += 1
        chosen = self.codes[queue_offset : queue_offset + count]
        places = range(queue_offset, queue_offset + len(chosen))
        return b"".join(UNIT.pack(at, 1, code) for at, code in zip(places, chosen, strict=True))


def by_codes(wanted: set[int]) -> MessageFilter:
    return MessageFilter(lambda code, _ext: code in wanted)


class Room:
    """A service with queues to wait for."""

    def __init__(self, *, held_max: int = 100_000, held_per_connection_max: int = 100_000) -> None:
        self.clock = ManualClock()
        self.queues: dict[tuple[str, int], FakeQueue] = {}
        self.soon: list[Callable[[], None]] = []
        self.woken: list[HeldPull] = []
        self.records: dict[int, bytes] = {}
        self.service = PullRequestHoldService(
            self.clock,
            max_offset=lambda topic, queue_id: self.queue(topic, queue_id).max_queue_offset,
            record_at=self.record_at,
            held_max=held_max,
            held_per_connection_max=held_per_connection_max,
            call_soon=self.soon.append,
        )
        self.service.wake = self.woken.append
        self.connection = FakeConnection()

    def record_at(self, physical_offset: int, size_bytes: int) -> bytes | None:
        assert size_bytes == 1
        return self.records.get(physical_offset)

    def queue(self, topic: str = "T", queue_id: int = 0) -> FakeQueue:
        return self.queues.setdefault((topic, queue_id), FakeQueue(topic, queue_id))

    def hold(
        self,
        offset: int = 0,
        *,
        queue_id: int = 0,
        wanted: set[int] | MessageFilter | None = None,
        wait_ms: int = 15_000,
        connection: FakeConnection | None = None,
    ) -> HeldPull:
        held = self.pull(
            offset, queue_id=queue_id, wanted=wanted, wait_ms=wait_ms, connection=connection
        )
        assert self.service.suspend(held)
        return held

    def pull(
        self,
        offset: int = 0,
        *,
        queue_id: int = 0,
        wanted: set[int] | MessageFilter | None = None,
        wait_ms: int = 15_000,
        connection: FakeConnection | None = None,
    ) -> HeldPull:
        request = create_request(RequestCode.PULL_MESSAGE, opaque=1)
        context = RequestContext(cast("Connection", connection or self.connection), request, PUBLIC)
        return HeldPull(
            context,
            pull(offset, queue_id=queue_id),
            by_codes(wanted) if isinstance(wanted, set) else wanted,
            deadline_ns=self.clock.monotonic_ns() + wait_ms * 1_000_000,
        )

    def arrive(self, *codes: int, queue_id: int = 0) -> None:
        """One burst of entries."""
        queue = self.queue(queue_id=queue_id)
        queue.codes += codes
        self.service.notify_arriving(cast("ConsumeQueue", queue))

    def turn(self) -> None:
        todo, self.soon[:] = self.soon[:], []
        for each in todo:
            each()


def test_an_arrival_wakes_those_of_its_queue() -> None:
    room = Room()
    here = room.hold()
    room.hold(queue_id=1)
    room.arrive(A)
    assert room.woken == [here]
    assert len(room.service) == 1
    assert room.service.held_of(cast("Connection", room.connection)) == 1


def test_each_is_woken_once() -> None:
    room = Room()
    room.hold()
    room.arrive(A)
    room.arrive(A)
    room.clock.advance(60_000)
    room.service.check_hold_requests()
    assert len(room.woken) == 1


def test_a_queue_that_nobody_waits_for_is_not_read() -> None:
    room = Room()
    room.hold(queue_id=1, wanted={A})
    room.arrive(A)
    assert room.queue().reads == 0


def test_a_queue_is_not_read_for_those_who_want_everything() -> None:
    room = Room()
    room.hold()
    room.arrive(A)
    assert room.queue().reads == 0
    assert len(room.woken) == 1


def test_filters_see_the_entries_that_are_new() -> None:
    room = Room()
    room.arrive(A)
    wants_a = room.hold(1, wanted={A})
    wants_b = room.hold(1, wanted={B})
    room.arrive(5, 6)
    assert room.woken == []
    room.arrive(B, 7)
    assert room.woken == [wants_b]
    room.arrive(A)
    assert room.woken == [wants_b, wants_a]
    assert room.queue().reads == 3


def test_a_burst_that_is_too_long_to_look_at_wakes_everybody() -> None:
    room = Room()
    held = room.hold(wanted={A})
    room.arrive(*[B] * 1_024)
    assert room.woken == []
    room.arrive(*[B] * 1_025)
    assert room.woken == [held]


def test_entries_that_cannot_be_read_wake_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room()
    held = room.hold(wanted={A})
    monkeypatch.setattr(FakeQueue, "read_units", lambda *_: b"\0" * (UNIT_BYTES - 1))
    room.arrive(B)
    assert room.woken == [held]


def test_tags_may_stand_in_the_ext_file() -> None:
    room = Room()
    queue = room.queue()
    queue.ext = FakeExt()
    address = -(2**62)
    held = room.hold(wanted={A})
    queue.ext.units[address] = CqExtUnit(B, 0, b"")
    room.arrive(address)
    assert room.woken == []
    queue.ext.units[address] = CqExtUnit(A, 0, b"")
    room.arrive(address)
    assert room.woken == [held]


def test_a_lost_ext_unit_wakes_everybody() -> None:
    room = Room()
    room.queue().ext = FakeExt()
    held = room.hold(wanted={A})
    room.arrive(-(2**62))
    assert room.woken == [held]


def test_who_waits_for_a_later_place_is_not_woken() -> None:
    room = Room()
    room.arrive(A)
    held = room.hold(3)
    room.arrive(A)
    room.arrive(A)
    assert room.woken == []
    room.arrive(A)
    assert room.woken == [held]


def test_what_came_before_the_wait_began_is_not_missed() -> None:
    room = Room()
    room.arrive(A)
    held = room.hold(0, wanted={B})
    assert room.woken == [held]
    assert len(room.service) == 0


def test_the_sweep_wakes_those_whose_time_is_over() -> None:
    room = Room()
    short = room.hold(wait_ms=5_000)
    longer = room.hold(wait_ms=5_001)
    room.hold(wait_ms=1 << 62)
    room.clock.advance(4_999)
    room.service.check_hold_requests()
    assert room.woken == []
    room.clock.advance(1)
    room.service.check_hold_requests()
    assert room.woken == [short]
    room.clock.advance(5_000)
    room.service.check_hold_requests()
    assert room.woken == [short, longer]
    assert len(room.service) == 1


def test_the_sweep_wakes_those_whose_filter_passed_everything_over() -> None:
    room = Room()
    held = room.hold(wanted={A})
    room.arrive(B)
    assert room.woken == []
    room.service.check_hold_requests()
    assert room.woken == [held]


def test_a_closed_connection_takes_its_pulls_along() -> None:
    room = Room()
    gone, other = FakeConnection(), FakeConnection()
    for queue_id in range(3):
        room.hold(queue_id=queue_id, connection=gone)
    stays = room.hold(connection=other)
    gone.close()
    assert len(room.service) == 1
    assert room.service._queues.keys() == {("T", 0)}
    room.arrive(A)
    room.arrive(A, queue_id=1)
    assert room.woken == [stays]
    gone.close()
    assert len(room.service) == 0


def test_a_connection_is_listened_to_once(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room()
    listened: list[object] = []
    monkeypatch.setattr(room.connection, "on_close", listened.append)
    for _ in range(3):
        room.hold()
        room.arrive(A)
        room.queue().codes.clear()
    assert len(listened) == 1


def test_the_limits() -> None:
    room = Room(held_max=3, held_per_connection_max=2)
    one, two = FakeConnection(), FakeConnection()
    for connection, is_taken in (
        (one, True), (one, True), (one, False), (two, True), (two, False),
    ):  # fmt: skip
        assert room.service.suspend(room.pull(connection=connection)) is is_taken
    assert len(room.service) == 3
    one.close()
    room.hold(connection=two)
    assert len(room.service) == 2


def test_a_crowd_is_woken_in_batches_and_in_order() -> None:
    room = Room()
    crowd = [room.hold() for _ in range(2_000)]
    room.arrive(A)
    assert room.woken == crowd[:WAKE_BATCH]
    turns = 1
    while len(room.service):
        assert len(room.soon) == 1
        room.turn()
        turns += 1
        assert len(room.woken) <= turns * WAKE_BATCH
    assert room.woken == crowd
    assert turns == -(-2_000 // WAKE_BATCH)


def test_a_crowd_on_many_queues_is_woken_in_batches_too() -> None:
    room = Room()
    crowd = [room.hold(queue_id=number) for number in range(WAKE_BATCH + 5)]
    for number in range(len(crowd)):
        room.arrive(A, queue_id=number)
    assert room.woken == crowd[:WAKE_BATCH]
    room.turn()
    assert room.woken == crowd


def test_who_becomes_due_meanwhile_waits_for_its_turn() -> None:
    room = Room()
    crowd = [room.hold() for _ in range(WAKE_BATCH + 1)]
    other = room.hold(queue_id=1)
    room.arrive(A)
    room.arrive(A, queue_id=1)
    assert room.woken == crowd[:WAKE_BATCH]
    assert len(room.soon) == 1
    room.turn()
    assert room.woken == [*crowd, other]
    last = room.hold(1)
    room.arrive(A)
    assert room.woken[-1] is last


def test_the_turns_end_when_nobody_is_due() -> None:
    room = Room()
    room.hold()
    room.arrive(A)
    assert len(room.soon) == 1
    room.turn()
    assert room.soon == []


def test_who_is_due_still_counts_and_can_be_dropped() -> None:
    room = Room()
    gone = FakeConnection()
    for _ in range(WAKE_BATCH):
        room.hold()
    dropped = [room.hold(connection=gone) for _ in range(3)]
    stays = room.hold()
    room.arrive(A)
    assert len(room.service) == 4
    gone.close()
    assert len(room.service) == 1
    room.turn()
    assert room.woken[-1] is stays
    assert not set(dropped) & set(room.woken)
    assert len(room.service) == 0


def test_a_failure_keeps_nobody_else_from_being_woken(caplog: pytest.LogCaptureFixture) -> None:
    room = Room()
    crowd = [room.hold() for _ in range(3)]

    def wake(held: HeldPull) -> None:
        if held is crowd[0]:
            raise ZeroDivisionError
        room.woken.append(held)

    room.service.wake = wake
    room.arrive(A)
    assert room.woken == crowd[1:]
    assert "a pull of 127.0.0.1:5000 was not answered" in caplog.text


def test_a_long_sweep_is_done_in_parts() -> None:
    room = Room()
    for queue_id in range(2 * SWEEP_BATCH + 1):
        room.hold(queue_id=queue_id, wait_ms=0)
    room.clock.advance(1)
    room.service.check_hold_requests()
    room.service.check_hold_requests()
    assert len(room.woken) == WAKE_BATCH
    while room.soon:
        room.turn()
    assert len(room.woken) == 2 * SWEEP_BATCH + 1
    assert len(set(room.woken)) == len(room.woken)


def test_how_often_the_sweep_comes() -> None:
    assert sweep_interval_ms(BrokerConfig()) == 5_000
    assert sweep_interval_ms(BrokerConfig(long_polling=False, short_polling_ms=700)) == 700


def test_queues_are_forgotten_when_nobody_waits() -> None:
    room = Room()
    for number in range(10):
        room.hold(queue_id=number)
        room.arrive(A, queue_id=number)
    assert room.service._queues == {}


async def test_it_uses_the_loop_that_runs() -> None:
    called = asyncio.Event()
    pull_request_hold._call_soon(called.set)
    async with asyncio.timeout(10):
        await called.wait()
