"""The client commands against servers of Roquet and of Apache RocketMQ; one scenario for both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from roquet.cli.main import roquet
from tests.interop.agent import wait_until
from tests.interop.cluster import APACHE, ROQUET, Cluster

pytestmark = pytest.mark.interop

TOPIC = "CommandLine"


@pytest.fixture(scope="module", params=[ROQUET, APACHE])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    if request.param == APACHE:
        request.getfixturevalue("java_toolkit")
    folder = tmp_path_factory.mktemp(f"command-line-{request.param}")
    with Cluster(request.param, request.param, folder) as started:
        yield started


def call(servers: Cluster, *words: str, lines: str = "") -> Result:
    flags = ["-n", servers.namesrv, "--timeout", "60s"]
    return CliRunner().invoke(roquet, [*words, *flags], input=lines)


def done(servers: Cluster, *words: str, lines: str = "") -> str:
    result = call(servers, *words, lines=lines)
    assert result.exit_code == 0, result.output
    return result.stdout


def bodies(servers: Cluster, *flags: str) -> list[str]:
    return sorted(done(servers, "tail", TOPIC, "--format", "%b", *flags).splitlines())


def wait_stored(servers: Cluster, topic: str, count: int) -> None:
    """Waits until a topic has so many messages: a Java broker acknowledges them before that."""
    wait_until(
        lambda: of_json(servers, "topic", "show", topic)["messages"] == count,
        lambda: AssertionError(f"{topic} has not {count} messages"),
    )


def test_the_life_of_a_topic(servers: Cluster) -> None:
    done(servers, "topic", "create", TOPIC, "--queues", "2")
    assert call(servers, "topic", "create", TOPIC).exit_code == 1
    done(servers, "send", TOPIC, "-t", "x", "-k", "17", "-p", "a=b", lines="one\ntwo\n")
    done(servers, "send", TOPIC, "three", "-t", "y")
    wait_stored(servers, TOPIC, 3)
    assert bodies(servers, "--from", "earliest") == ["one", "three", "two"]
    assert bodies(servers, "--from", "1h", "--filter", "x || z") == ["one", "two"]
    assert bodies(servers, "--from", "latest") == []
    out = done(servers, "tail", TOPIC, "--filter", "x", "--count", "1", "--json")
    found = json.loads(out)
    assert (found["keys"], found["properties"]) == (["17"], {"a": "b"})
    done(servers, "send", TOPIC, "--jsonl", lines=out)
    wait_stored(servers, TOPIC, 4)
    assert len(of_json(servers, "topic", "show", TOPIC)["queues"]) == 2
    assert TOPIC in done(servers, "topic", "ls")
    assert "TOOLS_CONSUMER" in done(servers, "group", "ls")
    assert call(servers, "group", "show", "nobody").exit_code == 1
    assert "nobody" not in done(servers, "group", "ls")
    done(servers, "topic", "delete", TOPIC, "--yes")
    assert call(servers, "topic", "show", TOPIC).exit_code == 3


def of_json(servers: Cluster, *words: str) -> Any:  # noqa: ANN401 - whatever the command writes
    return json.loads(done(servers, *words, "--json"))


def committed(servers: Cluster, group: str, topic: str) -> list[int | None]:
    found = of_json(servers, "offset", "show", group, topic)
    return [each["committedOffset"] for each in found["queues"]]


def test_settings_of_topics_and_groups(servers: Cluster) -> None:
    topic, group = "CommandLineSettings", "command-line-settings"
    done(servers, "topic", "create", topic, "--queues", "2")
    done(servers, "topic", "set", topic, "--queues", "4", "--attribute", "message.type=FIFO")
    done(servers, "topic", "set", topic, "--perm", "r", "--yes")
    [settings] = of_json(servers, "topic", "show", topic)["settings"]
    assert (settings["readQueues"], settings["writeQueues"], settings["perm"]) == (4, 4, "r")
    assert settings["attributes"]["message.type"] == "FIFO"
    done(servers, "group", "create", group, "--retries", "3", "--no-broadcast")
    done(servers, "group", "set", group, "--retries", "5")
    found = of_json(servers, "group", "show", group)["settings"][servers.broker_name]
    assert (found["retryMaxTimes"], found["consumeBroadcastEnable"]) == (5, False)
    assert of_json(servers, "group", "clients", group)["clients"] == []
    missing = call(servers, "topic", "show", topic.lower(), "--json")
    assert f"Did you mean {topic}?" in missing.stderr
    done(servers, "group", "delete", group, "--yes")


def test_offsets_and_messages(servers: Cluster) -> None:
    topic, group = "CommandLineOffsets", "command-line-offsets"
    done(servers, "topic", "create", topic, "--queues", "2")
    done(servers, "group", "create", group)
    done(servers, "send", topic, "-k", "17", lines="".join(f"{each}\n" for each in range(8)))
    wait_stored(servers, topic, 8)
    assert committed(servers, group, topic) == [None, None]
    reset = ("offset", "reset", group, topic, "--yes", "--to")
    plan = of_json(servers, *reset, "latest", "--dry-run")
    ends = [each["targetOffset"] for each in plan["queues"]]
    assert sum(ends) == 8
    assert committed(servers, group, topic) == [None, None]
    done(servers, *reset, "latest")
    assert committed(servers, group, topic) == ends
    done(servers, *reset, "1")
    assert committed(servers, group, topic) == [1, 1]
    done(servers, *reset, "1h")
    assert committed(servers, group, topic) == [0, 0]
    done(servers, "offset", "set", group, topic, "1", "2", "--yes")
    assert committed(servers, group, topic) == [0, 2]
    lags = {each["topic"]: each["lag"] for each in of_json(servers, "offset", "ls", group)}
    assert lags[topic] == 6
    listed = done(servers, "message", "ls", topic, "--json").splitlines()
    assert len(listed) == 8
    wanted = json.loads(listed[0])

    def by_key() -> int:
        return len(done(servers, "message", "query", topic, "--key", "17", "--json").splitlines())

    wait_until(lambda: by_key() == 8, lambda: AssertionError("the index lacks messages"))
    for key in (("--topic", topic, wanted["messageId"]), (wanted["offsetMessageId"],)):
        shown = of_json(servers, "message", "show", *key)
        assert shown["message"] == wanted
        assert [each["type"] for each in shown["tracks"]] == ["NOT_ONLINE"]


def test_brokers(servers: Cluster) -> None:
    [found] = of_json(servers, "cluster", "ls")
    assert found["brokers"] == [servers.broker_name]
    wait_until(
        lambda: of_json(servers, "broker", "ls")[0]["error"] is None,
        lambda: AssertionError("the broker has no figures"),
    )
    [state] = of_json(servers, "broker", "ls")
    assert (state["brokerName"], state["version"]) == (servers.broker_name, "V5_4_0")
    show = ("broker", "show", servers.broker_name, "--config", "--grep", "fileReservedTime")
    done(servers, "broker", "set", servers.broker_name, "fileReservedTime=31", "--yes")
    assert of_json(servers, *show)["settings"]["fileReservedTime"] == "31"
    unknown = call(servers, "broker", "set", servers.broker_name, "fileReservdTime=1", "--yes")
    assert unknown.exit_code == 1
