"""``roquet dev``: a name server and a broker in one process, for trying things out and for tests.

Both run on one event loop. Segments are small, so that a fresh data folder takes little disk.

.. code-block:: text

    DATA_FOLDER/store     the broker's files
    DATA_FOLDER/namesrv   the name server's
"""

from __future__ import annotations

import shlex
from contextlib import AsyncExitStack
from pathlib import Path

import click
import msgspec

from roquet.broker.config import BrokerConfig, replace
from roquet.broker.settings import BrokerSettings, load_broker_settings
from roquet.cli.output import even_if_nobody_reads, json_option
from roquet.cli.server import (
    StopSignals,
    config_option,
    flush_failed,
    given,
    log_level_option,
    refuse_store_in_use,
    report_settings,
    run_server,
    warn_if_exposed,
)
from roquet.errors import ConfigError
from roquet.namesrv.config import NamesrvConfig
from roquet.runtime.files import Files
from roquet.store.config import SMALL_SEGMENTS

DEFAULT_FOLDER = Path("roquet-data")


@click.command()
@click.argument(
    "data_folder", type=click.Path(path_type=Path, file_okay=False), default=DEFAULT_FOLDER
)
@config_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=10911,
    show_default=True,
    help="The broker's port; 0 for any free one.",
)
@click.option(
    "--namesrv-port",
    type=click.IntRange(0, 65535),
    default=9876,
    show_default=True,
    help="The name server's port; 0 for any free one.",
)
@click.option(
    "--sync-flush",
    is_flag=True,
    help="Acknowledge a message only when it is on disk (flushDiskType=SYNC_FLUSH).",
)
@log_level_option("warning")
@json_option
def dev(
    data_folder: Path,
    config_file: Path | None,
    host: str,
    *,
    port: int,
    namesrv_port: int,
    log_level: str,
    sync_flush: bool,
    as_json: bool,
) -> None:
    """Run a name server and a broker in one process, on DATA_FOLDER (./roquet-data).

    \b
    roquet dev
    roquet dev /var/tmp/play --sync-flush
    roquet dev --port 0 --namesrv-port 0 --json
    """  # noqa: D301 - click keeps lines behind this mark as they are
    folder = data_folder.absolute()
    settings = load_broker_settings(
        config_file,
        given(
            bindAddress=host,
            listenPort=port,
            storePathRootDir=folder / "store",
            flushDiskType="SYNC_FLUSH" if sync_flush else None,
        ),
        base=BrokerConfig(broker_name="dev"),
        store_base=SMALL_SEGMENTS,
    )
    namesrv_config = NamesrvConfig.in_folder(
        folder / "namesrv", bind_address=host, listen_port=namesrv_port
    )

    async def main(stop: StopSignals) -> None:
        await _serve(folder, settings, namesrv_config, stop, as_json=as_json)

    run_server(main, log_level)


async def _serve(
    folder: Path,
    settings: BrokerSettings,
    namesrv_config: NamesrvConfig,
    stop: StopSignals,
    *,
    as_json: bool,
) -> None:
    from roquet.broker.broker import Broker
    from roquet.cli import startup_banner
    from roquet.namesrv.namesrv import Namesrv
    from roquet.runtime.memory import process_id

    report_settings(settings.warnings, settings.without_effect)
    warn_if_exposed(settings.config.bind_address)
    root = settings.config.store_root
    refuse_store_in_use(Path(root), Files())
    async with AsyncExitStack() as running:
        try:
            tls = settings.tls.not_enforced()  # the broker itself always connects in plain text
            namesrv = await running.enter_async_context(Namesrv(namesrv_config, tls=tls))
            found = startup_banner.namesrv_banner(namesrv, namesrv_config, tls)
            config = replace(settings.config, namesrv_address=found.address)
            settings = msgspec.structs.replace(settings, config=config)
            broker = await running.enter_async_context(
                Broker(config, settings.store, tls=settings.tls_settings)
            )
        except ConfigError as error:
            raise _with_port_hint(error) from None
        await broker.wait_registered()
        with even_if_nobody_reads():
            startup_banner.print_dev(
                startup_banner.DevBanner(
                    process_id=process_id(),
                    data_folder=str(folder),
                    namesrv=found,
                    broker=startup_banner.broker_banner(broker, settings),
                    next_commands=_next_commands(root, found.address),
                ),
                as_json=as_json,
            )
        failure = await stop.wait(broker.wait_failed())
    if failure is not None:
        raise flush_failed(root, failure)
    with even_if_nobody_reads():
        if not as_json:
            click.echo("Stopped; the store is clean.")


def _with_port_hint(error: ConfigError) -> ConfigError:
    if error.code != "listen":
        return error
    return ConfigError(
        error.message,
        code=error.code,
        detail=error.detail,
        hint="Is another name server or broker running? Choose other ports with --namesrv-port "
        "and --port, or any free ones with --namesrv-port 0 --port 0.",
    )


def _next_commands(store_root: str, namesrv_address: str) -> list[str]:
    root = shlex.quote(store_root)
    return [
        f"roquet send Orders hello -n {namesrv_address}",
        f"roquet tail Orders --follow -n {namesrv_address}",
        f"roquet store dump {root} --limit 10",
        f"mqadmin clusterList -n {namesrv_address}    # Apache RocketMQ's own tool",
    ]
