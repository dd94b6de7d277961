"""What the commands of all pipelines share: flags, starting Spark, progress, report.

Owns :func:`job_options`, which gives a command the flags of every pipeline as one :class:`JobRun`,
and :func:`run_job`, which does the rest::

    @click.command()
    @click.argument("store", type=click.Path())
    @job_options
    def stats(*, store: str, run: JobRun) -> None:
        run_job(run, "stats", lambda spark: jobs.stats(spark, store, wanted=run.wanted))
"""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click
import msgspec

from roquet.cli.output import (
    json_option,
    parse_span_ms,
    parse_time,
    print_json,
    print_table,
    printable,
)
from roquet.runtime.children import descendants, kill_descendants
from roquet.runtime.clock import SystemClock

if TYPE_CHECKING:
    from roquet.spark.jobs.inputs import Wanted
    from roquet.spark.progress import Tell
    from roquet.spark.report import Cell, Report
    from roquet.spark.session import Session

__all__ = [
    "FINDINGS_EXIT_CODE",
    "JobRun",
    "job_options",
    "parse_names",
    "parse_span",
    "print_report",
    "run_job",
    "stop_signals",
]

P = ParamSpec("P")
T = TypeVar("T")

FINDINGS_EXIT_CODE = 2

_PAGE_SUFFIXES = {".html", ".htm"}


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    """The values of the flags that all pipelines share.

    Attributes:
        master: Where Spark runs.
        conf: Settings of Spark.
        topics: Names of topics; empty for all.
        from_ms: Store time of the first message.
        to_ms: Store time of the end, which is excluded.
        is_dry_run: Only report what would be done.
        report: Files for the report.
        as_json: Print the report as JSON.
    """

    master: str
    conf: dict[str, str]
    topics: tuple[str, ...]
    from_ms: int | None
    to_ms: int | None
    is_dry_run: bool
    report: tuple[Path, ...]
    as_json: bool

    @property
    def wanted(self) -> Wanted:
        """Which messages."""
        from roquet.spark.jobs.inputs import Wanted

        return Wanted(topics=self.topics, from_ms=self.from_ms, to_ms=self.to_ms)


def parse_names(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[str, ...]:
    """Names separated by commas, as the callback of an option."""
    return tuple(name.strip() for name in (value or "").split(",") if name.strip())


def _settings(
    _context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]
) -> dict[str, str]:
    settings = {}
    for each in value:
        key, sign, setting = each.partition("=")
        if not (key and sign):
            raise click.BadParameter(f"{each!r} is not of the form KEY=VALUE.")
        settings[key] = setting
    return settings


_SIZE = re.compile(r"(\d{1,9})([kmg])i?b?", re.IGNORECASE)
_SHIFTS = {"k": 10, "m": 20, "g": 30}
_SIZE_BYTES_MIN, _SIZE_BYTES_MAX = 1 << 20, 4 << 30


def parse_span(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> int | None:
    """A duration in milliseconds, as the callback of an option."""
    span_ms = None if value is None else parse_span_ms(value)
    if value is not None and span_ms is None:
        raise click.BadParameter(f"{value!r} is not a duration such as 30s, 5m or 24h.")
    return span_ms


def parse_size(_context: click.Context, _parameter: click.Parameter, value: str) -> int:
    """A size in bytes, such as 64m, as the callback of an option."""
    found = _SIZE.fullmatch(value.strip())
    size_bytes = int(found[1]) << _SHIFTS[found[2].lower()] if found else 0
    if not _SIZE_BYTES_MIN <= size_bytes <= _SIZE_BYTES_MAX:
        raise click.BadParameter(f"{value!r} is not a size from 1m to 4g, such as 64m.")
    return size_bytes


def _report_files(
    _context: click.Context, _parameter: click.Parameter, value: tuple[Path, ...]
) -> tuple[Path, ...]:
    """Check before a long job that its report can be written."""
    for path in value:
        place = path if path.exists() else path.parent
        if not (path.parent.is_dir() and os.access(place, os.W_OK)):
            raise click.BadParameter(f"{str(path)!r} cannot be written.")
    return value


class _Ended(BaseException):
    """A signal ended the command."""


class _Signals:
    """Handles signals that end the command.

    While Spark starts there is nothing to stop yet, so its process is killed; later, Spark is
    stopped on the way out, unless a second signal kills it.
    """

    def __init__(self) -> None:
        self._has_begun = False
        self._others = frozenset(descendants())
        self.came: int | None = None

    def hear(self, number: int, _frame: FrameType | None) -> None:
        if self.came is not None or not self._has_begun:
            kill_descendants(self._others)
        self.came = self.came or number
        raise _Ended

    def begin(self) -> None:
        """Spark has started."""
        self._has_begun = True


@contextmanager
def _ended_by_signals() -> Iterator[_Signals]:
    """Let SIGINT and SIGTERM end the command cleanly, without a traceback.

    Raises:
        click.exceptions.Exit: After a signal, with the exit code that shells use for it.
    """
    signals, kept = _Signals(), {}
    if threading.current_thread() is threading.main_thread():
        kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in kept:
        signal.signal(number, signals.hear)
    try:
        yield signals
    except (_Ended, Exception):
        # What fails after a signal fails because of it: Spark is gone.
        if signals.came is None:
            raise
        click.echo(f"Ended by {signal.Signals(signals.came).name} before it was done.", err=True)
        raise click.exceptions.Exit(128 + signals.came) from None
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that SIGINT or SIGTERM sets, for work without an end.

    A second signal has its usual effect.
    """
    stopping = threading.Event()
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def hear(_number: int, _frame: FrameType | None) -> None:
        stopping.set()
        for number, handler in kept.items():
            signal.signal(number, handler)

    for number in kept:
        signal.signal(number, hear)
    try:
        yield stopping
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


_FLAGS = (
    click.option("--master", default="local[*]", show_default=True, help="The Spark master."),
    click.option(
        "--conf", multiple=True, callback=_settings, metavar="KEY=VALUE", help="A Spark setting."
    ),
    click.option(
        "--topics", callback=parse_names, metavar="NAMES", help="Only these, comma-separated."
    ),
    click.option(
        "--from", "from_ms", callback=parse_time, metavar="TIME", help="First store time."
    ),
    click.option(
        "--to", "to_ms", callback=parse_time, metavar="TIME", help="Store time to stop before."
    ),
    click.option("--dry-run", "is_dry_run", is_flag=True, help="Only show what would be done."),
    click.option(
        "--report",
        multiple=True,
        callback=_report_files,
        type=click.Path(dir_okay=False, path_type=Path),
        help="Write the report to this file too: a page if it is *.html, otherwise JSON.",
    ),
    json_option,
)


def job_options(command: Callable[P, T]) -> Callable[P, T]:
    """Add the flags of every pipeline to a command, which receives them as ``run``.

    The command runs only where the extra ``spark`` is installed, so it may import what it needs.
    """

    @functools.wraps(command)
    def with_run(*args: P.args, **kwargs: P.kwargs) -> T:
        from roquet.spark.extra import check_extra

        check_extra()
        fields = {name: kwargs.pop(name) for name in JobRun.__struct_fields__}
        kwargs["run"] = JobRun(**fields)  # type: ignore[arg-type]
        return command(*args, **kwargs)

    decorated: Callable[P, T] = with_run
    for flag in reversed(_FLAGS):
        decorated = flag(decorated)
    return decorated


def run_job(
    run: JobRun, name: str, work: Callable[[Session], Report], *, is_short: bool = True
) -> None:
    """Start Spark, run the work under a progress bar, print the report, exit with its code.

    Args:
        run: The values of the flags.
        name: The job's name.
        work: The pipeline.
        is_short: Whether it takes only seconds, so that the startup time matters.
    """
    from roquet.spark.progress import watched
    from roquet.spark.report import iso_time
    from roquet.spark.session import open_session, spoken_failures

    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    with (
        _ended_by_signals() as signals,
        _bar(name) as tell,
        open_session(app_name=name, master=run.master, conf=run.conf, is_short=is_short) as session,
        watched(session, tell),
        spoken_failures(),
    ):
        signals.begin()
        report = work(session)
    report.seconds = round((clock.monotonic_ns() - began_ns) / 1e9, 3)
    report.is_dry_run = run.is_dry_run
    report.finished_at = iso_time(clock.now_ms())
    for path in run.report:
        path.write_bytes(_written(report, path))
    if run.as_json:
        print_json(report)
    else:
        print_report(report)
    if report.has_findings:
        raise click.exceptions.Exit(FINDINGS_EXIT_CODE)


def _written(report: Report, path: Path) -> bytes:
    if path.suffix.lower() in _PAGE_SUFFIXES:
        return report.to_html().encode()
    return msgspec.json.format(msgspec.json.encode(report))


@contextmanager
def _bar(name: str) -> Iterator[Tell | None]:
    """A bar of tasks on standard error, on a terminal only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(f"{name}: starting Spark", total=None)

        def tell(done: int, total: int) -> None:
            bar.update(task, description=name, completed=done, total=total or None)

        yield tell


def print_report(report: Report) -> None:
    """Print a report for people."""
    heading = f"{report.job} of {report.source}" + (" (dry run)" if report.is_dry_run else "")
    print_table(
        heading,
        ["number", "value"],
        [[name, _cell(value)] for name, value in report.numbers.items()],
        numbers=["value"],
    )
    for table in report.tables:
        numeric = [
            column
            for at, column in enumerate(table.columns)
            if table.rows and all(isinstance(row[at], int | float | None) for row in table.rows)
        ]
        rows = [[_cell(cell) for cell in row] for row in table.rows]
        print_table(table.title, table.columns, rows, numbers=numeric)
    if report.findings:
        rows = [
            [each.kind, printable(each.where), printable(each.detail)] for each in report.findings
        ]
        print_table("Findings", ["kind", "where", "detail"], rows)
    for output in report.outputs:
        click.echo(f"written: {output}")


def _cell(value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, int):
        return f"{value:,}"
    return printable(value)
