"""The client commands against servers of Roquet and of Apache RocketMQ; one scenario for both."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from roquet.cli.main import roquet
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
    return CliRunner().invoke(roquet, [*words, "-n", servers.namesrv], input=lines)


def done(servers: Cluster, *words: str, lines: str = "") -> str:
    result = call(servers, *words, lines=lines)
    assert result.exit_code == 0, result.output
    return result.stdout


def bodies(servers: Cluster, *flags: str) -> list[str]:
    return sorted(done(servers, "tail", TOPIC, "--format", "%b", *flags).splitlines())


def test_a_topic_from_its_making_to_its_end(servers: Cluster) -> None:
    done(servers, "topic", "create", TOPIC, "--queues", "2")
    assert call(servers, "topic", "create", TOPIC).exit_code == 1
    done(servers, "send", TOPIC, "-t", "x", "-k", "17", "-p", "a=b", lines="one\ntwo\n")
    done(servers, "send", TOPIC, "three", "-t", "y")
    assert bodies(servers, "--from", "earliest") == ["one", "three", "two"]
    assert bodies(servers, "--from", "1h", "--filter", "x || z") == ["one", "two"]
    assert bodies(servers, "--from", "latest") == []
    out = done(servers, "tail", TOPIC, "--filter", "x", "--count", "1", "--json")
    found = json.loads(out)
    assert (found["keys"], found["properties"]) == (["17"], {"a": "b"})
    done(servers, "send", TOPIC, "--jsonl", lines=out)
    shown = json.loads(done(servers, "topic", "show", TOPIC, "--json"))
    assert (shown["messages"], len(shown["queues"])) == (4, 2)
    assert TOPIC in done(servers, "topic", "ls")
    assert "TOOLS_CONSUMER" in done(servers, "group", "ls")
    assert call(servers, "group", "show", "nobody").exit_code == 1
    assert "nobody" not in done(servers, "group", "ls")
    done(servers, "topic", "delete", TOPIC, "--yes")
    assert call(servers, "topic", "show", TOPIC).exit_code == 3
