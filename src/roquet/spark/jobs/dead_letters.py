"""Dead letters: messages that a group could not consume after all retries.

Reads them from the topics ``%DLQ%`` plus group name, and finds the reason for each as far as it is
known.

The reason compares a letter's tries with those that its group allows: ``tries used up``, or ``given
up`` before that, by the handler or by a client that retries less often than the group allows. If
clients wrote traces, the last one says how the handler ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.client.instance import ClientInstance
from roquet.client.options import ClientOptions
from roquet.model import properties as prop
from roquet.model.topic import (
    DLQ_GROUP_TOPIC_PREFIX,
    TRACE_TOPIC,
    dlq_topic,
    is_dlq_topic,
)
from roquet.spark.broker.cluster import topic_names
from roquet.spark.jobs.inputs import Wanted
from roquet.spark.jobs.message_feeds import Feed, Part, Source, open_feed
from roquet.spark.jobs.resend import Row
from roquet.spark.jobs.store_config import read_retries
from roquet.spark.jobs.trace_text import Event, parse_trace
from roquet.spark.schema import CORRUPT_COLUMN
from roquet.spark.tasks import parallelism, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "DEFAULT_RETRIES",
    "DLQ_PATTERN",
    "GIVEN_UP",
    "LISTED",
    "USED_UP",
    "DeadLetter",
    "DeadLetterCounts",
    "DeadLetterFilter",
    "DeadLetterKind",
    "DeadLettersFound",
    "collect",
    "handler_ends",
    "in_groups",
    "read_dead_letter",
    "traced",
]

USED_UP = "tries used up"
GIVEN_UP = "given up"

DEFAULT_RETRIES = 16
"""The default number of retries."""

DLQ_PATTERN = f"{DLQ_GROUP_TOPIC_PREFIX}.*"
LISTED = (
    *("topic", "msgId", "offsetMsgId", "keys", "tags", "properties"),
    *("bornTimestamp", "storeTimestamp", "bornHost", "reconsumeTimes"),
)
_ORIGIN_TOPICS = ("DLQ_ORIGIN_TOPIC", prop.RETRY_TOPIC)
_ORIGIN_IDS = ("DLQ_ORIGIN_MESSAGE_ID", prop.ORIGIN_MESSAGE_ID)


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A dead letter.

    Attributes:
        group: The group that could not consume it.
        message_id: Its unique id, which stays the same across retries.
        offset_message_id: Its offset message id in the topic of dead letters.
        origin_topic: The topic from which the group got it, if known.
        origin_message_id: Its offset message id there, if known.
        tries: How often it was tried.
        reason: Why it is a dead letter.
        born_ms: When its producer created it.
        store_ms: When it became a dead letter.
        born_host: Where its producer ran.
        keys: Its keys.
        tags: Its tag.
        properties: All properties.
        body: The body, if requested.
        trace: How the handler ended the last try, if that was traced.
    """

    group: str
    message_id: str
    offset_message_id: str
    origin_topic: str | None
    origin_message_id: str | None
    tries: int
    reason: str
    born_ms: int | None
    store_ms: int | None
    born_host: str | None
    keys: str | None
    tags: str | None
    properties: Mapping[str, str]
    body: bytes | None = None
    trace: str | None = None

    @property
    def names(self) -> set[str]:
        """The ids and keys that select it."""
        ids = {self.message_id, self.offset_message_id, self.origin_message_id or ""}
        return ids | set((self.keys or "").split())


@dataclass(frozen=True)
class DeadLetterFilter:
    """Selects letters; by default all.

    Attributes:
        names: Ids or keys; a letter must have one of them.
        origins: Topics; a letter must come from one of them.
    """

    names: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    def takes(self, letter: DeadLetter) -> bool:
        """Whether a letter is selected."""
        if self.origins and letter.origin_topic not in self.origins:
            return False
        return not self.names or not self.names.isdisjoint(letter.names)


def read_dead_letter(row: Row, retries: Mapping[str, int], default_retries: int) -> DeadLetter:
    """Convert a row to a letter.

    Args:
        row: The columns of a message in a topic of dead letters.
        retries: By group: its number of retries.
        default_retries: The number of retries of other groups.
    """
    found = row["properties"]
    properties: dict[str, str] = dict(found) if isinstance(found, list) else {}
    group = str(row["topic"]).removeprefix(DLQ_GROUP_TOPIC_PREFIX)
    tries, body = row["reconsumeTimes"], row.get("body")
    tried = tries if isinstance(tries, int) else 0
    own = properties.get(prop.MAX_RECONSUME_TIMES, "")
    limit = int(own) if own.isdecimal() else retries.get(group, default_retries)
    return DeadLetter(
        group=group,
        message_id=str(row["msgId"]),
        offset_message_id=str(row["offsetMsgId"]),
        origin_topic=_first(properties, _ORIGIN_TOPICS),
        origin_message_id=_first(properties, _ORIGIN_IDS),
        tries=tried,
        reason=USED_UP if tried > limit else GIVEN_UP,
        born_ms=_time_ms(row["bornTimestamp"]),
        store_ms=_time_ms(row["storeTimestamp"]),
        born_host=_text(row["bornHost"]),
        keys=_text(row["keys"]),
        tags=_text(row["tags"]),
        properties=properties,
        body=body if isinstance(body, bytes) else None,
    )


def _first(properties: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((properties[name] for name in names if properties.get(name)), None)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _time_ms(value: object) -> int | None:
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else None


# ------------------------------------------------------------------------------------- reading


@dataclass
class DeadLetterCounts:
    """Letters of one group, topic and reason."""

    letters: int = 0
    tries_min: int = 1 << 31
    tries_max: int = 0
    first_ms: int | None = None
    last_ms: int | None = None

    def add(self, other: DeadLetterCounts) -> None:
        """Add the counts of the same kind from another worker."""
        self.letters += other.letters
        self.tries_min = min(self.tries_min, other.tries_min)
        self.tries_max = max(self.tries_max, other.tries_max)
        firsts = [each for each in (self.first_ms, other.first_ms) if each is not None]
        lasts = [each for each in (self.last_ms, other.last_ms) if each is not None]
        self.first_ms, self.last_ms = min(firsts, default=None), max(lasts, default=None)


DeadLetterKind = tuple[str, str, str]
"""Group, original topic (empty if unknown) and reason."""


@dataclass
class DeadLettersFound:
    """A worker's result: counts of all letters, and the newest ones themselves."""

    sums: dict[DeadLetterKind, DeadLetterCounts] = field(default_factory=dict)
    letters: list[DeadLetter] = field(default_factory=list)

    def add(self, other: DeadLettersFound) -> None:
        """Add what another worker found."""
        for key, each in other.sums.items():
            self.sums.setdefault(key, DeadLetterCounts()).add(each)
        self.letters += other.letters


@dataclass(frozen=True)
class _Collect:
    """Sent to executors: finds letters."""

    feed: Feed
    retries: Mapping[str, int]
    default_retries: int
    choice: DeadLetterFilter
    letters_max: int

    def __call__(self, part: Part) -> DeadLettersFound:
        found = DeadLettersFound()
        for batch in self.feed.batches(part):
            for row in batch.to_pylist():
                if row.get(CORRUPT_COLUMN) is not None:
                    continue
                letter = read_dead_letter(row, self.retries, self.default_retries)
                if not self.choice.takes(letter):
                    continue
                key = (letter.group, letter.origin_topic or "", letter.reason)
                times = (letter.store_ms, letter.store_ms)
                one = DeadLetterCounts(1, letter.tries, letter.tries, *times)
                found.sums.setdefault(key, DeadLetterCounts()).add(one)
                found.letters.append(letter)
            found.letters = newest(found.letters, self.letters_max)
        return found


def newest(letters: Iterable[DeadLetter], count: int) -> list[DeadLetter]:
    """Return the newest letters in the order of their age, oldest first."""
    ordered = sorted(letters, key=lambda each: (each.store_ms or 0, each.offset_message_id))
    return ordered[-count:] if count else []


def collect(
    spark: SparkSession,
    source: Source,
    wanted: Wanted,
    *,
    columns: Sequence[str],
    choice: DeadLetterFilter,
    letters_max: int,
    default_retries: int,
) -> DeadLettersFound:
    """Find letters.

    Args:
        spark: The session.
        source: What to read.
        wanted: The result of :func:`in_groups`.
        columns: At least :data:`LISTED`.
        choice: Which letters.
        letters_max: How many of the newest to keep.
        default_retries: The retries of groups for which the source has no number.
    """
    found = DeadLettersFound()
    if isinstance(source, ClientOptions) and not wanted.topics:
        return found
    feed = open_feed(source, wanted, columns=columns, pattern=DLQ_PATTERN, is_sparse=True)
    retries = {} if isinstance(source, ClientOptions) else read_retries(Path(source))
    work = _Collect(feed, retries, default_retries, choice, letters_max)
    parts = feed.parts(parallelism(spark))
    for each in run_tasks(spark, parts, work):
        found.add(each)
    found.letters = newest(found.letters, letters_max)
    return found


def in_groups(source: Source, wanted: Wanted, groups: Sequence[str]) -> Wanted:
    """Return the topics of dead letters to read; for a store, no topics means all."""
    if groups:
        return replace(wanted, topics=[dlq_topic(group) for group in groups])
    if isinstance(source, ClientOptions):
        return replace(wanted, topics=asyncio.run(_dlq_topics(source)))
    return replace(wanted, topics=())


async def _dlq_topics(options: ClientOptions) -> list[str]:
    client = await ClientInstance.open(options)
    try:
        return [name for name in await topic_names(client) if is_dlq_topic(name)]
    finally:
        await client.close()


# -------------------------------------------------------------------------------------- traces


@dataclass(frozen=True)
class _Trace:
    """Sent to executors: finds in traces how handlers ended."""

    feed: Feed
    message_ids: frozenset[str]

    def __call__(self, part: Part) -> dict[str, tuple[int, str]]:
        found: dict[str, tuple[int, str]] = {}
        for batch in self.feed.batches(part):
            for row in batch.to_pylist():
                time_ms = _time_ms(row["storeTimestamp"]) or 0
                for message_id, told in handler_ends(row["body"] or b""):
                    if message_id in self.message_ids:
                        found[message_id] = max(found.get(message_id, (0, "")), (time_ms, told))
        return found


def handler_ends(body: bytes) -> list[tuple[str, str]]:
    r"""Return the message ids in a trace message, each with how its handler ended.

    Example:
        >>> handler_ends(b"SubAfter\x01request\x01A1\x0125\x01false\x01key\x012\x02")
        [('A1', 'exception after 25 ms')]
    """
    events, _ = parse_trace(body.decode("utf-8", "replace"))
    return [
        (each.msg_id, f"{_ended(each)} after {each.cost_ms} ms")
        for each in events
        if each.kind == "SubAfter"
    ]


def _ended(event: Event) -> str:
    return event.returned or ("success" if event.is_success else "failed")


def traced(spark: SparkSession, source: Source, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
    """Add to letters how their handlers ended."""
    ids = frozenset(letter.message_id for letter in letters)
    if not ids:
        return []
    wanted = Wanted(topics=[TRACE_TOPIC])
    is_store = not isinstance(source, ClientOptions)
    keys = sorted(ids) if is_store else ()
    feed = open_feed(source, wanted, columns=("body", "storeTimestamp"), keys=keys, is_sparse=True)
    found: dict[str, tuple[int, str]] = {}
    parts = feed.parts(parallelism(spark))
    for each in run_tasks(spark, parts, _Trace(feed, ids)):
        for message_id, told in each.items():
            found[message_id] = max(found.get(message_id, told), told)
    return [
        replace(letter, trace=found[letter.message_id][1]) if letter.message_id in found else letter
        for letter in letters
    ]
