"""Draws the charts of report pages as SVG.

Every chart is a ``figure`` with a caption, drawn on a canvas of 420 units that fits a phone; its
colours are classes of :mod:`roquet.spark.report_style`, so one drawing serves light and dark. No
chart has an id or a script: several reports can be on one page.

Values are finite and at least 0, and there is at least one of them; the caller sees to that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from roquet.spark.report_text import duration_text, escaped, shortened, size_text, value_text

__all__ = [
    "SERIES_MAX",
    "Bar",
    "Forecast",
    "Format",
    "Spread",
    "bars",
    "columns",
    "counts",
    "forecast",
    "nice_step",
    "spreads",
]

Format = Callable[[float], str]
"""Writes a value for people."""

SERIES_MAX = 8
"""The number of colours."""

_WIDTH = 420
_LEFT = 62
_RIGHT = 8
_TOP = 10
_PLOT_HEIGHT = 180
_ROW = 36
_LABEL_WIDTH_MAX = 32


class Bar(NamedTuple):
    """A bar: its label, its value, and whether it is a problem."""

    label: str
    value: float
    is_bad: bool = False


class Spread(NamedTuple):
    """Median, 99th percentile and maximum of a duration, in milliseconds."""

    label: str
    p50: float
    p99: float
    most: float


class Forecast(NamedTuple):
    """A straight line from now on, and a limit.

    Attributes:
        points: Days from now and sizes in bytes; the first one is now.
        limit: The size that is available, if it belongs on the chart.
    """

    points: Sequence[tuple[float, float]]
    limit: float | None


def counts(value: float) -> str:
    """Write a number; large ones short.

    Example:
        >>> counts(950), counts(1_500), counts(2_000_000)
        ('950', '1.5k', '2M')
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:,.1f}".rstrip("0").rstrip(".") + unit
    return value_text("", float(value))


def nice_step(highest: float, parts: int, *, is_binary: bool = False) -> float:
    """Return the round distance of ticks that divides a scale into at most ``parts``.

    Example:
        >>> nice_step(930, 4), nice_step(5000, 4, is_binary=True)
        (250.0, 2048.0)
    """
    least = highest / parts
    if least <= 0:
        return 1.0
    if is_binary:
        return 2.0 ** math.ceil(math.log2(least))
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * each for each in (1, 2, 2.5, 5, 10) if power * each >= least * (1 - 1e-9))


def bars(title: str, rows: Sequence[Bar], form: Format = counts, *, note: str = "") -> str:
    """Draw horizontal bars, each below its label."""
    highest = max(each.value for each in rows) or 1.0
    drawn = []
    for at, each in enumerate(rows):
        y = at * _ROW
        width = max((_WIDTH - 1) * each.value / highest, 1.0 if each.value else 0.0)
        kind = "bad" if each.is_bad else "s0"
        drawn.append(
            f"<g>{_tip(f'{each.label}: {form(each.value)}')}"
            + _text(0, y + 14, shortened(each.label, _LABEL_WIDTH_MAX))
            + _text(_WIDTH, y + 14, form(each.value), "value end")
            + f'<rect class="track" x="0" y="{y + 20}" width="{_WIDTH}" height="9" rx="2"/>'
            + f'<rect class="{kind}" x="0" y="{y + 20}" width="{width:.1f}" height="9" rx="2"/></g>'
        )
    return _figure(title, note, len(rows) * _ROW, "".join(drawn))


def spreads(title: str, rows: Sequence[Spread], *, note: str = "") -> str:
    """Draw durations on a logarithmic scale: dots for p50 and p99, a ring for the maximum."""
    highest = max(each.most for each in rows)
    decades = max(math.ceil(math.log10(highest + 1)), 1)

    def place(value: float) -> float:
        return 6 + (_WIDTH - 12) * math.log10(value + 1) / decades

    height = len(rows) * _ROW + 22
    drawn = []
    for power in range(decades + 1):
        x, tick = place(10**power - 1), 10**power - 1
        shown = duration_text(tick if power == 0 else 10**power)
        anchor = "tick end" if power == decades else "tick mid" if power else "tick"
        drawn.append(f'<line class="grid" x1="{x:.1f}" y1="16" x2="{x:.1f}" y2="{height - 18}"/>')
        drawn.append(_text(x, height - 4, shown, anchor))
    for at, each in enumerate(rows):
        y = at * _ROW + 24
        x50, x99, x_most = (place(value) for value in each[1:])
        words = " / ".join(duration_text(value) for value in each[1:])
        drawn.append(
            f"<g>{_tip(f'{each.label}: p50 / p99 / max {words}')}"
            + _text(0, at * _ROW + 14, shortened(each.label, _LABEL_WIDTH_MAX - 6))
            + _text(_WIDTH, at * _ROW + 14, words, "value end")
            + f'<line class="span" x1="{x50:.1f}" y1="{y}" x2="{x_most:.1f}" y2="{y}"/>'
            + f'<circle class="ring" cx="{x_most:.1f}" cy="{y}" r="4"/>'
            + f'<circle class="s2" cx="{x99:.1f}" cy="{y}" r="4.5"/>'
            + f'<circle class="s0" cx="{x50:.1f}" cy="{y}" r="4.5"/></g>'
        )
    keys = [("s0", "p50"), ("s2", "p99"), ("ring", "max")]
    return _figure(title, note, height, "".join(drawn), keys)


def columns(
    title: str,
    labels: Sequence[str],
    series: Sequence[tuple[str, Sequence[float]]],
    form: Format = counts,
    *,
    note: str = "",
) -> str:
    """Draw stacked columns, such as hours; the first series is at the bottom.

    Args:
        title: The caption.
        labels: One for each column; as many are written as there is room for.
        series: At most :data:`SERIES_MAX` names and values, one for each column.
        form: Writes the values.
        note: What the caption adds in small letters.
    """
    totals = [sum(values) for values in zip(*(values for _, values in series), strict=True)]
    step = nice_step(max(totals), 4, is_binary=form is size_text)
    top = step * math.ceil(max(totals) / step) or step
    drawn = [_ticks(step, top, form)]
    width = (_WIDTH - _LEFT - _RIGHT) / len(labels)
    gap = min(width * 0.15, 3.0)
    for at, name in enumerate(labels):
        x, y = _LEFT + at * width + gap / 2, float(_TOP + _PLOT_HEIGHT)
        parts = []
        for color, (_, values) in enumerate(series):
            height = _PLOT_HEIGHT * values[at] / top
            if height > 0:
                y -= height
                parts.append(
                    f'<rect class="s{color}" x="{x:.2f}" y="{y:.2f}" '
                    f'width="{width - gap:.2f}" height="{height:.2f}"/>'
                )
        words = [f"{each}: {form(values[at])}" for each, values in series if values[at]]
        drawn.append(f"<g>{_tip(', '.join([name, *words]))}{''.join(parts)}</g>")
    drawn.append(_labels(labels, width))
    keys = [(f"s{color}", name) for color, (name, _) in enumerate(series)]
    content = "".join(drawn)
    return _figure(title, note, _TOP + _PLOT_HEIGHT + 24, content, keys if len(series) > 1 else ())


def forecast(title: str, line: Forecast, *, note: str = "") -> str:
    """Draw how a store grows from now on, against the size of its disk."""
    days = line.points[-1][0] or 1.0
    highest = max([*(size for _, size in line.points), line.limit or 0.0]) or 1.0
    step = nice_step(highest, 4, is_binary=True)
    top = step * math.ceil(highest * 1.02 / step)

    def place(day: float, size: float) -> str:
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * day / days
        return f"{x:.1f},{_TOP + _PLOT_HEIGHT * (1 - size / top):.1f}"

    points = " ".join(place(*each) for each in line.points)
    words = ", ".join(
        f"{'now' if not day else f'in {day:.3g} days'}: {size_text(size)}"
        for day, size in line.points
    )
    drawn = [
        _ticks(step, top, size_text),
        f'<polygon class="area" points="{place(0, 0)} {points} {place(days, 0)}"/>',
        f'<polyline class="line" points="{points}">{_tip(words)}</polyline>',
    ]
    if line.limit is not None:
        y = _TOP + _PLOT_HEIGHT * (1 - line.limit / top)
        drawn.append(
            f'<line class="limit" x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}"/>'
            + _text(_LEFT + 4, y + 14, f"disk: {size_text(line.limit)}", "tick")
        )
    day_step = nice_step(days, 5)
    for part in range(math.floor(days / day_step + 1e-9) + 1):
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * part * day_step / days
        name = "now" if part == 0 else f"{part * day_step:g} d"
        anchor = "tick end" if x > _WIDTH - 30 else "tick mid"
        drawn.append(_text(x, _TOP + _PLOT_HEIGHT + 16, name, anchor))
    return _figure(title, note, _TOP + _PLOT_HEIGHT + 24, "".join(drawn))


# ---------------------------------------------------------------------------------------- parts


def _ticks(step: float, top: float, form: Format) -> str:
    drawn = []
    for part in range(round(top / step) + 1):
        y = _TOP + _PLOT_HEIGHT * (1 - part * step / top)
        drawn.append(
            f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}"/>'
            + _text(_LEFT - 6, y + 4, form(part * step), "tick end")
        )
    return "".join(drawn)


def _labels(labels: Sequence[str], width: float) -> str:
    """Write labels below columns, as many as fit."""
    widest = max(len(each) for each in labels) * 6.6 + 10
    every = max(math.ceil(widest / width), 1)
    drawn = []
    for at in range(0, len(labels), every):
        x = _LEFT + (at + 0.5) * width
        if x + widest / 2 > _WIDTH:
            anchor, x = "tick end", float(_WIDTH)
            if at and _WIDTH - widest < _LEFT + (at - every + 0.5) * width + widest / 2:
                break
        else:
            anchor = "tick mid"
        drawn.append(_text(x, _TOP + _PLOT_HEIGHT + 16, labels[at], anchor))
    return "".join(drawn)


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}">{escaped(words)}</text>'


def _tip(words: str) -> str:
    return f"<title>{escaped(words)}</title>"


def _figure(
    title: str,
    note: str,
    height: float,
    content: str,
    keys: Sequence[tuple[str, str]] = (),
) -> str:
    small = f" <small>{escaped(note)}</small>" if note else ""
    legend = "".join(
        f'<li><svg viewBox="0 0 10 10" aria-hidden="true"><circle class="{kind}" cx="5" cy="5"'
        f' r="4"/></svg>{escaped(name)}</li>'
        for kind, name in keys
    )
    return (
        f"<figure><figcaption>{escaped(title)}{small}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {height:g}" role="img" aria-label="{escaped(title)}">'
        f"{content}</svg>{f'<ul>{legend}</ul>' if legend else ''}</figure>"
    )
