"""Groups of commands whose modules are imported only when they are called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import NamedTuple

import click
from click.shell_completion import CompletionItem

__all__ = ["LazyCommand", "LazyGroup"]


class LazyCommand(NamedTuple):
    """Where a sub-command is, and its line in the help."""

    target: str
    summary: str


class LazyGroup(click.Group):
    """A group whose sub-commands come from a table in a subclass."""

    @property
    def table(self) -> Mapping[str, LazyCommand]:
        """The sub-commands by name."""
        return {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all sub-commands, sorted."""
        return sorted({*super().list_commands(ctx), *self.table})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one sub-command."""
        entry = self.table.get(cmd_name)
        if entry is None:
            return super().get_command(ctx, cmd_name)
        module_name, _, attribute = entry.target.partition(":")
        command = getattr(importlib.import_module(module_name), attribute)
        if not isinstance(command, click.Command):
            message = f"{entry.target} is not a command"
            raise TypeError(message)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of sub-commands without importing any of them."""
        rows = [(name, self.table[name].summary) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:  # type: ignore[explicit-any]  # of click
        """Complete the name of a sub-command without importing any of them."""
        items = [
            CompletionItem(name, help=entry.summary)
            for name, entry in sorted(self.table.items())
            if name.startswith(incomplete)
        ]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]
