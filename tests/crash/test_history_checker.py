"""The history checker finds each anomaly it knows, and nothing in a history without one."""

from __future__ import annotations

import pytest

from roquet.testing.history import Anomaly, History, Outcome, Poll, Seen, check

QUEUE = ("Orders", 0)


def sound() -> History:
    """Two producers; one send failed, one got no response."""
    history = History()
    for number, value in enumerate("abc"):
        history.invoke("p", QUEUE, value)
        history.complete(value, Outcome.OK, number)
    history.invoke("q", QUEUE, "refused")
    history.complete("refused", Outcome.FAIL)
    history.invoke("q", QUEUE, "open")
    history.poll(Poll("reader", QUEUE, 0, seen("ab")))
    history.poll(Poll("reader", QUEUE, 2, [Seen(2, "c")]))
    return history


def seen(values: str, first: int = 0) -> list[Seen]:
    return [Seen(first + number, value) for number, value in enumerate(values)]


def kinds(found: list[Anomaly]) -> set[str]:
    return {anomaly.kind for anomaly in found}


def test_a_sound_history_passes() -> None:
    assert check(sound(), {QUEUE: seen("abc")}) == []
    with_maybe = [*seen("abc"), Seen(3, "open")]
    assert check(sound(), {QUEUE: with_maybe}) == []


@pytest.mark.parametrize(
    ("final", "kind"),
    [
        (seen("ab"), "lost-write"),
        ([*seen("abc"), Seen(3, "a")], "duplicate"),
        ([*seen("abc"), Seen(3, "refused")], "aborted-read"),
        ([*seen("abc"), Seen(3, "other")], "unknown-value"),
        (seen("acb"), "order"),
        ([Seen(0, "a"), Seen(1, "b"), Seen(3, "c")], "gap"),
        (seen("abc", first=1), "gap"),
        ([Seen(0, "a"), Seen(1, "b"), Seen(2, "open"), Seen(3, "c")], "resurrection"),
    ],
)
def test_a_bad_final_read_is_found(final: list[Seen], kind: str) -> None:
    assert kind in kinds(check(sound(), {QUEUE: final}))


def test_a_value_in_the_wrong_queue_is_found() -> None:
    found = check(sound(), {QUEUE: seen("ab"), ("Orders", 1): [Seen(0, "c")]})
    assert "duplicate" in kinds(found)


def test_two_values_at_one_offset_are_found() -> None:
    history = sound()
    history.poll(Poll("other", QUEUE, 1, [Seen(1, "open")]))
    assert kinds(check(history, {QUEUE: seen("abc")})) == {"inconsistent-offset"}


def test_a_value_that_changes_over_a_restart_is_found() -> None:
    history = sound()
    history.poll(Poll("other", QUEUE, 1, [Seen(1, "open")], life=1))
    assert "resurrection" in kinds(check(history, {QUEUE: seen("abc")}))


def test_a_reader_that_skips_a_message_is_found() -> None:
    history = sound()
    history.poll(Poll("reader", QUEUE, 4, []))
    assert kinds(check(history, {QUEUE: seen("abc")})) == {"poll-skip"}
    history = sound()
    history.poll(Poll("reader", QUEUE, 3, [Seen(4, "open")]))
    assert "poll-skip" in kinds(check(history, {QUEUE: [*seen("abc"), Seen(3, "open")]}))


def test_a_retried_value_may_appear_twice() -> None:
    history = sound()
    history.invoke("q", QUEUE, "open")
    assert check(history, {QUEUE: [*seen("abc"), Seen(3, "open"), Seen(4, "open")]}) == []


def test_overlapping_sends_may_be_stored_in_any_order() -> None:
    history = History()
    for value in "ab":
        history.invoke("p", QUEUE, value)
    for value in "ab":
        history.complete(value, Outcome.OK)
    assert check(history, {QUEUE: seen("ba")}) == []


def test_expired_messages_are_not_lost() -> None:
    assert check(sound(), {QUEUE: [Seen(2, "c")]}, first_offsets={QUEUE: 2}) == []
    found = check(sound(), {QUEUE: [Seen(2, "c")]}, first_offsets={QUEUE: 1})
    assert kinds(found) == {"lost-write", "gap"}
