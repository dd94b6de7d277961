"""What the commands that run a broker do without starting one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from roquet.broker.settings_table import IMPORTANT_KEYS
from roquet.cli import server
from roquet.cli.main import roquet
from roquet.cli.server import StopSignals, refuse_store_in_use, warn_if_exposed
from roquet.errors import StoreLocked
from roquet.runtime.files import Files
from roquet.runtime.network import host_name


def invoke(*arguments: str, environment: Mapping[str, str] | None = None) -> Result:
    return CliRunner(env={"NAMESRV_ADDR": None, **(environment or {})}).invoke(roquet, arguments)


def shown(result: Result) -> dict[str, str]:
    assert result.exit_code == 0, result.stderr
    return dict(line.split("=", 1) for line in result.stdout.splitlines())


def test_all_settings_are_printed() -> None:
    settings = shown(invoke("broker", "-p"))
    assert settings["brokerName"] == host_name()
    assert settings["bindAddress"] == "127.0.0.1"
    assert settings["mappedFileSizeCommitLog"] == "1073741824"
    assert settings["tls.server.mode"] == "permissive"


def test_important_settings_are_printed() -> None:
    assert shown(invoke("broker", "-m")).keys() == IMPORTANT_KEYS


def test_settings_are_printed_as_json() -> None:
    result = invoke("broker", "-m", "--json")
    assert json.loads(result.stdout).keys() == IMPORTANT_KEYS


def test_flags_file_and_environment(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("namesrvAddr=file:1\nlistenPort=5\n")
    variables = {"NAMESRV_ADDR": "env:1"}
    assert shown(invoke("broker", "-p", environment=variables))["namesrvAddr"] == "env:1"
    from_file = shown(invoke("broker", "-p", "-c", str(file), environment=variables))
    assert (from_file["namesrvAddr"], from_file["listenPort"]) == ("file:1", "5")
    flags = ("-n", "flag:1", "--port", "6", "--host", "192.0.2.1")
    by_flag = shown(invoke("broker", "-p", "-c", str(file), *flags, environment=variables))
    assert by_flag["namesrvAddr"] == "flag:1"
    assert by_flag["listenPort"] == "6"
    assert by_flag["bindAddress"] == "192.0.2.1"


def test_a_bad_name_server_address_ends_it() -> None:
    result = invoke("broker", "-n", "localhost")
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: The Name Server Address[localhost] illegal, please set it as follows, "
        '"127.0.0.1:9876;192.168.0.1:9876"\nDETAIL: the command line\n'
    )


def test_a_slave_without_an_id_ends_it(tmp_path: Path) -> None:
    file = tmp_path / "slave.conf"
    file.write_text("brokerRole=SLAVE\n")
    result = invoke("broker", "-c", str(file), "--json")
    assert result.exit_code == 2
    error = json.loads(result.stderr)["error"]
    assert (error["code"], error["message"]) == ("broker_id", "Slave's brokerId must be > 0")


def test_a_missing_file(tmp_path: Path) -> None:
    result = invoke("broker", "-c", str(tmp_path / "none"))
    assert result.exit_code == 2
    assert "No such file or directory" in result.stderr


@pytest.mark.parametrize("command", ["broker", "dev", "namesrv"])
def test_a_port_out_of_range_is_bad_usage(command: str) -> None:
    assert invoke(command, "--port", "70000").exit_code == 2


@pytest.mark.parametrize("command", ["broker", "dev", "namesrv"])
def test_help_shows_examples(command: str) -> None:
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert f"\n  roquet {command}" in result.output


def test_an_unused_store_is_free(tmp_path: Path) -> None:
    refuse_store_in_use(tmp_path / "none", Files())
    (tmp_path / "lock").touch()
    refuse_store_in_use(tmp_path, Files())


def test_a_store_in_use_is_refused_with_its_holder(tmp_path: Path) -> None:
    class Held(Files):
        def lock_holder(self, path: Path) -> int | None:
            assert path == tmp_path / "lock"
            return 4711

    (tmp_path / "lock").touch()
    with pytest.raises(StoreLocked) as caught:
        refuse_store_in_use(tmp_path, Held())
    assert caught.value.detail == "process 4711 holds the lock"


async def test_a_signal_ends_the_wait() -> None:
    stop = StopSignals(has_terminal=False)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await stop.wait(asyncio.Event().wait()) is None


async def test_a_second_signal_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(server, "exit_at_once", ended.set_result)
    stop = StopSignals(has_terminal=False)
    os.kill(os.getpid(), signal.SIGINT)
    await stop.wait()
    os.kill(os.getpid(), signal.SIGINT)
    assert await ended == 130


async def test_a_failure_ends_the_wait() -> None:
    async def fail() -> str:
        return "no disk"

    assert await StopSignals(has_terminal=False).wait(fail()) == "no disk"


@pytest.mark.parametrize(("address", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])  # noqa: S104
def test_a_port_reachable_by_others_gives_a_warning(
    caplog: pytest.LogCaptureFixture, address: str, *, warned: bool
) -> None:
    warn_if_exposed(address)
    assert ("no access control" in caplog.text) == warned
