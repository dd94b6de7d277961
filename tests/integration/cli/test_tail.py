"""``roquet tail``: past and new messages of a topic."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.cli.message_format import MARKS, MessageFormat
from roquet.cli.start_offsets import StartKind, start_of
from roquet.cli.tail import expression_of
from roquet.client import ReceivedMessage, Sql
from roquet.errors import ConfigError
from roquet.model import sys_flag
from roquet.testing.background import BackgroundBroker, background_broker
from tests.integration.cli.client_kit import call, done
from tests.integration.cli.server_kit import END_TIMEOUT_S, MAIN, server
from tests.unit.cli.output_kit import error_of, lines

NOW_MS = 1_800_000_000_000


@pytest.fixture(scope="module")
def running() -> Iterator[BackgroundBroker]:
    with background_broker({"enablePropertyFilter": True}) as found:
        yield found


@pytest.fixture
def topic(running: BackgroundBroker, request: pytest.FixtureRequest) -> str:
    name = "".join(char if char.isalnum() else "-" for char in request.node.name)
    running.create_topic(name, queues=3)
    return name


def put(running: BackgroundBroker, topic: str, *bodies: str, flags: tuple[str, ...] = ()) -> None:
    for body in bodies:
        done(running, "send", topic, body, *flags)


def seen(running: BackgroundBroker, topic: str, *flags: str) -> list[str]:
    return done(running, "tail", topic, "--format", "%b", *flags).splitlines()


# -- past messages ------------------------------------------------------------------------------


def test_all_queues_in_the_order_of_storing(running: BackgroundBroker, topic: str) -> None:
    put(running, topic, *"abcdefgh")
    stored = sorted(running.messages(topic), key=lambda each: each.store_timestamp_ms)
    times = {each.body.decode(): each.store_timestamp_ms for each in stored}
    found = seen(running, topic, "--from", "earliest")
    assert sorted(found) == list("abcdefgh")
    assert [times[body] for body in found] == sorted(times.values())


def test_long_queues_are_read_to_their_end(running: BackgroundBroker, topic: str) -> None:
    bodies = [str(number) for number in range(500)]
    done(running, "send", topic, "--sharding-key", "x", input="\n".join(bodies))
    assert seen(running, topic, "--from", "earliest") == bodies
    assert seen(running, topic, "--from", "480") == bodies[480:]
    assert seen(running, topic) == bodies[-10:]
    assert seen(running, topic, "--from", "-3") == bodies[-3:]
    assert seen(running, topic, "--from", "earliest", "--count", "40") == bodies[:40]
    assert seen(running, topic, "--from", "latest") == []
    assert seen(running, topic, "--from", "100000") == []


def test_from_a_time(running: BackgroundBroker, topic: str) -> None:
    put(running, topic, "a")
    [stored] = running.messages(topic)
    at = stored.store_timestamp_ms
    assert seen(running, topic, "--from", f"@{at}") == ["a"]
    assert seen(running, topic, "--from", f"@{at + 1}") == []
    assert seen(running, topic, "--from", "1h") == ["a"]


def test_one_queue(running: BackgroundBroker, topic: str) -> None:
    done(running, "send", topic, "a", "b", "c")
    by_queue = {each.queue_id: each.body.decode() for each in running.messages(topic)}
    for number, body in by_queue.items():
        assert seen(running, topic, "--queue", str(number)) == [body]
    result = call(running, "tail", topic, "--queue", "9", "--json")
    assert (result.exit_code, error_of(result)["code"]) == (1, "not_found")


def test_filters(running: BackgroundBroker, topic: str) -> None:
    put(running, topic, "a", flags=("-t", "x", "-p", "price=5"))
    put(running, topic, "b", flags=("-t", "y", "-p", "price=15"))
    put(running, topic, "c", flags=("-t", "z", "-p", "price=25"))
    assert sorted(seen(running, topic, "--filter", "x || z")) == ["a", "c"]
    assert sorted(seen(running, topic, "--filter", "price > 10")) == ["b", "c"]
    result = call(running, "tail", topic, "--filter", "price > > 10", "--json")
    assert result.exit_code != 0
    assert error_of(result)["message"]


def test_nothing_is_consumed(running: BackgroundBroker, topic: str) -> None:
    put(running, topic, "a")
    assert seen(running, topic, "--from", "earliest") == ["a"]
    assert seen(running, topic, "--from", "earliest") == ["a"]


def test_lines_of_tail_are_accepted_by_send(running: BackgroundBroker, topic: str) -> None:
    flags = ("-k", "1", "-k", "2", "-t", "x", "-p", "a=ü")
    done(running, "send", topic, *flags, input=b"text\n\xff\xfe\n")
    copy = f"{topic}-copy"
    running.create_topic(copy)
    out = done(running, "tail", topic, "--from", "earliest", "--json")
    assert {each["topic"] for each in lines(out)} == {topic}
    done(running, "send", copy, "--jsonl", input=out)

    def facts(name: str) -> list[tuple[bytes, list[str], str | None, str]]:
        found = running.messages(name)
        return sorted((m.body, m.keys, m.tags, m.properties["a"]) for m in found)

    assert facts(copy) == facts(topic)
    assert len(facts(copy)) == 2


def test_no_such_topic(running: BackgroundBroker) -> None:
    result = call(running, "tail", "Nowhere", "--json")
    assert (result.exit_code, error_of(result)["code"]) == (3, "no_route")


@pytest.mark.parametrize(
    "flags", [("--from", "yesterday"), ("--format", "%y"), ("--json", "--format", "%b")]
)
def test_bad_flags(running: BackgroundBroker, flags: tuple[str, ...]) -> None:
    assert call(running, "tail", "Any", *flags).exit_code == 2


# -- new messages -------------------------------------------------------------------------------


def test_follow_shows_new_messages_even_after_a_restart(tmp_path: Path) -> None:
    with background_broker() as running:
        running.create_topic("News", queues=2)
        put(running, "News", "old")
        flags = ("--from", "earliest", "--follow", "--format", "%b", "-n", running.namesrv)
        with server("tail", "News", *flags, home=tmp_path) as reader:
            assert reader.first_line() == "old\n"
            put(running, "News", "new")
            assert reader.first_line() == "new\n"
            running.restart()
            put(running, "News", "newer")
            assert reader.first_line() == "newer\n"
            code, out, _ = reader.stop(signal.SIGINT)
    assert (code, out) == (0, "")


def test_follow_ends_after_the_count(running: BackgroundBroker, topic: str, tmp_path: Path) -> None:
    put(running, topic, "a")
    flags = ("--follow", "--count", "2", "--json", "-n", running.namesrv)
    with server("tail", topic, *flags, home=tmp_path) as reader:
        assert reader.facts()["body"] == "a"
        put(running, topic, "b")
        code, out, err = reader.ended()
    assert (code, err) == (0, "")
    assert [each["body"] for each in lines(out)] == ["b"]


# -- the parts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "number"),
    [
        ("earliest", StartKind.OFFSET, 0),
        ("latest", StartKind.LAST, 0),
        ("0", StartKind.OFFSET, 0),
        ("-1", StartKind.LAST, 1),
        ("@17", StartKind.TIME, 17),
        ("2d", StartKind.TIME, NOW_MS - 172_800_000),
        ("2026-01-31T12:00:00Z", StartKind.TIME, 1_769_860_800_000),
    ],
)
def test_starts(text: str, kind: StartKind, number: int) -> None:
    assert start_of(text, NOW_MS) == (kind, number)


@pytest.mark.parametrize("text", ["", "soon", "--1", "@", "1x", "-1h", "9" * 19, "0000-01-01"])
def test_invalid_starts(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        start_of(text, NOW_MS)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "is_sql"),
    [
        ("a", False),
        ("a || b||c", False),
        ("*", False),
        ("a = 'b'", True),
        ("a IS NULL", True),
        ("a>1", True),
        ("a in ('x')", True),
    ],
)
def test_tags_and_conditions(text: str, *, is_sql: bool) -> None:
    assert isinstance(expression_of(text), Sql) is is_sql


def test_a_terminal_gets_no_control_characters() -> None:
    message = ReceivedMessage(topic="T", raw_body=b"\x1b[2Jx\xff\n")
    assert MessageFormat("%b", for_terminal=True).line(message) == rb"\x1b[2Jx\xff\n"
    assert MessageFormat("%b", for_terminal=False).line(message) == b"\x1b[2Jx\xff\n"


def test_every_mark_prints_something() -> None:
    message = ReceivedMessage(topic="T", raw_body=b"body", broker_name="b")
    assert MessageFormat(r"%%b\t\n\\x", for_terminal=False).line(message) == b"%b\t\n\\x"
    for mark in MARKS:
        assert MessageFormat(mark, for_terminal=True).line(message)


@pytest.mark.parametrize("text", ["%", "50%", "%y"])
def test_an_unknown_mark(text: str) -> None:
    with pytest.raises(ConfigError):
        MessageFormat(text, for_terminal=False)


def test_a_body_that_cannot_be_read_is_shown_as_stored() -> None:
    message = ReceivedMessage(topic="T", raw_body=b"torn", sys_flag=sys_flag.COMPRESSED)
    assert MessageFormat("%b", for_terminal=False).line(message) == b"torn"


# -- a closed pipe ------------------------------------------------------------------------------


def test_a_closed_pipe_ends_it_quietly(running: BackgroundBroker, topic: str) -> None:
    done(running, "send", topic, input="".join(f"{number:01000}\n" for number in range(1000)))
    arguments = ["tail", topic, "--from", "earliest", "--format", "%b", "-n", running.namesrv]
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        assert process.stdout is not None
        assert len(process.stdout.readline()) == 1001
        process.stdout.close()
        assert process.wait(END_TIMEOUT_S) == 0
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
