"""``roquet topic`` and ``roquet group``."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from roquet.admin import Admin
from roquet.cli.main import roquet
from roquet.client import MessageQueue
from roquet.testing.background import BackgroundBroker, background_broker
from tests.integration.cli.client_kit import call, done
from tests.unit.cli.output_kit import error_of


@pytest.fixture(scope="module")
def running() -> Iterator[BackgroundBroker]:
    with background_broker() as found:
        yield found


def make_group(running: BackgroundBroker, group: str, topic: str, queue_offset: int) -> None:
    """A group that has consumed the first queue of a topic so far."""

    async def work() -> None:
        async with Admin(running.namesrv) as admin:
            await admin.groups.create(group)
            queue = MessageQueue(topic, running.name, 0)
            await admin.offsets.reset_queue(group, queue, queue_offset)

    running.run(work)


def topics(running: BackgroundBroker, *flags: str) -> list[str]:
    return [each["topic"] for each in json.loads(done(running, "topic", "ls", "--json", *flags))]


def groups(running: BackgroundBroker) -> list[str]:
    return [each["group"] for each in json.loads(done(running, "group", "ls", "--json"))]


# -- topics -------------------------------------------------------------------------------------


def test_the_life_of_a_topic(running: BackgroundBroker) -> None:
    out = done(running, "topic", "create", "Orders", "--queues", "2")
    assert out == f"Created Orders with 2 queues on {running.name}\n"
    assert "Orders" in topics(running)
    done(running, "send", "Orders", "a", "b", "c")
    found = json.loads(done(running, "topic", "show", "Orders", "--json"))
    assert (found["topic"], found["messages"], len(found["queues"])) == ("Orders", 3, 2)
    [settings] = found["settings"]
    assert (settings["writeQueues"], settings["perm"]) == (2, "rw")
    text = done(running, "topic", "show", "Orders")
    assert "Messages    3\n" in text
    out = done(running, "topic", "delete", "Orders", "--yes")
    assert out == "Deleted Orders with 3 messages\n"
    assert "Orders" not in topics(running)


def test_an_existing_topic_is_not_changed(running: BackgroundBroker) -> None:
    done(running, "topic", "create", "Once", "--queues", "4", "--perm", "r")
    result = call(running, "topic", "create", "Once", "--queues", "1", "--json")
    assert (result.exit_code, error_of(result)["code"]) == (1, "already_exists")
    [settings] = json.loads(done(running, "topic", "show", "Once", "--json"))["settings"]
    assert (settings["readQueues"], settings["perm"]) == (4, "r")


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_a_topic_is_kept_unless_deletion_is_confirmed(
    running: BackgroundBroker, answer: str
) -> None:
    topic = f"Kept-{len(answer)}"
    running.create_topic(topic)
    done(running, "send", topic, "a")
    result = call(running, "topic", "delete", topic, input=answer)
    assert result.exit_code == 1
    assert f"Delete {topic} with 1 message on {running.name}?" in result.stderr
    assert len(running.messages(topic)) == 1
    assert topic in topics(running)


def test_confirmation_deletes(running: BackgroundBroker) -> None:
    running.create_topic("Asked")
    result = call(running, "topic", "delete", "Asked", "--json", input="y\n")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"topic": "Asked", "messages": 0, "brokers": [running.name]}


def test_system_topics_are_hidden_unless_requested(running: BackgroundBroker) -> None:
    running.create_topic("Mine")
    assert "TBW102" not in topics(running)
    assert {"TBW102", "Mine"} <= set(topics(running, "--all"))
    assert "Mine" in done(running, "topic", "ls")


@pytest.mark.parametrize("verb", ["show", "delete"])
def test_no_such_topic(running: BackgroundBroker, verb: str) -> None:
    result = call(running, "topic", verb, "Nowhere", "--json")
    assert (result.exit_code, error_of(result)["code"]) == (3, "no_route")


def test_a_bad_name(running: BackgroundBroker) -> None:
    result = call(running, "topic", "create", "no topic", "--json")
    assert (result.exit_code, error_of(result)["code"]) == (2, "bad_name")


# -- groups -------------------------------------------------------------------------------------


def test_the_life_of_a_group(running: BackgroundBroker) -> None:
    running.create_topic("Bills", queues=1)
    done(running, "send", "Bills", "a", "b", "c")
    make_group(running, "billing", "Bills", 1)
    assert "billing" in groups(running)
    found = json.loads(done(running, "group", "show", "billing", "--json"))
    assert (found["lag"], found["clients"]) == (2, [])
    [queue] = [each for each in found["queues"] if each["topic"] == "Bills"]
    assert (queue["consumerOffset"], queue["brokerOffset"], queue["lag"]) == (1, 3, 2)
    assert "Lag         2\n" in done(running, "group", "show", "billing")
    assert "billing" in done(running, "group", "ls")
    shown = json.loads(done(running, "topic", "show", "Bills", "--json"))
    assert shown["groups"] == ["billing"]
    kept = call(running, "group", "delete", "billing", input="n\n")
    assert kept.exit_code == 1
    assert f"Delete the group billing on {running.name}, with its offsets in" in kept.stderr
    assert "billing" in groups(running)
    done(running, "group", "delete", "billing", "--yes")
    assert "billing" not in groups(running)


def test_a_group_that_consumed_nothing_has_no_lag(running: BackgroundBroker) -> None:
    async def work() -> None:
        async with Admin(running.namesrv) as admin:
            await admin.groups.create("idle")

    running.run(work)
    assert json.loads(done(running, "group", "show", "idle", "--json"))["lag"] is None
    assert "Lag         -\n" in done(running, "group", "show", "idle")


@pytest.mark.parametrize("verb", ["show", "delete"])
def test_no_such_group(running: BackgroundBroker, verb: str) -> None:
    before = groups(running)
    result = call(running, "group", verb, "nobody", "--json")
    assert (result.exit_code, error_of(result)["code"]) == (1, "not_found")
    assert groups(running) == before


def test_a_broker_instead_of_a_name_server(running: BackgroundBroker) -> None:
    result = CliRunner().invoke(roquet, ["topic", "ls", "-n", running.address, "--json"])
    assert result.exit_code == 1
    assert "That may be a broker" in error_of(result)["hint"]


def test_an_unreachable_name_server() -> None:
    with background_broker() as gone:
        pass
    for words in (("topic", "ls"), ("group", "ls"), ("topic", "create", "New")):
        assert call(gone, *words, "--json").exit_code == 3
