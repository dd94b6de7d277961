"""The pages on durability name tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("durability.md", "track-record.md")
FULL = re.compile(r"`(tests/[\w/]+\.py)::(\w+)(?:\[[^\]]*\])?`")
SHORT = re.compile(r"`(test_\w+)(?:\[[^\]]*\])?`")


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for node in tree.body if isinstance(node, kinds)}


@pytest.mark.parametrize("name", PAGES)
def test_every_named_test_exists(name: str) -> None:
    text = (ROOT / "docs" / "internals" / name).read_text("utf-8")
    named = FULL.findall(text)
    assert named
    for path, function in named:
        assert function in functions_of(ROOT / path), f"{path}::{function}"
    everything: set[str] = set().union(
        *(functions_of(p) for p in (ROOT / "tests/crash").glob("*.py"))
    )
    assert set(SHORT.findall(text)) <= everything
