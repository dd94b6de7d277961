"""The output while a benchmark runs.

Everything goes to standard error; results go to standard output. On a terminal a bar shows how much
of the run is done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def say(text: str) -> None:
    """Print a line."""
    if _console.is_terminal:
        _console.print(text)
    else:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


@contextmanager
def steps_bar(count: int) -> Iterator[Callable[[str], None]]:
    """Count the steps of a run; yields a function that is called with the name of each one."""
    done = 0

    def say_step(name: str) -> None:
        nonlocal done
        done += 1
        say(f"[{done}/{count}] {name}")

    if not _console.is_terminal:
        yield say_step
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=_console, transient=True) as bar:
        task = bar.add_task("", total=count)

        def show_step(name: str) -> None:
            nonlocal done
            bar.update(task, description=name, completed=done)
            done += 1

        yield show_step
