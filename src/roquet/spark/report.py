"""The report of a pipeline.

Owns one form for all pipelines: tables for people, JSON for programs, and in a notebook, or by
:meth:`Report.to_html`, a page with charts.

Example:
    >>> report = Report(job="stats", source="store")
    >>> report.numbers["messages"] = 3
    >>> report.add_table("By topic", ["topic", "messages"], [["Orders", 3]])
    >>> report.has_findings, report.table("By topic").rows
    (False, [['Orders', 3]])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

from msgspec import Struct, field

__all__ = ["OTHERS", "Cell", "Finding", "Report", "Table", "iso_time"]

Cell: TypeAlias = str | int | float | bool | None

OTHERS = "other topics"
"""Names the row of all topics that have none of their own; no topic's name has a space."""


class Finding(Struct, frozen=True):
    """A problem that a pipeline found.

    Attributes:
        kind: Its kind, one word of the pipeline's fixed set.
        where: The file, topic, queue or offset.
        detail: What is wrong there.
    """

    kind: str
    where: str
    detail: str


class Table(Struct, frozen=True):
    """Rows for people and programs."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]


class Report(Struct, kw_only=True, rename="camel"):
    """The results of a pipeline.

    Attributes:
        job: The pipeline's name.
        source: What it read: a store directory, or the name servers of a cluster.
        is_dry_run: Whether it only reported what it would do.
        numbers: Single numbers by name.
        tables: In the order in which they are shown.
        findings: Problems; a command with findings exits with code 2.
        outputs: Files, folders and topics that were written.
        seconds: How long it took.
        finished_at: When it ended, as far as that is known.
    """

    job: str
    source: str
    is_dry_run: bool = False
    numbers: dict[str, Cell] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    seconds: float = 0.0
    finished_at: str | None = None

    @property
    def has_findings(self) -> bool:
        """Whether there is a finding."""
        return bool(self.findings)

    def add_table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
        """Add a table; every row must have one cell for each column."""
        made = [list(row) for row in rows]
        assert all(len(row) == len(columns) for row in made), f"a row of {title} has other columns"
        self.tables.append(Table(title, list(columns), made))

    def add_finding(self, kind: str, where: str, detail: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(kind, where, detail))

    def table(self, title: str) -> Table:
        """Return the table with a title.

        Raises:
            KeyError: There is no such table.
        """
        for table in self.tables:
            if table.title == title:
                return table
        raise KeyError(title)

    def to_html(self) -> str:
        """Return a page with charts, which needs nothing but itself."""
        from roquet.spark.report_page import page  # noqa: PLC0415 - it draws what this owns

        return page(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from roquet.spark.report_page import part  # noqa: PLC0415 - as above

        return part(self)


def iso_time(time_ms: int | None) -> str | None:
    """Format a time for reports: ISO 8601 in UTC, to the millisecond.

    Example:
        >>> iso_time(1_794_728_026_087)
        '2026-11-15T07:33:46.087Z'
    """
    if time_ms is None:
        return None
    time = datetime.fromtimestamp(time_ms / 1000, tz=UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
