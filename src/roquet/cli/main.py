"""The ``roquet`` command and the table of its sub-commands.

A sub-command's module is imported only when it is called, so that ``roquet --help`` is quick and
works without the optional extras. A ``RoquetError`` never shows a traceback: it is printed on
standard error and decides the exit code. So are errors of the operating system.
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
from roquet.runtime import compiled
from roquet.runtime.exhaustion import exhaustion_hint, is_exhausted
from roquet.runtime.process import silence_output

COMMANDS: dict[str, LazyCommand] = {
    "bench": LazyCommand("roquet.cli.bench:bench", "Measure how fast a cluster is."),
    "broker": LazyCommand(
        "roquet.cli.broker:broker", "Run a broker; show brokers and change their settings."
    ),
    "cluster": LazyCommand("roquet.cli.cluster:cluster", "Show clusters and their brokers."),
    "context": LazyCommand("roquet.cli.context:context", "Name clusters, and switch between them."),
    "completion": LazyCommand("roquet.cli.completion:completion", "Complete commands in a shell."),
    "dev": LazyCommand("roquet.cli.dev:dev", "Run a name server and a broker in one process."),
    "group": LazyCommand(
        "roquet.cli.group:group", "Show, create, change and delete consumer groups."
    ),
    "message": LazyCommand("roquet.cli.message:message", "Find and show messages."),
    "mqadmin": LazyCommand(
        "roquet.cli.mqadmin.command:mqadmin", "Upstream's admin tool, command for command."
    ),
    "namesrv": LazyCommand("roquet.cli.namesrv:namesrv", "Run a name server."),
    "offset": LazyCommand("roquet.cli.offset:offset", "Show the offsets of groups, and move them."),
    "send": LazyCommand("roquet.cli.send:send", "Send messages to a topic."),
    "spark": LazyCommand("roquet.cli.spark:spark", "Run pipelines over logs and topics."),
    "store": LazyCommand("roquet.cli.store:store", "Inspect, check and repair a message store."),
    "tail": LazyCommand("roquet.cli.tail:tail", "Show the messages of a topic."),
    "topic": LazyCommand("roquet.cli.topic:topic", "Show, create, change and delete topics."),
}


_USAGE = "usage"
_JSON_IN_SIGHT = "roquet.json_in_sight"
SAY_BY_EXIT_CODE = frozenset({"store"})
"""Commands whose exit code is the result, so it must not be 0 before everything is checked."""


class RoquetGroup(LazyGroup):
    """A group whose sub-commands come from a table, and whose errors are Roquet's."""

    @property
    def table(self) -> Mapping[str, LazyCommand]:
        """The sub-commands by name."""
        return COMMANDS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the flags before the sub-command; note whether errors are printed as JSON."""
        # An invalid command line fails before its own --json is parsed.
        ctx.meta[_JSON_IN_SIGHT] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the sub-command; turn its errors into a message and an exit code."""
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
                "The operating system refused to read or write.",
                detail=f"{place}{error.strerror or error}",
                hint=exhaustion_hint(error) if is_exhausted(error) else None,
            )
        as_json = wants_json(ctx) or failure.code == _USAGE
        print_error(failure, as_json=as_json)
        raise click.exceptions.Exit(failure.exit_code)


def _usage_error(error: click.UsageError) -> RoquetError:
    """A usage error of click as a Roquet error."""
    path = "roquet" if error.ctx is None else error.ctx.command_path
    return ConfigError(error.format_message(), code=_USAGE, hint=f"{path} --help")


def _stop_writing(ctx: click.Context, error: OSError) -> NoReturn:
    """Exit after the reader of standard output has closed it, as ``head`` does.

    Raises:
        OSError: The exit code would claim a result that was not reached.
        click.exceptions.Exit: With 0.
    """
    if ctx.invoked_subcommand in SAY_BY_EXIT_CODE:
        raise error
    silence_output()
    raise click.exceptions.Exit(0)


def _print_version(ctx: click.Context, _option: click.Parameter, is_wanted: bool) -> None:  # noqa: FBT001 - click's
    if is_wanted and not ctx.resilient_parsing:
        click.echo(f"roquet {__version__} ({compiled.path_in_use()})")
        ctx.exit()


@click.group(cls=RoquetGroup, context_settings={"help_option_names": ["-h", "--help"]})
@global_connection_options
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version, and whether compiled code runs.",
)
def roquet() -> None:
    """Roquet, a RocketMQ-compatible message broker.

    The options below choose the cluster, and say how to reach it. They may also be given after
    the command too. Without them it is the current context (roquet context), or the cluster of the
    variable NAMESRV_ADDR, or 127.0.0.1:9876.
    """


def main() -> None:
    """Run the command line and exit."""
    roquet(prog_name="roquet")
