"""``roquet message``: find and show messages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from roquet.testing.background import BackgroundBroker, background_broker
from tests.integration.cli.client_kit import call, done, of_json
from tests.integration.cli.server_kit import END_TIMEOUT_S, MAIN
from tests.unit.cli.output_kit import error_of, lines

TOPIC = "Orders"


@pytest.fixture(scope="module")
def running() -> Iterator[BackgroundBroker]:
    with background_broker() as found:
        found.create_topic(TOPIC, queues=2)
        flags = ("-k", "17", "-t", "paid", "-p", "price=5")
        done(found, "send", TOPIC, '{"a":1}', *flags)
        done(found, "send", TOPIC, "second", "-k", "17", "-k", "18")
        done(found, "send", TOPIC, input=b"\x00\xff\x1b\n")
        yield found


def stored(running: BackgroundBroker, number: int) -> Any:  # noqa: ANN401 - JSON
    found = lines(done(running, "tail", TOPIC, "--from", "earliest", "--json"))
    return sorted(found, key=lambda each: each["physicalOffset"])[number]


def bodies(text: str) -> list[str]:
    return [each.get("body", "?") for each in lines(text)]


def test_by_the_id_of_the_producer(running: BackgroundBroker) -> None:
    wanted = stored(running, 0)
    found = of_json(running, "message", "show", wanted["messageId"], "--topic", TOPIC)
    assert found == {"message": wanted, "tracks": []}
    text = done(running, "message", "show", wanted["messageId"], "-t", TOPIC)
    assert f"Message     {wanted['messageId']}\n" in text
    assert "Properties  price=5\n" in text
    assert '{"a":1}\n' in text
    assert "0 groups of the topic\n" in text


def test_by_queue_and_offset(running: BackgroundBroker) -> None:
    wanted = stored(running, 1)
    found = of_json(running, "message", "show", wanted["offsetMessageId"], "--no-tracks")
    assert found == {"message": wanted, "tracks": None}


def test_who_consumed_it(running: BackgroundBroker) -> None:
    done(running, "group", "create", "billing")
    done(running, "offset", "reset", "billing", TOPIC, "--to", "latest", "--yes")
    wanted = stored(running, 0)
    found = of_json(running, "message", "show", wanted["messageId"], "-t", TOPIC)
    assert found["tracks"] == [{"group": "billing", "type": "NOT_ONLINE", "error": None}]
    text = done(running, "message", "show", wanted["messageId"], "-t", TOPIC)
    assert "1 group of the topic\n" in text
    assert "NOT_ONLINE" in text


def test_bodies(running: BackgroundBroker) -> None:
    first, last = stored(running, 0)["offsetMessageId"], stored(running, 2)["offsetMessageId"]
    show = ("message", "show", "--no-tracks")
    assert '{\n  "a": 1\n}\n' in done(running, *show, first, "--body", "json")
    assert "00000000  00 ff 1b" in done(running, *show, last, "--body", "hex")
    assert '{"a":1}' not in done(running, *show, first, "--body", "none")
    result = call(running, *show, last, "--body", "json")
    assert (result.exit_code, "not JSON" in result.stderr) == (1, True)


def test_the_bytes_of_a_body(running: BackgroundBroker) -> None:
    last = stored(running, 2)["offsetMessageId"]
    arguments = ["message", "show", last, "--raw", "-n", running.namesrv]
    result = subprocess.run(
        [sys.executable, "-c", MAIN, *arguments],
        capture_output=True,
        timeout=END_TIMEOUT_S,
        check=True,
    )
    assert result.stdout == b"\x00\xff\x1b"


def test_by_key(running: BackgroundBroker) -> None:
    out = done(running, "message", "query", TOPIC, "--key", "17", "--json")
    assert bodies(out) == ['{"a":1}', "second"]
    assert bodies(done(running, "message", "query", TOPIC, "-k", "18", "--json")) == ["second"]
    assert bodies(done(running, "message", "query", TOPIC, "-k", "19", "--json")) == []
    text = done(running, "message", "query", TOPIC, "-k", "17")
    assert text.startswith("2 messages\n")
    wanted = stored(running, 1)
    out = done(running, "message", "query", TOPIC, "--unique-key", wanted["messageId"], "--json")
    assert lines(out) == [wanted]
    at = stored(running, 0)["storeTimestamp"]
    out = done(
        running, "message", "query", TOPIC, "-k", "17", "--until", f"@{at - 60_000}", "--json"
    )
    assert bodies(out) == []


def test_by_time(running: BackgroundBroker) -> None:
    assert len(bodies(done(running, "message", "ls", TOPIC, "--json"))) == 3
    at = stored(running, 0)["storeTimestamp"]
    flags = ("--from", "earliest", "--until", f"@{at - 1}", "--json")
    assert bodies(done(running, "message", "ls", TOPIC, *flags)) == []
    result = call(running, "message", "ls", TOPIC, "--max", "2", "--json")
    assert len(bodies(result.stdout)) == 2
    assert "there are more" in result.stderr
    text = done(running, "message", "ls", TOPIC)
    assert text.startswith("3 messages\n")
    assert "\\x1b" in text


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("show", "nonsense"), 2),
        (("show", "7F00000100002A9F0000000000000000"), 1),
        (("show", "7F0000010E5C2A139A550D2F3C5A0000", "-t", TOPIC), 1),
        (("show", "7F0000010E5C2A139A550D2F3C5A0000", "-t", "Nothing"), 3),
        (("ls", "Nothing"), 3),
        (("ls", TOPIC, "--from", "17"), 2),
        (("ls", TOPIC, "--until", "latest"), 2),
        (("query", TOPIC), 2),
        (("query", TOPIC, "-k", "1", "-u", "2"), 2),
    ],
)
def test_messages_that_cannot_be_found(
    running: BackgroundBroker, arguments: tuple[str, ...], code: int
) -> None:
    result = call(running, "message", *arguments)
    assert result.exit_code == code, result.output


def test_an_id_of_a_producer_needs_the_topic(running: BackgroundBroker) -> None:
    wanted = stored(running, 0)
    result = call(running, "message", "show", wanted["messageId"], "--json")
    assert result.exit_code == 1
    assert "--topic" in error_of(result)["hint"]
