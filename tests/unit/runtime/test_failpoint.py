from __future__ import annotations

import pytest

from roquet.runtime.failpoint import failpoint, installed


def test_without_a_hook_nothing_happens() -> None:
    failpoint("anything")


def test_the_hook_sees_names_in_order() -> None:
    seen: list[str] = []
    with installed(seen.append):
        failpoint("a")
        failpoint("b")
    failpoint("c")
    assert seen == ["a", "b"]


def test_hooks_nest_and_an_error_removes_the_hook() -> None:
    outer: list[str] = []

    def fail(name: str) -> None:
        raise RuntimeError(name)

    with installed(outer.append):
        with pytest.raises(RuntimeError, match="inner"), installed(fail):
            failpoint("inner")
        failpoint("outer")
    assert outer == ["outer"]
