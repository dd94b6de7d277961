"""The ``roquet`` command and the table of its sub-commands.

A sub-command's module is imported only when it is called, so that ``roquet --help`` is quick and
an extra that is not installed disturbs nobody. A ``RoquetError`` never shows a traceback: it is
printed on standard error and decides the exit code. The same goes for what the system refuses.
"""

import errno
import importlib
from typing import NamedTuple, NoReturn

import click
from click.shell_completion import CompletionItem

from roquet import __version__
from roquet.cli.connection import global_connection_options
from roquet.cli.output import print_error, wants_json
from roquet.errors import RoquetError
from roquet.runtime.process import silence_output


class LazyCommand(NamedTuple):
    """Where a sub-command is found, and the line that the help shows for it."""

    target: str
    summary: str


COMMANDS: dict[str, LazyCommand] = {
    "broker": LazyCommand("roquet.cli.broker:broker", "Run a broker."),
    "context": LazyCommand("roquet.cli.context:context", "Name clusters, and choose among them."),
    "completion": LazyCommand("roquet.cli.completion:completion", "Complete commands in a shell."),
    "dev": LazyCommand("roquet.cli.dev:dev", "Run a name server and a broker in one process."),
    "group": LazyCommand(
        "roquet.cli.group:group", "Look at, make, alter and drop consumer groups."
    ),
    "namesrv": LazyCommand("roquet.cli.namesrv:namesrv", "Run a name server."),
    "offset": LazyCommand("roquet.cli.offset:offset", "Show how far groups are, and move them."),
    "send": LazyCommand("roquet.cli.send:send", "Send messages to a topic."),
    "spark": LazyCommand("roquet.cli.spark:spark", "Run pipelines over logs and topics."),
    "store": LazyCommand("roquet.cli.store:store", "Look into, check and repair a message store."),
    "tail": LazyCommand("roquet.cli.tail:tail", "Show the messages of a topic."),
    "topic": LazyCommand("roquet.cli.topic:topic", "Look at, make, alter and drop topics."),
}


SAY_BY_EXIT_CODE = frozenset({"store"})
"""Commands whose exit code is the result, so that it must not be 0 before all was looked at."""


class RoquetGroup(click.Group):
    """A group whose sub-commands come from a table, and whose errors are Roquet's."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all sub-commands, sorted."""
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one sub-command."""
        entry = COMMANDS.get(cmd_name)
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
        rows = [(name, COMMANDS[name].summary) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:  # type: ignore[explicit-any]  # of click
        """Complete the name of a sub-command without importing any of them."""
        items = [
            CompletionItem(name, help=entry.summary)
            for name, entry in sorted(COMMANDS.items())
            if name.startswith(incomplete)
        ]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> object:
        """Run the sub-command; turn its errors into words and an exit code."""
        try:
            return super().invoke(ctx)
        except RoquetError as error:
            failure = error
        except OSError as error:
            if error.errno == errno.EPIPE:
                _stop_writing(ctx, error)
            place = f"{error.filename}: " if error.filename else ""
            failure = RoquetError(
                "The system refused to read or write.", detail=f"{place}{error.strerror or error}"
            )
        print_error(failure, as_json=wants_json(ctx))
        raise click.exceptions.Exit(failure.exit_code)


def _stop_writing(ctx: click.Context, error: OSError) -> NoReturn:
    """End after the reader of standard output has gone, as ``head`` does when it has enough.

    Raises:
        OSError: The exit code would tell a result that was not reached.
        click.exceptions.Exit: With 0.
    """
    if ctx.invoked_subcommand in SAY_BY_EXIT_CODE:
        raise error
    silence_output()
    raise click.exceptions.Exit(0)


@click.group(cls=RoquetGroup, context_settings={"help_option_names": ["-h", "--help"]})
@global_connection_options
@click.version_option(__version__, prog_name="roquet", message="%(prog)s %(version)s")
def roquet() -> None:
    """Roquet, a RocketMQ-compatible message broker.

    The options below say which cluster a command is for, and how to reach it. They may stand after
    the command too. Without them it is the current context (roquet context), or the cluster of the
    variable NAMESRV_ADDR, or 127.0.0.1:9876.
    """


def main() -> None:
    """Run the command line and exit."""
    roquet(prog_name="roquet")
