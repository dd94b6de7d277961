"""Apache RocketMQ's admin tool against Roquet and against Apache RocketMQ, in the same state.

Every command of `mqadmin_steps` runs on both sides, one after the other, by the same tool. What it
prints has to be the same, but for what `mqadmin_shape` and the command's own masks name.

`roquet mqadmin` runs them too, at servers of Roquet that are in the same state. It has to print the
same; where a command changes nothing, with the same whitespace as Java's tool for the same servers,
Roquet's and Apache RocketMQ's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest

from tests.interop import javabuild
from tests.interop.agent import wait_until
from tests.interop.cluster import APACHE, ROQUET
from tests.interop.javaclient import AdminOutcome
from tests.interop.javaprocess import JavaProcess
from tests.interop.mqadmin_shape import Mask, shape_exactly, shape_text
from tests.interop.mqadmin_side import Command, Side
from tests.interop.mqadmin_steps import CHANGING, COMMANDS, STEPS

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("mqadmin")]

TOOL_CLASS = "org.apache.rocketmq.tools.command.MQAdminStartup"

COMMANDS_MIN = 60
SHARED_KEYS_MIN = 10

NOT_SUPPORTED = "CODE: 3 DESC: request type "

OURS = "ours"

PLACES: Sequence[Mask] = (
    (r"(commitLogOffset=|CommitLog Offset: |CommitLogMaxOffset )\d+", r"\1<place>"),
    (r"(\bcommitLogMaxOffset : |\bputMessageSizeTotal : |^<id> .*@)\d+$", r"\1<place>"),
    (r'(putMessageAverageSize : |"messageAverageSize":")[\d.]+', r"\1<size>"),
)
"""What depends on how long the ids of messages are that a tool sends."""

LOOKING = [command for command in COMMANDS if command.words[0] not in CHANGING]

Shapes = Mapping[str, Mapping[str, list[str]]]
"""The lines of each side by the name of the command."""

Facts = dict[str, list[dict[str, Any]]]
"""What ours told as JSON, by the name of the command."""

Outcomes = dict[tuple[str, str], tuple[AdminOutcome, AdminOutcome]]
"""What Java's tool and ours printed about the same servers, by whose they are and by command."""


@pytest.fixture(scope="module")
def outcomes() -> Outcomes:
    """Filled by `shapes`."""
    return {}


@pytest.fixture(scope="module")
def facts() -> Facts:
    """Filled by `shapes`."""
    return {}


@pytest.fixture(scope="module")
def shapes(twins: Sequence[Side], sibling: Side, outcomes: Outcomes, facts: Facts) -> Shapes:
    """Runs all steps on all sides, once."""
    found: dict[str, dict[str, list[str]]] = {command.name: {} for command in COMMANDS}
    for step in STEPS:
        for side in (*twins, sibling):
            if not isinstance(step, Command):
                step(side)
                continue
            outcome = side.outcome(step)
            name = OURS if side is sibling else side.kind
            found[step.name][name] = side.shaped(step, outcome)
            if step not in LOOKING:
                continue
            if side is sibling:
                outcomes[ROQUET, step.name] = side.outcome(step, twins[0].tool), outcome
                facts[step.name] = side.facts(step)
            elif side.kind == APACHE:
                outcomes[APACHE, step.name] = outcome, side.outcome(step, sibling.tool)
    return found


def test_enough_commands() -> None:
    assert len({command.words[0] for command in COMMANDS}) >= COMMANDS_MIN
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_same_as_apache(shapes: Shapes, command: Command) -> None:
    apache, roquet = shapes[command.name][APACHE], shapes[command.name][ROQUET]
    if command.refused:
        assert not any(NOT_SUPPORTED in line for line in apache), apache
        assert any(NOT_SUPPORTED in line for line in roquet), roquet
        return
    if command.shared:
        keys = {_key(line) for line in apache} & {_key(line) for line in roquet}
        assert len(keys) >= SHARED_KEYS_MIN
        apache = [line for line in apache if _key(line) in keys]
        roquet = [line for line in roquet if _key(line) in keys]
    difference = "\n".join(unified_diff(apache, roquet, APACHE, ROQUET, lineterm="", n=1))
    assert not difference, f"{' '.join(command.words)}\n{difference}"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_same_by_our_tool(shapes: Shapes, command: Command) -> None:
    java, ours = (
        [shape_text(line, {}, PLACES) for line in shapes[command.name][tool]]
        for tool in (ROQUET, OURS)
    )
    if command.differs:
        assert java != ours, "they no longer differ"
        return
    difference = "\n".join(unified_diff(java, ours, "java", OURS, lineterm="", n=1))
    assert not difference, f"{' '.join(command.words)}\n{difference}"


@pytest.mark.parametrize("servers", [ROQUET, APACHE])
@pytest.mark.parametrize("command", LOOKING, ids=lambda command: command.name)
def test_same_including_whitespace(
    shapes: Shapes, outcomes: Outcomes, command: Command, servers: str
) -> None:
    assert command.name in shapes
    java, ours = (
        shape_exactly(each, command.masks, command.drops)
        for each in outcomes[servers, command.name]
    )
    if command.differs:
        assert java != ours, "they no longer differ"
        return
    difference = "\n".join(unified_diff(java, ours, "java", OURS, lineterm="", n=0))
    assert not difference, f"{' '.join(command.words)}\n{difference}"


@pytest.mark.parametrize("command", LOOKING, ids=lambda command: command.name)
def test_json_has_what_the_text_has(
    shapes: Shapes, outcomes: Outcomes, facts: Facts, command: Command
) -> None:
    assert command.name in shapes
    printed = outcomes[ROQUET, command.name][1]
    has_rows = [line for line in printed.printed.splitlines() if not line.startswith("#")]
    assert facts[command.name] or not (has_rows or printed.failures)


def _key(line: str) -> str:
    return line.partition(" ")[0]


def test_exit_codes(
    twins: Sequence[Side], java_toolkit: javabuild.JavaToolkit, tmp_path: Path
) -> None:
    """In processes of their own: the tool's exit code is the same on both sides."""
    with ExitStack() as stack:
        running = {
            (words[0], side.kind): stack.enter_context(
                JavaProcess(
                    java_toolkit,
                    words[0],
                    TOOL_CLASS,
                    arguments=[*words, "-n", side.cluster.namesrv],
                    folder=tmp_path / side.kind / words[0],
                )
            )
            for words in (["clusterList"], ["topicRoute", "-t", "Nowhere"])
            for side in twins
        }
        wait_until(
            lambda: not any(process.is_running() for process in running.values()),
            lambda: AssertionError("not all of them end"),
        )
        codes = {key: process.exit_code for key, process in running.items()}
    assert codes == dict.fromkeys(running, 0)
