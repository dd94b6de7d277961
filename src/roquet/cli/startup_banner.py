"""What a server prints at startup: where it listens, where its data is, what it guarantees.

Owns the fields, which ``--json`` prints as one line for programs, and their form as text. The
``boot success`` line is upstream's, for scripts that wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from roquet import __version__
from roquet.broker.durability import Durability, durability_of
from roquet.cli.output import print_json
from roquet.namesrv.config import NamesrvConfig
from roquet.remoting.tls import ServerTlsConfig, TlsMode
from roquet.runtime import compiled
from roquet.runtime.memory import process_id
from roquet.runtime.network import advertised_ip, joined
from roquet.runtime.open_files import open_files_limit

if TYPE_CHECKING:
    from roquet.broker.broker import Broker
    from roquet.broker.settings import BrokerSettings
    from roquet.namesrv.namesrv import Namesrv

__all__ = [
    "BrokerBanner",
    "DevBanner",
    "NamesrvBanner",
    "OpenFiles",
    "broker_banner",
    "namesrv_banner",
    "print_broker",
    "print_dev",
    "print_namesrv",
]

SCHEMA = 1


class OpenFiles(Struct, frozen=True, kw_only=True, rename="camel"):
    """How many files and sockets a server may have open.

    Attributes:
        soft_limit: The limit in force; raised to the hard one at the start.
        hard_limit: The most that the system allows.
        max_connections: How many connections it leaves room for at the moment.
    """

    soft_limit: int
    hard_limit: int
    max_connections: int


class NamesrvBanner(Struct, frozen=True, kw_only=True, rename="camel"):
    """The banner of a name server that listens.

    Attributes:
        address: The address for clients and brokers.
        listens_on: The address of the socket.
        tls: Whether peers may, or must, use TLS.
    """

    schema: int = SCHEMA
    role: str = "namesrv"
    version: str = __version__
    process_id: int
    address: str
    listens_on: str
    port: int
    tls: str
    kv_config_path: str
    config_store_path: str
    open_files: OpenFiles


class BrokerBanner(Struct, frozen=True, kw_only=True, rename="camel"):
    """The banner of a broker that listens and is registered.

    Attributes:
        address: The address that clients get from name servers.
        listens_on: The address of the socket.
        ha_port: The port for slaves; 0 if there is none.
        tls: Whether peers may, or must, use TLS.
        hot_path: Which path plain requests take, compiled or the reference.
    """

    schema: int = SCHEMA
    role: str = "broker"
    version: str = __version__
    process_id: int
    cluster_name: str
    broker_name: str
    broker_id: int
    address: str
    listens_on: str
    port: int
    fast_port: int
    ha_port: int
    namesrv_addr: str
    tls: str
    store_path: str
    durability: Durability
    open_files: OpenFiles
    hot_path: str


class DevBanner(Struct, frozen=True, kw_only=True, rename="camel"):
    """The banner of a name server and a broker in one process."""

    schema: int = SCHEMA
    role: str = "dev"
    version: str = __version__
    process_id: int
    data_folder: str
    namesrv: NamesrvBanner
    broker: BrokerBanner
    next_commands: list[str]


def namesrv_banner(namesrv: Namesrv, config: NamesrvConfig, tls: ServerTlsConfig) -> NamesrvBanner:
    """Describe a running name server."""
    return NamesrvBanner(
        process_id=process_id(),
        address=joined(advertised_ip(config.bind_address), namesrv.port),
        listens_on=joined(config.bind_address, namesrv.port),
        port=namesrv.port,
        tls=_tls_in_force(tls),
        kv_config_path=config.kv_config_path,
        config_store_path=config.config_store_path,
        open_files=_open_files(namesrv.connections_max),
    )


def broker_banner(broker: Broker, settings: BrokerSettings) -> BrokerBanner:
    """Describe a running broker."""
    config = settings.config
    return BrokerBanner(
        process_id=process_id(),
        cluster_name=config.cluster_name,
        broker_name=config.broker_name,
        broker_id=config.broker_id,
        address=broker.address,
        listens_on=joined(config.bind_address, broker.port),
        port=broker.port,
        fast_port=broker.fast_port,
        ha_port=broker.components.ha.listen_port,
        namesrv_addr=config.namesrv_address,
        tls=_tls_in_force(settings.tls),
        store_path=str(Path(config.store_root).absolute()),
        durability=durability_of(settings.store),
        open_files=_open_files(broker.connections_max),
        hot_path=compiled.path_in_use(),
    )


def _open_files(max_connections: int) -> OpenFiles:
    limit = open_files_limit()
    return OpenFiles(soft_limit=limit.soft, hard_limit=limit.hard, max_connections=max_connections)


def print_namesrv(banner: NamesrvBanner, *, as_json: bool) -> None:
    """Print that a name server is ready."""
    if as_json:
        print_json(banner)
        return
    click.echo(f"The Name Server boot success. serializeType=JSON, address {banner.listens_on}")
    _print_rows(
        [
            ("clients use", banner.address),
            ("TLS", banner.tls),
            ("values kept in", banner.kv_config_path),
            _open_files_row(banner.open_files),
            ("stop with", "Ctrl-C or SIGTERM; a second one ends it at once"),
        ]
    )


def print_broker(banner: BrokerBanner, *, as_json: bool) -> None:
    """Print that a broker is ready."""
    if as_json:
        print_json(banner)
        return
    tip = f"The broker[{banner.broker_name}, {banner.address}] boot success. serializeType=JSON"
    if banner.namesrv_addr:
        tip += f" and name server is {banner.namesrv_addr}"
    click.echo(tip)
    _print_rows(_broker_rows(banner))
    if not banner.namesrv_addr:
        click.echo("No name server is set, so clients cannot find this broker: use -n.", err=True)


def print_dev(banner: DevBanner, *, as_json: bool) -> None:
    """Print that a name server and a broker are ready."""
    if as_json:
        print_json(banner)
        return
    click.echo(f"Roquet {banner.version} is ready: a name server and a broker in one process.")
    _print_rows([("name server", banner.namesrv.address), *_broker_rows(banner.broker)])
    click.echo("\nNext, in another terminal:")
    for command in banner.next_commands:
        click.echo(f"  {command}")


def _broker_rows(banner: BrokerBanner) -> list[tuple[str, str]]:
    promise = banner.durability
    return [
        ("broker", f"{banner.address}, listening on {banner.listens_on}"),
        ("fast port", str(banner.fast_port)),
        ("HA port", str(banner.ha_port or "none")),
        ("TLS", banner.tls),
        ("data folder", banner.store_path),
        _open_files_row(banner.open_files),
        ("hot path", banner.hot_path),
        (
            "durability",
            f"{promise.flush_disk_type}, {promise.broker_role}. Of acknowledged messages:",
        ),
        ("  process ends", promise.process_end),
        ("  power cut", promise.power_cut),
        ("  disk lost", promise.disk_loss),
        ("stop with", "Ctrl-C or SIGTERM; a second one ends it at once"),
    ]


def _open_files_row(limit: OpenFiles) -> tuple[str, str]:
    return (
        "open files",
        f"limit {limit.soft_limit:,} (hard limit {limit.hard_limit:,}), "
        f"room for {limit.max_connections:,} connections",
    )


def _print_rows(rows: Iterable[Sequence[str]]) -> None:
    for name, text in rows:
        click.echo(f"  {name:<15} {text}")


def _tls_in_force(tls: ServerTlsConfig) -> str:
    if tls.mode is TlsMode.DISABLED or tls.certificate_file is None:
        return "disabled"
    return str(tls.mode.value)
