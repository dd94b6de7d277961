"""Chooses the charts of a report.

A chart is drawn from one table, found by its title and columns, or from the numbers of
``capacity``; a table that has no rule stays a table. Cells that are no numbers are left out, so a
report with gaps has smaller charts, and a chart without a value is not drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from roquet.spark.report import OTHERS, Cell, Report, Table
from roquet.spark.report_svg import (
    SERIES_MAX,
    Bar,
    Forecast,
    Format,
    Spread,
    bars,
    columns,
    counts,
    forecast,
    spreads,
)
from roquet.spark.report_text import duration_text, size_text

__all__ = ["charts_of", "time_bins"]

_LARGEST = 2**63
_ROWS_MAX = 12
_BINS_MAX = 72
_BIN_HOURS = (1, 2, 3, 6, 12, 24, 48, 168, 720, 8_760)
_FORECAST_DAYS_MAX = 365.0


def charts_of(report: Report) -> list[str]:
    """Return the charts of a report as HTML, traffic first."""
    drawn = list(_forecast(report))
    for rule in _RULES:
        for table in report.tables:
            if rule.fits(table):
                drawn += rule.draw(table)
    if not any(table.title == _KINDS for table in report.tables):
        drawn += _finding_bars(report)
    return [each for each in drawn if each]


class _Rule(NamedTuple):
    """What is drawn from the tables that have some columns."""

    title: str
    needed: frozenset[str]
    draw: Callable[[Table], Iterable[str]]

    def fits(self, table: Table) -> bool:
        return self.needed <= set(table.columns) and table.title.startswith(self.title)


def _number(cell: Cell) -> float | None:
    """Return the value of a cell that can be drawn."""
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return None
    return max(float(cell), 0.0) if -_LARGEST <= cell <= _LARGEST else None


def _column(table: Table, name: str) -> list[Cell]:
    at = table.columns.index(name)
    return [row[at] for row in table.rows]


def _names(table: Table, *wanted: str) -> list[str]:
    """Return a label for each row: its cells of some columns."""
    found = [_column(table, name) for name in wanted]
    return [
        " · ".join(str(cell) for cell in row if cell is not None) or "–"  # noqa: RUF001
        for row in zip(*found, strict=True)
    ]


# ----------------------------------------------------------------------------------------- bars


def _top(
    title: str, labels: Sequence[str], cells: Sequence[Cell], form: Format = counts, note: str = ""
) -> str:
    """Draw the largest sums by label."""
    sums: dict[str, float] = {}
    for name, cell in zip(labels, cells, strict=True):
        value = _number(cell)
        if value is not None:
            sums[name] = sums.get(name, 0.0) + value
    if not any(sums.values()):
        return ""
    chosen = sorted(sums.items(), key=lambda each: (-each[1], each[0]))[:_ROWS_MAX]
    if len(sums) > len(chosen):
        note = f"{note} the largest {len(chosen)} of {len(sums):,}".strip()
    return bars(title, [Bar(*each) for each in chosen], form, note=note)


def _group_columns(table: Table) -> list[str]:
    """Return what ``stats`` groups by."""
    return table.columns[: table.columns.index("messages")]


def _of_groups(table: Table) -> Iterable[str]:
    by = _group_columns(table)
    if "hour" in by or "day" in by:
        return
    labels, words = _names(table, *by), " and ".join(by)
    yield _top(f"Bytes by {words}", labels, _column(table, "bytes"), size_text)
    found = [
        _column(table, name) for name in ("p50 ms to store", "p99 ms to store", "max ms to store")
    ]
    yield _durations(f"Latency to store by {words}", labels, *found)


def _durations(title: str, labels: Sequence[str], *cells: Sequence[Cell]) -> str:
    rows = []
    for name, *found in zip(labels, *cells, strict=True):
        values = [_number(cell) for cell in found]
        if None not in values:
            rows.append(Spread(name, *(value or 0.0 for value in values)))
    if not rows:
        return ""
    rows.sort(key=lambda each: (-each.p99, -each.most, each.label))
    note = f"the slowest {_ROWS_MAX} of {len(rows):,}" if len(rows) > _ROWS_MAX else ""
    return spreads(title, rows[:_ROWS_MAX], note=note)


def _of_hops(table: Table) -> Iterable[str]:
    labels = _names(table, *table.columns[: table.columns.index("messages")])
    found = [_column(table, name) for name in ("p50 ms", "p99 ms", "max ms")]
    yield _durations(f"{table.title}: time", labels, *found)
    yield _top(f"{table.title}: failed", labels, _column(table, "failed"))


def _of_skew(table: Table) -> Iterable[str]:
    yield _top(
        "Skew by topic",
        _names(table, "topic"),
        _column(table, "most to mean"),
        note="messages of the fullest queue to those of the mean one",
    )


def _of_lag_groups(table: Table) -> Iterable[str]:
    labels = _names(table, "group", "topic")
    yield _top("Messages behind by group", labels, _column(table, "messages behind"))
    times = [
        None if (value := _number(cell)) is None else value * 1000
        for cell in _column(table, "seconds behind")
    ]
    note = "age of the oldest message not consumed"
    yield _top("Time behind by group", labels, times, duration_text, note)


def _of_lag_queues(table: Table) -> Iterable[str]:
    labels = _names(table, "group", "topic", "broker", "queue")
    yield _top("Messages behind by queue", labels, _column(table, "messages behind"))


_KINDS = "Findings by kind"


def _of_kinds(table: Table) -> Iterable[str]:
    kinds = zip(_names(table, "kind"), _column(table, "count"), strict=True)
    rows = [(kind, value) for kind, cell in kinds if (value := _number(cell)) is not None]
    rows.sort(key=lambda each: -each[1])
    if rows:
        yield bars(_KINDS, [Bar(*each, is_bad=True) for each in rows[:_ROWS_MAX]])


def _finding_bars(report: Report) -> Iterable[str]:
    kinds: dict[str, int] = {}
    for each in report.findings:
        kinds[each.kind] = kinds.get(each.kind, 0) + 1
    if len(kinds) > 1:
        rows: list[list[Cell]] = [[*each] for each in kinds.items()]
        yield from _of_kinds(Table(_KINDS, ["kind", "count"], rows))


# ----------------------------------------------------------------------------------------- time


def time_bins(hours: Sequence[datetime], *, least_hours: int = 1) -> tuple[list[str], list[int]]:
    """Divide a span of time into few enough bins of equal length.

    Args:
        hours: The beginnings of hours, in any order; at least one.
        least_hours: The least length of a bin.

    Returns:
        The label of each bin, and for each hour the number of its bin.

    Example:
        >>> time_bins([datetime(2026, 11, 15, 9), datetime(2026, 11, 15, 11)])
        (['09:00', '10:00', '11:00'], [0, 2])
    """
    epoch = datetime(1, 1, 1)  # noqa: DTZ001 - a label of a report, in the zone of its session
    numbers = [(each - epoch) // timedelta(hours=1) for each in hours]
    least = max((max(numbers) - min(numbers)) // _BINS_MAX + 1, least_hours)
    length = next((each for each in _BIN_HOURS if each >= least), least)
    first = min(numbers) // length
    places = [number // length - first for number in numbers]
    begins = [epoch + timedelta(hours=(first + at) * length) for at in range(max(places) + 1)]
    if length >= 24:
        form = "%Y-%m-%d"
    elif begins[0].date() == begins[-1].date():
        form = "%H:00"
    else:
        form = "%m-%d %H:00"
    return [each.strftime(form) for each in begins], places


def _moment(cell: Cell) -> datetime | None:
    if not isinstance(cell, str):
        return None
    for form in ("%Y-%m-%d %H:00", "%Y-%m-%d"):
        try:
            return datetime.strptime(cell, form)  # noqa: DTZ007 - as above
        except ValueError:
            continue
    return None


def _over_time(
    title: str, times: Sequence[Cell], names: Sequence[str], cells: Sequence[Cell], form: Format
) -> str:
    """Draw sums by time, stacked by name; names beyond the number of colours are one."""
    found = [
        (moment, name, value)
        for time, name, cell in zip(times, names, cells, strict=True)
        if (moment := _moment(time)) is not None and (value := _number(cell))
    ]
    if not found:
        return ""
    sums: dict[str, float] = {}
    for _, name, value in found:
        if name != OTHERS:
            sums[name] = sums.get(name, 0.0) + value
    shown = sorted(sums, key=lambda name: (-sums[name], name))
    has_others = len(shown) > SERIES_MAX or any(name == OTHERS for _, name, _ in found)
    if has_others:
        shown = [*shown[: SERIES_MAX - 1], OTHERS]
    has_hours = any(moment.hour for moment, _, _ in found)
    moments = [moment for moment, _, _ in found]
    labels, places = time_bins(moments, least_hours=1 if has_hours else 24)
    series = {name: [0.0] * len(labels) for name in shown}
    for at, (_, name, value) in zip(places, found, strict=True):
        series[name if name in series else OTHERS][at] += value
    return columns(title, labels, list(series.items()), form)


def _of_hours(table: Table) -> Iterable[str]:
    hours, topics = _column(table, "hour"), _names(table, "topic")
    yield _over_time("Messages over time", hours, topics, _column(table, "messages"), counts)
    yield _over_time("Bytes over time", hours, topics, _column(table, "bytes"), size_text)


def _of_days(table: Table) -> Iterable[str]:
    names = [""] * len(table.rows)
    yield _over_time(
        "Bytes by day", _column(table, "day"), names, _column(table, "bytes"), size_text
    )


def _of_written(table: Table) -> Iterable[str]:
    days, topics = _column(table, "day"), _names(table, "topic")
    yield _over_time("Messages written by day", days, topics, _column(table, "messages"), counts)


def _of_sizes(table: Table) -> Iterable[str]:
    found = {
        int(size): value
        for cell, amount in zip(
            _column(table, "up to bytes"), _column(table, "messages"), strict=True
        )
        if (size := _number(cell)) is not None and (value := _number(amount)) is not None
    }
    sizes = [1 << power for power in range(64)]
    sizes = [size for size in sizes if min(found, default=1) <= size <= max(found, default=0)]
    if sizes:
        values = [found.get(size, 0.0) for size in sizes]
        labels = [f"≤ {size_text(size)}" for size in sizes]
        yield columns("Messages by size of their record", labels, [("messages", values)])


# ------------------------------------------------------------------------------------- forecast


def _forecast(report: Report) -> Iterable[str]:
    """Draw the forecast of ``capacity``."""
    numbers: Mapping[str, Cell] = report.numbers
    found = [
        _number(numbers.get(name))
        for name in ("storeBytes", "freeBytes", "bytesADay", "bytesWhenSteady")
    ]
    if report.job != "capacity" or None in found:
        return
    used, free, rate, steady = (value or 0.0 for value in found)
    disk = used + free
    goal = min(max(steady, used), disk)
    days = (goal - used) / rate if rate > 0 else 0.0
    if steady > disk:
        note = f"the disk is full in {days:.1f} days"
    else:
        note = "the disk is large enough"
        if disk > 4 * goal:
            note = f"{note}: {size_text(disk)}"
    if days > _FORECAST_DAYS_MAX:
        points = [(0.0, used), (_FORECAST_DAYS_MAX, used + rate * _FORECAST_DAYS_MAX)]
    else:
        points = [(0.0, used), (days, goal), (max(days * 1.3, 1.0), goal)]
    limit = disk if disk <= 4 * goal else None
    yield forecast("Size of the store", Forecast(points, limit), note=note)


def _of_topics(table: Table) -> Iterable[str]:
    labels = _names(table, "topic")
    yield _top("Growth by topic", labels, _column(table, "bytes a day"), size_text, "a day")


# ---------------------------------------------------------------------------------------- rules


def _of_letters(table: Table) -> Iterable[str]:
    letters = _column(table, "letters")
    yield _top("Dead letters by group", _names(table, "group"), letters)
    yield _top("Dead letters by reason", _names(table, "reason"), letters)


def _of_segments(table: Table) -> Iterable[str]:
    words = _names(table, "what")
    yield _top("Bytes by what happens to their segment", words, _column(table, "bytes"), size_text)


def _of_hot_keys(table: Table) -> Iterable[str]:
    yield _top("Hot keys", _names(table, "topic", "key"), _column(table, "messages"))


def _of_sent(table: Table) -> Iterable[str]:
    yield _top("Messages sent", _names(table, "to topic"), _column(table, "messages"))


def _of_messages(table: Table) -> Iterable[str]:
    yield _top("Messages by topic", _names(table, "topic"), _column(table, "messages"))


_RULES = (
    _Rule("Hours", frozenset({"hour", "topic", "messages", "bytes"}), _of_hours),
    _Rule("By ", frozenset({"messages", "bytes", "p50 ms to store"}), _of_groups),
    _Rule("Sizes", frozenset({"up to bytes", "messages"}), _of_sizes),
    _Rule("Queues", frozenset({"topic", "most to mean"}), _of_skew),
    _Rule("Hot keys", frozenset({"topic", "key", "messages"}), _of_hot_keys),
    _Rule("Groups", frozenset({"group", "topic", "messages behind"}), _of_lag_groups),
    _Rule("Queues", frozenset({"group", "broker", "messages behind"}), _of_lag_queues),
    _Rule("Topics", frozenset({"topic", "bytes a day"}), _of_topics),
    _Rule("Days", frozenset({"day", "bytes"}), _of_days),
    _Rule("Send", frozenset({"messages", "failed", "p50 ms"}), _of_hops),
    _Rule("Wait", frozenset({"messages", "failed", "p50 ms"}), _of_hops),
    _Rule("Consume", frozenset({"messages", "failed", "p50 ms"}), _of_hops),
    _Rule("Written", frozenset({"topic", "day", "messages"}), _of_written),
    _Rule("Groups", frozenset({"group", "reason", "letters"}), _of_letters),
    _Rule("Segments", frozenset({"bytes", "what"}), _of_segments),
    _Rule("Sent", frozenset({"to topic", "messages"}), _of_sent),
    _Rule("Messages", frozenset({"topic", "messages"}), _of_messages),
    _Rule(_KINDS, frozenset({"kind", "count"}), _of_kinds),
)
