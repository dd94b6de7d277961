"""``roquet spark tier``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from roquet.cli.client import administer
from roquet.cli.connection import Connection, connection_options
from roquet.cli.spark.run import JobRun, job_options, parse_span, run_job
from roquet.errors import ConfigError
from roquet.runtime.clock import SystemClock
from roquet.runtime.files import Files
from roquet.runtime.held_stores import store_holder
from roquet.store.drop import drop_segments

if TYPE_CHECKING:
    from collections.abc import Sequence

_HOUR_MS = 3_600_000


@click.command()
@click.argument("store", type=click.Path())
@click.option("--lake", required=True, metavar="URI", help="A folder, or s3://…, hdfs://…, gs://…")
@click.option(
    "--broker-name", help="The broker that the log belongs to.  [default: the lake's only one]"
)
@click.option(
    "--keep",
    "keep_ms",
    default="24h",
    show_default=True,
    callback=parse_span,
    metavar="SPAN",
    help="Keep segments with messages younger than this.",
)
@click.option("--unconsumed", is_flag=True, help="Also drop what groups have not consumed yet.")
@click.option("--drop", is_flag=True, help="Delete the segments; otherwise they are only listed.")
@connection_options
@job_options
def tier(
    *,
    store: str,
    lake: str,
    broker_name: str | None,
    keep_ms: int,
    unconsumed: bool,
    drop: bool,
    connection: Connection,
    run: JobRun,
) -> None:
    """Delete segments of a log early, once they are in the lake.

    The lake is compared with the log, bodies included, and synced. With --drop a running broker is
    asked to delete the segments: name its cluster by --namesrv, and it by --broker-name. From a
    store that nobody runs they are deleted here.
    """
    from roquet.spark.jobs import tier as job
    from roquet.spark.jobs.lake_broker import only_broker

    name = broker_name or only_broker(lake)
    if drop:
        _check_broker(store, name, connection)
    run_job(
        run,
        "tier",
        lambda spark: job.tier(
            spark,
            store,
            lake,
            broker_name=name,
            keep_ms=keep_ms,
            is_unconsumed_kept=not unconsumed,
            drop=(lambda cut: _drop(store, cut, name, connection)) if drop else None,
            is_dry_run=run.is_dry_run,
        ),
        is_short=False,
    )


def _is_running(store: str) -> bool:
    return store_holder(Files(), Path(store)) is not None


def _check_broker(store: str, broker_name: str, connection: Connection) -> None:
    """Check that the named broker runs the store.

    Raises:
        ConfigError: It runs another one.
    """
    if _is_running(store):
        _settings_of(connection, store, broker_name)


def _settings_of(connection: Connection, store: str, broker_name: str) -> dict[str, str]:
    """The settings of the broker, which runs the store."""
    gathered = administer(connection, lambda admin: admin.settings.brokers(broker=broker_name))
    found = gathered.complete("Reading settings")[broker_name]
    root = found.get("storePathRootDir", "")
    if Path(root).resolve() != Path(store).resolve():
        raise ConfigError(
            f"The broker {broker_name} runs another store than {store}.",
            detail=f"its storePathRootDir is {root}",
            hint="Name the broker that runs it: --namesrv and --broker-name.",
        )
    return found


def _drop(store: str, cut: int, broker_name: str, connection: Connection) -> Sequence[str]:
    if not _is_running(store):
        root = Path(store)
        return [f"{root / 'commitlog' / name} deleted" for name in drop_segments(root, cut)]

    _check_expired(store, cut, _settings_of(connection, store, broker_name))
    asked = administer(
        connection,
        lambda admin: admin.clusters.delete_expired_log(broker=broker_name, archived_offset=cut),
    )
    return [f"{name} was asked to delete what ends at or before {cut}" for name in asked]


def _check_expired(store: str, cut: int, settings: dict[str, str]) -> None:
    """Check that a broker that deletes by age would not delete segments missing in the lake.

    Raises:
        ConfigError: A segment from the cut on is old enough.
    """
    files, folder = Files(), Path(store) / "commitlog"
    hours = int(settings.get("fileReservedTime", "72"))
    names = sorted(name for name in files.list_dir(folder) if name.isdecimal())
    for name in names[:-1]:
        age_ms = SystemClock().now_ms() - files.modified_ms(folder / name)
        if int(name) >= cut and age_ms >= hours * _HOUR_MS:
            raise ConfigError(
                f"The segment {name} is not in the lake, but older than fileReservedTime.",
                hint="Archive first: the broker deletes it at the next deleteWhen hour.",
            )
