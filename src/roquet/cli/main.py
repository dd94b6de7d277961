"""The ``roquet`` command and the table of its sub-commands.

A sub-command's module is imported only when it is called, so that ``roquet --help`` is quick and
an extra that is not installed disturbs nobody. A ``RoquetError`` never shows a traceback: it is
printed on standard error and decides the exit code. The same goes for what the system refuses.
"""

import errno
from collections.abc import Mapping
from typing import NoReturn

import click

from roquet import __version__
from roquet.cli.connection import global_connection_options
from roquet.cli.lazy import LazyCommand, LazyGroup
from roquet.cli.output import print_error, wants_json
from roquet.errors import ConfigError, RoquetError
from roquet.runtime.process import silence_output

COMMANDS: dict[str, LazyCommand] = {
    "bench": LazyCommand("roquet.cli.bench:bench", "Measure how fast a cluster is."),
    "broker": LazyCommand(
        "roquet.cli.broker:broker", "Run a broker; look at brokers, and alter their settings."
    ),
    "cluster": LazyCommand("roquet.cli.cluster:cluster", "Look at clusters and their brokers."),
    "context": LazyCommand("roquet.cli.context:context", "Name clusters, and choose among them."),
    "completion": LazyCommand("roquet.cli.completion:completion", "Complete commands in a shell."),
    "dev": LazyCommand("roquet.cli.dev:dev", "Run a name server and a broker in one process."),
    "group": LazyCommand(
        "roquet.cli.group:group", "Look at, make, alter and drop consumer groups."
    ),
    "message": LazyCommand("roquet.cli.message:message", "Find and show messages."),
    "mqadmin": LazyCommand(
        "roquet.cli.mqadmin.command:mqadmin", "Upstream's admin tool, command for command."
    ),
    "namesrv": LazyCommand("roquet.cli.namesrv:namesrv", "Run a name server."),
    "offset": LazyCommand("roquet.cli.offset:offset", "Show how far groups are, and move them."),
    "send": LazyCommand("roquet.cli.send:send", "Send messages to a topic."),
    "spark": LazyCommand("roquet.cli.spark:spark", "Run pipelines over logs and topics."),
    "store": LazyCommand("roquet.cli.store:store", "Look into, check and repair a message store."),
    "tail": LazyCommand("roquet.cli.tail:tail", "Show the messages of a topic."),
    "topic": LazyCommand("roquet.cli.topic:topic", "Look at, make, alter and drop topics."),
}


_USAGE = "usage"
_JSON_IN_SIGHT = "roquet.json_in_sight"
SAY_BY_EXIT_CODE = frozenset({"store"})
"""Commands whose exit code is the result, so that it must not be 0 before all was looked at."""


class RoquetGroup(LazyGroup):
    """A group whose sub-commands come from a table, and whose errors are Roquet's."""

    @property
    def table(self) -> Mapping[str, LazyCommand]:
        """By name of the sub-command."""
        return COMMANDS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the flags before the sub-command; note whether its errors are for programs."""
        # A command line that cannot be read does not get as far as its own --json.
        ctx.meta[_JSON_IN_SIGHT] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the sub-command; turn its errors into words and an exit code."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if not ctx.meta[_JSON_IN_SIGHT]:
                raise
            failure = _usage_error(error)
        except RoquetError as error:
            failure = error
        except OSError as error:
            if error.errno == errno.EPIPE:
                _stop_writing(ctx, error)
            place = f"{error.filename}: " if error.filename else ""
            failure = RoquetError(
                "The system refused to read or write.", detail=f"{place}{error.strerror or error}"
            )
        as_json = wants_json(ctx) or failure.code == _USAGE
        print_error(failure, as_json=as_json)
        raise click.exceptions.Exit(failure.exit_code)


def _usage_error(error: click.UsageError) -> RoquetError:
    """What click says about a command line, as an error of Roquet's."""
    path = "roquet" if error.ctx is None else error.ctx.command_path
    return ConfigError(error.format_message(), code=_USAGE, hint=f"{path} --help")


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
