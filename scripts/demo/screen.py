"""Headings and small charts for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

BAR_CELLS = 40
_BLOCKS = " ▁▂▃▄▅▆▇█"


def say(text: str) -> None:
    """Print the heading of a step."""
    click.secho(f"\n== {text}", bold=True)


def bars(title: str, values: Mapping[str, float]) -> None:
    """A bar for each value, the longest first.

    Example:
        bars("revenue", {"books": 310.5, "tools": 120.0})
    """
    most = max(values.values(), default=0) or 1
    width = max(map(len, values), default=0)
    click.echo(title)
    for name, value in sorted(values.items(), key=lambda each: -each[1]):
        cells = "█" * max(round(BAR_CELLS * value / most), 1)
        click.echo(f"  {name.ljust(width)}  {click.style(cells, fg='cyan')} {value:,.0f}")


def spark_line(title: str, values: Sequence[float]) -> None:
    """Print a sparkline of the values."""
    most = max(values, default=0) or 1
    line = "".join(_BLOCKS[round(8 * value / most)] for value in values)
    click.echo(f"{title}  {click.style(line, fg='cyan')}  most {most:,.0f}")
