"""``roquet completion``: scripts and names, and never an error."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from roquet.cli import completion
from roquet.cli.main import COMMANDS, roquet
from roquet.testing.background import BackgroundBroker, background_broker
from tests.integration.cli.client_kit import done
from tests.integration.cli.server_kit import END_TIMEOUT_S, MAIN
from tests.patience import TIMEOUT_MS

PATIENTLY = f"from roquet.cli import completion; completion.TIMEOUT_MS = {TIMEOUT_MS}"


@pytest.fixture(scope="module")
def running() -> Iterator[BackgroundBroker]:
    with background_broker() as found:
        found.create_topic("Orders")
        found.create_topic("Ordinary")
        done(found, "group", "create", "billing")
        yield found


@pytest.fixture(autouse=True)
def _patiently(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are waited for longer than a user would."""
    monkeypatch.setattr(completion, "TIMEOUT_MS", TIMEOUT_MS)


def completed(*words: str) -> list[str]:
    """What bash is given for a command line whose last word is being typed."""
    environment = {
        "COMP_WORDS": " ".join(["roquet", *words]),
        "COMP_CWORD": str(len(words)),
        "_ROQUET_COMPLETE": "bash_complete",
    }
    result = CliRunner().invoke(roquet, [], prog_name="roquet", env=environment)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    assert result.stderr == ""
    return [line.split(",", 1)[1] for line in result.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell: str) -> None:
    result = CliRunner().invoke(roquet, ["completion", shell])
    assert result.exit_code == 0
    assert f"_ROQUET_COMPLETE={shell}_complete" in result.stdout


def test_no_such_shell() -> None:
    assert CliRunner().invoke(roquet, ["completion", "csh"]).exit_code == 2


def test_commands_and_flags() -> None:
    assert completed("to") == ["topic"]
    assert set(completed("")) >= set(COMMANDS)
    assert completed("topic", "cr") == ["create"]
    assert "--queues" in completed("topic", "create", "--")


def test_names_of_the_cluster(running: BackgroundBroker) -> None:
    flags = ("-n", running.namesrv)
    assert completed("topic", "show", *flags, "Ord") == ["Orders", "Ordinary"]
    assert completed(*flags, "tail", "Orde") == ["Orders"]
    assert completed("group", "show", *flags, "b") == ["billing"]
    assert completed("offset", "reset", *flags, "billing", "Ordi") == ["Ordinary"]


def test_contexts_brokers_and_clusters(running: BackgroundBroker) -> None:
    added = CliRunner().invoke(roquet, ["context", "add", "prod", "-n", running.namesrv])
    assert added.exit_code == 0
    assert completed("topic", "ls", "--context", "p") == ["prod"]
    assert completed("context", "use", "") == ["prod"]
    assert completed("broker", "show", "") == [running.name]
    assert completed("cluster", "show", "") == [running.cluster]
    assert completed("group", "create", "g", "--broker", "") == [running.name]
    assert set(completed("broker", "")) == {"ls", "set", "show"}


def test_an_unreachable_cluster_gives_no_names() -> None:
    with background_broker() as gone:
        pass
    assert completed("topic", "show", "-n", gone.namesrv, "Ord") == []
    assert completed("topic", "show", "--context", "none", "Ord") == []
    assert completed("topic", "show", "-n", "nonsense", "Ord") == []


def by_a_shell(namesrv: str, home: Path) -> subprocess.CompletedProcess[str]:
    """What a shell gets from the program itself."""
    environment = {
        **os.environ,
        "NAMESRV_ADDR": namesrv,
        "HOME": str(home),
        "COMP_WORDS": "roquet send Orde",
        "COMP_CWORD": "2",
        "_ROQUET_COMPLETE": "bash_complete",
    }
    return subprocess.run(
        [sys.executable, "-c", f"{PATIENTLY}\n{MAIN}"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=END_TIMEOUT_S,
        check=True,
    )


def test_the_names_come_from_the_environment_too(running: BackgroundBroker, tmp_path: Path) -> None:
    result = by_a_shell(running.namesrv, tmp_path)
    assert (result.stdout, result.stderr) == ("plain,Orders\n", "")


def test_completion_never_disturbs_the_user(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        result = by_a_shell(f"127.0.0.1:{listener.getsockname()[1]}", tmp_path)
        thread.join()
    assert (result.stdout, result.stderr) == ("\n", "")
