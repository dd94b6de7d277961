"""``roquet topic``: list, show, create and delete topics; ``topic_set`` changes them.

Owns the options and the text; ``roquet.admin`` does the work.
"""

from __future__ import annotations

from collections.abc import Mapping

import click
from msgspec import Struct

from roquet.admin import Admin, TopicStats
from roquet.cli.attributes import attribute_option
from roquet.cli.client import administer, nearest_topic, warn_failures
from roquet.cli.completion import complete_topic
from roquet.cli.connection import Connection, connection_options
from roquet.cli.output import (
    confirm,
    format_time,
    json_option,
    plural,
    print_json,
    print_table,
    yes_option,
)
from roquet.cli.topic_set import PERMS, perm_text, set_topic
from roquet.client.names import check_topic
from roquet.errors import ClientError
from roquet.model.topic import is_dlq_topic, is_retry_topic
from roquet.model.topic_config import TopicConfig

__all__ = ["QueueFacts", "TopicFacts", "topic"]


class TopicSettings(Struct, frozen=True, kw_only=True, rename="camel"):
    """The settings of a topic on one broker, for programs."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: str
    order: bool
    attributes: dict[str, str]


class QueueFacts(Struct, frozen=True, kw_only=True, rename="camel"):
    """One queue, for programs."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_stored: int


class TopicFacts(Struct, frozen=True, kw_only=True, rename="camel"):
    """A topic, for programs."""

    topic: str
    messages: int
    put_tps: float
    settings: list[TopicSettings]
    queues: list[QueueFacts]
    groups: list[str]


@click.group()
def topic() -> None:
    """List, show, create, change and delete topics."""


topic.add_command(set_topic)


def _settings(broker_name: str, config: TopicConfig) -> TopicSettings:
    return TopicSettings(
        broker_name=broker_name,
        read_queues=config.read_queue_nums,
        write_queues=config.write_queue_nums,
        perm=perm_text(config.perm),
        order=config.order,
        attributes=config.attributes,
    )


# -- showing ------------------------------------------------------------------------------------


@topic.command("ls")
@connection_options
@click.option("--cluster", metavar="NAME", help="Only topics of this cluster.")
@click.option(
    "--all", "with_all", is_flag=True, help="Include system, retry and dead-letter topics."
)
@json_option
def list_topics(
    *, connection: Connection, cluster: str | None, with_all: bool, as_json: bool
) -> None:
    """List topics."""

    async def work(admin: Admin) -> dict[str, list[TopicSettings]]:
        hidden = set() if with_all else set(await admin.topics.system_names())
        gathered = await admin.topics.configs(cluster=cluster)
        found: dict[str, list[TopicSettings]] = {}
        for broker_name, table in gathered.partial("Listing topics").items():
            for name, config in table.items():
                of_group = is_retry_topic(name) or is_dlq_topic(name)
                if connection.wrap(name) != name:
                    continue  # it is in another namespace
                if with_all or not (name in hidden or of_group):
                    found.setdefault(name, []).append(_settings(broker_name, config))
        warn_failures(gathered.failures, as_json=as_json)
        return dict(sorted(found.items()))

    found = administer(connection, work)
    if as_json:
        print_json([{"topic": name, "settings": parts} for name, parts in found.items()])
        return
    print_table(
        plural(len(found), "topic"),
        ("topic", "brokers", "queues", "perm"),
        [
            (
                name,
                " ".join(each.broker_name for each in parts),
                str(sum(each.write_queues for each in parts)),
                " ".join(sorted({each.perm for each in parts})),
            )
            for name, parts in found.items()
        ],
        numbers=("queues",),
    )


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=complete_topic)
@connection_options
@json_option
def show(name: str, *, connection: Connection, as_json: bool) -> None:
    """Show the settings, queues and groups of a topic."""
    name = connection.wrap(name)

    async def work(admin: Admin) -> TopicFacts:
        stats = await admin.topics.stats(name)
        configs = await admin.topics.config(name)
        groups = await admin.topics.groups(name)
        warn_failures(stats.failures | groups.failures, as_json=as_json)
        return _facts(stats, configs.answers, groups.answers)

    with nearest_topic(connection, name):
        found = administer(connection, work)
    if as_json:
        print_json(found)
        return
    click.echo(f"Topic       {found.topic}")
    click.echo(f"Messages    {found.messages}")
    click.echo(f"Groups      {' '.join(found.groups) or '-'}")
    click.echo()
    print_table(
        "Settings",
        ("broker", "read queues", "write queues", "perm", "order", "attributes"),
        [
            (
                each.broker_name,
                str(each.read_queues),
                str(each.write_queues),
                each.perm,
                "yes" if each.order else "no",
                " ".join(f"{key}={value}" for key, value in each.attributes.items()) or "-",
            )
            for each in found.settings
        ],
        numbers=("read queues", "write queues"),
    )
    print_table(
        "Queues",
        ("broker", "queue", "first", "next", "messages", "last stored"),
        [
            (
                each.broker_name,
                str(each.queue_id),
                str(each.min_offset),
                str(each.max_offset),
                str(each.max_offset - each.min_offset),
                format_time(each.last_stored),
            )
            for each in found.queues
        ],
        numbers=("queue", "first", "next", "messages"),
    )


def _facts(
    stats: TopicStats, configs: Mapping[str, TopicConfig], groups: Mapping[str, list[str]]
) -> TopicFacts:
    return TopicFacts(
        topic=stats.topic,
        messages=stats.messages,
        put_tps=stats.put_tps,
        settings=[_settings(broker_name, config) for broker_name, config in configs.items()],
        queues=[
            QueueFacts(
                broker_name=queue.broker_name,
                queue_id=queue.queue_id,
                min_offset=each.min_offset,
                max_offset=each.max_offset,
                last_stored=each.last_update_timestamp_ms,
            )
            for queue, each in stats.queues.items()
        ],
        groups=sorted({group for part in groups.values() for group in part}),
    )


# -- changing -----------------------------------------------------------------------------------


@topic.command()
@click.argument("name", metavar="TOPIC")
@connection_options
@click.option(
    "--queues",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Number of queues on each broker.",
)
@click.option(
    "--perm", type=click.Choice(tuple(PERMS)), default="rw", show_default=True, help="Permission."
)
@click.option(
    "--order", is_flag=True, help="Producers keep to its queues while a broker is unreachable."
)
@attribute_option(can_remove=False)
@click.option("--cluster", metavar="NAME", help="The cluster to create it in.")
@click.option("--broker", metavar="NAME", help="The one broker to create it on.")
@json_option
def create(
    name: str,
    *,
    connection: Connection,
    queues: int,
    perm: str,
    order: bool,
    attributes: dict[str, str],
    cluster: str | None,
    broker: str | None,
    as_json: bool,
) -> None:
    """Create a topic. Fails if it exists already."""
    check_topic(name)
    name = connection.wrap(name)

    async def work(admin: Admin) -> list[str]:
        there = (await admin.topics.config(name, cluster=cluster, broker=broker)).answers
        if there:
            raise ClientError(
                f"The topic {name} already exists",
                code="already_exists",
                detail=f"on {', '.join(there)}",
                hint=f"Show it with: roquet topic show {name}",
            )
        return await admin.topics.create(
            name,
            queues=queues,
            perm=PERMS[perm],
            order=order,
            attributes=attributes,
            cluster=cluster,
            broker=broker,
        )

    brokers = administer(connection, work)
    if as_json:
        print_json({"topic": name, "brokers": brokers})
    else:
        click.echo(f"Created {name} with {plural(queues, 'queue')} on {', '.join(brokers)}")


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=complete_topic)
@connection_options
@click.option("--cluster", metavar="NAME", help="Only in this cluster.")
@yes_option
@json_option
def delete(
    name: str, *, connection: Connection, cluster: str | None, is_sure: bool, as_json: bool
) -> None:
    """Delete a topic with its messages and offsets on all brokers. This cannot be undone."""
    check_topic(name)
    name = connection.wrap(name)
    with nearest_topic(connection, name):
        stats = administer(connection, lambda admin: admin.topics.stats(name))
    holders = sorted({queue.broker_name for queue in stats.queues})
    messages = plural(stats.messages, "message")
    confirm(
        f"Delete {name} with {messages} on {', '.join(holders) or 'no broker'}"
        + (", and everything on brokers that do not respond?" if stats.failures else "?"),
        is_sure=is_sure,
    )
    brokers = administer(connection, lambda admin: admin.topics.delete(name, cluster=cluster))
    if as_json:
        print_json({"topic": name, "messages": stats.messages, "brokers": brokers})
    else:
        click.echo(f"Deleted {name} with {messages}")
