"""The guide on testing: its Python runs."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from types import CodeType

import pytest

from roquet.errors import RoquetError
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import ResponseCode
from roquet.testing.background import background_broker
from roquet.testing.broker import broker
from tests.unit.testing.wire_kit import route, send

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "testing.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


async def place_order(namesrv: str) -> None:
    async with RemotingClient() as client:
        found = await route(client, namesrv, topic="TBW102")
        assert found is not None
        address = found.broker_datas[0].broker_addrs[0]
        for _ in range(3):
            with suppress(RoquetError):
                assert await send(client, address, b"one") == ResponseCode.SUCCESS
                return
    raise AssertionError("the order was not stored")


def run_block(code: CodeType, names: dict[str, object]) -> None:
    """Execute a block that may await at its top level."""
    pending = eval(code, names)  # noqa: S307 - our own page
    if inspect.iscoroutine(pending):

        async def awaited() -> None:
            await pending

        asyncio.run(awaited())


def run_test(test: Callable[..., object]) -> None:
    if inspect.iscoroutinefunction(test):
        coroutine: Coroutine[object, object, None] = test()

        async def awaited() -> None:
            await coroutine

        asyncio.run(awaited())
        return
    with background_broker() as b:
        fixtures = {"roquet_broker": b, "roquet_namesrv": b.namesrv}
        test(**{name: fixtures[name] for name in inspect.signature(test).parameters})


@pytest.mark.parametrize("block", BLOCKS)
def test_the_examples_run(block: str) -> None:
    has_loop = "async def test_" in block
    names: dict[str, object] = {
        "broker": broker,
        "place_order": place_order if has_loop else lambda at: asyncio.run(place_order(at)),
    }
    code = compile(block, PAGE.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    run_block(code, names)
    for name, value in list(names.items()):
        if name.startswith("test_") and callable(value):
            run_test(value)


def test_there_are_examples() -> None:
    tests = [block for block in BLOCKS if "def test_" in block]
    assert (len(BLOCKS), len(tests)) == (9, 3)
