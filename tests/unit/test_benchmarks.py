"""The arithmetic of the broker's benchmark: what counts, and when a goal is reached."""

from __future__ import annotations

import json

import pytest

from benchmarks import client, services
from benchmarks.broker import ANONYMOUS, MANY, MEMORY, ROWS, START, Numbers, make_lines, parse
from benchmarks.load import Result
from benchmarks.report import Better, Goal, Kind, Line, to_json, to_text


@pytest.mark.parametrize(
    ("goal", "other", "ours", "reached"),
    [
        (Goal(Kind.TIMES, 5), 100.0, 500.0, True),
        (Goal(Kind.TIMES, 5), 100.0, 499.0, False),
        (Goal(Kind.TIMES, 5), None, 499.0, None),
        (Goal(Kind.SHARE, 8), 80.0, 10.0, True),
        (Goal(Kind.SHARE, 8), 80.0, 10.1, False),
        (Goal(Kind.SHARE, 8), 0.0, 10.1, None),
        (Goal(Kind.BOUND, 150), None, 150.0, True),
        (Goal(Kind.BOUND, 150), None, 151.0, False),
        (Goal(Kind.BOUND, 0), 400.0, 0.0, True),
        (Goal(), 1.0, 2.0, None),
        (Goal(Kind.BOUND, 150), None, None, None),
    ],
)
def test_goals(goal: Goal, other: float | None, ours: float | None, reached: bool | None) -> None:  # noqa: FBT001
    assert goal.is_reached(other, ours) is reached


def test_the_best_round_counts() -> None:
    assert Better.MORE.best([1.0, 3.0, 2.0]) == 3.0
    assert Better.LESS.best([2.0, 1.0, 3.0]) == 1.0


def result(rate: float, *, failed: float = 0, memory: float = 20) -> Result:
    values = {"msgs_per_s": rate, "failed": failed, "p99_us": 9.0, "p50_us": 5.0}
    return Result({**values, "broker_cpu_us_per_msg": 2.0, ANONYMOUS: memory}, "")


def test_lines_of_a_run() -> None:
    numbers = Numbers()
    numbers.results["java", "send-json"] += [result(100, failed=3), result(90, failed=4)]
    numbers.results["roquet", "send-json"] += [result(510, memory=60), result(400, memory=30)]
    numbers.results["roquet", "pure-json"] += [result(120, memory=900)]
    numbers.starts_s["roquet"] += [0.9, 1.1]
    numbers.many += [{"start_s": 4.0, ANONYMOUS: 62, "small": 200.0, "large": 100.0}]
    lines = make_lines(numbers, ["send-json", MEMORY, START, MANY])
    found = {(line.row, line.measure): line for line in lines}
    assert found["send-json", "messages/s"].ratio == pytest.approx(5.1)
    assert found["send-json", "messages/s"].passed is True
    assert found["send-json", "broker CPU us/message"].passed is False
    refused = found["send-json", "refused"]
    assert (refused.java, refused.roquet, refused.passed) == (7, 0, True)
    assert found[MEMORY, "anonymous MB under load"].roquet == 60, "the pure lane is left out"
    assert found[START, "s until a message is stored"].roquet == 0.9
    assert found[MANY, "times slower with them"].passed is False
    assert found[MANY, "s until a message is stored"].passed is True


def test_a_row_that_only_one_side_has_is_no_failure() -> None:
    numbers = Numbers()
    numbers.results["roquet", "send-json"].append(result(10))
    lines = make_lines(numbers, ["send-json"])
    assert {line.passed for line in lines} == {None, True}


def test_both_forms_say_the_same() -> None:
    lines = [
        Line("send-json", "messages/s", 100.0, 512.5, Goal(Kind.TIMES, 5)),
        Line("send-json", "p99 us", 30.0, 20.0, Goal(Kind.SHARE, 3), 1),
        Line(START, "s", None, 0.5, Goal(Kind.BOUND, 1), 2),
    ]
    head, first, second, third = to_text(lines).splitlines()
    assert head.split() == ["row", "measure", "Apache", "Roquet", "ratio", "goal"]
    assert first.split() == ["send-json", "messages/s", "100", "512", "5.12x", ">=", "5x", "pass"]
    assert second.split() == ["p99", "us", "30.0", "20.0", "0.67x", "<=", "1/3", "FAIL"]
    assert third.split() == ["start", "s", "-", "0.50", "<=", "1", "pass"]
    data = json.loads(to_json(lines, {"cores": 2}))
    assert data["cores"] == 2
    assert [row["passed"] for row in data["rows"]] == [True, False, True]
    assert data["rows"][0]["ratio"] == 5.125
    assert data["rows"][2]["java"] is None


def test_every_row_can_be_asked_for() -> None:
    for row in ROWS:
        assert parse(["--only", row.name]).only == [row.name]
    with pytest.raises(SystemExit):
        parse(["--only", "nonsense"])


def test_lines_of_delays_and_transactions() -> None:
    numbers = services.Numbers()
    numbers.plain += [result(100), result(200)]
    numbers.filled += [result(160, memory=90), result(120, memory=70)]
    numbers.late_ms += [*range(1, 100), 5_000]
    numbers.facts["s until a message is stored"] = 1.5
    numbers.facts["due messages/s delivered"] = 40_000.0
    found = {(line.row, line.measure): line for line in services.make_lines(numbers)}
    slower = found[services.SERVICES, "times slower with them"]
    assert (slower.roquet, slower.passed) == (1.25, True)
    assert found[services.SERVICES, "anonymous MB under load"].roquet == 90
    late = found[services.SERVICES, "p99 ms late under load"]
    assert (late.roquet, late.passed) == (99, True)
    assert found[services.SERVICES, "s until a message is stored"].passed is True
    assert found[services.BACKLOG, "due messages/s delivered"].roquet == 40_000
    assert services.make_lines(services.Numbers()) == []


def test_options_of_delays_and_transactions() -> None:
    options = services.parse([])
    assert (options.delayed, options.transactions) == (1_000_000, 100_000)


def test_lines_of_the_client() -> None:
    numbers = client.Numbers()
    java = {"msgs_per_s": 30_000.0, "client_cpu_us_per_msg": 35.0, "failed": 0.0}
    ours = {"msgs_per_s": 91_000.0, "client_cpu_us_per_msg": 9.0, "failed": 1.0}
    numbers.results["java", "send"] += [java, {**java, "msgs_per_s": 20_000.0}]
    numbers.results["roquet", "send"] += [{**ours, "msgs_per_s": 70_000.0}, ours]
    numbers.results["roquet", "push"].append({**ours, "failed": 0.0})
    numbers.anonymous_mb = [10, 20, 30, 30, 30, 30, 30, 30, 35, 41]
    found = {(line.row, line.measure): line for line in client.make_lines(numbers)}
    assert found["send", "messages/s"].passed is True
    assert found["send", "messages/s of one process"].passed is True
    assert found["send", "client CPU us/message"].java == 35.0
    assert (found["send", "refused"].roquet, found["send", "refused"].passed) == (2, False)
    assert found["push", "messages/s"].passed is False
    assert str(found["push", "messages/s"].goal) == ">= 100,000"
    assert found[client.MEMORY, "anonymous MB at most"].roquet == 41
    growth = found[client.MEMORY, "anonymous MB more at the end"]
    assert (growth.roquet, growth.passed) == (8, True)
    assert ("linger", "messages/s") not in found


def test_rows_of_the_client_can_be_asked_for() -> None:
    for name in client.ROW_NAMES:
        assert client.parse(["--only", name]).only == [name]
    assert client.parse([]).messages == 10_000_000
