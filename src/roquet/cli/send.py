"""``roquet send``: messages from the command line or standard input into a topic.

Owns the options, the reading of standard input and the order of sends. Many sends are in flight at
once; those with a sharding key go one after another, to keep their order. After a failure no more
input is read; sends in flight are awaited and reported.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from copy import copy

import click
from msgspec import Struct

from roquet.cli.client import EXIT_INTERRUPTED, nearest_topic, run_client
from roquet.cli.completion import complete_topic
from roquet.cli.connection import Connection, connection_options
from roquet.cli.input_lines import input_lines
from roquet.cli.message_line import message_of
from roquet.cli.output import (
    even_if_nobody_reads,
    json_option,
    parse_pairs,
    parse_span_ms,
    parse_time,
    plural,
    print_json,
)
from roquet.client import Message, Producer, SendResult, SendStatus
from roquet.client.names import check_topic
from roquet.client.pace import Pace
from roquet.errors import RoquetError

__all__ = ["SentLine", "send"]

GROUP = "roquet-send"
IN_FLIGHT_MAX = 256


class SentLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """The result for a message, for programs.

    Attributes:
        number: Its number, counted from 1.
        status: RocketMQ's send status.
    """

    number: int
    status: str
    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    message_id: str
    offset_message_id: str


class _Plan(Struct, frozen=True, kw_only=True):
    """The values of the flags."""

    topic: str
    from_json: bool
    keys: tuple[str, ...]
    tag: str | None
    properties: dict[str, str]
    sharding_key: str | None
    delay_level: int
    delay_ms: int | None
    deliver_at_ms: int | None
    count: int
    rate: float | None

    def message(self, line: bytes) -> Message:
        """The message of a line; flags take precedence over the line."""
        found = message_of(self.topic, line) if self.from_json else Message(self.topic, line)
        found.keys = list(self.keys) or found.keys
        found.tags = self.tag or found.tags
        found.properties |= self.properties
        found.sharding_key = self.sharding_key or found.sharding_key
        found.delay_level = self.delay_level or found.delay_level
        found.delay_ms = self.delay_ms
        found.deliver_at_ms = self.deliver_at_ms
        found.check()
        return found


def _parse_delay(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> tuple[int, int | None]:
    """The delay as a level or as milliseconds."""
    if text is None:
        return 0, None
    if text.isascii() and text.isdecimal() and int(text) > 0:
        return int(text), None
    span_ms = parse_span_ms(text)
    if not span_ms:
        message = f"{text!r} is neither a level (1, 2, …) nor a span such as 90s, 15m or 2h."
        raise click.BadParameter(message)
    return 0, span_ms


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("bodies", metavar="[BODY]...", nargs=-1)
@connection_options
@click.option("--jsonl", "from_json", is_flag=True, help="Each body or line is a JSON object.")
@click.option(
    "-k", "--key", "keys", multiple=True, help="A key to find the message by; may be repeated."
)
@click.option("-t", "--tag", help="The tag that consumers filter by.")
@click.option(
    "-p",
    "--prop",
    "properties",
    metavar="NAME=VALUE",
    multiple=True,
    callback=parse_pairs,
    help="A property; may be repeated.",
)
@click.option(
    "--sharding-key", metavar="KEY", help="All messages of a key go to one queue, in order."
)
@click.option(
    "--delay",
    metavar="LEVEL|SPAN",
    callback=_parse_delay,
    help="Deliver later: a delay level (3), or a duration (90s; needs timed messages).",
)
@click.option(
    "--at",
    "deliver_at_ms",
    metavar="TIME",
    callback=parse_time,
    help="Deliver at this time (needs timed messages).",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many times to send each message.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    help="At most this many messages per second.",
)
@json_option
@click.pass_context
def send(
    context: click.Context,
    topic: str,
    bodies: tuple[str, ...],
    *,
    connection: Connection,
    keys: tuple[str, ...],
    tag: str | None,
    properties: dict[str, str],
    from_json: bool,
    sharding_key: str | None,
    delay: tuple[int, int | None],
    deliver_at_ms: int | None,
    count: int,
    rate: float | None,
    as_json: bool,
) -> None:
    """Send messages to TOPIC: each BODY, or without one each line of standard input.

    \b
    roquet send Orders hello --key 17 --tag paid
    roquet send Orders < lines.txt
    roquet tail Orders --json | roquet send Copy --jsonl
    """  # noqa: D301 - click keeps lines behind this mark as they are
    check_topic(topic)
    delay_level, delay_ms = delay
    if deliver_at_ms is not None and delay != (0, None):
        message = "--delay and --at exclude each other."
        raise click.UsageError(message)
    plan = _Plan(
        topic=topic,
        from_json=from_json,
        keys=keys,
        tag=tag,
        properties=properties,
        sharding_key=sharding_key,
        delay_level=delay_level,
        delay_ms=delay_ms,
        deliver_at_ms=deliver_at_ms,
        count=count,
        rate=rate,
    )
    report = _Report(topic, as_json=as_json)
    options = connection.options()

    async def work() -> None:
        timeout_ms = options.request_timeout_ms
        async with Producer(options, group=GROUP, send_timeout_ms=timeout_ms) as producer:
            await _Sender(producer, plan, report).run(bodies)

    try:
        with nearest_topic(connection, connection.wrap(topic)):
            run_client(connection, work)
    except KeyboardInterrupt:
        context.exit(EXIT_INTERRUPTED)
    finally:
        report.end()


class _Report:
    """Reports the results for the messages, in order."""

    def __init__(self, topic: str, *, as_json: bool) -> None:
        self._topic = topic
        self._as_json = as_json
        self._last: SendResult | None = None
        self._stored = 0
        self._less_safe: Counter[str] = Counter()
        self.failed = 0
        self.empty = 0

    def stored(self, number: int, result: SendResult) -> None:
        """A message is stored."""
        self._stored += 1
        self._last = result
        if result.status is not SendStatus.SEND_OK:
            self._less_safe[result.status.value] += 1
        if self._as_json:
            self._print(
                SentLine(
                    number=number,
                    status=result.status.value,
                    topic=result.queue.topic,
                    broker_name=result.queue.broker_name,
                    queue_id=result.queue.queue_id,
                    queue_offset=result.queue_offset,
                    message_id=result.message_id,
                    offset_message_id=result.offset_message_id,
                )
            )

    def _print(self, line: SentLine) -> None:
        # All messages are sent, even if nobody reads the output.
        with even_if_nobody_reads():
            print_json(line)

    def end(self) -> None:
        """Print the summary."""
        if self.empty:
            left_out = plural(self.empty, "empty body", "empty bodies")
            text = f"Skipped {left_out}: a message has at least one byte."
            click.echo(f"Warning: {text}", err=True)
        for status, number in self._less_safe.items():
            text = f"Stored less safely than configured: {plural(number, 'message')}, {status}."
            click.echo(f"Warning: {text}", err=True)
        if self._as_json:
            return
        with even_if_nobody_reads():
            self._summarize()

    def _summarize(self) -> None:
        if self._stored == 1 and self._last is not None:
            queue, offset = self._last.queue, self._last.queue_offset
            place = f"{queue.broker_name}, queue {queue.queue_id}, offset {offset}"
            click.echo(f"Sent {self._last.message_id} to {self._topic}: {place}")
        else:
            failed = f", {self.failed} failed" if self.failed else ""
            click.echo(f"Sent {plural(self._stored, 'message')} to {self._topic}{failed}")


class _Sender:
    """Keeps a number of sends in flight, and handles their results in order."""

    def __init__(self, producer: Producer, plan: _Plan, report: _Report) -> None:
        self._producer = producer
        self._plan = plan
        self._report = report
        self._number = 0
        self._pace = None if plan.rate is None else Pace(plan.rate)
        self._room = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._under_way: asyncio.Queue[asyncio.Task[SendResult] | None] = asyncio.Queue()

    async def run(self, bodies: Sequence[str]) -> None:
        """Send everything.

        Raises:
            RoquetError: The first failure; sends in flight have ended by then.
        """
        feed = asyncio.ensure_future(self._feed(bodies))
        ends = asyncio.ensure_future(self._take_ends(feed))
        try:
            await asyncio.wait([feed, ends], return_when=asyncio.FIRST_COMPLETED)
        finally:
            feed.cancel()
            fed = (await asyncio.gather(feed, return_exceptions=True))[0]
            self._under_way.put_nowait(None)
            failure = await ends
        if failure is None and isinstance(fed, RoquetError):
            failure = fed
        if failure is not None:
            raise failure

    async def _feed(self, bodies: Sequence[str]) -> None:
        if not bodies:
            async with aclosing(input_lines()) as lines:
                async for line in lines:
                    await self._send(line)
        for body in bodies:
            await self._send(body.encode(errors="surrogateescape"))

    async def _send(self, line: bytes) -> None:
        if not line:
            self._report.empty += 1
            return
        for _ in range(self._plan.count):
            if self._pace is not None:
                await self._pace.wait()
            await self._room.acquire()
            self._number += 1
            try:
                message = self._plan.message(line)
            except RoquetError as error:
                raise _numbered(error, self._number) from error
            self._under_way.put_nowait(asyncio.ensure_future(self._producer.send(message)))
            if message.sharding_key:
                await self._under_way.join()

    async def _take_ends(self, feed: asyncio.Future[None]) -> RoquetError | None:
        """Report the results of sends; the first failure ends the feed."""
        first: RoquetError | None = None
        number = 0
        while (task := await self._under_way.get()) is not None:
            number += 1
            try:
                self._report.stored(number, await task)
            except RoquetError as error:
                self._report.failed += 1
                first = first or _numbered(error, number)
                feed.cancel()
            self._room.release()
            self._under_way.task_done()
        return first


def _numbered(error: RoquetError, number: int) -> RoquetError:
    """The same error with the message's number in its detail."""
    found = copy(error)
    found.detail = f"message {number}" + (f": {error.detail}" if error.detail else "")
    return found
