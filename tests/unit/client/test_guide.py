"""What docs/guides/client.md shows runs, on both sides, and the sides are alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit import example_names
from tests.unit.test_public_examples import Example, run

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "client.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n# (asyncio|blocking)\n(.*?)```", GUIDE, re.DOTALL)


def test_every_example_comes_twice() -> None:
    sides = [side for side, _ in BLOCKS]
    assert len(sides) == GUIDE.count("```python")
    assert sides == ["asyncio", "blocking"] * (len(sides) // 2)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
async def test_a_block_of_the_guide_runs(number: int) -> None:
    side, code = BLOCKS[number]
    package = "sync" if side == "blocking" else "client"
    with example_names.server() as plain:
        await run(Example(package, f"block {number}", code), plain)
