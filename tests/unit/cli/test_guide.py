"""The guide to the command line names commands and flags that there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from roquet.cli.main import roquet

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "command-line.md").read_text("utf-8")
BLOCKS = re.findall(r"(?ms)^```sh\n(.*?)^```", GUIDE)


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
    {words for block in BLOCKS for line in block.splitlines() for words in commands_of(line)}
)


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 20


@pytest.mark.parametrize("command_line", COMMANDS, ids=" ".join)
def test_a_command_of_the_guide_is_understood(command_line: tuple[str, ...]) -> None:
    words = list(command_line)
    context = click.Context(roquet, info_name="roquet")
    command: click.Command = roquet
    while isinstance(command, click.Group):
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
        context = click.Context(command, parent=context, info_name=name)
    # Only parsed: what a flag says is not looked up.
    values, rest, _ = command.make_parser(context).parse_args(words)
    assert rest == []
    required = {each.name for each in command.params if each.required}
    assert required <= {name for name, value in values.items() if value is not None}
