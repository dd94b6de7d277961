"""A name server and a broker of one side, and the admin tool's arguments for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tests.interop.agent import Agent, Consumer, Producer, wait_until
from tests.interop.cluster import Cluster
from tests.interop.javaclient import AdminOutcome
from tests.interop.mqadmin_ours import OurTool
from tests.interop.mqadmin_shape import Drop, Mask, shape

__all__ = ["BROKER_NAME", "AdminTool", "Command", "Side"]

BROKER_NAME = "broker-a"
"""The same on both sides, because the order of queues depends on it."""


class AdminTool(Protocol):
    """What runs commands: Apache RocketMQ's tool, or Roquet's."""

    def run_mqadmin(
        self, namesrv: str, words: Sequence[str], *, endless: bool = False
    ) -> AdminOutcome:
        """Runs a command; one that is endless is interrupted when it first pauses."""
        ...


@dataclass(frozen=True)
class Command:
    """A command of the admin tool.

    Attributes:
        words: Its name and arguments; braces name values of the side.
        note: What distinguishes it from other uses of the command.
        masks: What may differ in a line, beyond times, ports and ids.
        drops: Lines that do not count, each with the reason.
        is_ordered: Whether the order of lines counts.
        shared: Why only keys that both sides print are compared, where lines are `key = value`.
        refused: Why Roquet does not know the request.
        exports: The file that it writes and that counts as printed.
        endless: Whether it must be interrupted.
        differs: Why Roquet's tool prints something else.
    """

    words: Sequence[str]
    note: str = ""
    masks: Sequence[Mask] = ()
    drops: Sequence[Drop] = ()
    is_ordered: bool = True
    shared: str = ""
    refused: str = ""
    exports: str | None = None
    endless: bool = False
    differs: str = ""

    @property
    def name(self) -> str:
        return f"{self.words[0]}-{self.note}" if self.note else self.words[0]


@dataclass
class Side:
    """One of the two sides, in a state that grows with the steps.

    Attributes:
        tool: What runs the commands.
        values: What the words of a command may name in braces.
    """

    cluster: Cluster
    tool: AdminTool
    agent: Agent
    folder: Path
    values: dict[str, str] = field(default_factory=dict)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    producers: dict[str, Producer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.values |= {
            "broker": self.cluster.broker.address,
            "namesrv": self.cluster.namesrv,
            "folder": str(self.folder),
            "store": str(self.cluster.folder / "store"),
            "log": str(self.cluster.folder / "store" / "commitlog" / ("0" * 20)),
        }

    @property
    def names(self) -> dict[str, str]:
        """Names that only this side uses."""
        return {word: self.values[word] for word in ("broker", "namesrv", "folder", "store")}

    @property
    def kind(self) -> str:
        """Whose servers they are."""
        return self.cluster.broker_side

    def run(
        self, words: Sequence[str], *, endless: bool = False, tool: AdminTool | None = None
    ) -> AdminOutcome:
        """Runs one command of the admin tool, or of another one."""
        filled = [word.format_map(self.values) for word in words]
        return (tool or self.tool).run_mqadmin(self.cluster.namesrv, filled, endless=endless)

    def outcome(self, command: Command, tool: AdminTool | None = None) -> AdminOutcome:
        """Runs a command; what it writes to a file counts as printed."""
        outcome = self.run(command.words, endless=command.endless, tool=tool)
        if command.exports is not None:
            exported = (self.folder / command.exports).read_text()
            outcome = replace(outcome, printed=f"{outcome.printed}\n{exported}")
        # The tool writes bodies of messages to a folder of its own.
        for path in re.findall(r"^Message Body Path: +(\S+)$", outcome.printed, re.MULTILINE):
            Path(path).unlink(missing_ok=True)
        return outcome

    def facts(self, command: Command) -> list[dict[str, Any]]:
        """The JSON output of Roquet's tool, which must be the one of this side."""
        assert isinstance(self.tool, OurTool)
        filled = [word.format_map(self.values) for word in command.words]
        found = self.tool.run_json(self.cluster.namesrv, filled)
        for path in {fact["bodyFile"] for fact in found if "bodyFile" in fact}:
            Path(path).unlink()
        return found

    def shaped(self, command: Command, outcome: AdminOutcome) -> list[str]:
        """The lines that have to be the same of both sides."""
        lines = shape(outcome, self.names, command.masks, command.drops)
        return lines if command.is_ordered else sorted(lines)

    def run_command(self, command: Command) -> list[str]:
        """Runs a command and returns the lines that have to be the same of both sides."""
        return self.shaped(command, self.outcome(command))

    def wait_printed(self, words: Sequence[str], *texts: str) -> None:
        """Runs a command until it prints all texts, whatever the blanks between words."""

        def is_there() -> bool:
            printed = " ".join(self.run(words).printed.split())
            return all(text in printed for text in texts)

        wait_until(is_there, lambda: AssertionError(f"{words} does not print {texts}"))
