"""``roquet offset``: the offsets of groups, and how to move them.

Owns the options and the text; ``roquet.admin`` does the work. Commands that move a group show each
queue and ask once, or only show it (``--dry-run``).
"""

from __future__ import annotations

import click
from msgspec import Struct

from roquet.admin import Admin, ServerResults
from roquet.cli.client import administer, nearest_topic, warn_failures
from roquet.cli.completion import complete_group, complete_topic
from roquet.cli.connection import Connection, connection_options
from roquet.cli.group_set import group_configs
from roquet.cli.offset_reset import reset, set_offset
from roquet.cli.output import (
    format_number,
    format_time,
    json_option,
    plural,
    print_json,
    print_table,
)
from roquet.remoting.bodies.offset import ConsumeStatsList

__all__ = ["GroupLag", "QueueProgress", "offset"]


class GroupLag(Struct, frozen=True, kw_only=True, rename="camel"):
    """The lag of a group in a topic, for programs."""

    group: str
    topic: str
    queues: int
    lag: int
    last_consumed: int


class QueueProgress(Struct, frozen=True, kw_only=True, rename="camel"):
    """The progress of a group in a queue, for programs.

    Attributes:
        committed_offset: Where it continues; ``None`` if it has committed nothing.
        lag: How many messages it has not consumed; ``None`` if it has committed nothing.
        last_consumed: When the last message that it consumed was stored; 0 for none.
    """

    topic: str
    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    committed_offset: int | None
    lag: int | None
    last_consumed: int


@click.group()
def offset() -> None:
    """Show the offsets of groups, and move them."""


offset.add_command(set_offset)
offset.add_command(reset)


@offset.command("ls")
@click.argument("name", metavar="[GROUP]", required=False, shell_complete=complete_group)
@connection_options
@click.option("--cluster", metavar="NAME", help="Only brokers of this cluster.")
@json_option
def list_offsets(
    name: str | None, *, connection: Connection, cluster: str | None, as_json: bool
) -> None:
    """List the lag of all groups, or of one, in each of their topics."""
    group = None if name is None else connection.wrap(name)

    async def work(admin: Admin) -> list[GroupLag]:
        if group is not None:
            await group_configs(admin, group, cluster=cluster, as_json=as_json)
        gathered = await admin.offsets.all_progress(cluster=cluster)
        warn_failures(gathered.failures, as_json=as_json)
        found = _lags(gathered)
        return [
            each
            for each in found
            if group in {None, each.group} and connection.wrap(each.group) == each.group
        ]

    found = administer(connection, work)
    if as_json:
        print_json(found)
        return
    print_table(
        plural(len(found), "group and topic", "groups and topics"),
        ("group", "topic", "queues", "lag", "last consumed was stored"),
        [
            (
                each.group,
                each.topic,
                str(each.queues),
                str(each.lag),
                format_time(each.last_consumed),
            )
            for each in found
        ],
        numbers=("queues", "lag"),
    )


def _lags(gathered: ServerResults[ConsumeStatsList]) -> list[GroupLag]:
    found: dict[tuple[str, str], GroupLag] = {}
    parts = gathered.partial("Reading the offsets of groups").values()
    tables = (
        (group, stats.offset_table)
        for part in parts
        for by_group in part.consume_stats_list
        for group, of_group in by_group.items()
        for stats in of_group
    )
    for group, table in tables:
        for queue, each in table.items():
            known = found.get((group, queue.topic))
            lag = each.broker_offset - each.consumer_offset
            found[group, queue.topic] = GroupLag(
                group=group,
                topic=queue.topic,
                queues=(known.queues if known else 0) + 1,
                lag=(known.lag if known else 0) + lag,
                last_consumed=max(known.last_consumed if known else 0, each.last_timestamp_ms),
            )
    return [found[key] for key in sorted(found)]


@offset.command()
@click.argument("name", metavar="GROUP", shell_complete=complete_group)
@click.argument("topic", shell_complete=complete_topic)
@connection_options
@json_option
def show(name: str, topic: str, *, connection: Connection, as_json: bool) -> None:
    """Show the offsets of a group in each queue of a topic."""
    group = connection.wrap(name)
    wire_topic = connection.wrap(topic)

    async def work(admin: Admin) -> list[QueueProgress]:
        await group_configs(admin, group, as_json=as_json)
        stats = await admin.topics.stats(wire_topic)
        progress = await admin.offsets.progress(group, wire_topic)
        warn_failures(stats.failures | progress.failures, as_json=as_json)
        rows = []
        for queue, bounds in stats.queues.items():
            committed = await admin.offsets.committed(group, queue)
            known = progress.queues.get(queue)
            rows.append(
                QueueProgress(
                    topic=queue.topic,
                    broker_name=queue.broker_name,
                    queue_id=queue.queue_id,
                    min_offset=bounds.min_offset,
                    max_offset=bounds.max_offset,
                    committed_offset=committed,
                    lag=None if committed is None else bounds.max_offset - committed,
                    last_consumed=known.last_timestamp_ms if known else 0,
                )
            )
        return rows

    with nearest_topic(connection, wire_topic):
        found = administer(connection, work)
    if as_json:
        print_json({"group": group, "topic": wire_topic, "queues": found})
        return
    print_table(
        f"{group} in {wire_topic}",
        ("broker", "queue", "first", "next", "committed", "lag", "last consumed was stored"),
        [
            (
                each.broker_name,
                str(each.queue_id),
                str(each.min_offset),
                str(each.max_offset),
                format_number(each.committed_offset),
                format_number(each.lag),
                format_time(each.last_consumed),
            )
            for each in found
        ],
        numbers=("queue", "first", "next", "committed", "lag"),
    )
