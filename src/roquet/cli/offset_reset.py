"""``roquet offset reset`` and ``roquet offset set``: move a group to other offsets.

A whole topic is moved by the broker, which notifies the group's clients. A single queue, or a plain
offset, is moved queue by queue; that works while no client of the group runs, or if the broker
moves groups by itself (``useServerSideResetOffset``).
"""

from __future__ import annotations

import asyncio
from typing import Literal

import click
from msgspec import Struct

from roquet.admin import Admin, QueueReset
from roquet.cli.client import administer, nearest_topic
from roquet.cli.completion import complete_group, complete_topic
from roquet.cli.connection import Connection, connection_options
from roquet.cli.group_set import group_configs
from roquet.cli.output import confirm, json_option, plural, print_json, print_table, yes_option
from roquet.cli.start_offsets import START_HELP, Start, StartKind, start_of
from roquet.errors import ClientError, NotFound, RoquetError
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.topic import TopicOffset
from roquet.runtime.clock import SystemClock

__all__ = ["OffsetMove", "ResetFacts", "reset", "set_offset"]


class OffsetMove(Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a group continues in a queue, for programs.

    Attributes:
        committed_offset: Where it was; ``None`` if it had committed nothing.
        again: How many messages it consumes again; below 0 for how many it skips.
    """

    topic: str
    broker_name: str
    queue_id: int
    committed_offset: int | None
    target_offset: int
    again: int


class ResetFacts(Struct, frozen=True, kw_only=True, rename="camel"):
    """What was done, or would be done, for programs."""

    group: str
    topic: str
    dry_run: bool
    queues: list[OffsetMove]


class _Wish(Struct, frozen=True, kw_only=True):
    """The values of the flags."""

    group: str
    topic: str
    start: Start
    broker: str | None
    queue_id: int | None

    @property
    def is_whole_topic(self) -> bool:
        """Whether one request to each broker is enough."""
        is_one_place = self.start.is_earliest or self.start.is_latest
        return (
            (is_one_place or self.start.kind is StartKind.TIME)
            and self.broker is None
            and self.queue_id is None
        )


@click.command()
@click.argument("name", metavar="GROUP", shell_complete=complete_group)
@click.argument("topic", shell_complete=complete_topic)
@connection_options
@click.option("--to", "start_text", metavar="START", required=True, help=START_HELP)
@click.option("--broker", metavar="NAME", help="Only queues of this broker.")
@click.option("--queue", "queue_id", type=click.IntRange(min=0), help="Only queues with this id.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@yes_option
@json_option
def reset(
    name: str,
    topic: str,
    *,
    connection: Connection,
    start_text: str,
    broker: str | None,
    queue_id: int | None,
    dry_run: bool,
    is_sure: bool,
    as_json: bool,
) -> None:
    """Move GROUP to another position in TOPIC."""
    wish = _Wish(
        group=connection.wrap(name),
        topic=connection.wrap(topic),
        start=start_of(start_text, SystemClock().now_ms(), flag="--to"),
        broker=broker,
        queue_id=queue_id,
    )
    _reset(connection, wish, dry_run=dry_run, is_sure=is_sure, as_json=as_json)


@click.command("set")
@click.argument("name", metavar="GROUP", shell_complete=complete_group)
@click.argument("topic", shell_complete=complete_topic)
@click.argument("queue_id", metavar="QUEUE", type=click.IntRange(min=0))
@click.argument("queue_offset", metavar="OFFSET", type=click.IntRange(min=0))
@connection_options
@click.option("--broker", metavar="NAME", help="The broker of the queue, if several have it.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@yes_option
@json_option
def set_offset(
    name: str,
    topic: str,
    queue_id: int,
    queue_offset: int,
    *,
    connection: Connection,
    broker: str | None,
    dry_run: bool,
    is_sure: bool,
    as_json: bool,
) -> None:
    """Move GROUP to OFFSET in one QUEUE of TOPIC."""
    wish = _Wish(
        group=connection.wrap(name),
        topic=connection.wrap(topic),
        start=Start(StartKind.OFFSET, queue_offset),
        broker=broker,
        queue_id=queue_id,
    )
    _reset(
        connection, wish, dry_run=dry_run, is_sure=is_sure, as_json=as_json, must_be_one_queue=True
    )


def _reset(
    connection: Connection,
    wish: _Wish,
    *,
    dry_run: bool,
    is_sure: bool,
    as_json: bool,
    must_be_one_queue: bool = False,
) -> None:
    with nearest_topic(connection, wish.topic):
        plan, is_online = administer(connection, lambda admin: _plan(admin, wish, as_json=as_json))
    if must_be_one_queue and len(plan) > 1:
        holders = ", ".join(each.queue.broker_name for each in plan)
        raise ClientError(
            f"Several brokers have a queue {wish.queue_id} of {wish.topic}",
            code="ambiguous",
            detail=holders,
            hint="Name one with --broker.",
        )
    # Clients may be ahead of their committed offsets.
    moves = [each for each in plan if each.is_move or is_online]
    if dry_run or not moves:
        _report(wish, plan, dry_run=dry_run, as_json=as_json)
        return
    if not is_sure:
        click.echo(_words(wish, moves), err=True)
    confirm(f"Move {wish.group} in {plural(len(moves), 'queue')} of {wish.topic}?", is_sure=is_sure)
    administer(connection, lambda admin: _move(admin, wish, moves))
    _report(wish, plan, dry_run=False, as_json=as_json)


async def _plan(admin: Admin, wish: _Wish, *, as_json: bool) -> tuple[list[QueueReset], bool]:
    """Where the group continues in each queue, and whether it has running clients."""
    await group_configs(admin, wish.group, as_json=as_json)
    stats = await admin.topics.stats(wish.topic)
    if stats.failures:
        raise next(iter(stats.failures.values()))
    wanted = {
        queue: bounds
        for queue, bounds in stats.queues.items()
        if wish.broker in {None, queue.broker_name} and wish.queue_id in {None, queue.queue_id}
    }
    if not wanted:
        raise NotFound(
            f"{wish.topic} has no such queue",
            detail=f"queue {wish.queue_id}, broker {wish.broker}",
            hint=f"roquet topic show {wish.topic} lists its queues.",
        )
    plan = await asyncio.gather(
        *(_of_queue(admin, wish, queue, bounds) for queue, bounds in wanted.items())
    )
    return list(plan), bool(await admin.clients.consumer_ids(wish.group))


async def _of_queue(
    admin: Admin, wish: _Wish, queue: MessageQueue, bounds: TopicOffset
) -> QueueReset:
    kind, number = wish.start
    if kind is StartKind.TIME:
        number = await admin.offsets.at_time(queue, number)
    elif kind is StartKind.LAST:
        number = bounds.max_offset - number
    committed = await admin.offsets.committed(wish.group, queue)
    return QueueReset(
        queue=queue,
        committed_offset=-1 if committed is None else committed,
        target_offset=min(max(number, bounds.min_offset), bounds.max_offset),
    )


async def _move(admin: Admin, wish: _Wish, moves: list[QueueReset]) -> None:
    if wish.is_whole_topic:
        place: int | Literal["earliest", "latest"] = wish.start.number
        if wish.start.is_earliest:
            place = "earliest"
        elif wish.start.is_latest:
            place = "latest"
        await admin.offsets.reset(wish.group, wish.topic, place)
        return
    done: list[str] = []
    for each in moves:
        try:
            await admin.offsets.reset_queue(wish.group, each.queue, each.target_offset)
        except RoquetError as error:
            if done:
                error.detail = " ".join(
                    filter(None, [error.detail, f"(moved before: {', '.join(done)})"])
                )
            raise
        done.append(f"{each.queue.broker_name} queue {each.queue.queue_id}")


# -- output -------------------------------------------------------------------------------------


def _facts(each: QueueReset) -> OffsetMove:
    is_new = each.committed_offset < 0
    return OffsetMove(
        topic=each.queue.topic,
        broker_name=each.queue.broker_name,
        queue_id=each.queue.queue_id,
        committed_offset=None if is_new else each.committed_offset,
        target_offset=each.target_offset,
        again=0 if is_new else each.committed_offset - each.target_offset,
    )


def _words(wish: _Wish, moves: list[QueueReset]) -> str:
    lines = [
        f"  {each.queue.broker_name} queue {each.queue.queue_id}: "
        f"{each.committed_offset if each.committed_offset >= 0 else '-'} → {each.target_offset}"
        for each in moves
    ]
    facts = [_facts(each) for each in moves]
    again = sum(max(each.again, 0) for each in facts)
    skipped = sum(max(-each.again, 0) for each in facts)
    parts = [
        f"{plural(again, 'message')} again" if again else "",
        f"{plural(skipped, 'message')} never" if skipped else "",
    ]
    said = " and ".join(filter(None, parts))
    text = f"{wish.group} then consumes {said}:" if said else f"{wish.group} then continues:"
    return "\n".join([text, *lines])


def _report(wish: _Wish, plan: list[QueueReset], *, dry_run: bool, as_json: bool) -> None:
    facts = [_facts(each) for each in plan]
    if as_json:
        print_json(ResetFacts(group=wish.group, topic=wish.topic, dry_run=dry_run, queues=facts))
        return
    moved = sum(each.is_move for each in plan)
    verb = "would move" if dry_run else "moved"
    print_table(
        f"{wish.group} {verb} in {plural(moved, 'queue')} of {wish.topic}",
        ("broker", "queue", "from", "to", "again"),
        [
            (
                each.broker_name,
                str(each.queue_id),
                "-" if each.committed_offset is None else str(each.committed_offset),
                str(each.target_offset),
                str(each.again),
            )
            for each in facts
        ],
        numbers=("queue", "from", "to", "again"),
    )
