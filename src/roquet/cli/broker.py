"""``roquet broker``: run a broker, as upstream's ``mqbroker``; its sub-commands inspect brokers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click
from click.core import ParameterSource

from roquet.broker.settings import BrokerSettings, broker_properties, load_broker_settings
from roquet.cli.connection import note_namesrv, settings_of_flags
from roquet.cli.lazy import LazyCommand, LazyGroup
from roquet.cli.output import even_if_nobody_reads, json_option, print_json
from roquet.cli.server import (
    StopSignals,
    config_option,
    endpoint_options,
    flush_failed,
    given,
    log_level_option,
    print_properties,
    refuse_store_in_use,
    report_settings,
    run_server,
    warn_if_exposed,
)
from roquet.runtime.files import Files

COMMANDS = {
    "ls": LazyCommand("roquet.cli.broker_show:list_brokers", "List the brokers of a cluster."),
    "set": LazyCommand("roquet.cli.broker_set:set_broker", "Change settings of a broker."),
    "show": LazyCommand("roquet.cli.broker_show:show_broker", "Show a broker and its settings."),
}


class BrokerGroup(LazyGroup):
    """Runs a broker, unless a sub-command is named."""

    @property
    def table(self) -> Mapping[str, LazyCommand]:
        """The sub-commands by name."""
        return COMMANDS


@click.group(cls=BrokerGroup, invoke_without_command=True, subcommand_metavar="[COMMAND [ARGS]...]")
@config_option
@click.option(
    "-n",
    "--namesrvAddr",
    "namesrv_address",
    metavar="ADDRESSES",
    help="Name servers, as 127.0.0.1:9876;192.168.0.1:9876.",
)
@endpoint_options
@click.option(
    "--expect-store",
    is_flag=True,
    help="Refuse to create a new store, in case its disk is not mounted.",
)
@click.option(
    "-p", "--printConfigItem", "print_all", is_flag=True, help="Print all settings and exit."
)
@click.option(
    "-m",
    "--printImportantConfig",
    "print_important",
    is_flag=True,
    help="Print the important settings and exit.",
)
@log_level_option("info")
@json_option
@click.pass_context
def broker(
    context: click.Context,
    *,
    config_file: Path | None,
    namesrv_address: str | None,
    host: str | None,
    port: int | None,
    expect_store: bool,
    log_level: str,
    print_all: bool,
    print_important: bool,
    as_json: bool,
) -> None:
    """Run a broker; with a command, inspect running brokers.

    By default it listens on loopback, port 10911, and keeps its files in ~/store.
    Without -n, name servers are those of namesrvAddr in FILE or of the variable NAMESRV_ADDR.

    \b
    roquet broker -n 127.0.0.1:9876
    roquet broker -c broker.conf
    roquet broker -c broker.conf -p
    roquet broker ls
    """  # noqa: D301 - click keeps lines behind this mark as they are
    if context.invoked_subcommand is not None:
        _hand_on(context, namesrv_address)
        return
    namesrv_address = namesrv_address or settings_of_flags(context).namesrv
    settings = load_broker_settings(
        config_file,
        given(
            namesrvAddr=namesrv_address,
            bindAddress=host,
            listenPort=port,
            storeMustExist="true" if expect_store else None,
        ),
        environment=os.environ,
    )
    if print_all or print_important:
        _print_settings(settings, only_important=not print_all, as_json=as_json)
        return

    async def main(stop: StopSignals) -> None:
        await _serve(settings, stop, as_json=as_json)

    run_server(main, log_level)


def _hand_on(context: click.Context, namesrv_address: str | None) -> None:
    """Apply flags before a sub-command to it, if possible."""
    if namesrv_address is not None:
        note_namesrv(context, namesrv_address)
    for parameter in context.command.params:
        name = parameter.name or ""
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_given and name not in {"namesrv_address", "as_json"}:
            verb = context.invoked_subcommand
            message = f"{parameter.opts[-1]} is for running a broker, not for {verb}."
            raise click.UsageError(message)


def _print_settings(settings: BrokerSettings, *, only_important: bool, as_json: bool) -> None:
    shown = broker_properties(
        settings.config, settings.store, settings.tls_settings, only_important=only_important
    )
    if as_json:
        print_json(shown)
    else:
        print_properties(shown)


async def _serve(settings: BrokerSettings, stop: StopSignals, *, as_json: bool) -> None:
    from roquet.broker.broker import Broker
    from roquet.cli.startup_banner import broker_banner, print_broker

    report_settings(settings.warnings, settings.without_effect)
    warn_if_exposed(settings.config.bind_address)
    root = settings.config.store_root
    refuse_store_in_use(Path(root), Files())
    async with Broker(settings.config, settings.store, tls=settings.tls_settings) as server:
        await server.wait_registered()
        with even_if_nobody_reads():
            print_broker(broker_banner(server, settings), as_json=as_json)
        failure = await stop.wait(server.wait_failed())
    if failure is not None:
        raise flush_failed(root, failure)
    with even_if_nobody_reads():
        if not as_json:
            click.echo("The broker stopped; its store is clean.")
