"""The program in docs/guides/admin.md runs, and the guide names every area."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Awaitable
from pathlib import Path
from typing import cast

from roquet.admin import Admin
from roquet.testing.broker import RunningBroker

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "admin.md").read_text("utf-8")


async def test_the_program_of_the_guide_runs(server: RunningBroker) -> None:
    found = re.search(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert found is not None
    code = found[1].replace("127.0.0.1:9876", server.namesrv).replace("asyncio.run(main())", "")
    compiled = compile(code + "\nawait main()", "guide", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    made = eval(compiled, {"__name__": "guide"})  # noqa: S307 - our own page
    assert inspect.isawaitable(made)
    await cast("Awaitable[None]", made)
    assert "Orders" in server.broker.topics.table
    assert "billing" in server.broker.groups.table
    assert server.broker.offsets.query("billing", "Orders", 0) == 0


def test_every_area_is_named() -> None:
    areas = {name for name in vars(Admin("127.0.0.1:9876")) if not name.startswith("_")}
    assert areas == set(re.findall(r"^\| `admin\.(\w+)` \|", GUIDE, re.MULTILINE))
