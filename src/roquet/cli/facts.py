"""The first words of a server: where it listens, where its data lies, what is promised.

Owns the facts, which ``--json`` prints as one line for programs, and their form for people. The
line that says ``boot success`` is upstream's, for scripts that wait for it.
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
from roquet.runtime.memory import process_id
from roquet.runtime.network import advertised_ip, joined

if TYPE_CHECKING:
    from roquet.broker.broker import Broker
    from roquet.broker.settings import BrokerSettings
    from roquet.namesrv.namesrv import Namesrv

__all__ = [
    "BrokerFacts",
    "DevFacts",
    "NamesrvFacts",
    "broker_facts",
    "namesrv_facts",
    "print_broker",
    "print_dev",
    "print_namesrv",
]

SCHEMA = 1


class NamesrvFacts(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a name server says of itself once it listens.

    Attributes:
        address: What clients and brokers are given.
        listens_on: The address of the socket.
        tls: Whether peers may, or must, speak TLS.
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


class BrokerFacts(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a broker says of itself once it listens and is registered.

    Attributes:
        address: What clients are told by name servers.
        listens_on: The address of the socket.
        tls: Whether peers may, or must, speak TLS.
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
    namesrv_addr: str
    tls: str
    store_path: str
    durability: Durability


class DevFacts(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a name server and a broker in one process say."""

    schema: int = SCHEMA
    role: str = "dev"
    version: str = __version__
    process_id: int
    data_folder: str
    namesrv: NamesrvFacts
    broker: BrokerFacts
    next_commands: list[str]


def namesrv_facts(namesrv: Namesrv, config: NamesrvConfig, tls: ServerTlsConfig) -> NamesrvFacts:
    """The facts of a name server that runs."""
    return NamesrvFacts(
        process_id=process_id(),
        address=joined(advertised_ip(config.bind_address), namesrv.port),
        listens_on=joined(config.bind_address, namesrv.port),
        port=namesrv.port,
        tls=_tls_in_force(tls),
        kv_config_path=config.kv_config_path,
        config_store_path=config.config_store_path,
    )


def broker_facts(broker: Broker, settings: BrokerSettings) -> BrokerFacts:
    """The facts of a broker that runs."""
    config = settings.config
    return BrokerFacts(
        process_id=process_id(),
        cluster_name=config.cluster_name,
        broker_name=config.broker_name,
        broker_id=config.broker_id,
        address=broker.address,
        listens_on=joined(config.bind_address, broker.port),
        port=broker.port,
        fast_port=broker.fast_port,
        namesrv_addr=config.namesrv_address,
        tls=_tls_in_force(settings.tls),
        store_path=str(Path(config.store_root).absolute()),
        durability=durability_of(settings.store),
    )


def print_namesrv(facts: NamesrvFacts, *, as_json: bool) -> None:
    """Say that a name server is ready."""
    if as_json:
        print_json(facts)
        return
    click.echo(f"The Name Server boot success. serializeType=JSON, address {facts.listens_on}")
    _print_rows(
        [
            ("clients use", facts.address),
            ("TLS", facts.tls),
            ("values kept in", facts.kv_config_path),
            ("stop with", "Ctrl-C or SIGTERM; a second one ends it at once"),
        ]
    )


def print_broker(facts: BrokerFacts, *, as_json: bool) -> None:
    """Say that a broker is ready."""
    if as_json:
        print_json(facts)
        return
    tip = f"The broker[{facts.broker_name}, {facts.address}] boot success. serializeType=JSON"
    if facts.namesrv_addr:
        tip += f" and name server is {facts.namesrv_addr}"
    click.echo(tip)
    _print_rows(_broker_rows(facts))
    if not facts.namesrv_addr:
        click.echo("No name server is set, so clients cannot find this broker: use -n.", err=True)


def print_dev(facts: DevFacts, *, as_json: bool) -> None:
    """Say that a name server and a broker are ready."""
    if as_json:
        print_json(facts)
        return
    click.echo(f"Roquet {facts.version} is ready: a name server and a broker in one process.")
    _print_rows([("name server", facts.namesrv.address), *_broker_rows(facts.broker)])
    click.echo("\nNext, in another terminal:")
    for command in facts.next_commands:
        click.echo(f"  {command}")


def _broker_rows(facts: BrokerFacts) -> list[tuple[str, str]]:
    promise = facts.durability
    return [
        ("broker", f"{facts.address}, listening on {facts.listens_on}"),
        ("fast port", str(facts.fast_port)),
        ("TLS", facts.tls),
        ("data folder", facts.store_path),
        ("durability", f"{promise.flush_disk_type}. Of acknowledged messages:"),
        ("  process ends", promise.process_end),
        ("  power cut", promise.power_cut),
        ("  disk lost", promise.disk_loss),
        ("stop with", "Ctrl-C or SIGTERM; a second one ends it at once"),
    ]


def _print_rows(rows: Iterable[Sequence[str]]) -> None:
    for name, text in rows:
        click.echo(f"  {name:<15} {text}")


def _tls_in_force(tls: ServerTlsConfig) -> str:
    if tls.mode is TlsMode.DISABLED or tls.certificate_file is None:
        return "disabled"
    return str(tls.mode.value)
