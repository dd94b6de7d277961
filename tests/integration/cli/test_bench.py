"""``roquet bench``: loads against a broker in a thread, and what they report."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from roquet.cli.bench import report_of
from roquet.cli.bench_load import Tally
from roquet.cli.latencies import Latencies
from roquet.cli.main import roquet
from roquet.client import Producer
from roquet.errors import BrokerBusy
from roquet.runtime.clock import ManualClock
from roquet.testing.background import BackgroundBroker, background_broker
from tests.integration.cli.client_kit import call, done, of_json
from tests.unit.cli.output_kit import error_of


class StepClock(ManualClock):
    """Each read of the monotonic time is some nanoseconds later than the previous one."""

    def __init__(self, step_ns: int) -> None:
        super().__init__()
        self._step_ns = step_ns

    def monotonic_ns(self) -> int:
        self._monotonic_ns += self._step_ns
        return self._monotonic_ns


@pytest.fixture(scope="module")
def running() -> Iterator[BackgroundBroker]:
    with background_broker() as found:
        yield found


@pytest.fixture
def topic(running: BackgroundBroker, request: pytest.FixtureRequest) -> str:
    name = "".join(char if char.isalnum() else "-" for char in request.node.name)
    running.create_topic(name, queues=2)
    return name


def test_the_requested_number_of_messages_is_sent(running: BackgroundBroker, topic: str) -> None:
    found = of_json(
        running, "bench", "send", topic, "--count", "500", "--size", "100", "-t", "paid"
    )
    stored = running.messages(topic)
    assert len(stored) == found["messages"] == 500
    assert {(len(each.body), each.tags) for each in stored} == {(100, "paid")}
    assert found["bodyBytes"] == 50_000
    assert found["failed"] == found["lessSafe"] == 0
    latency = found["latencyMs"]
    order = [latency[name] for name in ("p50", "p90", "p99", "p999", "max")]
    assert order == sorted(order)
    assert order[0] > 0


def test_batches_add_up(running: BackgroundBroker, topic: str) -> None:
    found = of_json(
        running, "bench", "send", topic, "--count", "70", "--batch", "32", "--in-flight", "2"
    )
    assert found["messages"] == len(running.messages(topic)) == 70


def test_a_time_and_a_rate(running: BackgroundBroker, topic: str) -> None:
    found = of_json(running, "bench", "send", topic, "--seconds", "0.3", "--rate", "100")
    assert found["messages"] == len(running.messages(topic)) <= 40


def test_the_report_is_a_table_without_json(running: BackgroundBroker, topic: str) -> None:
    out = done(running, "bench", "send", topic, "--count", "10")
    rows = dict(line.split() for line in out.splitlines() if line.startswith("  messages"))
    assert rows["messages"] == "10"
    assert {"messages/s"} <= rows.keys()
    assert "p99.9 ms" in out


@pytest.mark.parametrize("batch", ["1", "32"])
def test_existing_messages_are_consumed(running: BackgroundBroker, topic: str, batch: str) -> None:
    done(running, "bench", "send", topic, "--count", "300", "--size", "10")
    found = of_json(running, "bench", "consume", topic, "--count", "200", "--batch", batch)
    assert (found["messages"], found["bodyBytes"]) == (200, 2_000)
    again = of_json(running, "bench", "consume", topic, "--count", "300", "--batch", batch)
    assert again["messages"] == 300, "the first run moved nothing"


def test_a_group_continues_from_its_offsets(running: BackgroundBroker, topic: str) -> None:
    done(running, "bench", "send", topic, "--count", "50", "--size", "10")
    words = ("bench", "consume", topic, "--group", "readers", "--count")
    assert of_json(running, *words, "50")["messages"] == 50
    done(running, "bench", "send", topic, "--count", "5", "--size", "10")
    assert of_json(running, *words, "5")["messages"] == 5


def test_nothing_to_consume(running: BackgroundBroker, topic: str) -> None:
    found = of_json(running, "bench", "consume", topic, "--seconds", "0.2", "--from", "latest")
    assert (found["messages"], found["messagesPerSecond"], found["latencyMs"]) == (0, 0.0, None)


def test_a_topic_that_does_not_exist(running: BackgroundBroker) -> None:
    result = call(running, "bench", "consume", "Unheard-of", "--seconds", "1", "--json")
    assert result.exit_code == 3
    assert error_of(result)["type"] == "NoRoute"


@pytest.mark.parametrize("verb", ["send", "consume"])
def test_an_unreachable_name_server(verb: str) -> None:
    words = ["bench", verb, "Orders", "--count", "1", "-n", "127.0.0.1:1", "--json"]
    result = CliRunner().invoke(roquet, words)
    assert result.exit_code == 3
    assert error_of(result)["type"] == "ConnectFailed"


@pytest.mark.parametrize(
    "words",
    [
        ("send", "bad topic"),
        ("send", "Orders", "--size", "0"),
        ("send", "Orders", "--in-flight", "0"),
        ("consume", "Orders", "--group", "bad group"),
        ("consume", "Orders", "--from", "nowhere"),
    ],
)
def test_bad_arguments_are_refused(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(roquet, ["bench", *words, "-n", "127.0.0.1:1"])
    assert result.exit_code == 2


def test_messages_that_were_not_stored_are_reported(
    running: BackgroundBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter(range(10))
    send = Producer.send

    async def busy(self: object, *arguments: object, **settings: object) -> object:
        if next(numbers) % 2:
            raise BrokerBusy("busy", response_code=2)
        return await send(self, *arguments, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(Producer, "send", busy)
    result = call(running, "bench", "send", topic, "--count", "10", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["messages"], found["failed"]) == (5, 5)
    assert "Not stored: 5 messages" in result.stderr


def test_the_rates_of_a_report_are_those_of_its_seconds() -> None:
    clock = ManualClock()
    tally = Tally(clock)
    tally.begin()
    clock.advance(1)
    tally.add(500, 50_000)
    report = report_of("T", tally)
    assert report.seconds == 0.001
    assert report.messages_per_second == 500_000
    assert report.bytes_per_second == 50_000_000


def test_seconds_are_as_precise_as_the_rates() -> None:
    clock = StepClock(333_333)
    tally = Tally(clock)
    tally.begin()
    tally.add(1, 1)
    report = report_of("T", tally)
    assert report.seconds == 0.000333
    assert report.messages_per_second == 3_000.0


def test_a_report_of_nothing() -> None:
    report = report_of("T", Tally())
    assert (report.messages, report.seconds, report.messages_per_second) == (0, 0.0, 0.0)
    assert report.latency_ms is None


def test_percentiles_are_at_most_a_little_too_high() -> None:
    source = random.Random(17)
    values = [int(source.lognormvariate(7, 2)) for _ in range(5_000)]
    latencies = Latencies()
    for value in values:
        latencies.add(value)
    ordered = sorted(values)
    for percent in (1, 25, 50, 90, 99, 99.9, 100):
        exact = ordered[max(-int(-len(ordered) * percent // 100) - 1, 0)]
        found = latencies.percentile_us(percent)
        assert exact <= found <= exact * 1.04 + 1
    latencies.add(-5)
    assert latencies.percentile_us(0) == 0
    assert latencies.max_us == max(values)
