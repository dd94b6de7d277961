"""``roquet topic set``, ``roquet group create|set|clients``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from roquet.client import Message, Producer, PushConsumer, ReceivedMessage
from roquet.testing.background import BackgroundBroker, background_broker
from tests.integration.cli.client_kit import call, done, of_json
from tests.unit.cli.output_kit import error_of


@pytest.fixture(scope="module")
def running() -> Iterator[BackgroundBroker]:
    with background_broker() as found:
        yield found


def topic_settings(running: BackgroundBroker, topic: str) -> dict[str, Any]:
    [found] = of_json(running, "topic", "show", topic)["settings"]
    assert isinstance(found, dict)
    return found


# -- topics -------------------------------------------------------------------------------------


def test_unnamed_settings_are_kept(running: BackgroundBroker) -> None:
    done(running, "topic", "create", "Grows", "--queues", "2", "--perm", "rw")
    out = done(running, "topic", "set", "Grows", "--queues", "4")
    assert out == f"Set Grows\n  {running.name}: readQueues 2 → 4, writeQueues 2 → 4\n"
    done(running, "topic", "set", "Grows", "--write-queues", "6", "--order")
    found = topic_settings(running, "Grows")
    assert (found["readQueues"], found["writeQueues"]) == (4, 6)
    assert (found["perm"], found["order"]) == ("rw", True)
    same = done(running, "topic", "set", "Grows", "--read-queues", "4")
    assert same == "Grows has these settings already\n"


def test_restrictive_changes_need_confirmation(running: BackgroundBroker) -> None:
    done(running, "topic", "create", "Shrinks", "--queues", "4")
    result = call(running, "topic", "set", "Shrinks", "--queues", "2", input="n\n")
    assert result.exit_code == 1
    assert f"{running.name}: readQueues 4 → 2, writeQueues 4 → 2" in result.stderr
    assert topic_settings(running, "Shrinks")["readQueues"] == 4
    found = of_json(running, "topic", "set", "Shrinks", "--perm", "r", "--yes")
    assert found["brokers"] == [running.name]
    assert found["changes"] == {running.name: {"perm": {"from": "rw", "to": "r"}}}
    assert topic_settings(running, "Shrinks")["perm"] == "r"


def test_attributes(running: BackgroundBroker) -> None:
    done(running, "topic", "create", "Typed")
    done(running, "topic", "set", "Typed", "--attribute", "message.type=FIFO")
    done(running, "topic", "set", "Typed", "--queues", "9")
    assert topic_settings(running, "Typed")["attributes"] == {"message.type": "FIFO"}


def test_attributes_of_a_new_topic(running: BackgroundBroker) -> None:
    given = ("-a", "+message.type=FIFO,reserve.time=5")
    found = of_json(running, "topic", "create", "New", *given)
    assert found == {"topic": "New", "brokers": [running.name]}
    expected = {"message.type": "FIFO", "reserve.time": "5"}
    assert topic_settings(running, "New")["attributes"] == expected
    result = call(running, "topic", "create", "Newer", "--attribute=-message.type")
    assert (result.exit_code, "a new topic has none" in result.stderr) == (2, True)


def test_attributes_are_removed(running: BackgroundBroker) -> None:
    done(running, "topic", "create", "Freed", "-a", "message.type=FIFO", "-a", "reserve.time=5")
    command = ("topic", "set", "Freed", "-a", "-message.type,+reserve.time=6")
    assert of_json(running, *command)["changes"] == {
        running.name: {
            "message.type": {"from": "FIFO", "to": None},
            "reserve.time": {"from": "5", "to": "6"},
        }
    }
    assert topic_settings(running, "Freed")["attributes"] == {"reserve.time": "6"}
    assert done(running, *command) == "Freed has these settings already\n"


@pytest.mark.parametrize("text", ["", "=", "-", "+a", "a=", "--a", "+-a=b", "-a=b", "a=1,a=2"])
def test_attributes_that_cannot_be_read(running: BackgroundBroker, text: str) -> None:
    result = call(running, "topic", "set", "Typed", f"--attribute={text}")
    assert result.exit_code == 2
    assert "Invalid value for '-a'" in result.stderr


def test_an_unknown_topic_is_not_created(running: BackgroundBroker) -> None:
    done(running, "topic", "create", "Orders")
    result = call(running, "topic", "set", "Order", "--queues", "3", "--json")
    assert (result.exit_code, error_of(result)["hint"]) == (3, "Did you mean Orders?")
    assert "Order" not in [each["topic"] for each in of_json(running, "topic", "ls")]
    assert call(running, "topic", "set", "Orders").exit_code == 2


@pytest.mark.parametrize("command", [("topic", "show"), ("topic", "delete"), ("tail",)])
def test_the_nearest_topic_is_suggested(
    running: BackgroundBroker, command: tuple[str, ...]
) -> None:
    running.create_topic("Payments")
    result = call(running, *command, "payment", "--json")
    assert (result.exit_code, error_of(result)["hint"]) == (3, "Did you mean Payments?")
    result = call(running, *command, "Zebra", "--json")
    assert "Did you mean" not in (error_of(result)["hint"] or "")


# -- groups -------------------------------------------------------------------------------------


def group_settings(running: BackgroundBroker, group: str) -> dict[str, Any]:
    found = of_json(running, "group", "show", group)["settings"][running.name]
    assert isinstance(found, dict)
    return found


def test_a_group_is_created_and_changed(running: BackgroundBroker) -> None:
    out = done(running, "group", "create", "billing", "--retries", "3", "--no-broadcast")
    assert out == f"Created the group billing on {running.name}\n"
    found = group_settings(running, "billing")
    assert (found["retryMaxTimes"], found["consumeBroadcastEnable"]) == (3, False)
    assert found["consumeEnable"]
    result = call(running, "group", "create", "billing", "--retries", "9", "--json")
    assert (result.exit_code, error_of(result)["code"]) == (1, "already_exists")
    done(running, "group", "set", "billing", "--retries", "5", "--retry-queues", "2")
    found = group_settings(running, "billing")
    assert (found["retryMaxTimes"], found["retryQueueNums"]) == (5, 2)
    assert not found["consumeBroadcastEnable"]


def test_stopping_a_group_needs_confirmation(running: BackgroundBroker) -> None:
    done(running, "group", "create", "stopped")
    result = call(running, "group", "set", "stopped", "--no-consume", input="n\n")
    assert result.exit_code == 1
    assert "consume True → False" in result.stderr
    assert group_settings(running, "stopped")["consumeEnable"]
    done(running, "group", "set", "stopped", "--no-consume", "--yes")
    assert not group_settings(running, "stopped")["consumeEnable"]
    done(running, "group", "set", "stopped", "--consume")
    assert group_settings(running, "stopped")["consumeEnable"]


def test_an_unknown_group(running: BackgroundBroker) -> None:
    done(running, "group", "create", "shipping")
    for command in (("set", "shiping", "--retries", "1"), ("show", "shiping")):
        result = call(running, "group", *command, "--json")
        assert (result.exit_code, error_of(result)["hint"]) == (1, "Did you mean shipping?")
    assert call(running, "group", "set", "shipping").exit_code == 2
    assert call(running, "group", "create", "no group").exit_code == 2


def test_who_is_connected(running: BackgroundBroker) -> None:
    running.create_topic("Clients", queues=1)

    async def handler(_message: ReceivedMessage) -> None:
        """Take it."""

    async def work() -> tuple[PushConsumer, Producer]:
        consumer = PushConsumer(running.namesrv, group="reading", handler=handler)
        consumer.subscribe("Clients", "a || b")
        await consumer.start()
        producer = Producer(running.namesrv, group="writing")
        await producer.start()
        await producer.send(Message("Clients", b"x", tags="a"))
        return consumer, producer

    consumer, producer = running.run(work)
    try:
        found = of_json(running, "group", "clients", "reading")
        [client] = found["clients"]
        assert (client["language"], client["brokers"]) == ("PYTHON", [running.name])
        assert found["messageModel"] == "CLUSTERING"
        topics = {each["topic"]: each["expression"] for each in found["subscriptions"]}
        assert topics["Clients"] == "a || b"
        assert done(running, "group", "clients", "reading").startswith("reading: 1 client\n")
        found = of_json(running, "group", "clients", "writing", "--producers")
        assert len(found["clients"]) == 1
    finally:
        running.run(consumer.close)
        running.run(producer.close)
    assert of_json(running, "group", "clients", "reading")["clients"] == []


# -- namespaces ---------------------------------------------------------------------------------


def test_namespaces_are_isolated(running: BackgroundBroker) -> None:
    flags = ("--namespace", "shop")
    done(running, "topic", "create", "Wrapped", "--queues", "1", *flags)
    done(running, "group", "create", "wrapping", *flags)
    done(running, "send", "Wrapped", "a", *flags)
    assert [each["topic"] for each in of_json(running, "topic", "ls", *flags)] == ["shop%Wrapped"]
    assert "shop%Wrapped" in done(running, "topic", "ls")
    groups = [each["group"] for each in of_json(running, "group", "ls", *flags)]
    assert "shop%wrapping" in groups
    assert "billing" not in groups
    assert of_json(running, "topic", "show", "Wrapped", *flags)["messages"] == 1
    assert done(running, "tail", "Wrapped", "--format", "%t %b", *flags) == "Wrapped a\n"
    assert call(running, "topic", "show", "Wrapped").exit_code == 3
    done(running, "topic", "delete", "Wrapped", "--yes", *flags)
    assert of_json(running, "topic", "ls", *flags) == []
