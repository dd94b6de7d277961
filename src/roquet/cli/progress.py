"""Progress bars, for work measured in bytes and for work in parts.

They are drawn on standard error, and only on a terminal, so they reach neither results nor logs.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def progress_bar(label: str, total_bytes: int) -> Iterator[Advance]:
    """Show a bar while the block runs; yields a function to call with the bytes done so far."""
    if not sys.stderr.isatty():
        yield lambda _bytes_done: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(label, total=max(total_bytes, 1))
        yield lambda bytes_done: bar.update(task, completed=bytes_done)


@contextmanager
def part_bar(label: str) -> Iterator[Callable[[float, str], None]]:
    """Show a bar while the block runs; yields a function of the fraction done and a text."""
    if not sys.stderr.isatty():
        yield lambda _part, _words: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[words]}"),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(label, total=1.0, words="")
        yield lambda part, words: bar.update(task, completed=part, words=words)
