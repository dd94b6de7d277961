"""``roquet context``: named clusters.

Owns the options and the text; ``roquet.cli.context_file`` owns the file. Secrets are never printed.
"""

from __future__ import annotations

from pathlib import Path

import click
from msgspec import Struct, structs

from roquet.cli.connection import Connection, complete_context, settings_options
from roquet.cli.context_file import (
    SECRETS,
    ClusterSettings,
    Contexts,
    change_contexts,
    check_context_name,
    contexts_path,
    load_contexts,
    with_absolute_file,
)
from roquet.cli.output import confirm, json_option, plural, print_json, print_table, yes_option
from roquet.errors import ClientError, ConfigError
from roquet.runtime.private_file import PrivateFile

__all__ = ["ContextFacts", "context"]

_PATHS = ("tls_ca", "tls_cert", "tls_key")


class ContextFacts(Struct, frozen=True, kw_only=True, rename="camel"):
    """A context, for programs; a secret is masked, or given as its location."""

    name: str
    current: bool
    settings: ClusterSettings


def _facts(contexts: Contexts, name: str) -> ContextFacts:
    settings = contexts.get(name).shown()
    return ContextFacts(name=name, current=name == contexts.current, settings=settings)


@click.group()
def context() -> None:
    """Name clusters, and switch between them.

    \b
    roquet context add test --namesrv 127.0.0.1:9876
    roquet context add prod --namesrv 'a:9876;b:9876' --access-key ops --secret-key file:~/.mq-key
    roquet context use prod
    """  # noqa: D301 - click keeps lines behind this mark as they are


@context.command()
@click.argument("name")
@settings_options
@click.option(
    "--replace", "may_replace", is_flag=True, help="Replace an existing context of that name."
)
@click.option("--use", "is_used", is_flag=True, help="Make it the current context.")
@json_option
def add(
    name: str, *, settings: ClusterSettings, may_replace: bool, is_used: bool, as_json: bool
) -> None:
    """Add a cluster under NAME. The first one becomes the current context."""
    check_context_name(name)
    if settings.namesrv is None:
        raise ConfigError(
            "A context needs name servers", hint=f"roquet context add {name} --namesrv HOST:PORT"
        )
    # Report invalid settings now; a secret need not exist yet.
    Connection(settings=settings.shown(), origin="").options()
    kept = _absolute(settings)

    def change(contexts: Contexts) -> None:
        if name in contexts.contexts and not may_replace:
            raise ClientError(
                f"The context {name} already exists",
                code="already_exists",
                hint="roquet context show shows it, --replace replaces it.",
            )
        contexts.contexts[name] = kept
        if is_used or contexts.current is None:
            contexts.current = name

    found = _facts(change_contexts(change), name)
    if as_json:
        print_json(found)
    else:
        click.echo(f"Added {name}" + (", the current context" if found.current else ""))


def _absolute(settings: ClusterSettings) -> ClusterSettings:
    """The same settings with absolute paths."""
    paths = {
        name: str(Path(text).expanduser().absolute())
        for name in _PATHS
        if (text := getattr(settings, name)) is not None
    }
    secrets = {
        name: with_absolute_file(text)
        for name in SECRETS
        if (text := getattr(settings, name)) is not None
    }
    return structs.replace(settings, **paths, **secrets)


@context.command()
@click.argument("name", shell_complete=complete_context)
@json_option
def use(name: str, *, as_json: bool) -> None:
    """Make NAME the current context."""

    def change(contexts: Contexts) -> None:
        contexts.get(name)
        contexts.current = name

    found = _facts(change_contexts(change), name)
    if as_json:
        print_json(found)
    else:
        click.echo(f"{name} is the current context")


@context.command("ls")
@json_option
def list_contexts(*, as_json: bool) -> None:
    """List the contexts."""
    contexts = load_contexts()
    _warn_if_exposed()
    found = [_facts(contexts, name) for name in sorted(contexts.contexts)]
    if as_json:
        print_json(found)
        return
    print_table(
        plural(len(found), "context"),
        ("current", "context", "name servers", "access key", "tls"),
        [
            (
                "*" if each.current else "",
                each.name,
                each.settings.namesrv or "-",
                each.settings.access_key or "-",
                "yes" if each.settings.uses_tls else "no",
            )
            for each in found
        ],
    )


@context.command()
@click.argument("name", required=False, shell_complete=complete_context)
@json_option
def show(name: str | None, *, as_json: bool) -> None:
    """Show the settings of NAME, or of the current context. Secrets are not shown."""
    contexts = load_contexts()
    _warn_if_exposed()
    name = name or contexts.current
    if name is None:
        raise ConfigError(
            "There is no current context",
            hint="Choose one with roquet context use, or create one with roquet context add.",
        )
    found = _facts(contexts, name)
    if as_json:
        print_json(found)
        return
    click.echo(f"Context            {found.name}{' (current)' if found.current else ''}")
    for field, value in structs.asdict(found.settings).items():
        if value is not None:
            text = {True: "yes", False: "no"}.get(value, str(value))
            click.echo(f"{field.replace('_', ' ').capitalize():<18} {text}")


@context.command()
@click.argument("name", shell_complete=complete_context)
@yes_option
@json_option
def delete(name: str, *, is_sure: bool, as_json: bool) -> None:
    """Delete the context NAME. The cluster itself is not touched."""
    found = _facts(load_contexts(), name)
    confirm(f"Delete the context {name} of {found.settings.namesrv}?", is_sure=is_sure)

    def change(contexts: Contexts) -> None:
        contexts.contexts.pop(name, None)
        if contexts.current == name:
            contexts.current = None

    change_contexts(change)
    if as_json:
        print_json(found)
    else:
        click.echo(f"Deleted {name}" + (": there is no current context" if found.current else ""))


def _warn_if_exposed() -> None:
    if PrivateFile(contexts_path()).is_exposed():
        click.echo(
            f"Warning: others can read {contexts_path()}, which may hold secrets: chmod 600 it.",
            err=True,
        )
