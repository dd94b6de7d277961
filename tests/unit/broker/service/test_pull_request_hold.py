"""Held pulls: which are woken when, which are dropped, what is bounded."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.service import pull_request_hold
from roquet.broker.service.held_pull import HeldPull
from roquet.broker.service.pull_request_hold import (
    GIVEN_UP_MAX,
    LONG_PULLS_BYTES_MAX,
    SCAN_BATCH,
    UNPACKED_MAX,
    WAKE_BATCH,
    sweep_interval_ms,
)
from roquet.format.consume_queue import UNIT_BYTES
from roquet.format.consume_queue_ext import CqExtUnit
from roquet.remoting.connection import Connection
from roquet.store.reader import MessageFilter
from tests.patience import PATIENCE_S
from tests.unit.broker.processor.pull_kit import FakeConnection
from tests.unit.broker.service.hold_kit import A, B, FakeExt, FakeQueue, Room


def test_an_arrival_wakes_the_pulls_of_its_queue() -> None:
    room = Room()
    here = room.hold()
    room.hold(queue_id=1)
    room.arrive(A)
    assert room.woken == [here]
    assert len(room.service) == 1


def test_each_pull_is_woken_once() -> None:
    room = Room()
    room.hold()
    room.arrive(A)
    room.arrive(A)
    room.clock.advance(60_000)
    room.service.check_hold_requests()
    assert len(room.woken) == 1


def test_a_queue_without_held_pulls_is_not_read() -> None:
    room = Room()
    room.hold(queue_id=1, wanted={A})
    room.arrive(A)
    assert room.queue().reads == 0


def test_a_queue_is_not_read_for_pulls_without_a_filter() -> None:
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


def test_a_burst_that_is_too_long_to_filter_wakes_every_pull() -> None:
    room = Room()
    held = room.hold(wanted={A})
    room.arrive(*[B] * 1_024)
    assert room.woken == []
    room.arrive(*[B] * 1_025)
    assert room.woken == [held]


def test_entries_that_cannot_be_read_wake_every_pull(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_lost_ext_unit_wakes_every_pull() -> None:
    room = Room()
    room.queue().ext = FakeExt()
    held = room.hold(wanted={A})
    room.arrive(-(2**62))
    assert room.woken == [held]


def test_a_pull_at_a_later_offset_is_not_woken() -> None:
    room = Room()
    room.arrive(A)
    held = room.hold(3)
    room.arrive(A)
    room.arrive(A)
    assert room.woken == []
    room.arrive(A)
    assert room.woken == [held]


def test_messages_stored_before_the_wait_are_not_missed() -> None:
    room = Room()
    room.arrive(A)
    held = room.hold(0, wanted={B})
    assert room.woken == [held]
    assert len(room.service) == 0


def test_the_sweep_wakes_expired_pulls() -> None:
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


def test_the_sweep_wakes_pulls_whose_filter_skipped_everything() -> None:
    room = Room()
    held = room.hold(wanted={A})
    room.arrive(B)
    assert room.woken == []
    room.service.check_hold_requests()
    assert room.woken == [held]


def test_a_closed_connection_removes_its_pulls() -> None:
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


def test_a_connection_with_too_many_pulls_loses_its_oldest() -> None:
    room = Room(held_per_connection_max=2)
    other = room.hold(connection=FakeConnection())
    crowd = [room.hold() for _ in range(5)]
    assert room.woken == crowd[:3]
    assert len(room.service) == 3
    room.arrive(A)
    assert set(room.woken) == {other, *crowd}


def test_with_too_many_pulls_in_all_the_greediest_loses_its_oldest() -> None:
    room = Room(held_max=10)
    greedy, modest, new = FakeConnection(), FakeConnection(), FakeConnection()
    crowd = [room.hold(connection=greedy) for _ in range(8)]
    stays = [room.hold(connection=modest) for _ in range(2)]
    for count in range(1, 4):
        room.hold(connection=new)
        assert room.woken == crowd[:count]
        assert len(room.service) == 10
    assert not set(stays) & set(room.woken)
    greedy.close()
    assert len(room.service) == 5


def test_a_flood_of_pulls_is_refused_to_its_sender_only() -> None:
    room = Room(held_per_connection_max=2)
    for _ in range(2 + WAKE_BATCH + GIVEN_UP_MAX):
        room.hold()
    assert not room.service.suspend(room.pull())
    assert len(room.service) == 2 + GIVEN_UP_MAX
    room.hold(connection=FakeConnection())
    room.turn()
    room.hold()


def test_long_pulls_are_bounded_in_bytes_and_leave_room_for_short_ones() -> None:
    room = Room()
    body = bytes(LONG_PULLS_BYTES_MAX // 4)
    others = [FakeConnection() for _ in range(5)]
    kept = [each for each in others if room.service.suspend(room.pull(connection=each, body=body))]
    assert kept == others[:3]
    room.hold()
    kept[0].close()
    assert room.service.suspend(room.pull(connection=others[4], body=body))
    room.arrive(A)
    for _ in range(3):
        assert room.service.suspend(room.pull(1, body=body))


def test_a_crowd_of_one_connection_does_not_delay_another() -> None:
    room = Room()
    for _ in range(20 * SCAN_BATCH):
        room.hold()
    others = [room.hold(connection=FakeConnection()) for _ in range(5)]
    room.arrive(A)
    assert set(others) < set(room.woken)
    assert len(room.woken) == WAKE_BATCH


def test_a_crowd_is_scanned_in_parts() -> None:
    room = Room()
    looked_at = [0]

    def passes(code: int, _ext: object) -> bool:
        looked_at[0] += 1
        return code == A

    for _ in range(5 * SCAN_BATCH):
        room.hold(wanted=MessageFilter(passes))
    room.arrive(B)
    turns = 1
    room.arrive(B)
    assert room.queue().reads == 1, "arrivals meanwhile are checked afterwards"
    while room.soon:
        assert looked_at[0] <= turns * SCAN_BATCH
        room.turn()
        turns += 1
    assert looked_at[0] == 2 * 5 * SCAN_BATCH
    assert room.woken == []
    room.arrive(A)
    while room.soon:
        room.turn()
    assert len(room.woken) == 5 * SCAN_BATCH
    assert len(room.service) == 0


def test_arrivals_during_a_scan_are_not_missed() -> None:
    room = Room()
    for _ in range(3 * SCAN_BATCH):
        room.hold(wanted={B})
    room.arrive(A)
    late = room.hold(1)
    room.arrive(A)
    while room.soon:
        room.turn()
    assert room.woken == [late]


def test_a_connection_that_closes_during_a_scan_is_skipped() -> None:
    room = Room()
    gone = FakeConnection()
    for _ in range(3 * SCAN_BATCH):
        room.hold(connection=gone)
    stays = room.hold()
    room.arrive(A)
    woken = len(room.woken)
    gone.close()
    while room.soon:
        room.turn()
    assert stays in room.woken
    assert len(room.woken) <= woken + 1
    assert len(room.service) == 0


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


def test_a_pull_that_becomes_due_meanwhile_waits_for_its_turn() -> None:
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


def test_the_turns_end_when_no_pull_is_due() -> None:
    room = Room()
    room.hold()
    room.arrive(A)
    assert len(room.soon) == 1
    room.turn()
    assert room.soon == []


def test_a_due_pull_still_counts_and_can_be_dropped() -> None:
    room = Room()
    gone = FakeConnection()
    crowd = [room.hold() for _ in range(WAKE_BATCH)]
    dropped = [room.hold(connection=gone) for _ in range(WAKE_BATCH)]
    room.arrive(A)
    assert len(room.service) == WAKE_BATCH
    gone.close()
    assert len(room.service) == WAKE_BATCH // 2
    room.turn()
    assert set(crowd) < set(room.woken)
    assert set(dropped[WAKE_BATCH // 2 :]).isdisjoint(room.woken)
    assert len(room.service) == 0


def test_a_failure_does_not_prevent_other_wake_ups(caplog: pytest.LogCaptureFixture) -> None:
    room = Room()
    crowd = [room.hold() for _ in range(3)]

    def wake(held: HeldPull) -> None:
        if held is crowd[0]:
            raise ZeroDivisionError
        room.woken.append(held)

    room.service.wake = wake
    room.arrive(A)
    assert room.woken == crowd[1:]
    assert "no response to a pull of 127.0.0.1:5000" in caplog.text


def test_a_long_sweep_is_done_in_parts() -> None:
    room = Room()
    for queue_id in range(2 * SCAN_BATCH + 1):
        room.hold(queue_id=queue_id, wait_ms=0)
    room.clock.advance(1)
    room.service.check_hold_requests()
    room.service.check_hold_requests()
    assert len(room.woken) == WAKE_BATCH
    while room.soon:
        room.turn()
    assert len(room.woken) == 2 * SCAN_BATCH + 1
    assert len(set(room.woken)) == len(room.woken)


def test_how_often_the_sweep_runs() -> None:
    assert sweep_interval_ms(BrokerConfig()) == 5_000
    assert sweep_interval_ms(BrokerConfig(long_polling=False, short_polling_ms=700)) == 700


def test_queues_without_held_pulls_are_forgotten() -> None:
    room = Room()
    for number in range(10):
        room.hold(queue_id=number)
        room.arrive(A, queue_id=number)
    assert room.service._queues == {}


def test_a_connections_few_pulls_are_kept_as_they_were_read() -> None:
    room = Room()
    assert not any(room.hold()._packed for _ in range(UNPACKED_MAX))
    assert room.hold()._packed
    assert not room.hold(connection=FakeConnection())._packed


def test_a_pull_of_a_crowd_is_unchanged_when_it_is_woken() -> None:
    room = Room()
    for _ in range(UNPACKED_MAX):
        room.hold()
    before = room.pull(3, queue_id=2, opaque=12_345)
    header, request = before.header, before.context.request
    packed = room.hold(3, queue_id=2, opaque=12_345)
    assert packed._packed
    assert (packed.key, packed.queue_offset) == (("T", 2), 3)
    assert packed.consumer_group == header.consumer_group
    assert packed.header == header
    assert packed.context.request == request
    assert packed.context.permission is before.context.permission
    assert packed.context.connection is cast("Connection", room.connection)
    assert packed.context is packed.context


def test_a_pull_whose_fields_are_not_text_is_held_all_the_same() -> None:
    room = Room()
    for _ in range(UNPACKED_MAX):
        room.hold()
    odd = room.pull(opaque=7)
    fields = odd.context.request.ext_fields
    assert fields is not None
    fields["x"] = "\ud800"
    assert room.service.suspend(odd)
    assert odd.context.request.opaque == 7
    room.arrive(A)
    while room.soon:
        room.turn()
    assert odd in room.woken


def test_common_parts_of_a_crowds_pulls_are_kept_once() -> None:
    room = Room()
    pulls = [room.hold(number // 500, opaque=number) for number in range(UNPACKED_MAX + 1_000)]
    crowd = pulls[UNPACKED_MAX:]
    assert len({id(each._packed) for each in crowd}) == len({each.queue_offset for each in crowd})
    assert len({id(each.key) for each in crowd}) == 1
    assert len({id(each.consumer_group) for each in crowd}) == 1
    assert len({id(each.deadline_ns) for each in crowd}) == 1
    assert [each.context.request.opaque for each in pulls] == list(range(len(pulls)))


def test_pulls_of_a_crowd_have_a_deadline_close_to_their_own() -> None:
    room = Room()
    for _ in range(UNPACKED_MAX):
        room.hold()
    waits_ms = [15_000, 15_100, 15_249, 15_250, 15_300, 15_000]
    kept_ms = [15_000, 15_000, 15_000, 15_250, 15_250, 15_000]
    crowd = [room.hold(wait_ms=wait_ms) for wait_ms in waits_ms]
    now_ns = room.clock.monotonic_ns()
    assert [(each.deadline_ns - now_ns) // 1_000_000 for each in crowd] == kept_ms


def test_a_queue_does_not_keep_a_pull_that_left() -> None:
    room = Room()
    gone = FakeConnection()
    room.hold()
    room.hold(connection=gone)
    gone.close()
    (waiting,) = room.service._queues.values()
    assert waiting.last is None


async def test_it_uses_the_loop_that_runs() -> None:
    called = asyncio.Event()
    pull_request_hold._call_soon(called.set)
    async with asyncio.timeout(PATIENCE_S):
        await called.wait()
