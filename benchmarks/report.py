"""What the benchmarks must reach, and how it says whether it did.

Owns the goals (a ratio to the other side, or a bound of its own), the lines of the table and their
two forms: text for people, one JSON object for programs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class Better(Enum):
    """Which of two rounds counts."""

    MORE = "more"
    LESS = "less"

    def best(self, values: Sequence[float]) -> float:
        """The value of the round that was disturbed least."""
        return max(values) if self is Better.MORE else min(values)


class Kind(Enum):
    """What a goal compares."""

    TIMES = "times the other side, at least"
    SHARE = "part of the other side, at most"
    BOUND = "its own bound, at most"
    LEAST = "its own bound, at least"
    NONE = "no goal"


@dataclass(frozen=True)
class Goal:
    """What a measure must reach.

    Attributes:
        kind: What it compares.
        number: 5 for five times, 8 for an eighth, or the bound itself.
    """

    kind: Kind = Kind.NONE
    number: float = 0

    def __str__(self) -> str:
        match self.kind:
            case Kind.TIMES:
                return f">= {self.number:g}x"
            case Kind.SHARE:
                return f"<= 1/{self.number:g}"
            case Kind.BOUND:
                return f"<= {self.number:g}"
            case Kind.LEAST:
                return f">= {self.number:,.0f}"
        return ""

    def is_reached(self, other: float | None, ours: float | None) -> bool | None:
        """Whether it is; ``None`` where there is nothing to say."""
        if ours is None or self.kind is Kind.NONE:
            return None
        if self.kind is Kind.BOUND:
            return ours <= self.number
        if self.kind is Kind.LEAST:
            return ours >= self.number
        if not other:
            return None
        if self.kind is Kind.TIMES:
            return ours >= self.number * other
        return ours * self.number <= other


@dataclass(frozen=True)
class Measure:
    """One number of a row.

    Attributes:
        key: Its name in what the load generator prints.
        title: What people call it.
        better: Which way is good.
        goal: What it must reach.
        digits: Digits after the point.
    """

    key: str
    title: str
    better: Better
    goal: Goal = Goal()
    digits: int = 0


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    row: str
    measure: str
    java: float | None
    roquet: float | None
    goal: Goal
    digits: int = 0

    @property
    def ratio(self) -> float | None:
        """Ours by theirs."""
        if self.java and self.roquet is not None:
            return self.roquet / self.java
        return None

    @property
    def passed(self) -> bool | None:
        """Whether the goal is reached; ``None`` without one, or without both sides."""
        return self.goal.is_reached(self.java, self.roquet)


def to_json(lines: Iterable[Line], facts: dict[str, object], *, other: str = "java") -> str:
    """One object: what was run, and every line; ``other`` is the key of the other side."""
    rows = [
        {
            "row": line.row,
            "measure": line.measure,
            other: line.java,
            "roquet": line.roquet,
            "ratio": None if line.ratio is None else round(line.ratio, 4),
            "goal": str(line.goal) or None,
            "passed": line.passed,
        }
        for line in lines
    ]
    return json.dumps({**facts, "rows": rows})


def to_text(lines: Sequence[Line], *, other: str = "Apache") -> str:
    """A table for people; ``other`` is the head of the other side's column."""
    cells = [("row", "measure", other, "Roquet", "ratio", "goal", "")]
    previous = ""
    for line in lines:
        cells.append(
            (
                "" if line.row == previous else line.row,
                line.measure,
                _number(line.java, line.digits),
                _number(line.roquet, line.digits),
                "" if line.ratio is None else f"{line.ratio:.2f}x",
                str(line.goal),
                {True: "pass", False: "FAIL", None: ""}[line.passed],
            )
        )
        previous = line.row
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    numeric = {2, 3, 4}
    return "\n".join(
        "  ".join(
            text.rjust(width) if column in numeric else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )


def show(
    lines: Sequence[Line], facts: dict[str, object], *, as_json: bool, is_checked: bool
) -> int:
    """Print a table and what it was measured with; gives the exit code.

    Args:
        lines: The table.
        facts: What was measured, how, and where; those that are None are left out of the text.
        as_json: For programs.
        is_checked: Whether a goal that is missed is a failure.
    """
    if as_json:
        print(to_json(lines, facts))
    else:
        print(to_text(lines))
        known = {name: value for name, value in facts.items() if value is not None}
        print(", ".join(f"{name} {value}" for name, value in known.items()))
    return 1 if is_checked and any(line.passed is False for line in lines) else 0


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
