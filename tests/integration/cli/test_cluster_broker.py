"""``roquet cluster``, ``roquet broker ls|show|set``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from roquet.admin import Admin, BrokerInfo
from roquet.cli.broker_show import shown_settings
from roquet.cli.broker_state import BrokerState, broker_states
from roquet.cli.main import roquet
from roquet.testing.background import BackgroundBroker, background_broker
from tests.integration.cli.client_kit import call, done, of_json
from tests.unit.cli.output_kit import error_of


@pytest.fixture(scope="module")
def running() -> Iterator[BackgroundBroker]:
    with background_broker() as found:
        yield found


def test_clusters(running: BackgroundBroker) -> None:
    assert of_json(running, "cluster", "ls") == [
        {"cluster": running.cluster, "brokers": [running.name], "masters": 1, "slaves": 0}
    ]
    assert done(running, "cluster", "ls").startswith("1 cluster\n")
    [found] = of_json(running, "cluster", "show")
    [broker] = found["brokers"]
    assert (found["cluster"], broker["brokerName"]) == (running.cluster, running.name)
    assert (broker["role"], broker["address"]) == ("master", running.address)
    assert broker["version"].startswith("V5")
    assert broker["error"] is None
    [again] = of_json(running, "cluster", "show", running.cluster)
    assert (again["cluster"], len(again["brokers"])) == (running.cluster, 1)
    assert running.name in done(running, "cluster", "show")
    result = call(running, "cluster", "show", "DefaultClustr", "--json")
    assert (result.exit_code, error_of(result)["hint"]) == (1, f"Did you mean {running.cluster}?")


def test_brokers(running: BackgroundBroker) -> None:
    [row] = of_json(running, "broker", "ls")
    assert (row["brokerName"], row["brokerId"]) == (running.name, 0)
    assert done(running, "broker", "ls").startswith("1 broker\n")
    assert of_json(running, "broker", "ls", "--cluster", "Other") == []
    for name in (running.name, running.address):
        found = of_json(running, "broker", "show", name)
        assert (found["brokerName"], found["runtime"]) == (running.name, None)
        assert len(found["processes"]) == 1
    found = of_json(running, "broker", "show", running.name, "--runtime", "--config")
    assert found["runtime"]["brokerVersionDesc"].startswith("V5")
    assert found["settings"]["brokerName"] == running.name
    found = of_json(running, "broker", "show", running.name, "--config", "--grep", "reservedtime")
    assert "fileReservedTime" in found["settings"]
    assert "brokerName" not in found["settings"]
    assert "brokerVersionDesc" in done(running, "broker", "show", running.name, "--runtime")


def test_an_unresponsive_broker_is_listed(running: BackgroundBroker) -> None:
    with background_broker() as gone:
        pass
    infos = [
        BrokerInfo(cluster="c", name="gone", broker_id=1, address=gone.address),
        BrokerInfo(cluster="c", name=running.name, broker_id=0, address=running.address),
    ]

    async def work() -> list[BrokerState]:
        async with Admin(running.namesrv) as admin:
            return await broker_states(admin, infos)

    away, there = running.run(work)
    assert (away.role, away.version) == ("slave", None)
    assert gone.address in (away.error or "")
    assert (there.role, there.error) == ("master", None)


def test_settings_are_altered_after_a_yes(running: BackgroundBroker) -> None:
    def now() -> str:
        found = of_json(running, "broker", "show", running.name, "--config")
        text: str = found["settings"]["fileReservedTime"]
        return text

    before = now()
    command = ("broker", "set", running.name, "fileReservedTime=31")
    result = call(running, *command, input="n\n")
    assert result.exit_code == 1
    assert f"{running.name}: fileReservedTime {before} → 31" in result.stderr
    assert now() == before
    assert of_json(running, *command, "--yes") == {
        "brokerName": running.name,
        "changes": {"fileReservedTime": {"from": before, "to": "31"}},
    }
    assert now() == "31"
    assert done(running, *command) == f"{running.name} has these settings already\n"


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("set", "dev", "fileReservdTime=1"), 1, "Did you mean fileReservedTime?"),
        (("set", "dev", "brokerName=x", "--yes"), 4, ""),
        (("set", "dev", "fileReservedTime"), 2, "NAME=VALUE"),
        (("set", "dev"), 2, ""),
        (("set", "dve", "fileReservedTime=1"), 1, "Did you mean dev?"),
        (("show", "dve"), 1, "Did you mean dev?"),
    ],
)
def test_impossible_changes_are_refused(
    running: BackgroundBroker, arguments: tuple[str, ...], code: int, word: str
) -> None:
    result = call(running, "broker", *arguments)
    assert result.exit_code == code, result.output
    assert word in result.stderr


def test_flags_before_the_command(running: BackgroundBroker) -> None:
    result = CliRunner().invoke(roquet, ["broker", "-n", running.namesrv, "--json", "ls"])
    assert result.exit_code == 0
    assert result.stdout.startswith("[{")
    result = CliRunner().invoke(roquet, ["broker", "--port", "1", "ls", "-n", running.namesrv])
    assert result.exit_code == 2
    assert "--port is for running a broker" in result.stderr


def test_secrets_of_a_broker_are_not_shown() -> None:
    found = shown_settings({"b": "1", "tls.server.keyPassword": "x", "aclSecretKey": ""})
    assert found == {"aclSecretKey": "", "b": "1", "tls.server.keyPassword": "***"}
    assert list(found) == sorted(found)
