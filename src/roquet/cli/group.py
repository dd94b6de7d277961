"""``roquet group``: list, show and delete consumer groups; other verbs have their own modules.

Owns the options and the text; ``roquet.admin`` does the work.
"""

from __future__ import annotations

import click
from msgspec import Struct

from roquet.admin import Admin
from roquet.cli.client import administer, warn_failures
from roquet.cli.completion import complete_group
from roquet.cli.connection import Connection, connection_options
from roquet.cli.group_clients import group_clients
from roquet.cli.group_set import create_group, group_configs, set_group
from roquet.cli.offset_reset import reset
from roquet.cli.output import (
    confirm,
    format_number,
    format_time,
    json_option,
    plural,
    print_json,
    print_table,
    yes_option,
)
from roquet.client.names import check_group
from roquet.model.subscription import SubscriptionGroupConfig

__all__ = ["GroupFacts", "GroupQueue", "group"]


class GroupQueue(Struct, frozen=True, kw_only=True, rename="camel"):
    """The progress of a group in a queue, for programs."""

    topic: str
    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    lag: int
    last_consumed: int


class GroupClient(Struct, frozen=True, kw_only=True, rename="camel"):
    """A client of a group, for programs."""

    client_id: str
    address: str
    language: str


class GroupFacts(Struct, frozen=True, kw_only=True, rename="camel"):
    """A group, for programs.

    Attributes:
        lag: How many messages it is behind; ``None`` if it has committed nothing.
    """

    group: str
    lag: int | None
    consume_tps: float
    settings: dict[str, SubscriptionGroupConfig]
    queues: list[GroupQueue]
    clients: list[GroupClient]


@click.group()
def group() -> None:
    """List, show, create, change and delete consumer groups."""


for each in (create_group, group_clients, reset, set_group):
    group.add_command(each)


@group.command("ls")
@connection_options
@click.option("--cluster", metavar="NAME", help="Only groups of this cluster.")
@json_option
def list_groups(*, connection: Connection, cluster: str | None, as_json: bool) -> None:
    """List groups, including those of the brokers themselves."""

    async def work(admin: Admin) -> dict[str, dict[str, SubscriptionGroupConfig]]:
        gathered = await admin.groups.configs(cluster=cluster)
        found: dict[str, dict[str, SubscriptionGroupConfig]] = {}
        for broker_name, table in gathered.partial("Listing groups").items():
            for name, config in table.items():
                if connection.wrap(name) == name:  # otherwise it is in another namespace
                    found.setdefault(name, {})[broker_name] = config
        warn_failures(gathered.failures, as_json=as_json)
        return dict(sorted(found.items()))

    found = administer(connection, work)
    if as_json:
        print_json([{"group": name, "settings": parts} for name, parts in found.items()])
        return
    print_table(
        plural(len(found), "group"),
        ("group", "brokers", "may consume", "retries"),
        [
            (
                name,
                " ".join(parts),
                "yes" if all(each.consume_enable for each in parts.values()) else "no",
                " ".join(sorted({str(each.retry_max_times) for each in parts.values()})),
            )
            for name, parts in found.items()
        ],
        numbers=("retries",),
    )


async def _look(admin: Admin, name: str, *, as_json: bool) -> GroupFacts:
    settings = await group_configs(admin, name, as_json=as_json)
    progress = await admin.offsets.progress(name)
    connected = await admin.clients.consumers(name)
    warn_failures(progress.failures | connected.failures, as_json=as_json)
    clients = {
        (each.client_id or "", each.client_address or ""): each.language or ""
        for part in connected.answers.values()
        for each in part.connection_set
    }
    return GroupFacts(
        group=name,
        lag=progress.lag if progress.queues else None,
        consume_tps=progress.consume_tps,
        settings=settings,
        queues=[
            GroupQueue(
                topic=queue.topic,
                broker_name=queue.broker_name,
                queue_id=queue.queue_id,
                broker_offset=each.broker_offset,
                consumer_offset=each.consumer_offset,
                lag=each.broker_offset - each.consumer_offset,
                last_consumed=each.last_timestamp_ms,
            )
            for queue, each in progress.queues.items()
        ],
        clients=[
            GroupClient(client_id=client_id, address=address, language=language)
            for (client_id, address), language in sorted(clients.items())
        ],
    )


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=complete_group)
@connection_options
@json_option
def show(name: str, *, connection: Connection, as_json: bool) -> None:
    """Show how far a group is, and its clients."""
    name = connection.wrap(name)
    found = administer(connection, lambda admin: _look(admin, name, as_json=as_json))
    if as_json:
        print_json(found)
        return
    click.echo(f"Group       {found.group}")
    click.echo(f"Brokers     {' '.join(found.settings)}")
    click.echo(f"Lag         {format_number(found.lag)}")
    click.echo()
    print_table(
        "Queues",
        ("topic", "broker", "queue", "consumed to", "of", "lag", "last consumed was stored"),
        [
            (
                each.topic,
                each.broker_name,
                str(each.queue_id),
                str(each.consumer_offset),
                str(each.broker_offset),
                str(each.lag),
                format_time(each.last_consumed),
            )
            for each in found.queues
        ],
        numbers=("queue", "consumed to", "of", "lag"),
    )
    print_table(
        "Clients",
        ("client", "address", "language"),
        [(each.client_id, each.address, each.language) for each in found.clients],
    )


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=complete_group)
@connection_options
@click.option("--keep-offsets", is_flag=True, help="Keep its committed offsets.")
@click.option("--with-topics", is_flag=True, help="Also delete its retry and dead-letter topics.")
@yes_option
@json_option
def delete(
    name: str,
    *,
    connection: Connection,
    keep_offsets: bool,
    with_topics: bool,
    is_sure: bool,
    as_json: bool,
) -> None:
    """Delete a group and its offsets on all brokers. This cannot be undone."""
    check_group(name)
    name = connection.wrap(name)
    found = administer(connection, lambda admin: _look(admin, name, as_json=as_json))
    parts = [f"Delete the group {name} on {', '.join(found.settings)}"]
    if not keep_offsets:
        parts.append(f"with its offsets in {plural(len(found.queues), 'queue')}")
    if with_topics:
        parts.append("with its retries and dead letters")
    if found.clients:
        parts.append(f"with {plural(len(found.clients), 'client')} connected")
    confirm(f"{', '.join(parts)}?", is_sure=is_sure)
    brokers = administer(
        connection,
        lambda admin: admin.groups.delete(
            name, clean_offsets=not keep_offsets, with_topics=with_topics
        ),
    )
    if as_json:
        print_json({"group": name, "brokers": brokers})
    else:
        click.echo(f"Deleted the group {name} on {', '.join(brokers)}")
