"""``roquet group clients``: who is connected for a group, and what they subscribe to."""

from __future__ import annotations

import click
from msgspec import Struct

from roquet.admin import Admin
from roquet.cli.client import administer, warn_failures
from roquet.cli.completion import complete_group
from roquet.cli.connection import Connection, connection_options
from roquet.cli.output import json_option, plural, print_json, print_table
from roquet.remoting.bodies.client import Connection as WireConnection
from roquet.remoting.codes import version_name

__all__ = ["ClientFacts", "GroupClients", "Subscription", "group_clients"]


class ClientFacts(Struct, frozen=True, kw_only=True, rename="camel"):
    """A client, for programs; ``brokers`` are those that it is connected to."""

    client_id: str
    address: str
    language: str
    version: str
    brokers: list[str]


class Subscription(Struct, frozen=True, kw_only=True, rename="camel"):
    """The subscription of a group to a topic, for programs."""

    topic: str
    expression: str
    expression_type: str


class GroupClients(Struct, frozen=True, kw_only=True, rename="camel"):
    """The clients of a group, for programs."""

    group: str
    consume_type: str | None
    message_model: str | None
    consume_from_where: str | None
    clients: list[ClientFacts]
    subscriptions: list[Subscription]


def _clients(connections: dict[str, list[WireConnection]]) -> list[ClientFacts]:
    """The clients, each with the brokers that know it."""
    found: dict[str, ClientFacts] = {}
    for broker, part in connections.items():
        for each in part:
            client_id = each.client_id or ""
            known = found.get(client_id)
            found[client_id] = ClientFacts(
                client_id=client_id,
                address=each.client_address or "",
                language=each.language or "",
                version=version_name(each.version),
                brokers=[*(known.brokers if known else ()), broker],
            )
    return [found[name] for name in sorted(found)]


async def _consumers(admin: Admin, group: str, *, as_json: bool) -> GroupClients:
    found = await admin.clients.consumers(group)
    parts = found.partial(f"Listing the clients of {group}")
    warn_failures(found.failures, as_json=as_json)
    online = next((each for each in parts.values() if each.connection_set), None)
    table = {
        name: each for part in parts.values() for name, each in part.subscription_table.items()
    }
    return GroupClients(
        group=group,
        consume_type=online.consume_type.value if online and online.consume_type else None,
        message_model=online.message_model.value if online and online.message_model else None,
        consume_from_where=(
            online.consume_from_where.value if online and online.consume_from_where else None
        ),
        clients=_clients({name: part.connection_set for name, part in parts.items()}),
        subscriptions=[
            Subscription(
                topic=name,
                expression=table[name].sub_string or "",
                expression_type=table[name].expression_type,
            )
            for name in sorted(table)
        ],
    )


async def _producers(admin: Admin, group: str, *, as_json: bool) -> GroupClients:
    found = await admin.clients.producers(group)
    parts = found.partial(f"Listing the clients of {group}")
    warn_failures(found.failures, as_json=as_json)
    return GroupClients(
        group=group,
        consume_type=None,
        message_model=None,
        consume_from_where=None,
        clients=_clients({name: part.connection_set for name, part in parts.items()}),
        subscriptions=[],
    )


@click.command("clients")
@click.argument("name", metavar="GROUP", shell_complete=complete_group)
@connection_options
@click.option("--producers", is_flag=True, help="GROUP is a producer group.")
@json_option
def group_clients(name: str, *, connection: Connection, producers: bool, as_json: bool) -> None:
    """Show who is connected for a group, and what it subscribes to."""
    group = connection.wrap(name)
    query = _producers if producers else _consumers
    found = administer(connection, lambda admin: query(admin, group, as_json=as_json))
    if as_json:
        print_json(found)
        return
    print_table(
        f"{group}: {plural(len(found.clients), 'client')}",
        ("client", "address", "language", "version", "brokers"),
        [
            (each.client_id, each.address, each.language, each.version, " ".join(each.brokers))
            for each in found.clients
        ],
    )
    if found.subscriptions:
        print_table(
            plural(len(found.subscriptions), "subscription"),
            ("topic", "expression", "type"),
            [(each.topic, each.expression, each.expression_type) for each in found.subscriptions],
        )
