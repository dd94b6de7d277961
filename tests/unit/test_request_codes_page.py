"""docs/reference/request-codes.md matches the tables and the processors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from roquet.remoting.codes import Handler, RequestCode

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "request_codes_page.py"
PAGE = ROOT / "docs" / "reference" / "request-codes.md"


def test_the_page_is_current() -> None:
    result = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_every_code_is_on_the_page() -> None:
    lines = PAGE.read_text("utf-8").splitlines()
    for code in RequestCode:
        [row] = [line for line in lines if line.startswith(f"| {int(code)} | `{code.name}` |")]
        status, since, where = (cell.strip() for cell in row.split("|")[5:8])
        assert since == code.since
        assert bool(where) == (not status.startswith("refused"))
        assert (status == "refused, as upstream") == (code.handlers is Handler.NONE)


def test_rows() -> None:
    page = PAGE.read_text("utf-8")
    assert (
        "| 315 | `VIEW_BROKER_STATS_DATA` | one statistic: minute, hour, day | broker "
        "| served by the broker | 4.1.0 | `roquet.broker.admin.stats` |"
    ) in page
    assert (
        "| 105 | `GET_ROUTEINFO_BY_TOPIC` | brokers and queues of a topic | name server "
        "| served by the name server | 4.1.0 | `roquet.namesrv.processor` |"
    ) in page
    assert "| 40 | `NOTIFY_CONSUMER_IDS_CHANGED` | a group changed: balance now | client " in page
