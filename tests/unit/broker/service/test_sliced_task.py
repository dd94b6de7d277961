from __future__ import annotations

import asyncio
import threading

import pytest

from roquet.broker.service.sliced_task import SlicedTask, Steps
from roquet.broker.service.timers import LoopTimers
from roquet.errors import StoreError
from roquet.runtime.clock import ManualClock
from tests.unit.broker.service.manual_timers import ManualTimers


def fail() -> object:
    raise StoreError("the disk is gone")


class Work:
    """Steps that note where they are."""

    def __init__(self) -> None:
        self.seen: list[object] = []
        self.timers = ManualTimers(ManualClock())
        self.ended: list[Exception | None] = []
        self.turns = SlicedTask(self.timers, self.steps(), self.ended.append)

    def steps(self) -> Steps:
        try:
            self.seen.append("begin")
            yield 0
            self.seen.append("next turn")
            yield 500
            self.seen.append("later")
            value = yield lambda: 7
            self.seen.append(value)
            try:
                yield fail
            except StoreError as error:
                self.seen.append(str(error))
        finally:
            self.seen.append("end")


def test_steps_run_in_their_turns() -> None:
    work = Work()
    assert work.seen == []
    work.timers.step()
    assert work.seen == ["begin"]
    work.timers.step()
    assert work.seen[1:] == ["next turn"]
    work.timers.advance(499)
    assert len(work.seen) == 2
    work.timers.advance(1)
    assert work.seen[2:] == ["later", 7, "the disk is gone", "end"]
    assert work.ended == [None]


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_a_cancelled_task_makes_no_further_step(turns: int) -> None:
    work = Work()
    for _ in range(turns):
        work.timers.step()
    work.turns.cancel()
    seen = list(work.seen)
    work.timers.advance(10_000)
    assert work.seen == seen
    assert work.ended == []
    assert work.timers.pending == 0
    assert (seen[-1:] == ["end"]) == (turns > 0)


def test_work_that_ends_after_the_cancel_is_ignored() -> None:
    timers = ManualTimers(ManualClock())
    ended: list[Exception | None] = []

    def steps() -> Steps:
        yield lambda: 1

    turns = SlicedTask(timers, steps(), ended.append)
    timers.step()
    turns.cancel()
    timers.run()
    assert ended == []


def test_a_failure_is_passed_on() -> None:
    timers = ManualTimers(ManualClock())
    ended: list[Exception | None] = []

    def steps() -> Steps:
        yield 0
        raise StoreError("broken")

    SlicedTask(timers, steps(), ended.append)
    timers.run()
    assert [str(error) for error in ended] == ["broken"]


def test_the_loop_does_all_of_it() -> None:
    async def example() -> list[object]:
        done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        seen: list[object] = []

        def steps() -> Steps:
            yield 1
            ident = yield threading.get_ident
            seen.append(ident != threading.get_ident())
            try:
                yield fail
            except StoreError:
                seen.append("failed")
            yield 0

        SlicedTask(LoopTimers(), steps(), done.set_result)
        assert await done is None
        return seen

    assert asyncio.run(example()) == [True, "failed"]
