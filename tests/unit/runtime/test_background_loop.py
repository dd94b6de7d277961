"""Asyncio work for threads without a loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextvars import ContextVar

import pytest

from roquet.errors import RoquetError, WrongThread
from roquet.runtime.background_loop import BackgroundLoop


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop("tested")
    loop.start()
    yield loop
    loop.close()


def test_results_and_errors_are_returned(loop: BackgroundLoop) -> None:
    assert loop.run(lambda: asyncio.sleep(0, 17)) == 17
    assert loop.call(lambda: threading.current_thread().name) == "tested"
    with pytest.raises(ZeroDivisionError):
        loop.call(lambda: 1 // 0)


def test_the_context_of_the_caller_is_seen(loop: BackgroundLoop) -> None:
    # So hooks that follow messages, as those of OpenTelemetry, know the span of the caller.
    span = ContextVar("span", default="none")
    span.set("checkout")
    assert loop.call(span.get) == "checkout"


def test_a_call_from_the_loop_itself_is_refused(loop: BackgroundLoop) -> None:
    async def inside() -> None:
        loop.call(lambda: None)

    with pytest.raises(WrongThread, match="would deadlock"):
        loop.run(inside)
    with pytest.raises(WrongThread):
        loop.call(loop.close)


def test_an_interrupted_thread_leaves_nothing_running(loop: BackgroundLoop) -> None:
    events: list[str] = []
    begun = threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            events.append("cleaned up")

    def interrupted(outcome: Future[None]) -> None:
        begun.wait()
        assert not outcome.done()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop.run(work, meanwhile=interrupted)
    assert events == ["cleaned up"]
    assert loop.call(lambda: len(asyncio.all_tasks())) == 2  # the loop's own, and this one


def test_work_that_was_not_started_is_cancelled_too(loop: BackgroundLoop) -> None:
    hold = threading.Event()
    busy = threading.Thread(target=lambda: loop.call(hold.wait))
    busy.start()

    def interrupted(outcome: Future[None]) -> None:
        assert not outcome.done()
        threading.Timer(0, hold.set).start()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop.run(lambda: asyncio.sleep(3600), meanwhile=interrupted)
    busy.join()


def test_closing_releases_waiters() -> None:
    loop = BackgroundLoop("short")
    loop.start()
    begun = threading.Event()
    errors: list[RoquetError] = []

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    def waiting() -> None:
        with pytest.raises(RoquetError, match="has ended") as caught:
            loop.run(work)
        errors.append(caught.value)

    thread = threading.Thread(target=waiting)
    thread.start()
    begun.wait()
    loop.close()
    thread.join()
    assert len(errors) == 1
    loop.close()
    with pytest.raises(RoquetError, match="has ended"):
        loop.call(lambda: None)
    assert "short" not in [each.name for each in threading.enumerate()]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork beside threads is what is tested
def test_a_forked_process_is_refused(loop: BackgroundLoop) -> None:
    child = os.fork()
    if child == 0:
        try:
            loop.call(lambda: None)
        except WrongThread as error:
            os._exit(0 if "forked" in error.message else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
