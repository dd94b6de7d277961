"""``roquet namesrv``: run a name server, as upstream's ``mqnamesrv``."""

from __future__ import annotations

from pathlib import Path

import click

from roquet.cli.output import even_if_nobody_reads, json_option, print_json
from roquet.cli.server import (
    StopSignals,
    config_option,
    endpoint_options,
    given,
    log_level_option,
    print_properties,
    report_settings,
    run_server,
    warn_if_exposed,
)
from roquet.namesrv.settings import NamesrvSettings, load_namesrv_settings, namesrv_properties


@click.command()
@config_option
@click.option(
    "-n", "--namesrvAddr", "_unused", hidden=True, help="Accepted for compatibility; ignored."
)
@endpoint_options
@click.option(
    "-p", "--printConfigItem", "print_all", is_flag=True, help="Print all settings and exit."
)
@log_level_option("info")
@json_option
def namesrv(
    config_file: Path | None,
    _unused: str | None,
    host: str | None,
    port: int | None,
    log_level: str,
    *,
    print_all: bool,
    as_json: bool,
) -> None:
    """Run a name server.

    By default it listens on loopback, port 9876.

    \b
    roquet namesrv
    roquet namesrv -c namesrv.conf
    roquet namesrv --host 0.0.0.0
    """  # noqa: D301 - click keeps lines behind this mark as they are
    settings = load_namesrv_settings(config_file, given(bindAddress=host, listenPort=port))
    if print_all:
        shown = namesrv_properties(settings)
        if as_json:
            print_json(shown)
        else:
            print_properties(shown)
        return

    async def main(stop: StopSignals) -> None:
        await _serve(settings, stop, as_json=as_json)

    run_server(main, log_level)


async def _serve(settings: NamesrvSettings, stop: StopSignals, *, as_json: bool) -> None:
    from roquet.cli.startup_banner import namesrv_banner, print_namesrv
    from roquet.namesrv.namesrv import Namesrv

    report_settings(settings.warnings, settings.without_effect)
    warn_if_exposed(settings.config.bind_address)
    async with Namesrv(settings.config, tls=settings.tls) as server:
        with even_if_nobody_reads():
            print_namesrv(namesrv_banner(server, settings.config, settings.tls), as_json=as_json)
        await stop.wait()
    with even_if_nobody_reads():
        if not as_json:
            click.echo("The name server stopped.")
