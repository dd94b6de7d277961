"""``roquet send``: from arguments and standard input into a topic."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.cli import input_lines, send
from roquet.client.pace import Pace
from roquet.testing.background import BackgroundBroker, background_broker
from tests.integration.cli.client_kit import call, done
from tests.integration.cli.server_kit import END_TIMEOUT_S, MAIN, clean_environment
from tests.patience import TIMEOUT_MS
from tests.unit.cli.output_kit import error_of, lines

PATIENTLY = ("--timeout", f"{TIMEOUT_MS}ms")


@pytest.fixture(scope="module")
def running() -> Iterator[BackgroundBroker]:
    with background_broker() as found:
        yield found


@pytest.fixture
def topic(running: BackgroundBroker, request: pytest.FixtureRequest) -> str:
    name = "".join(char if char.isalnum() else "-" for char in request.node.name)
    running.create_topic(name, queues=2)
    return name


def bodies(running: BackgroundBroker, topic: str) -> list[bytes]:
    return [each.body for each in running.messages(topic)]


def test_one_message_prints_its_offset(running: BackgroundBroker, topic: str) -> None:
    out = done(running, "send", topic, "hällo", "-k", "17", "-k", "18", "-t", "paid", "-p", "a=b=c")
    [stored] = running.messages(topic)
    assert (stored.body.decode(), stored.keys, stored.tags) == ("hällo", ["17", "18"], "paid")
    assert stored.properties["a"] == "b=c"
    assert out == (
        f"Sent {stored.message_id} to {topic}: {running.name}, queue {stored.queue_id}, "
        f"offset {stored.queue_offset}\n"
    )


def test_each_line_of_standard_input_is_a_message(running: BackgroundBroker, topic: str) -> None:
    result = call(running, "send", topic, input=b"one\n\n\xff\x00two\r\n last")
    assert sorted(bodies(running, topic)) == sorted([b"one", b"\xff\x00two\r", b" last"])
    assert result.stdout == f"Sent 3 messages to {topic}\n"
    assert "Skipped 1 empty body" in result.stderr
    assert result.exit_code == 0


def test_json_results_keep_the_order_of_the_lines(running: BackgroundBroker, topic: str) -> None:
    text = "".join(f"{number}\n" for number in range(1, 1001))
    found = lines(done(running, "send", topic, "--json", input=text))
    assert [each["number"] for each in found] == list(range(1, 1001))
    assert {each["status"] for each in found} == {"SEND_OK"}
    stored = {(each.queue_id, each.queue_offset): each for each in running.messages(topic)}
    for each in found:
        message = stored[each["queueId"], each["queueOffset"]]
        assert message.body == str(each["number"]).encode()
        assert message.message_id == each["messageId"]


def test_a_sharding_key_keeps_the_order(running: BackgroundBroker, topic: str) -> None:
    text = "".join(f"{number}\n" for number in range(100))
    done(running, "send", topic, "--sharding-key", "x", input=text)
    stored = running.messages(topic)
    assert len({each.queue_id for each in stored}) == 1
    in_queue = sorted(stored, key=lambda each: each.queue_offset)
    assert [int(each.body) for each in in_queue] == list(range(100))


def test_json_lines(running: BackgroundBroker, topic: str) -> None:
    text = (
        '{"body":"a","keys":"k1","tags":"t","properties":{"x":"1"}}\n'
        '{"bodyBase64":"/w==","keys":["k1","k2"]}\n'
    )
    done(running, "send", topic, "--jsonl", "--prop", "x=2", input=text)
    first, second = sorted(running.messages(topic), key=lambda each: each.body)
    assert (first.body, first.keys, first.tags, first.properties["x"]) == (b"a", ["k1"], "t", "2")
    assert (second.body, second.keys, second.properties["x"]) == (b"\xff", ["k1", "k2"], "2")


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("{", "not a message in JSON"),
        ('{"body":"a","tag":"x"}', "not a message in JSON"),
        ('{"keys":"a"}', "either body or bodyBase64"),
        ('{"body":"a","bodyBase64":"YQ=="}', "either body or bodyBase64"),
        ('{"bodyBase64":"?"}', "not base64"),
        ('{"body":""}', "non-empty"),
        ('{"body":"a","bodyError":"torn"}', "could not be read"),
        ('{"body":"a","properties":{"KEYS":"x"}}', "KEYS is used by RocketMQ"),
    ],
)
def test_a_bad_line_stops_it(running: BackgroundBroker, topic: str, line: str, word: str) -> None:
    text = f'{{"body":"good"}}\n{line}\n{{"body":"never"}}\n'
    result = call(running, "send", topic, "--jsonl", "--json", input=text)
    assert result.exit_code == 2
    error = error_of(result)
    assert word in error["message"]
    assert error["detail"].startswith("message 2")
    assert [each["number"] for each in lines(result.stdout)] == [1]
    assert bodies(running, topic) == [b"good"]


def test_count_and_delay_level(running: BackgroundBroker, topic: str) -> None:
    found = lines(done(running, "send", topic, "x", "y", "--count", "3", "--delay", "18", "--json"))
    assert len(found) == 6
    assert bodies(running, topic) == []
    delayed = running.messages("SCHEDULE_TOPIC_XXXX")
    assert [each.properties["REAL_TOPIC"] for each in delayed].count(topic) == 6


class Time:
    """Time that passes by waiting only."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now_s += seconds


async def test_a_pace_spaces_events() -> None:
    time = Time()
    pace = Pace(4, now_s=lambda: time.now_s, sleep=time.sleep)
    moments = []
    for _ in range(5):
        await pace.wait()
        moments.append(time.now_s)
    assert moments == [100.0, 100.25, 100.5, 100.75, 101.0]


async def test_a_late_pace_catches_up() -> None:
    time = Time()
    pace = Pace(4, now_s=lambda: time.now_s, sleep=time.sleep)
    await pace.wait()
    time.now_s += 0.6
    for _ in range(3):
        await pace.wait()
    assert time.waits[:3] == [0, 0, 0]
    assert time.now_s == 100.75


def test_rate_spaces_the_sends(
    running: BackgroundBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Time()
    rates = []

    def pace(rate: float) -> Pace:
        rates.append(rate)
        return Pace(rate, now_s=lambda: time.now_s, sleep=time.sleep)

    monkeypatch.setattr(send, "Pace", pace)
    done(running, "send", topic, "x", "--count", "5", "--rate", "8")
    assert rates == [8]
    assert time.waits == [0, 0.125, 0.125, 0.125, 0.125]
    assert len(running.messages(topic)) == 5


def test_a_refusal_is_reported_with_its_code(running: BackgroundBroker, topic: str) -> None:
    result = call(running, "send", topic, "a", "--delay", "90s", "--json")
    assert result.exit_code == 1, result.output
    assert error_of(result)["code"] == "broker_refused"
    assert error_of(result)["detail"].startswith("message 1")


@pytest.mark.parametrize(
    "flags",
    [
        ("--delay", "soon"),
        ("--delay", "0"),
        ("--prop", "a"),
        ("--prop", "=a"),
        ("--count", "0"),
        ("--rate", "0"),
        ("--delay", "3", "--at", "2026-01-01"),
    ],
)
def test_bad_flags(running: BackgroundBroker, flags: tuple[str, ...]) -> None:
    assert call(running, "send", "Any", "x", *flags).exit_code == 2


def test_a_bad_topic_is_refused_before_any_request(running: BackgroundBroker) -> None:
    result = call(running, "send", "no topic", "x", "--json")
    assert (result.exit_code, error_of(result)["code"]) == (2, "bad_name")


def test_an_unreachable_name_server() -> None:
    with background_broker() as gone:
        pass
    result = call(gone, "send", "Orders", "x", "--json")
    assert result.exit_code == 3
    assert result.stdout == ""


def test_a_line_without_end_is_refused(
    running: BackgroundBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_lines, "READ_BYTES", 8)
    monkeypatch.setattr(input_lines, "LINE_BYTES_MAX", 64)
    result = call(running, "send", topic, input="short\n" + "x" * 100)
    assert result.exit_code == 2
    assert "too long" in result.stderr
    assert bodies(running, topic) == [b"short"]


def test_lines_are_found_whatever_the_reads_give(
    running: BackgroundBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_lines, "READ_BYTES", 3)
    monkeypatch.setattr(send, "IN_FLIGHT_MAX", 2)
    done(running, "send", topic, input="a\nbcdefgh\n\nij\nklm")
    assert sorted(bodies(running, topic)) == [b"a", b"bcdefgh", b"ij", b"klm"]


def test_typed_lines_are_sent_at_once_until_an_interrupt(
    running: BackgroundBroker, topic: str, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "send", topic, "--json", *PATIENTLY, "-n", running.namesrv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=clean_environment(tmp_path),
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        assert b'"number":1' in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(END_TIMEOUT_S) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.communicate()
    assert bodies(running, topic) == [b"first"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_an_output_that_cannot_be_written_is_reported(
    running: BackgroundBroker, topic: str, tmp_path: Path
) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", MAIN, "send", topic, "x", *PATIENTLY, "-n", running.namesrv],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(tmp_path),
            timeout=END_TIMEOUT_S,
            check=False,
        )
    assert done.returncode != 0
    assert "The operating system refused to read or write." in done.stderr
    assert "Traceback" not in done.stderr
    assert bodies(running, topic) == [b"x"]


def test_everything_is_sent_even_if_the_output_is_closed(
    running: BackgroundBroker, topic: str
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "send", topic, "--json", *PATIENTLY, "-n", running.namesrv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b"".join(b"%d\n" % number for number in range(500)))
        process.stdin.close()
        assert process.wait(END_TIMEOUT_S) == 0
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    assert len(bodies(running, topic)) == 501
