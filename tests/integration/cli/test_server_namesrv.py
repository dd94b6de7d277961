"""``roquet namesrv`` as a real process."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from tests.integration.cli.server_kit import run, server
from tests.patience import PATIENT


async def ask_config(address: str) -> str:
    async with RemotingClient(config=PATIENT) as client:
        answer = await client.invoke(address, RequestCode.GET_NAMESRV_CONFIG)
    assert answer.code == ResponseCode.SUCCESS
    return answer.body.decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with server("namesrv", "--port", "0", "--json", home=tmp_path) as running:
        facts = running.facts()
        assert (facts["schema"], facts["role"]) == (1, "namesrv")
        assert facts["address"] == facts["listensOn"] == f"127.0.0.1:{facts['port']}"
        text = asyncio.run(ask_config(facts["address"]))
        assert f"listenPort={facts['port']}\n" in text
        code, out, err = running.stop(number)
    assert (code, out, err) == (0, "", "")


def test_it_prints_upstreams_ready_line(tmp_path: Path) -> None:
    with server("namesrv", "--port", "0", home=tmp_path) as running:
        line = running.first_line()
        assert line.startswith("The Name Server boot success. serializeType=JSON, address 127.0.0")
        code, out, _ = running.stop()
    assert code == 0
    assert "The name server stopped." in out


def test_its_file_is_read_and_flags_win(tmp_path: Path) -> None:
    (tmp_path / "namesrv.conf").write_text(
        "listenPort=1\norderMessageEnable=true\nserverWorkerThreads=8\nlistenProt=2\n"
        f"kvConfigPath={tmp_path / 'kv.json'}\n"
    )
    flags = ("-c", "namesrv.conf", "-n", "ignored", "--port", "0", "--json")
    with server("namesrv", *flags, home=tmp_path) as running:
        facts = running.facts()
        assert facts["kvConfigPath"] == str(tmp_path / "kv.json")
        assert "orderMessageEnable=true\n" in asyncio.run(ask_config(facts["address"]))
        code, _, err = running.stop()
    assert code == 0
    assert "INFO" in err
    assert "These settings have no effect here: serverWorkerThreads" in err
    assert "WARNING" in err
    assert "There is no setting 'listenProt'. (namesrv.conf, line 4) Did you mean listen" in err


def test_settings_are_printed(tmp_path: Path) -> None:
    done = run("namesrv", "-p", "--port", "77", home=tmp_path)
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert "listenPort=77" in lines
    assert "bindAddress=127.0.0.1" in lines
    assert f"kvConfigPath={tmp_path}/namesrv/kvConfig.json" in lines


def test_a_bad_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "namesrv.conf").write_text("listenPort=x\n")
    done = run("namesrv", "-c", "namesrv.conf", home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "Error: The value of listenPort cannot be used.\n"
        "DETAIL: namesrv.conf, line 1: 'x', expected a whole number from 0 to 65535\n"
    )


def test_a_port_in_use(tmp_path: Path) -> None:
    with server("namesrv", "--port", "0", "--json", home=tmp_path) as running:
        port = running.facts()["port"]
        done = run("namesrv", "--port", str(port), home=tmp_path)
        running.stop()
    assert done.returncode == 2
    assert f"Cannot listen on 127.0.0.1:{port}" in done.stderr
