"""Real requests pass the functions that docs/internals/hot-path.md names, in that order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from roquet.broker.broker import Broker
from roquet.remoting.codes import RequestCode
from roquet.runtime import compiled
from roquet.runtime.clock import ManualClock
from roquet.store.running_flags import RunningFlags
from roquet.testing.hooked_files import QuickFiles
from tests.integration.broker.broker_kit import config, store_config
from tests.page_steps import Step, Way, steps_of
from tests.property.wire_requests import PULL, SEND, json_frame

PAGE = "hot-path.md"
STEPS_MAX = 8

SENT = json_frame(RequestCode.SEND_MESSAGE_V2, 1, 0, SEND, b"body", style=1)
PULLED = json_frame(RequestCode.PULL_MESSAGE, 2, 0, PULL, b"")


@asynccontextmanager
async def asking(root: Path) -> AsyncIterator[Callable[[bytes], Any]]:
    """A client of a broker; it knows nothing of Roquet."""
    async with Broker(
        config(root), store_config(), files=QuickFiles(), clock=ManualClock()
    ) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)

        async def ask(frame: bytes) -> bytes:
            writer.write(frame)
            length = int.from_bytes(await reader.readexactly(4), "big")
            return await reader.readexactly(length)

        try:
            yield ask
        finally:
            writer.close()


async def way_of(root: Path, frame: bytes) -> Way:
    """What a request passes, once others like it have been handled."""
    async with asking(root) as ask:
        for _ in range(2):
            await ask(SENT)
        for _ in range(2):
            await ask(frame)
        way = Way()
        with way.followed():
            response = await ask(frame)
        assert b'"code":0' in response
        return way


def shows_its_functions() -> bool:
    """Whether a profile sees the functions of compiled code, as it does in the checked build."""
    way = Way()
    with way.followed():
        RunningFlags().reasons()
    return len(way.passed) > 0


pytestmark = pytest.mark.skipif(
    not shows_its_functions(), reason="compiled code shows its functions in `make checked` only"
)
needs_compiled = pytest.mark.skipif(
    not compiled.is_built(compiled.HOT_PATH), reason="the hot path is not built"
)


@pytest.mark.parametrize(
    ("heading", "frame", "pure"),
    [
        pytest.param("A plain send", SENT, "0", marks=needs_compiled),
        pytest.param("A plain pull", PULLED, "0", marks=needs_compiled),
        ("Any other send", SENT, "1"),
        ("Any other pull", PULLED, "1"),
    ],
)
async def test_a_request_takes_the_steps_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heading: str, frame: bytes, pure: str
) -> None:
    monkeypatch.setenv("ROQUET_PURE", pure)
    steps = steps_of(PAGE, heading)
    assert 0 < len(steps) <= STEPS_MAX
    way = await way_of(tmp_path, frame)
    assert way.along(steps) == steps


@needs_compiled
@pytest.mark.parametrize(
    ("frame", "listeners"),
    [
        (
            SENT,
            {
                ("broker/service/pull_request_hold.py", "notify_arriving"),
                ("broker/service/schedule_message.py", "notify_arriving"),
            },
        ),
        (PULLED, set()),
    ],
)
async def test_the_store_calls_listeners_and_nothing_else_of_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frame: bytes, listeners: set[Step]
) -> None:
    monkeypatch.setenv("ROQUET_PURE", "0")
    way = await way_of(tmp_path, frame)
    assert listeners == {
        (file, name)
        for caller, file, name in way.calls
        if caller.startswith("store/") and file.startswith(("broker/", "remoting/"))
    }
