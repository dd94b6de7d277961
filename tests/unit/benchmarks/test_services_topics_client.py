"""How the benchmarks of services, topics and the client report their results."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks import client, services, topics
from benchmarks.load import Result
from benchmarks.rows import ANONYMOUS


def result(rate: float, *, failed: float = 0, memory: float = 20) -> Result:
    values = {"msgs_per_s": rate, "failed": failed, "p99_us": 9.0, "p50_us": 5.0}
    return Result({**values, "broker_cpu_us_per_msg": 2.0, ANONYMOUS: memory}, "")


def test_lines_of_delays_and_transactions() -> None:
    numbers = services.Numbers()
    numbers.plain += [result(100), result(200)]
    numbers.filled += [result(160, memory=90), result(120, memory=70)]
    numbers.late_ms += [*range(1, 100), 5_000]
    numbers.facts["s until a message is stored"] = 1.5
    numbers.facts["due messages/s delivered"] = 40_000.0
    found = {(line.row, line.measure): line for line in services.make_lines(numbers)}
    slower = found[services.SERVICES, "times slower with them"]
    assert (slower.ours, slower.passed) == (1.25, True)
    assert found[services.SERVICES, "anonymous MB under load"].ours == 90
    late = found[services.SERVICES, "p99 ms late under load"]
    assert (late.ours, late.passed) == (99, True)
    assert found[services.SERVICES, "s until a message is stored"].passed is True
    assert found[services.BACKLOG, "due messages/s delivered"].ours == 40_000
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
    assert found["send", "client CPU us/message"].theirs == 35.0
    assert (found["send", "refused"].ours, found["send", "refused"].passed) == (2, False)
    assert found["push", "messages/s"].passed is False
    assert str(found["push", "messages/s"].goal) == ">= 100,000"
    assert found[client.MEMORY, "anonymous MB at most"].ours == 41
    growth = found[client.MEMORY, "anonymous MB more at the end"]
    assert (growth.ours, growth.passed) == (8, True)
    assert ("linger", "messages/s") not in found


def test_rows_of_the_client_can_be_requested() -> None:
    for name in client.ROW_NAMES:
        assert client.parse(["--only", name]).only == [name]
    assert client.parse([]).messages == 10_000_000


async def test_lists_of_topics_cover_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "LIST_ENTRIES", 4)
    made: list[int] = []

    async def create(numbers: Sequence[int]) -> None:
        assert 0 < len(numbers) <= 4
        made.extend(numbers)

    await topics.in_lists(10, create)
    assert sorted(made) == list(range(10))


def test_restarts_with_many_topics_have_a_goal() -> None:
    assert topics.line(topics.RESTART, "s", 5.0, topics.START_GOAL).passed
    assert topics.line(topics.RESTART, "s", 5.1, topics.START_GOAL).passed is False
    assert topics.parse(["--topics", "7"]).topics == 7
