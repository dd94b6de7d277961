"""A chart of a report: how many times better Roquet is, as a picture for the documentation.

Owns the SVG. One bar for each line that has a ratio and a goal, on a logarithmic scale; a ratio of
CPU, latency or memory is turned around, so that longer is always better. A mark shows the goal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from benchmarks.report import Better, Goal, Kind, Line

BAR_PX = 14
STEP_PX = 20
LABEL_PX = 380
PLOT_PX = 460
VALUE_PX = 70
HEAD_PX = 44
FOOT_PX = 16
PASS, FAIL, PLAIN = "#2f855a", "#c53030", "#4a5568"


@dataclass(frozen=True)
class Bar:
    """One bar.

    Attributes:
        label: The work and the measure.
        times: How many times better Roquet is; below 1 it is worse.
        goal: The required ratio; ``None`` if the goal is not a ratio.
        passed: Whether the goal is reached.
    """

    label: str
    times: float
    goal: float | None
    passed: bool | None


def goal_times(goal: Goal) -> float | None:
    """How many times better the goal requires.

    Example:
        >>> goal_times(Goal(Kind.TIMES, 5)), goal_times(Goal(Kind.SHARE, 0.25))
        (5, 4.0)
    """
    if goal.kind is Kind.TIMES:
        return goal.number
    if goal.kind is Kind.SHARE:
        return 1 / goal.number
    return None if goal.also is None else goal_times(goal.also)


def bars_of(lines: Sequence[Line]) -> list[Bar]:
    """The bars of a report."""
    return [
        Bar(
            f"{line.row}: {line.measure}" + (f", {line.peer}" if line.peer else ""),
            line.ratio if line.better is Better.MORE else 1 / line.ratio,
            goal_times(line.goal),
            line.passed,
        )
        for line in lines
        if line.ratio and goal_times(line.goal) is not None
    ]


def to_svg(lines: Sequence[Line], *, title: str) -> str:
    """The chart; without a bar it has a title only."""
    bars = bars_of(lines)
    numbers = [number for bar in bars for number in (bar.times, bar.goal or 1)]
    low = math.floor(math.log2(min([1.0, *numbers])))
    high = max(math.ceil(math.log2(max([2.0, *numbers]))), low + 1)

    def x(times: float) -> float:
        return LABEL_PX + PLOT_PX * (math.log2(times) - low) / (high - low)

    width = LABEL_PX + PLOT_PX + VALUE_PX
    height = HEAD_PX + STEP_PX * len(bars) + FOOT_PX
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="8" y="16" font-weight="bold">{escape(title)}</text>',
    ]
    bottom = height - FOOT_PX
    for power in range(low, high + 1):
        at = x(2**power)
        colour = "#718096" if power == 0 else "#e2e8f0"
        parts += [
            f'<line x1="{at:.1f}" y1="{HEAD_PX - 6}" x2="{at:.1f}" y2="{bottom}" '
            f'stroke="{colour}"/>',
            f'<text x="{at:.1f}" y="{HEAD_PX - 10}" text-anchor="middle" fill="{PLAIN}">'
            f"{2.0**power:g}x</text>",
        ]
    for number, bar in enumerate(bars):
        parts += _bar(bar, HEAD_PX + STEP_PX * number, x)
    return "\n".join([*parts, "</svg>", ""])


def _bar(bar: Bar, top: int, x: Callable[[float], float]) -> list[str]:
    begin, end = sorted((x(1), x(bar.times)))
    colour = {True: PASS, False: FAIL, None: PLAIN}[bar.passed]
    middle = top + BAR_PX - 3
    parts = [
        f'<text x="{LABEL_PX - 8}" y="{middle}" text-anchor="end">{escape(bar.label)}</text>',
        f'<rect x="{begin:.1f}" y="{top}" width="{max(end - begin, 1):.1f}" height="{BAR_PX}" '
        f'fill="{colour}"/>',
        f'<text x="{end + 4:.1f}" y="{middle}">{bar.times:.3g}x</text>',
    ]
    if bar.goal is not None:
        at = x(bar.goal)
        parts.append(
            f'<line x1="{at:.1f}" y1="{top - 2}" x2="{at:.1f}" y2="{top + BAR_PX + 2}" '
            f'stroke="black" stroke-width="2"/>'
        )
    return parts
