"""``roquet mqadmin``: finds the command, parses its flags, runs it.

Failures are printed like upstream's, with upstream's exit code: 1 for invalid flags, 0 for
everything else. Three things are Roquet's own: ``--json``, with which failures exit with 1;
commands that are refused by name, which exit with 2; and without ``-n``, the connection of
:mod:`roquet.cli.connection`.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence

import click
import msgspec

from roquet.admin import Admin
from roquet.cli.client import administer
from roquet.cli.connection import Connection, connection_of_flags, note_namesrv
from roquet.cli.mqadmin.catalogue import CommandSpec, all_specs, find_spec
from roquet.cli.mqadmin.commons_cli import BadFlags, Flags, format_help, parse_flags
from roquet.cli.mqadmin.failures import JavaFailure, failure_of
from roquet.cli.mqadmin.java import BadNumber
from roquet.cli.mqadmin.output import Output, facts_of
from roquet.cli.mqadmin.tool import UNCLEAR, NoTargetGiven, Tool
from roquet.errors import RoquetError

__all__ = ["mqadmin"]

Handler = Callable[[Tool, Flags], Awaitable[NoTargetGiven | None]]

JSON_FLAG = "--json"
EXIT_BAD_FLAGS = 1
EXIT_FAILED = 1
EXIT_REFUSED = 2

SUB_COMMAND_EXCEPTION = "org.apache.rocketmq.tools.command.SubCommandException"

SUFFIXES = {
    "addWritePerm": "command failed",
    "deleteExpiredCommitLog": " command execute failed.",
    "queryMsgTraceById": "command failed",
}
"""The endings of upstream's failure messages that differ from the usual one."""

BARE = frozenset({"dumpCompactionLog", "queryCq"})
"""Commands whose failures are printed as they are."""

RUNTIME_FAILURES = frozenset({"sendMessage"})
"""Commands whose failures are wrapped in a RuntimeException."""


def _complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of commands, if none is given yet."""
    given = [word for word in context.params.get("words") or () if word != "help"]
    names = [spec.name for spec in all_specs()]
    return [] if given else [name for name in names if name.startswith(incomplete)]


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
    short_help="Upstream's admin tool, command for command.",
)
@click.argument(
    "words",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="SUBCOMMAND [FLAGS]",
    shell_complete=_complete,
)
@click.pass_context
def mqadmin(context: click.Context, words: Sequence[str]) -> None:
    """Upstream's admin tool, command for command."""
    as_json = JSON_FLAG in words
    words = [word for word in words if word != JSON_FLAG]
    if not words or words[0] in {"-h", "--help"}:
        _print_commands()
        return
    is_help = words[0] == "help" and len(words) == 2
    name = words[1] if is_help else words[0]
    spec = find_spec(name)
    if spec is None:
        click.echo(f"The sub command {name} not exist.")
    elif is_help:
        click.echo(format_help(spec), nl=False)
    else:
        _start(context, spec, words[1:], as_json=as_json)


def _print_commands() -> None:
    click.echo("The most commonly used mqadmin commands are:")
    for spec in all_specs():
        click.echo(f"   {spec.name:<35} {spec.summary}")
    click.echo("\nSee 'mqadmin help <command>' for more information on a specific command.")


def _start(
    context: click.Context, spec: CommandSpec, words: Sequence[str], *, as_json: bool
) -> None:
    try:
        flags = parse_flags(spec, words)
    except BadFlags as error:
        click.echo(str(error), err=True)
        click.echo(format_help(spec), nl=False)
        raise click.exceptions.Exit(EXIT_BAD_FLAGS) from None
    if "h" in flags:
        click.echo(format_help(spec), nl=False)
        return
    if spec.refusal is not None:
        click.echo(f"roquet does not have {spec.name}: {spec.refusal}.", err=True)
        raise click.exceptions.Exit(EXIT_REFUSED)
    if flags.get("n"):
        note_namesrv(context, flags.text("n"))
    connection = connection_of_flags(context)
    output = Output(as_json=as_json)
    try:
        _run(connection, spec, flags, output)
    except JavaFailure as failure:
        if as_json:
            text = msgspec.json.encode({"error": facts_of(failure)}).decode()
            click.echo(text, err=True)
            raise click.exceptions.Exit(EXIT_FAILED) from None
        click.echo(str(failure), err=True)
    else:
        output.finish(spec.name)


def _run(connection: Connection, spec: CommandSpec, flags: Flags, output: Output) -> None:
    module = importlib.import_module(f"roquet.cli.mqadmin.{spec.area}")
    handlers: Mapping[str, Handler] = module.COMMANDS

    async def work(admin: Admin) -> None:
        if await handlers[spec.name](Tool(admin, output), flags) is UNCLEAR:
            output.say(format_help(spec), usage=format_help(spec))

    try:
        administer(connection, work)
    except (RoquetError, JavaFailure, BadNumber, OSError) as error:
        raise _wrapped(spec, failure_of(error)) from error


def _wrapped(spec: CommandSpec, failure: JavaFailure) -> JavaFailure:
    if spec.name in BARE:
        return failure
    java_class = (
        "java.lang.RuntimeException" if spec.name in RUNTIME_FAILURES else SUB_COMMAND_EXCEPTION
    )
    words = f"{spec.java_class}{SUFFIXES.get(spec.name, ' command failed')}"
    return JavaFailure(java_class, words, cause=failure)
