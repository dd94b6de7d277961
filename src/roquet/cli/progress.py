"""A progress bar for work over many bytes.

It is drawn on standard error and only on a terminal, so that neither results nor logs see it.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def progress_bar(label: str, total_bytes: int) -> Iterator[Advance]:
    """Show a bar while the block runs; what is yielded takes the number of bytes done so far."""
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
