"""Held pulls that filter by records: what they read when something arrives."""

from __future__ import annotations

import pytest

from roquet.format.consume_queue_ext import CqExtUnit
from roquet.store.reader import MessageFilter
from tests.unit.broker.service.hold_kit import A, B, FakeExt, Room


def by_record(wanted: bytes, entries_max: int | None = None) -> MessageFilter:
    return MessageFilter(None, lambda record: bytes(record) == wanted, entries_max)


def test_records_that_arrive_are_judged() -> None:
    room = Room()
    wants_x = room.hold(wanted=by_record(b"x"))
    wants_y = room.hold(wanted=by_record(b"y"))
    room.records = {0: b"z", 1: b"z", 2: b"y", 3: b"x"}
    room.arrive(A, A)
    assert room.woken == []
    room.arrive(A)
    assert room.woken == [wants_y]
    room.arrive(A)
    assert room.woken == [wants_y, wants_x]


def test_entries_are_judged_before_their_records() -> None:
    room = Room()
    looked_at: list[bytes] = []

    def is_wanted(record: memoryview) -> bool:
        looked_at.append(bytes(record))
        return True

    held = room.hold(wanted=MessageFilter(lambda code, _ext: code == A, is_wanted))
    room.records = {0: b"b", 1: b"a"}
    room.arrive(B)
    assert (room.woken, looked_at) == ([], [])
    room.arrive(A)
    assert (room.woken, looked_at) == ([held], [b"a"])


def test_entries_are_judged_with_their_ext_units() -> None:
    room = Room()
    queue = room.queue()
    queue.ext = FakeExt()
    seen: list[tuple[int, CqExtUnit | None]] = []
    unit = CqExtUnit(B, 7, b"1")
    queue.ext.units[-(2**62)] = unit

    def note(code: int, ext: CqExtUnit | None) -> bool:
        seen.append((code, ext))
        return False

    room.hold(wanted=MessageFilter(note, lambda _record: True))
    room.arrive(-(2**62), A)
    assert room.woken == []
    assert seen == [(B, unit), (A, None)]


def test_more_records_than_a_filter_may_judge_wake_it() -> None:
    room = Room()
    room.records = dict.fromkeys(range(10), b"z")
    costly = room.hold(wanted=by_record(b"x", entries_max=2))
    room.hold(wanted=by_record(b"x", entries_max=3))
    room.arrive(A, A)
    assert room.woken == []
    room.arrive(A, A, A)
    assert room.woken == [costly]


def test_how_many_records_of_a_burst_are_judged_is_bounded() -> None:
    room = Room()
    judged = 0

    def is_wanted(_record: memoryview) -> bool:
        nonlocal judged
        judged += 1
        return False

    room.records = dict.fromkeys(range(400), b"z")
    pulls = [room.hold(wanted=MessageFilter(None, is_wanted, 400)) for _ in range(6)]
    room.arrive(*[A] * 400)
    assert judged == 4 * 400
    assert room.woken == pulls[4:]


def test_how_many_tags_of_a_burst_are_checked_is_bounded() -> None:
    """A peer holds thousands of pulls, and sends as many tags in one write."""
    room = Room()
    checked = 0

    def is_wanted(_code: int, _ext: CqExtUnit | None) -> bool:
        nonlocal checked
        checked += 1
        return False

    pulls = [room.hold(wanted=MessageFilter(is_wanted)) for _ in range(20)]
    room.arrive(*range(1024))
    assert checked == 16 * 1024
    assert room.woken == pulls[16:]


def test_a_lost_ext_unit_leaves_the_verdict_to_the_record() -> None:
    room = Room()
    room.queue().ext = FakeExt()
    never = MessageFilter(lambda _code, _ext: False, lambda record: bytes(record) == b"x")
    held = room.hold(wanted=never)
    room.records = {0: b"z", 1: b"x"}
    room.arrive(-(2**62))
    assert room.woken == []
    room.arrive(-(2**62))
    assert room.woken == [held]


def test_a_missing_record_wakes_the_pull() -> None:
    room = Room()
    held = room.hold(wanted=by_record(b"x"))
    room.arrive(A)
    assert room.woken == [held]


def test_a_filter_that_fails_wakes_only_its_own_pull(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_record: memoryview) -> bool:
        raise ZeroDivisionError

    room = Room()
    held = room.hold(wanted=MessageFilter(None, broken))
    room.hold(wanted=by_record(b"x"))
    room.records = {0: b"z"}
    room.arrive(A)
    assert room.woken == [held]
    assert "a filter failed" in caplog.text
