"""The fixtures for pytest, in runs of pytest of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PLUG_IN = "roquet.testing.pytest_plugin"

TESTS = """
import socket
import threading

import pytest

SEEN = []


def test_a_client_is_given_an_address(roquet_broker, roquet_namesrv):
    assert roquet_namesrv == roquet_broker.namesrv
    host, _, port = roquet_namesrv.rpartition(":")
    socket.create_connection((host, int(port))).close()
    roquet_broker.create_topic("Orders", queues=2)
    SEEN.append(roquet_broker)


def test_the_next_test_sees_{word}_broker(roquet_broker):
    assert (SEEN == [roquet_broker]) is {is_same}
    assert roquet_broker.name == "{name}"


def test_without_a_broker():
    running = [each.name for each in threading.enumerate()]
    assert ("roquet-broker" in running) is {is_same}
"""

OPTIONS = """
@pytest.fixture(scope="session")
def roquet_broker_options():
    return {"brokerName": "mine"}
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with no plug-in but ours."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", PLUG_IN, "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def summary(run: subprocess.CompletedProcess[str]) -> str:
    return run.stdout.rstrip().splitlines()[-1]


def test_every_test_has_a_broker_of_its_own(tmp_path: Path) -> None:
    text = TESTS.format(word="another", is_same=False, name="dev")
    (tmp_path / "test_orders.py").write_text(text)
    run = run_pytest(tmp_path, "-W", "error")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "3 passed" in summary(run)


def test_tests_may_share_a_broker_with_options_of_their_own(tmp_path: Path) -> None:
    text = TESTS.format(word="the_same", is_same=True, name="mine") + OPTIONS
    (tmp_path / "test_orders.py").write_text(text)
    run = run_pytest(tmp_path, "-W", "error", "-o", "roquet_broker_scope=session")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "3 passed" in summary(run)


def test_an_invalid_scope_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text("def test(roquet_broker): pass")
    run = run_pytest(tmp_path, "-o", "roquet_broker_scope=for ever")
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "roquet_broker_scope is 'for ever'" in run.stdout + run.stderr


def test_the_broker_is_not_imported_before_it_is_requested() -> None:
    program = (
        f"import sys, {PLUG_IN}\n"
        "print(*sorted(each for each in sys.modules if each.startswith(('roquet', 'msgspec'))))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["roquet", "roquet.testing", PLUG_IN]


def test_pytest_finds_the_plug_in() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"roquet": PLUG_IN}
