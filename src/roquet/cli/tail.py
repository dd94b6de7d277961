"""``roquet tail``: the messages of a topic, past and new.

Owns the options and the order of reads. Past messages of all queues are printed in the order in
which they were stored; with ``--follow``, new ones as they arrive. Nothing is consumed: it pulls
like RocketMQ's own tools, and no offsets are committed.
"""

from __future__ import annotations

import asyncio
import heapq
import re
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

import click

from roquet.admin.calls import TOOLS_GROUP
from roquet.cli.client import EXIT_INTERRUPTED, nearest_topic, run_client, warn
from roquet.cli.completion import complete_topic
from roquet.cli.connection import Connection, connection_options
from roquet.cli.message_format import DEFAULT_FORMAT, MessageFormat
from roquet.cli.message_line import body_of, line_of
from roquet.cli.output import json_option, print_json
from roquet.cli.start_offsets import START_HELP, Start, StartKind, start_of
from roquet.client import (
    ClientInstance,
    Expression,
    MessageQueue,
    PullApi,
    PullStatus,
    ReceivedMessage,
    Sql,
    subscription_of,
)
from roquet.errors import NoRoute, NotFound, RoquetError
from roquet.model.subscription import SubscriptionData
from roquet.remoting.headers.pull import PullFlag
from roquet.runtime.clock import SystemClock

__all__ = ["expression_of", "tail"]

SUSPEND_MS = 15_000
RETRY_S = 1.0
NEW_QUEUES_S = 30.0
PAUSE_S = 0.05
ARRIVALS_MAX = 16
DEFAULT_FROM = "-10"

_TAGS = re.compile(r"[^\s|=<>()',]+(?:\s*\|\|\s*[^\s|=<>()',]+)*")


def expression_of(text: str) -> Expression:
    """Parse a filter: tags separated by ``||``, or else an SQL92 condition.

    Example:
        >>> expression_of("paid || sent"), expression_of("price > 10"), expression_of("*")
        ('paid || sent', Sql(text='price > 10'), '*')
    """
    return text if _TAGS.fullmatch(text.strip()) else Sql(text)


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@connection_options
@click.option(
    "--from",
    "start_text",
    metavar="START",
    default=DEFAULT_FROM,
    show_default=True,
    help=START_HELP,
)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new messages until Ctrl-C.")
@click.option(
    "--filter",
    "filter_text",
    metavar="TAGS|SQL",
    default="*",
    help="Tags (paid || sent), or an SQL92 condition (price > 10).",
)
@click.option("--queue", "queue_id", type=click.IntRange(min=0), help="Only queues with this id.")
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many messages.")
@click.option(
    "--format",
    "format_text",
    metavar="FORMAT",
    help=f"How to print a message; the default is {DEFAULT_FORMAT!r}.",
)
@json_option
@click.pass_context
def tail(
    context: click.Context,
    topic: str,
    *,
    connection: Connection,
    start_text: str,
    filter_text: str,
    format_text: str | None,
    follow: bool,
    queue_id: int | None,
    count: int | None,
    as_json: bool,
) -> None:
    """Show the messages of TOPIC. Nothing is consumed.

    In a format, %t is the topic, %q the queue, %o the offset, %k the keys, %g the tag, %b the body,
    %p the properties, %i the message id, %s and %S when it was stored, %h who sent it, %B the
    broker, %l the length of the body.

    \b
    roquet tail Orders
    roquet tail Orders --from earliest --filter 'paid || sent' --format '%o %k %b'
    roquet tail Orders --from 15m --follow --json
    """  # noqa: D301 - click keeps lines behind this mark as they are
    if as_json and format_text is not None:
        message = "--format and --json exclude each other."
        raise click.UsageError(message)
    start = start_of(start_text, SystemClock().now_ms())
    options = connection.options()
    wire_topic = connection.wrap(topic)
    wanted = subscription_of(wire_topic, expression_of(filter_text), version_ms=0)
    show = _Printer(format_text or DEFAULT_FORMAT, count, connection.unwrap, as_json=as_json)

    async def work() -> None:
        async with await ClientInstance.open(options) as client:
            reader = _Reader(client, wire_topic, wanted, start, queue_id=queue_id)
            await reader.past(show)
            if follow and not show.is_done:
                await reader.follow(show, as_json=as_json)

    try:
        with nearest_topic(connection, wire_topic):
            run_client(connection, work)
    except KeyboardInterrupt:
        context.exit(0 if follow else EXIT_INTERRUPTED)


class _Printer:
    """Writes messages until there are enough."""

    def __init__(
        self,
        format_text: str,
        count: int | None,
        unwrap: Callable[[str], str],
        *,
        as_json: bool,
    ) -> None:
        self._format = MessageFormat(format_text, for_terminal=sys.stdout.isatty())
        self._as_json = as_json
        self._left = count
        self._unwrap = unwrap
        self.is_done = False

    def __call__(self, message: ReceivedMessage) -> bool:
        """Write a message; return whether there are enough now."""
        message.topic = self._unwrap(message.topic)
        if self._as_json:
            print_json(line_of(message))
        else:
            _, error = body_of(message)
            if error is not None:
                warn(error, as_json=False)
            click.echo(self._format.line(message))
        if self._left is not None:
            self._left -= 1
            self.is_done = self._left == 0
        return self.is_done


class _Reader:
    """Reads the queues of a topic, and tracks its offset in each."""

    def __init__(
        self,
        client: ClientInstance,
        topic: str,
        wanted: SubscriptionData,
        start: Start,
        *,
        queue_id: int | None,
    ) -> None:
        self._client = client
        self._topic = topic
        self._api = PullApi(client, TOOLS_GROUP)
        self._wanted = wanted
        self._start = start
        self._queue_id = queue_id
        self._next: dict[MessageQueue, int] = {}

    async def _queues(self, *, refresh: bool = False) -> list[MessageQueue]:
        found = await self._client.routes.subscribe_queues(self._topic, refresh=refresh)
        return [each for each in found if self._queue_id in {None, each.queue_id}]

    async def _begin(self, queue: MessageQueue) -> int:
        """Set the first offset; return the current end."""
        first, end = await asyncio.gather(self._api.min_offset(queue), self._api.max_offset(queue))
        kind, number = self._start
        if kind is StartKind.TIME:
            number = await self._api.search_offset(queue, number)
        elif kind is StartKind.LAST:
            number = end - number
        self._next[queue] = min(max(number, first), end)
        return end

    # ----------------------------------------------------------------------------------- past

    async def past(self, show: _Printer) -> None:
        """Show the existing messages of all queues in the order of storing."""
        queues = await self._queues()
        if not queues:
            raise NotFound(
                f"{self._topic} has no queue to read from"
                if self._queue_id is None
                else f"{self._topic} has no queue {self._queue_id} to read from",
                hint="roquet topic show lists its queues.",
            )
        ends = await asyncio.gather(*(self._begin(queue) for queue in queues))
        sources = [self._past_of(*pair) for pair in zip(queues, ends, strict=True)]
        firsts = await asyncio.gather(*(anext(source, None) for source in sources))
        heads = [
            (first.store_timestamp_ms, at, first)
            for at, first in enumerate(firsts)
            if first is not None
        ]
        heapq.heapify(heads)
        while heads and not show.is_done:
            _, at, message = heads[0]
            show(message)
            following = await anext(sources[at], None)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (following.store_timestamp_ms, at, following))
        for source in sources:
            await source.aclose()

    async def _past_of(
        self, queue: MessageQueue, end: int
    ) -> AsyncGenerator[ReceivedMessage, None]:
        while self._next[queue] < end:
            before = self._next[queue]
            result = await self._api.pull(queue, before, subscription=self._wanted)
            for message in self._in_time(result.messages):
                if message.queue_offset < end:
                    yield message
            self._next[queue] = min(result.next_offset, end)
            if self._next[queue] <= before:
                return

    def _in_time(self, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """Brokers of version 4 return the last message for a time later than all messages."""
        if self._start.kind is not StartKind.TIME:
            return messages
        return [each for each in messages if each.store_timestamp_ms >= self._start.number]

    # -------------------------------------------------------------------------------- to come

    async def follow(self, show: _Printer, *, as_json: bool) -> None:
        """Show new messages until there are enough."""
        arrivals: asyncio.Queue[list[ReceivedMessage] | RoquetError] = asyncio.Queue(ARRIVALS_MAX)
        tasks = [
            asyncio.ensure_future(self._follow_queue(queue, arrivals, as_json=as_json))
            for queue in self._next
        ]
        tasks.append(asyncio.ensure_future(self._watch(tasks, arrivals, as_json=as_json)))
        try:
            while True:
                found = await arrivals.get()
                if isinstance(found, RoquetError):
                    raise found
                for message in found:
                    if show(message):
                        return
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow_queue(
        self,
        queue: MessageQueue,
        arrivals: asyncio.Queue[list[ReceivedMessage] | RoquetError],
        *,
        as_json: bool,
    ) -> None:
        is_away = False
        while True:
            try:
                result = await self._api.pull(
                    queue,
                    self._next[queue],
                    subscription=self._wanted,
                    sys_flag=PullFlag.SUBSCRIPTION | PullFlag.SUSPEND,
                    suspend_ms=SUSPEND_MS,
                )
            except RoquetError as error:
                if not (error.retriable or isinstance(error, NoRoute)):
                    await arrivals.put(error)
                    return
                if not is_away:
                    warn(error, as_json=as_json)
                is_away = True
                await asyncio.sleep(RETRY_S)
                continue
            is_away = False
            self._next[queue] = result.next_offset
            if result.messages:
                await arrivals.put(self._in_time(result.messages))
            elif result.status in {PullStatus.NO_NEW_MESSAGE, PullStatus.OFFSET_ILLEGAL}:
                await asyncio.sleep(PAUSE_S)

    async def _watch(
        self,
        tasks: list[asyncio.Task[None]],
        arrivals: asyncio.Queue[list[ReceivedMessage] | RoquetError],
        *,
        as_json: bool,
    ) -> None:
        """Follow queues that are added to the topic, from their first message on."""
        while True:
            await asyncio.sleep(NEW_QUEUES_S)
            queues: list[MessageQueue] = []
            with suppress(RoquetError):  # the pulls report the failure
                queues = await self._queues(refresh=True)
            for queue in queues:
                if queue not in self._next:
                    self._next[queue] = 0
                    follower = self._follow_queue(queue, arrivals, as_json=as_json)
                    tasks.append(asyncio.ensure_future(follower))
