"""Client commands where two brokers have a topic."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Queue

import pytest

from roquet.client import PushConsumer, ReceivedMessage
from roquet.remoting.bodies.client import ConsumeFromWhere
from roquet.testing.background import BackgroundBroker, background_broker
from tests.integration.cli.client_kit import call, done, of_json
from tests.integration.cli.server_kit import END_TIMEOUT_S
from tests.unit.cli.output_kit import error_of, lines

TOPIC = "Orders"
GROUP = "billing"


@pytest.fixture(scope="module")
def running() -> Iterator[BackgroundBroker]:
    with (
        background_broker() as first,
        background_broker({"brokerName": "second"}, namesrv=first.namesrv),
    ):
        done(first, "topic", "create", TOPIC, "--queues", "2")
        done(first, "group", "create", GROUP)
        done(first, "send", TOPIC, input="".join(f"{number}\n" for number in range(40)))
        yield first


def committed(running: BackgroundBroker) -> dict[tuple[str, int], int | None]:
    found = of_json(running, "offset", "show", GROUP, TOPIC)["queues"]
    return {(each["brokerName"], each["queueId"]): each["committedOffset"] for each in found}


def test_a_topic_is_on_both(running: BackgroundBroker) -> None:
    found = of_json(running, "topic", "show", TOPIC)
    assert [each["brokerName"] for each in found["settings"]] == ["dev", "second"]
    assert (found["messages"], len(found["queues"])) == (40, 4)
    assert len(lines(done(running, "message", "ls", TOPIC, "--json"))) == 40
    assert {each["brokerName"] for each in of_json(running, "broker", "ls")} == {"dev", "second"}


def test_settings_are_changed_where_they_differ(running: BackgroundBroker) -> None:
    done(running, "topic", "create", "Uneven", "--queues", "2")
    one = of_json(running, "topic", "set", "Uneven", "--queues", "4", "--broker", "second")
    assert one["brokers"] == ["second"]
    rest = of_json(running, "topic", "set", "Uneven", "--queues", "4")
    assert rest["brokers"] == ["dev"]
    both = done(running, "group", "set", GROUP, "--retries", "7")
    assert both == f"Set {GROUP}\n  dev: retries 16 → 7\n  second: retries 16 → 7\n"


def test_a_topic_of_one_broker(running: BackgroundBroker) -> None:
    done(running, "topic", "create", "Alone", "--broker", "second")
    assert of_json(running, "topic", "set", "Alone", "--queues", "9")["brokers"] == ["second"]
    for place in ("dev", running.address):
        result = call(running, "topic", "set", "Alone", "--queues", "9", "--broker", place)
        assert result.exit_code == 1, result.output
    by_address = of_json(running, "topic", "set", TOPIC, "--order", "--broker", running.address)
    assert by_address["brokers"] == [running.address]


def test_one_queue_must_be_named_in_full(running: BackgroundBroker) -> None:
    command = ("offset", "set", GROUP, TOPIC, "1", "3", "--yes")
    result = call(running, *command, "--json")
    assert (result.exit_code, error_of(result)["code"]) == (1, "ambiguous")
    assert set(committed(running).values()) == {None}
    done(running, *command, "--broker", "second")
    assert committed(running)["second", 1] == 3
    assert committed(running)["dev", 1] is None
    done(running, "offset", "reset", GROUP, TOPIC, "--to", "1", "--yes")
    assert set(committed(running).values()) == {1}


def wait_for(bodies: Queue[bytes], wanted: set[bytes]) -> None:
    """Take what was consumed until all that is wanted has come."""
    missing = set(wanted)
    while missing:
        missing.discard(bodies.get(timeout=END_TIMEOUT_S))


def test_running_clients_are_notified(running: BackgroundBroker) -> None:
    group = "reading"
    bodies: Queue[bytes] = Queue()

    async def handler(message: ReceivedMessage) -> None:
        bodies.put_nowait(message.body)

    consumer = PushConsumer(
        running.namesrv,
        group=group,
        handler=handler,
        consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )

    async def start() -> None:
        consumer.subscribe(TOPIC)
        await consumer.start()

    running.run(start)
    try:
        everything = {str(number).encode() for number in range(40)}
        wait_for(bodies, everything)
        done(running, "offset", "reset", group, TOPIC, "--to", "earliest", "--yes")
        wait_for(bodies, everything)
    finally:
        running.run(consumer.close)
