"""Shell blocks: every ``roquet`` command parses, and those of three pages run as they stand.

They run page by page and from top to bottom, as a reader tries them. Only the address of the name
server and the folder of the broker are replaced, by those of a broker which the test starts.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from roquet.cli.main import roquet
from roquet.cli.mqadmin.catalogue import find_spec
from roquet.cli.mqadmin.commons_cli import parse_flags
from roquet.testing.background import background_broker
from tests.pages import BLOCKS, ROOT

SHELL = [block for block in BLOCKS if block.language in {"sh", "bash"}]
RUN_PAGES = ["README.md", "docs/guides/command-line.md", "docs/start.md"]
NOT_RUN = {
    "git clone <this repository> roquet": "has no address",
    "roquet dev": "runs until it is stopped",
    "roquet context add prod -n ": "has a cluster that nobody has",
    "roquet namesrv -c namesrv.conf": "runs until it is stopped",
    "roquet offset ls billing --json | jq ": "needs jq",
}
"""By their beginnings: the blocks of these pages that do not run, and why."""

RUN = {"python", "sh", "bash"}
SHOWN = {"console", "dockerfile", "go", "ini", "java", "json", "properties", "text", "toml", "yaml"}
"""Languages of blocks that tests run or parse, and of those that are only to be looked at."""


def commands_of(line: str) -> list[tuple[str, ...]]:
    """The words of each ``roquet`` in a line, which may be a pipe."""
    words = shlex.shlex(line, posix=True, punctuation_chars="|")
    words.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in words:
        if word == "|":
            parts.append([])
        else:
            parts[-1].append(word)
    return [tuple(part[1:]) for part in parts if part[:1] == ["roquet"]]


COMMANDS = sorted(
    {
        words
        for block in SHELL
        for line in block.code.replace("\\\n", " ").splitlines()
        if "…" not in line
        for words in commands_of(line)
    }
)


def test_commands_are_found() -> None:
    assert len(COMMANDS) > 50


@pytest.mark.parametrize("command_line", COMMANDS, ids=" ".join)
def test_a_command_can_be_parsed(command_line: tuple[str, ...]) -> None:
    words = list(command_line)
    if words[0] == "mqadmin":
        spec = find_spec(words[1])
        assert spec is not None
        parse_flags(spec, words[2:])
        return
    context = click.Context(roquet, info_name="roquet")
    command: click.Command = roquet
    while isinstance(command, click.Group) and not words[0].startswith("-"):
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
        context = click.Context(command, parent=context, info_name=name)
    # Only parsed: the values of flags are not used.
    values, rest, _ = command.make_parser(context).parse_args(words)
    assert rest == []
    required = {each.name for each in command.params if each.required}
    assert required <= {name for name, value in values.items() if value is not None}


@pytest.mark.parametrize("page", RUN_PAGES)
def test_the_commands_of_a_page_run(page: str, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "roquet"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m roquet "$@"\n', "utf-8")
    program.chmod(0o755)
    environment = {
        **{name: value for name, value in os.environ.items() if name.startswith("ROQUET_")},
        "HOME": str(tmp_path),
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }
    with background_broker(folder=tmp_path / "data") as server:
        for block in (each for each in SHELL if each.page == page):
            if block.code.startswith(tuple(NOT_RUN)):
                continue
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.at(server.namesrv, server.folder)],
                env={**environment, "NAMESRV_ADDR": server.namesrv},
                cwd=tmp_path,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=240,
            )
            assert done.returncode == 0, f"{block.where}\n{done.stdout}{done.stderr}"


def test_every_block_names_its_language() -> None:
    assert [block.where for block in BLOCKS if block.language not in RUN | SHOWN] == []


def test_blocks_that_are_not_run_exist() -> None:
    codes = [block.code for block in SHELL if block.page in RUN_PAGES]
    assert [start for start in NOT_RUN if not any(code.startswith(start) for code in codes)] == []
