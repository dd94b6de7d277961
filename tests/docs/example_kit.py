"""Examples in docstrings, and how they are run."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from typing import NamedTuple, cast

from tests.docs import example_names


class Example(NamedTuple):
    """The example of one name.

    Attributes:
        package: The package that exports it.
        name: The name, with its class.
        code: What runs; empty if there is no example.
    """

    package: str
    name: str
    code: str


async def run(example: Example, plain: dict[str, object]) -> None:
    tree = ast.parse(example.code)
    wanted = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    async with AsyncExitStack() as running:
        made = await example_names.enter(example.package, wanted, str(plain["namesrv"]), running)
        names = example_names.public_of(example.package) | plain | made
        flags = 0 if example.package == "sync" else ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        compiled = compile(tree, example.name, "exec", flags=flags)
        left = eval(compiled, names)  # noqa: S307 - our own docstrings
        if inspect.isawaitable(left):
            await cast("Awaitable[None]", left)
