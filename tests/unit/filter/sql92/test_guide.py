"""The guide's expressions can be read, and mean what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from roquet.filter.sql92 import compile_sql92

PAGE = Path(__file__).parents[4] / "docs" / "guides" / "sql92.md"


def examples() -> list[str]:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    return [text for row in rows for text in re.findall(r"`([^`]+)`", row)]


@pytest.mark.parametrize("text", examples())
def test_an_example(text: str) -> None:
    expression = compile_sql92(text)
    assert expression.matches({}) is (text == "region IS NULL")
    messages = [
        {"amount": "150", "weight": "1", "region": "EU", "paid": "true", "a": "1", "c": "1"},
        {"amount": "15", "weight": "9", "region": "CN", "paid": "false", "a": "0", "c": "4"},
    ]
    verdicts = {expression.matches(properties) for properties in messages}
    assert verdicts == ({True, False} if "NULL" not in text else {"NOT" in text})


def test_examples_are_found() -> None:
    assert len(examples()) > 12
