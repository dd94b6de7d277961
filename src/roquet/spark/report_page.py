"""A report as HTML: a page of its own, or a part of a notebook.

Both are self-contained: no script, no font, no picture and no address from elsewhere, which the
page's content security policy also says to the browser. Values of messages are text to it,
whatever they contain. Long tables are cut; the JSON form of the report has every row.
"""

from __future__ import annotations

from collections.abc import Sequence

from roquet.spark.report import Cell, Report, Table
from roquet.spark.report_charts import charts_of
from roquet.spark.report_style import PAGE_STYLE, STYLE
from roquet.spark.report_text import cell_text, escaped, label, value_text

__all__ = ["ROWS_MAX", "page", "part"]

ROWS_MAX = 200
"""Rows of a table, and findings, that are shown."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_LONG_VALUE = 14
_FEW = 10
_NEVER_FINDS = {"stats", "trace"}


def page(report: Report) -> str:
    """Return a report as a page of HTML."""
    title = escaped(f"{report.job} of {report.source}")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{PAGE_STYLE}</style>\n</head>\n"
        f"<body>\n{_content(report)}\n</body>\n</html>\n"
    )


def part(report: Report) -> str:
    """Return a report as a part of another page, such as a notebook."""
    return f"<style>{STYLE}</style>{_content(report)}"


def _content(report: Report) -> str:
    drawn = "".join(charts_of(report))
    charts = f'<div class="charts">{drawn}</div>' if drawn else ""
    findings = _findings(report)
    parts = [
        _heading(report),
        _numbers(report),
        # Many findings would hide the charts.
        *((findings, charts) if len(report.findings) <= _FEW else (charts, findings)),
        *(_table(table) for table in report.tables),
        _outputs(report.outputs),
        f"<footer>{escaped(_made(report))}</footer>",
    ]
    return f'<article class="roquet-report">{"".join(parts)}</article>'


def _heading(report: Report) -> str:
    dry_run = " (dry run)" if report.is_dry_run else ""
    count = len(report.findings)
    if count:
        told = _counted(report)
        state = f'<p class="state bad">{told:,} finding{"" if told == 1 else "s"}</p>'
    elif report.is_dry_run or report.job in _NEVER_FINDS:
        state = ""
    else:
        state = '<p class="state good">No findings</p>'
    return (
        f"<header><h1>{escaped(report.job)}{dry_run}</h1>"
        f"<p>{escaped(report.source)}</p>{state}</header>"
    )


def _counted(report: Report) -> int:
    """Return the number of findings; ``audit`` counts more than it lists."""
    told = report.numbers.get("findings")
    return told if isinstance(told, int) and told > len(report.findings) else len(report.findings)


def _numbers(report: Report) -> str:
    tiles = []
    for name, value in report.numbers.items():
        is_long = len(value_text(name, value)) > _LONG_VALUE
        kind = ' class="long"' if is_long else ""
        tiles.append(
            f"<div><dt>{escaped(label(name))}</dt><dd{kind}>{cell_text(name, value)}</dd></div>"
        )
    return f"<dl>{''.join(tiles)}</dl>" if tiles else ""


def _findings(report: Report) -> str:
    if not report.findings:
        return ""
    rows: list[list[Cell]] = [[each.kind, each.where, each.detail] for each in report.findings]
    return _table(Table("Findings", ["kind", "where", "detail"], rows))


def _table(table: Table) -> str:
    shown = table.rows[:ROWS_MAX]
    numeric = [
        all(isinstance(row[at], int | float | None) for row in shown)
        and any(row[at] is not None for row in shown)
        for at in range(len(table.columns))
    ]
    heads = "".join(
        f'<th scope="col"{_kind(is_number)}>{escaped(name)}</th>'
        for name, is_number in zip(table.columns, numeric, strict=True)
    )
    rows = "".join(f"<tr>{_cells(table.columns, numeric, row)}</tr>" for row in shown)
    left = len(table.rows) - len(shown)
    more = f"<p>{left:,} more rows are in the report as JSON.</p>" if left else ""
    body = rows or f'<tr><td colspan="{len(table.columns)}">none</td></tr>'
    return (
        f"<section><h2>{escaped(table.title)}</h2>"
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{more}</section>"
    )


def _cells(columns: Sequence[str], numeric: Sequence[bool], row: Sequence[Cell]) -> str:
    return "".join(
        f"<td{_kind(is_number)}>{cell_text(name, cell)}</td>"
        for name, is_number, cell in zip(columns, numeric, row, strict=True)
    )


def _kind(is_number: object) -> str:
    return ' class="number"' if is_number else ""


def _outputs(outputs: Sequence[str]) -> str:
    if not outputs:
        return ""
    rows: list[list[Cell]] = [[each] for each in outputs]
    return _table(Table("Written to", ["where"], rows))


def _made(report: Report) -> str:
    """Return when the report was made and how long that took, as far as it says."""
    when = f" at {report.finished_at}" if report.finished_at else ""
    took = f", in {report.seconds:,.1f} s" if report.seconds else ""
    return f"Made by roquet spark {report.job}{when}{took}."
