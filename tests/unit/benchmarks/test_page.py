"""The table of results in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import page
from benchmarks.load import BenchmarkError
from benchmarks.report import Better, Line, bound, share, times, to_json

LINES = [
    Line("send", "messages/s", 100.0, 1512.5, times(5)),
    Line("send", "CPU", 10.0, 2.5, share(0.2), 1, better=Better.LESS),
    Line("start", "s", None, 0.4, bound(1), 2),
]


def test_a_run_is_put_between_the_marks(tmp_path: Path) -> None:
    results, target = tmp_path / "results.json", tmp_path / "page.md"
    results.write_text(to_json(LINES, {"cores": 2, "failed": None}))
    target.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    assert page.main([str(results), "--page", str(target)]) == 0
    assert page.main([str(results), "--page", str(target)]) == 0
    assert target.read_text().splitlines() == [
        "before",
        page.BEGIN,
        "",
        "Conditions: cores 2.",
        "",
        "| work | measure | Roquet | peer | peer's | ratio | goal |  |",
        "|---|---|--:|---|--:|--:|---|---|",
        "| send | messages/s | 1,512 | Apache | 100 | 15.12 | ≥ 5x | pass |",
        "|  | CPU | 2.5 | Apache | 10.0 | 0.25 | ≤ 0.2x | FAIL |",
        "| start | s | 0.40 |  |  |  | ≤ 1 | pass |",
        "",
        page.END,
        "after",
    ]


def test_a_page_without_marks_is_an_error() -> None:
    with pytest.raises(BenchmarkError, match="no marks"):
        page.placed("nothing here", "table")


def test_the_documentation_has_the_marks() -> None:
    text = page.PAGE.read_text("utf-8")
    assert text.count(page.BEGIN) == text.count(page.END) == 1
    assert text.index(page.BEGIN) < text.index(page.END)
