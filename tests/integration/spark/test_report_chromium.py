"""Report pages in a real browser: nothing is blocked, nothing spills, everything can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.spark.report import Cell, Report
from tests.integration.spark.chromium_kit import opened
from tests.unit.spark.report_kit import REPORTS

pytestmark = pytest.mark.slow

PAGES = {name: make().to_html() for name, make in REPORTS.items()}


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_every_page_on_a_phone_and_on_a_desk(tmp_path: Path, *, is_dark: bool) -> None:
    seen = opened(tmp_path, PAGES, is_dark=is_dark)
    assert seen.console == []
    assert set(seen.found) == {f"{name} {width}" for name in PAGES for width in (360, 1200)}
    for name, found in seen.found.items():
        kind = name.split()[0]
        assert found["spill"] == 0, name
        assert found["figures"] == PAGES[kind].count("<figure>"), name
        assert found["tables"] == PAGES[kind].count("<table>"), name
        assert (found["flat"], found["overlaps"], found["outside"]) == (0, [], []), name
        assert found["textPx"] >= 9, name
        # What WCAG asks of text of this size at level AA.
        assert found["contrast"] >= 4.5, name
        assert (found["paper"] == "rgb(20, 24, 29)") == is_dark, name


def test_names_as_wide_as_they_get_and_hostile_ones(tmp_path: Path) -> None:
    wide, evil = "W" * 127, "<img src=x onerror=\"document.title='run'\"><script>1</script>"
    report = Report(job="lag", source=evil, numbers={evil: evil})
    names = (wide, evil, "\u5b57" * 60)
    rows: list[list[Cell]] = [[name, name, 10**15, 1e9] for name in names]
    columns = ["group", "topic", "messages behind", "seconds behind"]
    report.add_table("Groups", columns, rows)
    report.add_finding(wide, wide, wide)
    seen = opened(tmp_path, {"wide": report.to_html()})
    assert seen.console == []
    for found in seen.found.values():
        assert (found["spill"], found["figures"], found["overlaps"]) == (0, 2, [])


def test_a_notebook_has_its_own_theme(tmp_path: Path) -> None:
    """JupyterLab and VS Code say what theme they have; the system may have the other one."""
    part = REPORTS["lag"]()._repr_html_()
    themes = {
        "jupyter": '<body data-jp-theme-light="false">',
        "code": '<body class="vscode-dark">',
        "light": '<body data-jp-theme-light="true">',
    }
    pages = {name: f"<!DOCTYPE html>{body}{part}" for name, body in themes.items()}
    for is_dark in (False, True):
        seen = opened(tmp_path, pages, is_dark=is_dark)
        for name, found in seen.found.items():
            light = name.startswith("light")
            assert found["paper"] == ("rgb(255, 255, 255)" if light else "rgb(20, 24, 29)"), name
            assert found["contrast"] >= 4.5, name


def test_a_script_would_be_noticed(tmp_path: Path) -> None:
    """The policy of the page stops it, and the tests above would see that."""
    page = PAGES["tier"].replace("</body>", "<script>1</script></body>")
    assert any("Content Security Policy" in line for line in opened(tmp_path, {"x": page}).console)
