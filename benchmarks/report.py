"""The goals of the benchmarks, and the report.

Owns the goals (a ratio to the other side, or a bound of its own), how the rounds of a measure count
together, the lines of the table and their forms: text for people, JSON for programs, Markdown for
the documentation.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Better(Enum):
    """Which direction is good."""

    MORE = "more"
    LESS = "less"


class Over(Enum):
    """How the rounds of a measure count together."""

    MEDIAN = "median"
    SUM = "sum"
    PEAK = "peak"

    def of(self, values: Sequence[float]) -> float | None:
        """The number of all rounds; ``None`` without a round."""
        if not values:
            return None
        match self:
            case Over.MEDIAN:
                return statistics.median(values)
            case Over.SUM:
                return sum(values)
            case Over.PEAK:
                return max(values)


class Kind(Enum):
    """What a goal compares."""

    TIMES = "times the other side, at least"
    SHARE = "part of the other side, at most"
    BOUND = "its own bound, at most"
    LEAST = "its own bound, at least"
    NONE = "no goal"


@dataclass(frozen=True)
class Goal:
    """The goal of a measure.

    Attributes:
        kind: What it compares.
        number: 5 for five times, 0.2 for a fifth, or the bound itself.
        also: Another one that must be reached as well.
    """

    kind: Kind = Kind.NONE
    number: float = 0
    also: Goal | None = None

    def __str__(self) -> str:
        texts = {
            Kind.TIMES: f">= {self.number:g}x",
            Kind.SHARE: f"<= {self.number:g}x",
            Kind.BOUND: f"<= {self.number:,g}",
            Kind.LEAST: f">= {self.number:,g}",
            Kind.NONE: "",
        }
        return ", ".join([texts[self.kind], *([] if self.also is None else [str(self.also)])])

    def is_reached(self, theirs: float | None, ours: float | None) -> bool | None:
        """Whether it is reached; ``None`` if that cannot be decided."""
        decided = [self._is_reached(theirs, ours)]
        if self.also is not None:
            decided.append(self.also.is_reached(theirs, ours))
        if False in decided:
            return False
        return True if True in decided else None

    def _is_reached(self, theirs: float | None, ours: float | None) -> bool | None:
        if ours is None or self.kind is Kind.NONE:
            return None
        if self.kind is Kind.BOUND:
            return ours <= self.number
        if self.kind is Kind.LEAST:
            return ours >= self.number
        if not theirs:
            return None
        if self.kind is Kind.TIMES:
            return ours >= self.number * theirs
        return ours <= self.number * theirs


NO_GOAL = Goal()


def times(number: float) -> Goal:
    """At least this many times the other side."""
    return Goal(Kind.TIMES, number)


def share(number: float) -> Goal:
    """At most this part of the other side: 0.5 is half of it."""
    return Goal(Kind.SHARE, number)


def bound(number: float, also: Goal | None = None) -> Goal:
    """At most this, whatever the other side does."""
    return Goal(Kind.BOUND, number, also)


def least(number: float) -> Goal:
    """At least this, whatever the other side does."""
    return Goal(Kind.LEAST, number)


@dataclass(frozen=True)
class Measure:
    """One number of a row.

    Attributes:
        key: Its name in the load generator's output.
        title: Its title.
        better: Which direction is good.
        goal: What it must reach.
        digits: Digits after the point.
        over: How rounds count together.
    """

    key: str
    title: str
    better: Better
    goal: Goal = NO_GOAL
    digits: int = 0
    over: Over = Over.MEDIAN

    def of(self, results: Iterable[dict[str, float]]) -> float | None:
        """Its number over the results of all rounds."""
        return self.over.of([each[self.key] for each in results if self.key in each])


@dataclass(frozen=True)
class Line:
    """One line of the table.

    Attributes:
        row: The work.
        measure: What was measured.
        theirs: The number of the other side; ``None`` if there is none.
        ours: Roquet's number.
        goal: What it must reach.
        digits: Digits after the point.
        peer: The other side, if it is not the one of the whole table.
        better: Which direction is good.
    """

    row: str
    measure: str
    theirs: float | None
    ours: float | None
    goal: Goal = NO_GOAL
    digits: int = 0
    peer: str = ""
    better: Better = Better.MORE

    @property
    def ratio(self) -> float | None:
        """Ours divided by theirs."""
        if self.theirs and self.ours is not None:
            return self.ours / self.theirs
        return None

    @property
    def passed(self) -> bool | None:
        """Whether the goal is reached; ``None`` without one, or without both sides."""
        return self.goal.is_reached(self.theirs, self.ours)


HEAD = ("work", "measure", "Roquet", "peer", "peer's", "ratio", "goal", "")
NUMERIC = {2, 4, 5}
VERDICTS = {True: "pass", False: "FAIL", None: ""}


def cells_of(line: Line, peer: str) -> tuple[str, ...]:
    """A line as texts, in the order of the table's head."""
    return (
        line.row,
        line.measure,
        _number(line.ours, line.digits),
        "" if line.theirs is None else line.peer or peer,
        "" if line.theirs is None else _number(line.theirs, line.digits),
        "" if line.ratio is None else f"{line.ratio:.2f}x",
        str(line.goal),
        VERDICTS[line.passed],
    )


def to_text(lines: Sequence[Line], *, peer: str = "Apache") -> str:
    """A table for people; ``peer`` is the other side of lines that name none."""
    cells: list[tuple[str, ...]] = [HEAD]
    previous = ""
    for line in lines:
        row, *rest = cells_of(line, peer)
        cells.append(("" if row == previous else row, *rest))
        previous = row
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEAD))]
    return "\n".join(
        "  ".join(
            text.rjust(width) if column in NUMERIC else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )


def to_json(lines: Iterable[Line], facts: dict[str, object], *, peer: str = "Apache") -> str:
    """One object: what was run, and every line."""
    rows = [
        {
            "work": line.row,
            "measure": line.measure,
            "better": line.better.value,
            "roquet": line.ours,
            "peer": None if line.theirs is None else line.peer or peer,
            "theirs": line.theirs,
            "ratio": None if line.ratio is None else round(line.ratio, 4),
            "goal": str(line.goal) or None,
            "passed": line.passed,
            "digits": line.digits,
        }
        for line in lines
    ]
    return json.dumps({**facts, "rows": rows}, indent=1)


def facts_text(facts: dict[str, object]) -> str:
    """The conditions of a run, without those that are unknown."""
    return ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)


def show(
    lines: Sequence[Line],
    facts: dict[str, object],
    *,
    json_file: Path | None,
    is_checked: bool,
    peer: str = "Apache",
) -> int:
    """Print a table and its conditions, and return the exit code.

    Args:
        lines: The table.
        facts: What was measured, how, and where; those that are None are omitted from the text.
        json_file: Where programs find the same.
        is_checked: Whether a missed goal is a failure.
        peer: The other side of lines that name none.
    """
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(to_json(lines, facts, peer=peer) + "\n")
    print(to_text(lines, peer=peer))
    print(facts_text(facts))
    return 1 if is_checked and any(line.passed is False for line in lines) else 0


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
