"""Every public name has an example, and every example runs."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Awaitable, Iterator
from types import FunctionType
from typing import cast

import roquet.admin
from roquet.admin import Admin, StatsName
from roquet.model.message_queue import MessageQueue
from roquet.testing.broker import RunningBroker
from tests.unit.admin.admin_kit import prepared


def public_names() -> Iterator[tuple[str, str]]:
    for name in roquet.admin.__all__:
        kind = getattr(roquet.admin, name)
        yield name, inspect.getdoc(kind) or ""
        for member, value in vars(kind).items():
            if isinstance(value, FunctionType) and not member.startswith("_"):
                yield f"{name}.{member}", inspect.getdoc(value) or ""


EXAMPLES = {name: textwrap.dedent(text.partition("Example:\n")[2]) for name, text in public_names()}
RUN = {name: code for name, code in EXAMPLES.items() if ">>>" not in code}


def test_every_public_name_has_an_example() -> None:
    assert EXAMPLES
    assert [name for name, code in EXAMPLES.items() if not code.strip()] == []


async def test_every_example_runs(server: RunningBroker, admin: Admin) -> None:
    sent = await prepared(server, admin)
    for title, code in sorted(RUN.items(), key=lambda each: "close" in each[0]):
        compiled = compile(code, title, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        names: dict[str, object] = {
            "Admin": Admin,
            "MessageQueue": MessageQueue,
            "StatsName": StatsName,
            "admin": admin,
            "message_id": sent.message_id,
            "offset_message_id": sent.offset_message_id,
            "namesrv": server.namesrv,
            "print": lambda *words: None,  # noqa: ARG005 - what is printed is not looked at
        }
        made = eval(compiled, names)  # noqa: S307 - our own docstrings
        if inspect.isawaitable(made):
            await cast("Awaitable[None]", made)
