"""The rows of the broker's benchmark, and how its table shows results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

import benchmarks
from benchmarks import ha, nats, rows
from benchmarks.broker import (
    APACHE,
    ROQUET,
    Numbers,
    goal_beside_roquet,
    make_lines,
    make_sides,
    parse,
    stages,
)
from benchmarks.report import Line
from benchmarks.scenarios import DD_KEY, LOG_RATE_KEY


def result(rate: float, *, failed: float = 0, memory: float = 20) -> dict[str, float]:
    values = {rows.RATE_KEY: rate, "failed": failed, "p99_us": 9.0, "p50_us": 5.0}
    return {**values, rows.CPU_KEY: 2.0, rows.ANONYMOUS: memory}


def found(numbers: Numbers, *names: str) -> dict[tuple[str, str, str], Line]:
    lines = make_lines(numbers, rows.chosen(names))
    return {(line.row, line.measure, line.peer): line for line in lines}


def test_the_median_of_the_rounds_is_used() -> None:
    numbers = Numbers()
    numbers.results[APACHE, "send-json"] += [
        result(100, failed=3),
        result(90),
        result(10, failed=4),
    ]
    numbers.results[ROQUET, "send-json"] += [result(540, memory=60), result(9_999), result(400)]
    lines = found(numbers, "send-json")
    rate = lines["send", "messages/s", ""]
    assert (rate.theirs, rate.ours, rate.passed) == (90, 540, True)
    assert lines["send", "broker CPU us/message", ""].passed is False
    refused = lines["send", "refused", ""]
    assert (refused.theirs, refused.ours, refused.passed) == (7, 0, True)
    memory = lines["send", "anonymous MB at most", ""]
    assert (memory.ours, memory.passed) == (60, False), "20 MB of the peer are not twenty times 60"


def test_a_row_of_one_side_only_is_no_failure() -> None:
    numbers = Numbers()
    numbers.results[ROQUET, "send-json"].append(result(10))
    assert {line.passed for line in make_lines(numbers, rows.chosen(["send-json"]))} == {None, True}


def test_far_pulls_are_compared_with_near_ones() -> None:
    numbers = Numbers()
    numbers.results[ROQUET, "pull-json"].append(result(100))
    numbers.results[ROQUET, "pull-far"].append(result(69))
    line = found(numbers, "pull-far")["pull far, resident", "part of our own rate near the end", ""]
    assert (line.ours, line.passed) == (0.69, False)


def test_cold_pulls_are_compared_with_dd() -> None:
    numbers = Numbers()
    numbers.results[ROQUET, rows.PULL_COLD].append(
        {**result(100), LOG_RATE_KEY: 90.0, DD_KEY: 100.0}
    )
    line = found(numbers, rows.PULL_COLD)["pull cold", "part of the speed of dd", ""]
    assert (line.ours, line.passed) == (0.9, True)


def test_many_topics_are_compared_with_one() -> None:
    numbers = Numbers()
    numbers.results[ROQUET, rows.TOPICS].append({**result(70), rows.START_KEY: 1.5})
    work = "10,000 topics of 8 queues"
    assert found(numbers, rows.TOPICS)[work, "s until a message is stored", ""].ours == 1.5
    assert (work, "part of our own rate with one topic", "") not in found(numbers, rows.TOPICS)
    numbers.results[ROQUET, "send-json"].append(result(100))
    line = found(numbers, rows.TOPICS)[work, "part of our own rate with one topic", ""]
    assert line.passed is False


def test_further_peers_have_lines_of_their_own() -> None:
    numbers = Numbers()
    numbers.results[APACHE, "pull-256"].append(result(50))
    numbers.results[ROQUET, "pull-256"].append(result(200))
    numbers.results["Kafka", "pull-256"].append({rows.RATE_KEY: 400.0, rows.CPU_KEY: 1.0})
    lines = found(numbers, "pull-256")
    assert lines["pull near, 256", "messages/s", "Kafka"].ratio == 0.5
    assert lines["pull near, 256", "messages/s", "Kafka"].passed is None
    assert lines["pull near, 256", "broker CPU us/message", "Kafka"].passed is False
    assert ("pull near, 256", "refused", "Kafka") not in lines


def test_another_roquet_must_not_be_faster() -> None:
    measures = {measure.title: measure for measure in rows.PLAIN_SEND}
    assert goal_beside_roquet(measures["messages/s"]).is_reached(100, 97) is True
    assert goal_beside_roquet(measures["messages/s"]).is_reached(100, 96) is False
    assert goal_beside_roquet(measures["broker CPU us/message"]).is_reached(2.0, 2.1) is False
    assert goal_beside_roquet(measures["refused"]).is_reached(5, 1) is False
    assert goal_beside_roquet(measures["anonymous MB at most"]).is_reached(25, 99) is True
    assert goal_beside_roquet(measures["p99 us"]).is_reached(5, 99) is None


def test_every_row_and_group_can_be_requested() -> None:
    names = (*rows.ROW_NAMES, *rows.GROUP_NAMES)
    assert len(set(rows.ROW_NAMES)) == len(rows.ROWS)
    for name in names:
        assert parse(["--only", name]).only == [name]
        assert rows.chosen([name])
    assert rows.chosen(None) == list(rows.ROWS)
    with pytest.raises(SystemExit):
        parse(["--only", "nonsense"])


def test_loads_of_the_same_settings_share_brokers() -> None:
    parts = list(stages(rows.ROWS))
    assert [settings for settings, _ in parts] == [
        rows.ASYNC,
        rows.WIDE,
        rows.SYNC,
        rows.FAR,
        rows.FILTERS,
    ]
    assert sorted(row.name for _, loads in parts for row in loads) == sorted(
        row.name for row in rows.LOADS
    )


def flags_of(program: str) -> set[str]:
    source = Path(benchmarks.__file__).parent / program / "main.go"
    return set(re.findall(r'= flag\.\w+\("([\w-]+)"', source.read_text()))


def words_of(loads: Iterable[Sequence[str]]) -> set[str]:
    return {word[1:] for load in loads for word in load if word.startswith("-")}


def test_the_load_generators_know_every_argument() -> None:
    assert words_of(row.arguments for row in rows.LOADS) <= flags_of("loadgen")
    assert words_of(row.stored for row in rows.LOADS) <= flags_of("loadgen")
    assert words_of([*(row.arguments for row in ha.ROWS), [ha.SLAVE_PID]]) <= flags_of("loadgen")
    assert words_of(nats.LOADS.values()) <= flags_of("natsclient")


def test_exactly_one_message_in_a_hundred_is_a_hit() -> None:
    options = dict(zip(rows.HITS[::2], rows.HITS[1::2], strict=True))
    of_a_connection = int(options["-window"]) * int(options["-batch"])
    assert of_a_connection % int(options["-hit-every"]) == 0


def test_roquet_is_measured_last() -> None:
    assert list(make_sides(parse(["--skip-java"]))[1]) == [ROQUET]
    peer, sides = make_sides(parse(["--against", "elsewhere"]))
    assert list(sides) == [peer, ROQUET]
