"""Put the results of a run into the documentation.

    python -m benchmarks.broker --json build/bench/broker.json
    python -m benchmarks.page build/bench/broker.json

The table replaces what is between two marks in ``docs/internals/performance.md``, so that no number
of it is written by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.load import BenchmarkError
from benchmarks.report import HEAD, NUMERIC, VERDICTS, facts_text

PAGE = Path(__file__).parents[1] / "docs" / "internals" / "performance.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"

Row = Mapping[str, str | float | bool | None]


def to_markdown(rows: Sequence[Row], facts: dict[str, object]) -> str:
    """The table of a run, and its conditions."""
    lines = [
        "| " + " | ".join(HEAD) + " |",
        "|" + "|".join("--:" if column in NUMERIC else "---" for column in range(len(HEAD))) + "|",
    ]
    previous = None
    for row in rows:
        work, *cells = _cells(row)
        lines.append("| " + " | ".join(["" if work == previous else work, *cells]) + " |")
        previous = work
    return "\n".join([f"Conditions: {facts_text(facts)}.", "", *lines])


def _cells(row: Row) -> list[str]:
    ratio, passed = row["ratio"], row["passed"]
    return [
        str(row["work"]),
        str(row["measure"]),
        _number(row, "roquet"),
        str(row["peer"] or ""),
        _number(row, "theirs"),
        "" if ratio is None else f"{ratio:.2f}",
        str(row["goal"] or "").replace("<=", "≤").replace(">=", "≥"),
        VERDICTS[passed if isinstance(passed, bool) else None],
    ]


def _number(row: Row, key: str) -> str:
    value = row[key]
    return "" if value is None else f"{value:,.{row['digits']}f}"


def placed(page: str, table: str) -> str:
    r"""The page with a table between its marks.

    Raises:
        BenchmarkError: The page has no marks.

    Example:
        >>> placed(f"a {BEGIN}old{END} b", "new") == f"a {BEGIN}\n\nnew\n\n{END} b"
        True
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchmarkError(f"the page has no marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def main(arguments: list[str] | None = None) -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="what --json of benchmarks.broker wrote")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    facts = json.loads(options.results.read_text())
    rows = facts.pop("rows")
    options.page.write_text(placed(options.page.read_text("utf-8"), to_markdown(rows, facts)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
