"""The examples in docstrings are tests too."""

import doctest
import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCE.glob("roquet/**/*.py")
    if ">>>" in path.read_text("utf-8")
)


def test_examples_are_found() -> None:
    assert "roquet.errors" in MODULES


@pytest.mark.parametrize("name", MODULES)
def test_examples_pass(name: str) -> None:
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert (failed, attempted > 0) == (0, True)
