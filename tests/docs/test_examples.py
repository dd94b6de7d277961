"""Every program in examples/ runs, and prints what it promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from roquet.testing.background import background_broker

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}

SENT = r"SEND_OK in queue \d at 0\n100 stored\none queue: True\n"
EVENTS = "event 0\nevent 1\nevent 2\nevent 3\nevent 4\nagain from 0\n"
OUTPUT = {
    "admin.py": "broker dev of DefaultCluster\nmessages: 3\nbilling waits for 0\n"
    "billing waits for 3\nby key: 1\n",
    "admin_sync.py": "broker dev of DefaultCluster\nmessages: 3\nbilling waits for 3\nby key: 1\n",
    "batch.py": "1000 stored by hand\n1000 stored by themselves\n",
    "consume.py": "a book, tries: 1\na cracked cup, tries: 2\n",
    "consume_in_order.py": "17 paid packed sent\n18 paid packed sent\n",
    "consume_sync.py": "a book\n",
    "delayed.py": "please pay after a second: True\n",
    "lite_pull.py": EVENTS,
    "lite_pull_sync.py": EVENTS,
    "request_reply.py": "42 euros\n",
    "request_reply_sync.py": "42 euros\n",
    "send.py": SENT,
    "send_sync.py": SENT,
    "sql92_filter.py": "75 euros to Oslo\n",
    "transactions.py": "paid COMMIT\nrefused ROLLBACK\nhangs UNKNOWN\n(seen: paid\n)+seen: hangs\n",
    "transactions_sync.py": "COMMIT\nbooked: 1995\nseen: 1995\n",
}
ELSEWHERE = {"test_shop.py", "spark_stream.py"}
"""Below, and with the other tests of Spark."""

SETTINGS: dict[str, Mapping[str, object]] = {
    "sql92_filter.py": {"enablePropertyFilter": True},
    # A transaction checked late may be committed twice; within a queue the order holds.
    "transactions.py": {
        "transactionTimeOut": 1_000,
        "transactionCheckInterval": 50,
        "defaultTopicQueueNums": 1,
    },
}


def programs() -> list[str]:
    return sorted(path.name for path in FOLDER.glob("*.py") if path.name not in ELSEWHERE)


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        env=ENVIRONMENT,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_program_is_run_and_listed() -> None:
    assert programs() == sorted(OUTPUT)
    page = (FOLDER / "README.md").read_text("utf-8")
    listed = sorted(set(re.findall(r"\((\w+\.py)\)", page)))
    assert listed == sorted([*OUTPUT, *ELSEWHERE])


@pytest.mark.parametrize("name", OUTPUT)
def test_a_program_prints_what_it_promises(name: str) -> None:
    with background_broker(SETTINGS.get(name)) as server:
        printed = run(str(FOLDER / name), server.namesrv)
    assert re.fullmatch(OUTPUT[name], printed)


def test_the_example_test_passes() -> None:
    os_environment = {**ENVIRONMENT, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-p", "roquet.testing.pytest_plugin", "-c", os.devnull, "--rootdir", str(FOLDER)),
            str(FOLDER / "test_shop.py"),
        ],
        env=os_environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
