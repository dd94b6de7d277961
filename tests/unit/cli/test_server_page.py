"""The page of the server commands lists what they take."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from roquet.cli import startup_banner
from roquet.cli.broker import broker
from roquet.cli.dev import dev
from roquet.cli.namesrv import namesrv
from roquet.errors import FlushFailed, StoreLocked

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "cli-server.md").read_text("utf-8")


def section(name: str) -> str:
    match = re.search(rf"(?ms)^## roquet {name}\b(.*?)(?=^## |\Z)", PAGE)
    assert match is not None
    return match[1]


@pytest.mark.parametrize(
    ("name", "command"), [("namesrv", namesrv), ("broker", broker), ("dev", dev)]
)
def test_every_option_is_listed(name: str, command: click.Command) -> None:
    options = [each for each in command.params if isinstance(each, click.Option)]
    named = {flag for each in options if not each.hidden for flag in each.opts}
    cells = re.findall(r"(?m)^\| (`-.*?) \|", section(name))
    assert {flag for cell in cells for flag in re.findall(r"(?<![\w-])(--?[\w-]+)", cell)} == named


def test_exit_codes_are_listed() -> None:
    codes = {
        int(code) for row in re.findall(r"(?m)^\| ([\d, ]+) \|", PAGE) for code in row.split(",")
    }
    assert codes >= {0, 2, FlushFailed.exit_code, StoreLocked.exit_code, 130, 143}


@pytest.mark.parametrize(
    "kind", [startup_banner.NamesrvBanner, startup_banner.BrokerBanner, startup_banner.DevBanner]
)
def test_every_fact_is_listed(kind: type[startup_banner.BrokerBanner]) -> None:
    text = PAGE.partition("## For programs")[2]
    missing = [
        name for name in kind.__struct_encode_fields__ if not re.search(rf"[\"`]{name}", text)
    ]
    assert missing == []
