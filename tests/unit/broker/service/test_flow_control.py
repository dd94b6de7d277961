from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TypeVar

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.service.flow_control import OVERLOAD, REJECT_REQUEST, FlowControl, RequestClass
from roquet.remoting.codes import ResponseCode
from roquet.remoting.hooks import RequestRefused
from roquet.runtime.clock import ManualClock

_T = TypeVar("_T")


class HandExecutor(Executor):
    """Threads that run when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def submit(  # type: ignore[override]
        self, fn: Callable[..., _T], /, *args: object
    ) -> Future[_T]:
        future: Future[_T] = Future()

        def job() -> None:
            try:
                future.set_result(fn(*args))
            except ArithmeticError as error:
                future.set_exception(error)

        self.jobs.append(job)
        return future

    async def run_one(self) -> None:
        self.jobs.pop(0)()
        await turns()


async def turns() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


class Sends:
    """Flow control of sends, with a page cache that is as busy as a test says."""

    def __init__(self, config: BrokerConfig | None = None) -> None:
        self.clock = ManualClock()
        self.busy = False
        self.deficient = False
        self.asked = 0
        self.flow = FlowControl(
            config or BrokerConfig(),
            self.clock,
            is_page_cache_busy=self._is_busy,
            is_transient_pool_deficient=lambda: self.deficient,
        )

    def _is_busy(self) -> bool:
        self.asked += 1
        return self.busy

    def burst(self, *pauses_ms: int) -> list[str | None]:
        """The verdicts on the sends of a burst, each after a pause."""
        heard = []
        for pause_ms in pauses_ms:
            self.clock.advance(pause_ms)
            heard.append(self.flow.refusal_of_send())
        self.flow.end_burst()
        return heard


# --------------------------------------------------------------------------------------- sends


def test_nothing_is_refused_while_all_is_well() -> None:
    sends = Sends()
    for _ in range(3):
        assert sends.burst(0, 1, 50, 100) == [None] * 4
    assert sends.asked == 3, "a quick burst queries the page cache once"


def test_a_burst_that_begins_busy_is_rejected() -> None:
    sends = Sends()
    sends.busy = True
    assert sends.burst(0, 500) == [REJECT_REQUEST] * 2
    sends.busy = False
    assert sends.burst(0) == [None]
    assert REJECT_REQUEST == "[REJECTREQUEST]system busy, start flow control for a while"


def test_transient_buffers_that_are_used_up_reject_too() -> None:
    sends = Sends()
    sends.deficient = True
    assert sends.burst(0) == [REJECT_REQUEST]


def test_sends_behind_a_slow_append_are_cleaned() -> None:
    sends = Sends()
    assert sends.flow.refusal_of_send() is None
    sends.flow.sends_waiting = 1
    sends.clock.advance(1500)
    sends.busy = True
    assert sends.flow.refusal_of_send() == (
        "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, "
        "period in queue: 1500ms, size of queue: 1"
    )
    sends.flow.end_burst()
    assert sends.burst(0) == [REJECT_REQUEST]


def test_one_slow_burst_refuses_nothing_and_a_second_one_does() -> None:
    sends = Sends()
    assert sends.burst(0, 200, 300) == [None] * 3
    sends.clock.advance(200)
    assert sends.burst(0, 199, 1) == [
        None,
        None,
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
        "period in queue: 200ms, size of queue: 0",
    ]


def test_slow_bursts_far_apart_refuse_nothing() -> None:
    sends = Sends()
    for _ in range(3):
        assert sends.burst(0, 400) == [None] * 2
        sends.clock.advance(201)


def test_a_quick_burst_between_slow_ones_does_not_hide_them() -> None:
    sends = Sends()
    sends.burst(0, 200)
    sends.burst(0, 1)
    assert sends.burst(0, 200)[1] is not None


def test_without_fast_failure_nothing_is_timed() -> None:
    sends = Sends(BrokerConfig(fast_failure=False))
    for _ in range(3):
        assert sends.burst(0, 5000) == [None] * 2
    assert sends.flow.refusal_of_send() is None
    sends.clock.advance(5000)
    sends.busy = True
    assert sends.flow.refusal_of_send() is None


def test_bursts_without_sends_do_not_count() -> None:
    sends = Sends()
    sends.burst(0, 200)
    sends.flow.end_burst()
    sends.clock.advance(1000)
    sends.flow.end_burst()
    assert sends.burst(0, 300) == [None, None]


def test_too_many_waiting_sends_are_an_overload() -> None:
    sends = Sends(BrokerConfig(send_queue_capacity=10))
    sends.flow.sends_waiting = 9
    assert sends.burst(0) == [None]
    sends.flow.sends_waiting = 10
    assert sends.burst(0) == [OVERLOAD]
    assert sends.flow.waiting(RequestClass.SEND) == 10
    assert OVERLOAD == "[OVERLOAD]system busy, start flow control for a while"


def test_eight_connections_of_64_waiting_sends_are_far_from_the_limits() -> None:
    sends = Sends()
    for burst in range(100):
        for _ in range(64):
            assert sends.flow.refusal_of_send() is None
            sends.flow.sends_waiting += 1
            sends.clock.advance(1)
        sends.flow.end_burst()
        if burst % 8 == 7:
            sends.flow.sends_waiting = 0


# ------------------------------------------------------------------------------------- threads


class Threads:
    """Flow control of reads in threads."""

    def __init__(self, *, workers: int = 1, capacity: int = 2) -> None:
        self.clock = ManualClock()
        self.executor = HandExecutor()
        self.flow = FlowControl(
            BrokerConfig(pull_queue_capacity=capacity, query_queue_capacity=capacity),
            self.clock,
            is_page_cache_busy=lambda: False,
            executor=self.executor,
            workers=workers,
        )

    async def start(self, result: int, kind: RequestClass = RequestClass.PULL) -> asyncio.Task[int]:
        task = asyncio.create_task(self.flow.run(kind, lambda: result))
        await turns()
        return task

    def clean(self, kind: RequestClass) -> None:
        """Do what the timer does."""
        self.flow._look(self.flow._queues[kind])


async def refusal(task: asyncio.Task[int]) -> str:
    with pytest.raises(RequestRefused) as caught:
        await task
    assert caught.value.response_code == ResponseCode.SYSTEM_BUSY
    return caught.value.message


async def test_work_runs_in_order_when_threads_become_free() -> None:
    threads = Threads(workers=2)
    tasks = [await threads.start(number) for number in range(4)]
    assert len(threads.executor.jobs) == 2
    assert threads.flow.waiting(RequestClass.PULL) == 2
    await threads.executor.run_one()
    assert tasks[0].done()
    assert len(threads.executor.jobs) == 2
    while threads.executor.jobs:
        await threads.executor.run_one()
    assert [await task for task in tasks] == [0, 1, 2, 3]
    assert threads.flow.waiting(RequestClass.PULL) == 0
    threads.flow.close()


async def test_a_full_queue_is_an_overload() -> None:
    threads = Threads()
    tasks = [await threads.start(number) for number in range(4)]
    assert await refusal(tasks[3]) == OVERLOAD
    other = await threads.start(9, RequestClass.QUERY)
    assert len(threads.executor.jobs) == 2, "a class does not wait for another"
    while threads.executor.jobs:
        await threads.executor.run_one()
    assert [await task for task in (*tasks[:3], other)] == [0, 1, 2, 9]
    threads.flow.close()


async def test_work_that_waits_too_long_for_a_thread_is_dropped() -> None:
    threads = Threads()
    running = await threads.start(0)
    first = await threads.start(1)
    threads.clock.advance(1)
    second = await threads.start(2)
    threads.clock.advance(4998)
    threads.clean(RequestClass.PULL)
    assert threads.flow.waiting(RequestClass.PULL) == 2
    threads.clock.advance(1)
    threads.clean(RequestClass.PULL)
    assert await refusal(first) == (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
        "period in queue: 5000ms, size of queue: 1"
    )
    await threads.executor.run_one()
    await threads.executor.run_one()
    assert (await running, await second) == (0, 2)
    assert threads.executor.jobs == [], "what was refused is not run"
    threads.flow.close()


async def test_a_timer_cleans_by_itself() -> None:
    clock = ManualClock()
    executor = HandExecutor()
    flow = FlowControl(
        BrokerConfig(wait_ms_in_pull_queue=1),
        clock,
        is_page_cache_busy=lambda: False,
        executor=executor,
        workers=1,
    )
    running = asyncio.create_task(flow.run(RequestClass.PULL, lambda: 0))
    await turns()
    waiting = asyncio.create_task(flow.run(RequestClass.PULL, lambda: 1))
    await turns()
    clock.advance(1)
    assert (await refusal(waiting)).startswith("[TIMEOUT_CLEAN_QUEUE]")
    await executor.run_one()
    assert await running == 0
    flow.close()


async def test_queries_wait_without_a_limit() -> None:
    threads = Threads()
    running = await threads.start(0, RequestClass.QUERY)
    waiting = await threads.start(1, RequestClass.QUERY)
    threads.clock.advance(1_000_000)
    threads.clean(RequestClass.QUERY)
    await threads.executor.run_one()
    await threads.executor.run_one()
    assert (await running, await waiting) == (0, 1)


async def test_a_cancelled_waiter_leaves_the_queue() -> None:
    threads = Threads()
    running = await threads.start(0)
    gone = await threads.start(1)
    stays = await threads.start(2)
    gone.cancel()
    await turns()
    assert threads.flow.waiting(RequestClass.PULL) == 1
    await threads.executor.run_one()
    await threads.executor.run_one()
    assert (await running, await stays) == (0, 2)
    threads.flow.close()


async def test_a_cancelled_waiter_passes_its_thread_on() -> None:
    threads = Threads()
    running = await threads.start(0)
    gone = await threads.start(1)
    stays = await threads.start(2)
    threads.flow._release_thread(threads.flow._queues[RequestClass.PULL])
    gone.cancel()
    await turns()
    assert gone.cancelled()
    assert len(threads.executor.jobs) == 2
    while threads.executor.jobs:
        await threads.executor.run_one()
    assert (await running, await stays) == (0, 2)
    threads.flow.close()


async def test_work_that_fails_frees_its_thread() -> None:
    threads = Threads()

    def fail() -> int:
        raise ZeroDivisionError

    broken = asyncio.create_task(threads.flow.run(RequestClass.ADMIN, fail))
    await turns()
    waiting = await threads.start(1, RequestClass.ADMIN)
    await threads.executor.run_one()
    with pytest.raises(ZeroDivisionError):
        await broken
    await threads.executor.run_one()
    assert await waiting == 1
    threads.flow.close()
