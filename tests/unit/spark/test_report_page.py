"""Reports as HTML: what is drawn, and that nothing in a report can become markup."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from datetime import datetime
from html.parser import HTMLParser

import msgspec
import pytest

from roquet.spark.report import Cell, Finding, Report, Table
from roquet.spark.report_charts import charts_of, time_bins
from roquet.spark.report_page import ROWS_MAX
from roquet.spark.report_style import STYLE
from roquet.spark.report_text import value_text
from tests.unit.spark.report_kit import REPORTS, capacity_report, stats_report

EVIL = "\"><script>alert(1)</script><img src=//x onerror=a>'&\x00\x1b\u202e\ud800\u2028"

TAGS = """
html head meta title style body article header h1 p dl div dt dd figure figcaption small svg g rect
line circle polygon polyline text ul li section h2 table thead tbody tr th td span footer
"""
VOID = {"meta", "rect", "line", "circle", "polygon"}
ATTRIBUTES = """
charset class title lang name content http-equiv scope colspan role aria-label aria-hidden viewbox x
y width height rx cx cy r x1 x2 y1 y2 points
"""


class Page(HTMLParser):
    """Checks a page as it is parsed, and collects what it shows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.captions: list[str] = []
        self.cells: list[str] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        assert tag in TAGS.split(), tag
        assert {name for name, _ in attrs} <= set(ATTRIBUTES.split()), attrs
        if tag in VOID:
            return
        self._open.append(tag)
        if tag == "figcaption":
            self.captions.append("")
        if tag == "td":
            self.cells.append("")

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data
        if "figcaption" in self._open and "small" not in self._open:
            self.captions[-1] += data
        if "td" in self._open:
            self.cells[-1] += data


@pytest.mark.parametrize(
    ("kind", "captions"),
    [
        (
            "stats",
            [
                *("Messages over time", "Bytes over time", "Bytes by topic"),
                *("Latency to store by topic", "Messages by size of their record"),
                *("Skew by topic", "Hot keys"),
            ],
        ),
        (
            "lag",
            [
                *("Messages behind by group", "Time behind by group", "Messages behind by queue"),
                "Findings by kind",
            ],
        ),
        ("capacity", ["Size of the store", "Growth by topic", "Bytes by day"]),
        (
            "trace",
            [
                *("Send: time", "Send: failed", "Wait: time", "Consume: time"),
                "Consume: failed",
            ],
        ),
        ("audit", ["Findings by kind"]),
        ("archive", ["Messages written by day"]),
        ("dlq", ["Dead letters by group", "Dead letters by reason"]),
        ("tier", ["Bytes by what happens to their segment"]),
    ],
)
def test_every_job_has_its_charts_and_all_of_its_tables(kind: str, captions: list[str]) -> None:
    report = REPORTS[kind]()
    page = Page(report.to_html())
    assert [each.strip() for each in page.captions] == captions
    for table in report.tables:
        assert table.title in page.words
        for row in table.rows[:ROWS_MAX]:
            texts = [value_text("", cell) for cell in row if isinstance(cell, str)]
            assert set(texts) <= set(page.cells)
    for finding in report.findings:
        assert finding.detail in page.cells


def test_a_page_needs_nothing_but_itself() -> None:
    for make in REPORTS.values():
        text = make().to_html()
        assert not re.search(r"(?i)<script|<link|<iframe|<object|@import|url\(|\bon[a-z]+=", text)
        assert "://" not in text.replace("s3://lake/messages", "")
        assert "default-src 'none'" in text


def evil(report: Report) -> Report:
    """The report with every text that may come from messages or names made hostile."""
    # The titles and columns of pipelines are fixed, and rules go by them; further ones are shown.
    rows = [
        Table(each.title, each.columns, [evil_row(row) for row in each.rows])
        for each in report.tables
    ]
    rows.append(Table(EVIL, [EVIL, "bytes"], [[EVIL, 1], [None, math.nan]]))
    return msgspec.structs.replace(
        report,
        job=report.job if report.job == "capacity" else EVIL,
        source=EVIL,
        numbers={**report.numbers, EVIL: EVIL, f"{EVIL}Bytes": math.inf},
        tables=rows,
        findings=[*(Finding(EVIL, EVIL, EVIL) for _ in range(2)), Finding("a", "b", "c")],
        outputs=[EVIL],
        finished_at=EVIL,
    )


def evil_row(row: Sequence[str | float | None]) -> list[str | float | None]:
    return [f"{cell}{EVIL}" if isinstance(cell, str) else cell for cell in row]


@pytest.mark.parametrize("kind", REPORTS)
def test_no_value_becomes_markup(kind: str) -> None:
    report = evil(REPORTS[kind]())
    for text in (report.to_html(), report._repr_html_()):
        text.encode()
        page = Page(text)
        assert "<script>alert(1)</script>" in page.words
        assert not [
            char
            for char in text
            if char != "\n" and unicodedata.category(char) in {"Cc", "Cf", "Cs"}
        ]


@pytest.mark.parametrize(
    "cell", [None, True, -5, 0, math.nan, math.inf, -math.inf, 10**400, 1e308, "x", 2**63, 1e-300]
)
def test_any_cell_can_be_shown_and_drawn(cell: str | float | None) -> None:
    for make in REPORTS.values():
        report = make()
        for table in report.tables:
            table.rows.append([cell] * len(table.columns))
            Page(report.to_html())
            table.rows[:] = [[cell] * len(table.columns)]
        report.numbers = dict.fromkeys(report.numbers, cell)
        Page(report.to_html())
        for chart in charts_of(report):
            assert not re.search(
                r'"[^"<>]*\b(nan|inf)\b[^"<>]*"', re.sub("<title>.*?</title>", "", chart)
            )


def test_a_report_without_anything_and_a_dry_run() -> None:
    assert "No findings" in Page(Report(job="verify", source="x").to_html()).words
    assert "No findings" not in Page(Report(job="stats", source="x").to_html()).words
    page = Page(Report(job="tier", source="x", is_dry_run=True, numbers={"tasks": 3}).to_html())
    assert "tier (dry run)" in page.words
    assert "No findings" not in page.words
    empty = Report(job="lag", source="x")
    empty.add_table("Groups", ["group", "topic", "messages behind", "seconds behind"], [])
    assert Page(empty.to_html()).cells == ["none"]


def test_long_tables_and_texts_are_cut_and_say_so() -> None:
    report = Report(job="audit", source="x", numbers={"findings": 5000})
    for at in range(1000):
        report.add_finding("gap", f"queue {at}", "y" * 100_000)
    text = report.to_html()
    page = Page(text)
    assert len(page.cells) == 3 * ROWS_MAX
    assert "800 more rows" in page.words
    assert "5,000 findings" in page.words
    assert len(text) < 2_000_000


def day(year: int, month: int, number: int) -> datetime:
    return datetime.fromisoformat(f"{year:04}-{month:02}-{number:02}")


def test_a_chart_has_few_columns_however_long_the_time() -> None:
    for years in (1, 30, 9998):
        labels, places = time_bins([day(1, 1, 1), day(1 + years, 1, 1)])
        assert len(labels) <= 74
        assert (places[0], places[-1]) == (0, len(labels) - 1)
    assert time_bins([day(2026, 3, 1), day(2026, 2, 27)], least_hours=24) == (
        ["2026-02-27", "2026-02-28", "2026-03-01"],
        [2, 0],
    )


def test_the_sum_of_the_columns_is_the_sum_of_the_table() -> None:
    """No topic gets lost where there are more of them than colours."""
    report = Report(job="archive", source="x")
    rows: list[list[Cell]] = [[f"T{at}", "2026-11-15", 10, 1] for at in range(30)]
    report.add_table("Written", ["topic", "day", "messages", "files"], rows)
    (chart,) = charts_of(report)
    assert "other topics: 230" in chart
    assert chart.count(": 10") == 7


def test_the_forecast_says_what_comes() -> None:
    report = capacity_report()
    assert "the disk is full in 2.7 days" in report.to_html()
    report.numbers |= {"freeBytes": 1 << 50, "daysToFull": None}
    assert "the disk is large enough: 1 PiB" in report.to_html()
    report.numbers |= {"bytesADay": 0}
    assert "the disk is large enough" in report.to_html()
    report.numbers |= {"bytesADay": 1, "bytesWhenSteady": 1 << 60, "freeBytes": 1 << 30}
    assert "365" in report.to_html()


def test_a_notebook_gets_a_part_that_keeps_to_itself() -> None:
    part = stats_report()._repr_html_()
    assert "<html" not in part
    selectors = re.findall(r"(?:^|[}{])\s*([^{}@]+)\{", STYLE)
    assert selectors
    for selector in selectors:
        assert all(".roquet-report" in each for each in selector.split(",")), selector
