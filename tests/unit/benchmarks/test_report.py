"""Goals, how rounds count together, and the forms of a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.report import (
    NO_GOAL,
    Better,
    Goal,
    Line,
    Measure,
    Over,
    bound,
    least,
    share,
    show,
    times,
    to_json,
    to_text,
)


@pytest.mark.parametrize(
    ("goal", "theirs", "ours", "reached"),
    [
        (times(5), 100.0, 500.0, True),
        (times(5), 100.0, 499.0, False),
        (times(5), None, 499.0, None),
        (share(0.125), 80.0, 10.0, True),
        (share(0.125), 80.0, 10.1, False),
        (share(0.125), 0.0, 10.1, None),
        (bound(150), None, 150.0, True),
        (bound(150), None, 151.0, False),
        (bound(0), 400.0, 0.0, True),
        (least(0.7), None, 0.7, True),
        (least(0.7), None, 0.69, False),
        (NO_GOAL, 1.0, 2.0, None),
        (bound(150), None, None, None),
        (bound(100, share(0.05)), 2_000.0, 100.0, True),
        (bound(100, share(0.05)), 1_900.0, 100.0, False),
        (bound(100, share(0.05)), 4_000.0, 101.0, False),
        (bound(100, share(0.05)), None, 100.0, True),
    ],
)
def test_goals(goal: Goal, theirs: float | None, ours: float | None, reached: bool | None) -> None:  # noqa: FBT001
    assert goal.is_reached(theirs, ours) is reached


def test_texts_of_goals() -> None:
    goals = (times(2.5), share(0.08), least(100_000), least(0.7), bound(100, share(0.05)), NO_GOAL)
    assert [str(goal) for goal in goals] == [
        ">= 2.5x",
        "<= 0.08x",
        ">= 100,000",
        ">= 0.7",
        "<= 100, <= 0.05x",
        "",
    ]


def test_rounds_are_combined() -> None:
    assert Over.MEDIAN.of([9.0, 1.0, 3.0]) == 3.0
    assert Over.MEDIAN.of([4.0, 2.0]) == 3.0
    assert Over.SUM.of([1.0, 2.0]) == 3.0
    assert Over.PEAK.of([1.0, 2.0]) == 2.0
    assert Over.MEDIAN.of([]) is None


def test_a_measure_skips_rounds_without_it() -> None:
    measure = Measure("p99_us", "p99", Better.LESS)
    assert measure.of([{"p99_us": 7.0}, {"other": 1.0}]) == 7.0
    assert measure.of([{"other": 1.0}]) is None


LINES = [
    Line("send", "messages/s", 100.0, 512.5, times(5)),
    Line("send", "p99 us", 30.0, 20.0, share(0.5), 1, better=Better.LESS),
    Line("send", "messages/s", 400.0, 512.5, peer="Kafka"),
    Line("start", "s", None, 0.5, bound(1), 2),
]


def test_the_table_as_text() -> None:
    head, *lines = (line.split() for line in to_text(LINES).splitlines())
    assert head == ["work", "measure", "Roquet", "peer", "peer's", "ratio", "goal"]
    assert lines == [
        ["send", "messages/s", "512", "Apache", "100", "5.12x", ">=", "5x", "pass"],
        ["p99", "us", "20.0", "Apache", "30.0", "0.67x", "<=", "0.5x", "FAIL"],
        ["messages/s", "512", "Kafka", "400", "1.28x"],
        ["start", "s", "0.50", "<=", "1", "pass"],
    ]


def test_the_json_has_the_same() -> None:
    data = json.loads(to_json(LINES, {"cores": 2}))
    assert data["cores"] == 2
    rows = data["rows"]
    assert [row["passed"] for row in rows] == [True, False, None, True]
    assert [row["peer"] for row in rows] == ["Apache", "Apache", "Kafka", None]
    assert (rows[0]["ratio"], rows[0]["theirs"], rows[0]["roquet"]) == (5.125, 100.0, 512.5)
    assert (rows[0]["better"], rows[1]["better"]) == ("more", "less")


def test_show_writes_the_file_and_checks_goals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "table.json"
    facts: dict[str, object] = {"cores": 2, "heap": None}
    assert show(LINES, facts, json_file=path, is_checked=True) == 1
    assert show(LINES, facts, json_file=None, is_checked=False) == 0
    assert show(LINES[:1], facts, json_file=None, is_checked=True) == 0
    assert json.loads(path.read_text())["cores"] == 2
    assert capsys.readouterr().out.splitlines()[-1] == "cores 2"
