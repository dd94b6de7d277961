"""Resends stored messages from the executors.

Shared by ``replay`` and ``dlq replay``: converts stored messages to messages to send, and owns
their ids, the rate, and the results of workers.

Invariants:

* At least once: a worker succeeds only when brokers have acknowledged all its messages. A retried
  worker, or a pipeline that is run again, sends the same messages with the same ids.
* The id, in the property ``SPARK_ROW_ID``, is ``name/topic/offset message id``: it depends on where
  the message is stored, not on the run, so consumers can drop duplicates.
* All workers together do not exceed the rate on average.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from roquet.client.message import RESERVED_PROPERTIES, Message
from roquet.client.options import ClientOptions
from roquet.client.pace import Pace
from roquet.errors import BadMessage, SparkOptionError
from roquet.model import properties as prop
from roquet.spark.broker.connect import connect_options
from roquet.spark.broker.outgoing import ROW_ID, OutgoingRow
from roquet.spark.broker.send import Outbox
from roquet.spark.broker.sink import check_topic_is_there, producer_of
from roquet.spark.broker.write_options import WriteOptions, write_options
from roquet.spark.jobs.message_feeds import Feed, Part
from roquet.spark.plain_errors import plain_errors
from roquet.spark.report import Cell, Report
from roquet.spark.schema import CORRUPT_COLUMN
from roquet.spark.tasks import parallelism, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "COLUMNS",
    "Address",
    "Addresser",
    "Resend",
    "ResendResult",
    "Row",
    "message_again",
    "resend",
]

COLUMNS = ("topic", "queueId", "body", "properties", "offsetMsgId", "flag")
"""The columns needed to resend a message."""

DAMAGED = "damaged"
REFUSED = "refused"

BATCHES_FROM_RATE = 5_000
"""From this rate on, messages are sent in batches, each of a tenth of a second."""

TOLD_MAX = 20
"""How many unsent messages a worker reports in detail."""

_DROPPED = RESERVED_PROPERTIES | {ROW_ID, prop.SHARDING_KEY, prop.INNER_NUM, prop.INNER_BASE}

Row: TypeAlias = Mapping[str, object]
"""A message's columns."""


@dataclass(frozen=True)
class Address:
    """The target of a message.

    Attributes:
        topic: The topic; ``None`` if unknown.
        system_properties: Properties with reserved names that it needs there.
    """

    topic: str | None
    system_properties: dict[str, str] | None = None


class Addresser(Protocol):
    """Chooses the target of a message; sent to workers."""

    def __call__(self, row: Row) -> Address | None:
        """Return the address, or ``None`` to skip the message."""


@dataclass
class ResendResult:
    """The result of a worker.

    Attributes:
        sent: The number of messages, by original topic and target topic.
        less_safe: How many are stored less safely than the broker is configured to.
        missed: The number of unsent messages, by kind.
        findings: Kind, place and detail of some of them.
    """

    sent: Counter[tuple[str, str]] = field(default_factory=Counter)
    less_safe: int = 0
    missed: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[str, str, str]] = field(default_factory=list)

    def miss(self, kind: str, where: str, detail: str) -> None:
        """Record a message that is not sent."""
        self.missed[kind] += 1
        if len(self.findings) < TOLD_MAX:
            self.findings.append((kind, where, detail))


@dataclass(frozen=True, kw_only=True)
class Resend:
    """Sent to executors: reads parts and sends their selected messages.

    Attributes:
        feed: The source of messages, with :data:`COLUMNS`.
        address: Chooses their targets.
        to: How they are sent.
        name: The prefix of their ids.
        rate: Messages per second; ``None`` for no limit.
        is_in_order: Whether each goes to the same queue id as before.
    """

    feed: Feed
    address: Addresser
    to: WriteOptions
    name: str
    rate: float | None = None
    is_in_order: bool = False

    def __call__(self, parts: Sequence[Part]) -> ResendResult:
        """Send."""
        with plain_errors():
            return asyncio.run(self._send(parts))

    async def _send(self, parts: Sequence[Part]) -> ResendResult:
        told = ResendResult()
        pace = None if self.rate is None else Pace(self.rate)
        async with producer_of(self.to) as producer:
            outbox = Outbox(self.to, producer)
            try:
                async with aclosing(self._rows(parts)) as rows:
                    async for row in rows:
                        made = self._outgoing(row, told)
                        if made is None:
                            continue
                        if pace is not None:
                            await pace.wait()
                        await outbox.put(made)
                        told.sent[str(row["topic"]), made.message.topic] += 1
                told.less_safe = (await outbox.close()).less_safe
            finally:
                await outbox.abort()
        return told

    async def _rows(self, parts: Sequence[Part]) -> AsyncGenerator[Row, None]:
        # Reading blocks on disks and brokers; in a thread, so that the loop handles responses.
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="roquet-feed") as thread:
            for part in parts:
                batches = self._batches(part)
                try:
                    while rows := await loop.run_in_executor(thread, next, batches, None):
                        for row in rows:
                            yield row
                finally:
                    await loop.run_in_executor(thread, batches.close)

    def _batches(self, part: Part) -> Generator[list[dict[str, object]], None, None]:
        for batch in self.feed.batches(part):
            if batch.num_rows:
                yield batch.to_pylist()

    def _outgoing(self, row: Row, told: ResendResult) -> OutgoingRow | None:
        damage = row.get(CORRUPT_COLUMN)
        where = f"{row['topic'] or 'a message'} {row['offsetMsgId'] or ''}".strip()
        if damage is not None:
            told.miss(DAMAGED, where, str(damage))
            return None
        address = self.address(row)
        if address is None:
            return None
        try:
            message = message_again(row, address, self.name)
        except BadMessage as error:
            told.miss(REFUSED, where, " ".join(filter(None, [error.message, error.detail])))
            return None
        queue_id = row["queueId"] if self.is_in_order else None
        return OutgoingRow(message, queue_id if isinstance(queue_id, int) else None, None)


def message_again(row: Row, address: Address, name: str) -> Message:
    """Convert a stored message to a message to send: the user's part of it, with an id.

    Args:
        row: Its columns.
        address: Its target.
        name: The prefix of its id.

    Raises:
        BadMessage: No broker would accept it.
    """
    if address.topic is None:
        raise BadMessage("Its original topic is unknown.")
    found = row["properties"]
    given = dict(found) if isinstance(found, list) else {}
    body, flag = row["body"], row["flag"]
    message = Message(
        address.topic,
        body if isinstance(body, bytes) else b"",
        tags=given.get(prop.TAGS),
        keys=given.get(prop.KEYS),
        properties={
            key: value
            for key, value in given.items()
            if key not in _DROPPED and key.strip() and value and value.strip()
        },
        sharding_key=given.get(prop.SHARDING_KEY),
        flag=flag if isinstance(flag, int) else 0,
        system_properties=address.system_properties,
    )
    message.properties[ROW_ID] = f"{name}/{row['topic']}/{row['offsetMsgId']}"
    message.check()
    return message


def target_options(
    to: ClientOptions, topic: str | None, *, rate: float | None = None
) -> WriteOptions:
    """Return the options for sending to a cluster.

    Args:
        to: The connection to the cluster.
        topic: The topic, if all messages go to the same.
        rate: Messages per second of one worker.

    Raises:
        SparkOptionError: The topic name is invalid or reserved.
    """
    given = connect_options(to)
    if topic is not None:
        given["topic"] = topic
    options = write_options(given)
    if rate is not None and rate < BATCHES_FROM_RATE:
        # Every message is larger than this, so each is sent alone.
        options = replace(options, batch_bytes=1)
    return options


def check_rate(rate: float | None) -> None:
    """Check that a rate is positive.

    Raises:
        SparkOptionError: It is not.
    """
    if rate is not None and not rate > 0:
        raise SparkOptionError(
            f"A rate of {rate} messages a second sends nothing.", hint="Use a rate above 0."
        )


def resend(
    spark: SparkSession,
    report: Report,
    feed: Feed,
    address: Addresser,
    to: ClientOptions,
    *,
    name: str,
    to_topic: str | None = None,
    rate: float | None = None,
    is_in_order: bool = False,
) -> None:
    """Send the messages of a feed, and fill a report: the table ``Sent``, findings, numbers.

    Args:
        spark: The session.
        report: The report to fill.
        feed: The source of messages, with :data:`COLUMNS`.
        address: Chooses their targets.
        to: The target cluster.
        name: The prefix of their ids.
        to_topic: The topic of all messages, which must exist before anything is sent.
        rate: Messages per second, all workers together.
        is_in_order: Whether each goes to the same queue id as before, in the order of storing.

    Raises:
        SparkOptionError: The rate or the topic is invalid.
        NoRoute: There is no such topic.
    """
    check_rate(rate)
    check_topic_is_there(target_options(to, to_topic))
    workers = parallelism(spark)
    if is_in_order and not feed.is_by_queue:
        workers = 1
    parts = feed.parts(workers)
    tasks = shares_of(parts, workers)
    share = None if rate is None else rate / max(len(tasks), 1)
    worker = Resend(
        feed=feed,
        address=address,
        to=target_options(to, None, rate=share),
        name=name,
        rate=share,
        is_in_order=is_in_order,
    )
    fill_report(report, run_tasks(spark, tasks, worker))


def shares_of(parts: Sequence[Part], workers: int) -> list[list[Part]]:
    """Distribute parts over as many workers as run at a time, so that their rates add up.

    Example:
        >>> shares_of([[], [], []], 2)
        [[[], []], [[]]]
    """
    return [list(parts[worker::workers]) for worker in range(min(workers, len(parts)))]


def fill_report(report: Report, told: Sequence[ResendResult]) -> None:
    """Add the results of workers to a report."""
    sent: Counter[tuple[str, str]] = Counter()
    missed: Counter[str] = Counter()
    for each in told:
        sent += each.sent
        missed += each.missed
        for finding in each.findings:
            report.add_finding(*finding)
    report.numbers["messages"] = sum(sent.values())
    for kind, count in sorted(missed.items()):
        report.numbers[kind] = count
    if less_safe := sum(each.less_safe for each in told):
        report.numbers["lessSafelyStored"] = less_safe
    rows: list[list[Cell]] = [[*key, count] for key, count in sorted(sent.items())]
    report.add_table("Sent", ["from topic", "to topic", "messages"], rows)
    report.outputs += sorted({f"topic {topic}" for _, topic in sent})
