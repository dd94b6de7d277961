"""Dead letters: list them with their reasons, show them in full, and resend them.

:mod:`roquet.spark.jobs.dead_letters` reads them and finds the reasons.
Sending is at least once, with ids by which consumers drop repeats: see
:mod:`roquet.spark.jobs.resend`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roquet.client.options import ClientOptions
from roquet.errors import NotFound, SparkOptionError
from roquet.model import properties as prop
from roquet.model.topic import retry_topic
from roquet.spark.jobs.dead_letters import (
    DEFAULT_RETRIES,
    DLQ_PATTERN,
    LISTED,
    DeadLetter,
    DeadLetterCounts,
    DeadLetterFilter,
    DeadLetterKind,
    collect,
    in_groups,
    read_dead_letter,
    traced,
)
from roquet.spark.jobs.inputs import ALL, Wanted
from roquet.spark.jobs.message_feeds import Source, open_feed, source_name
from roquet.spark.jobs.resend import COLUMNS, Address, Row, check_rate, resend
from roquet.spark.report import Cell, Report, iso_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["list_letters", "replay_letters", "show_letters"]

TOO_MANY = "too many"

SHOWN_MAX = 100
BODY_SHOWN_BYTES = 4_096


def list_letters(
    spark: SparkSession,
    source: Source,
    *,
    wanted: Wanted = ALL,
    groups: Sequence[str] = (),
    letters_shown: int = 20,
    letters_max: int | None = None,
    default_retries: int = DEFAULT_RETRIES,
    with_traces: bool = False,
    is_dry_run: bool = False,
) -> Report:
    """List dead letters by group, topic and reason, and the newest of them one by one.

    Args:
        spark: A session.
        source: A store directory, or the connection to a cluster.
        wanted: Their original topics, and when they became dead letters.
        groups: Which groups; empty for all.
        letters_shown: How many of the newest are listed.
        letters_max: A group with more letters is a finding.
        default_retries: The retries of groups for which the source has no number.
        with_traces: Whether to search the trace topic for how handlers ended.
        is_dry_run: Only report which groups' letters would be read.

    Returns:
        The tables ``Groups`` and ``Letters``. A group with too many is a finding (``too many``).
    """
    report = Report(job="dlq list", source=source_name(source), is_dry_run=is_dry_run)
    chosen = in_groups(source, wanted, groups)
    if is_dry_run:
        report.add_table("Topics", ["topic"], [[topic] for topic in chosen.topics])
        return report
    found = collect(
        spark,
        source,
        chosen,
        columns=LISTED,
        choice=DeadLetterFilter(origins=frozenset(wanted.topics)),
        letters_max=letters_shown,
        default_retries=default_retries,
    )
    letters = traced(spark, source, found.letters) if with_traces else found.letters
    fill_report(report, found.sums, letters, letters_max=letters_max)
    return report


def fill_report(
    report: Report,
    sums: Mapping[DeadLetterKind, DeadLetterCounts],
    letters: Sequence[DeadLetter],
    *,
    letters_max: int | None,
) -> None:
    """Add letters to a report as tables and findings."""
    totals: dict[str, int] = {}
    for (group, _, _), each in sorted(sums.items()):
        totals[group] = totals.get(group, 0) + each.letters
    report.numbers |= {"groups": len(totals), "letters": sum(totals.values())}
    for group, count in totals.items():
        if letters_max is not None and count > letters_max:
            report.add_finding(TOO_MANY, group, f"{count} letters, {letters_max} are allowed")
    report.add_table(
        "Groups",
        ["group", "original topic", "reason", "letters", "tries", "first", "last"],
        [
            [
                *key[:1],
                key[1] or None,
                key[2],
                each.letters,
                _span(each.tries_min, each.tries_max),
                iso_time(each.first_ms),
                iso_time(each.last_ms),
            ]
            for key, each in sorted(sums.items())
        ],
    )
    columns = ["group", "message id", "original topic", "tries", "reason", "born", "dead since"]
    rows = [[*_cells(each), each.keys, each.tags] for each in reversed(letters)]
    columns += ["keys", "tag"]
    if any(each.trace for each in letters):
        columns.append("handler")
        rows = [[*row, each.trace] for row, each in zip(rows, reversed(letters), strict=True)]
    report.add_table("Letters", columns, rows)


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def _cells(letter: DeadLetter) -> list[Cell]:
    return [
        letter.group,
        letter.message_id,
        letter.origin_topic,
        letter.tries,
        letter.reason,
        iso_time(letter.born_ms),
        iso_time(letter.store_ms),
    ]


def show_letters(
    spark: SparkSession,
    source: Source,
    names: Sequence[str],
    *,
    wanted: Wanted = ALL,
    groups: Sequence[str] = (),
    default_retries: int = DEFAULT_RETRIES,
    with_traces: bool = False,
) -> Report:
    """Show dead letters in full.

    Args:
        spark: A session.
        source: As for :func:`list_letters`.
        names: Ids or keys; a letter must have one of them.
        wanted: As for :func:`list_letters`.
        groups: As for :func:`list_letters`.
        default_retries: As for :func:`list_letters`.
        with_traces: As for :func:`list_letters`.

    Returns:
        A table for each letter, the newest first.

    Raises:
        NotFound: No letter has any of them.
    """
    report = Report(job="dlq show", source=source_name(source))
    found = collect(
        spark,
        source,
        in_groups(source, wanted, groups),
        columns=(*LISTED, "body"),
        choice=DeadLetterFilter(frozenset(names), frozenset(wanted.topics)),
        letters_max=SHOWN_MAX,
        default_retries=default_retries,
    )
    letters = found.letters
    if not letters:
        raise NotFound(
            f"No dead letter has the id or key {', '.join(names)}.",
            hint="List them: roquet spark dlq list.",
        )
    if with_traces:
        letters = traced(spark, source, letters)
    report.numbers["letters"] = sum(each.letters for each in found.sums.values())
    for letter in reversed(letters):
        title = f"{letter.group}: {letter.message_id}"
        report.add_table(title, ["what", "value"], letter_rows(letter))
    return report


def letter_rows(letter: DeadLetter) -> list[list[Cell]]:
    """Return the rows of a letter's table."""
    body = letter.body or b""
    rows: list[list[Cell]] = [
        ["reason", letter.reason],
        ["handler", letter.trace],
        ["tries", letter.tries],
        ["original topic", letter.origin_topic],
        ["original id", letter.origin_message_id],
        ["id here", letter.offset_message_id],
        ["born", iso_time(letter.born_ms)],
        ["born at", letter.born_host],
        ["dead since", iso_time(letter.store_ms)],
    ]
    rows.extend([f"property {name}", value] for name, value in sorted(letter.properties.items()))
    rows.extend((["body bytes", len(body)], ["body", body_text(body)]))
    return [row for row in rows if row[1] is not None]


def body_text(body: bytes) -> str:
    """Format a body for display: text if it is UTF-8, otherwise hexadecimal, truncated if long.

    Example:
        >>> body_text("größer".encode()), body_text(bytes([255, 0]))
        ('größer', 'ff00')
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = body[:BODY_SHOWN_BYTES].hex()
    return text if len(text) <= BODY_SHOWN_BYTES else f"{text[:BODY_SHOWN_BYTES]}…"


# --------------------------------------------------------------------------------------- replay


@dataclass(frozen=True)
class LetterAddress:
    """Sent to executors: where a dead letter goes.

    Attributes:
        choice: Which letters to send.
        topic: The target topic; ``None`` for the one that each came from.
        to_group: Whether they go to their group alone, through its retry topic.
    """

    choice: DeadLetterFilter
    topic: str | None
    to_group: bool

    def __call__(self, row: Row) -> Address | None:
        """See :class:`roquet.spark.jobs.resend.Addresser`."""
        letter = read_dead_letter(row, {}, DEFAULT_RETRIES)
        if not self.choice.takes(letter):
            return None
        if self.to_group:
            origin = letter.origin_topic
            known = None if origin is None else {prop.RETRY_TOPIC: origin}
            return Address(retry_topic(letter.group), known)
        return Address(self.topic or letter.origin_topic)


def replay_letters(
    spark: SparkSession,
    source: Source,
    to: ClientOptions,
    *,
    wanted: Wanted = ALL,
    groups: Sequence[str] = (),
    names: Sequence[str] = (),
    to_topic: str | None = None,
    to_group: bool = False,
    rate: float | None = None,
    name: str = "dlq",
    is_dry_run: bool = False,
) -> Report:
    """Resend dead letters; they also stay where they are.

    Args:
        spark: A session.
        source: As for :func:`list_letters`.
        to: The target cluster.
        wanted: As for :func:`list_letters`.
        groups: As for :func:`list_letters`.
        names: Ids or keys of the letters; empty for all.
        to_topic: The target topic; ``None`` for the one that each came from.
        to_group: Whether they go to their own group alone instead, through its retry topic.
        rate: Messages per second, all workers together.
        name: The prefix of their ids; with another name, consumers see the letters as new.
        is_dry_run: Only report how many letters there are.

    Returns:
        The table ``Sent``, or ``Groups`` in a dry run. Letters that cannot be sent (``refused``)
        are findings.

    Raises:
        SparkOptionError: The rate or the topic is invalid, or both targets are given.
        NoRoute: There is no such topic.
    """
    check_rate(rate)
    if to_group and to_topic is not None:
        raise SparkOptionError(
            "Letters go to a topic or to their group, not to both.", hint="Set only one of them."
        )
    report = Report(job="dlq replay", source=source_name(source), is_dry_run=is_dry_run)
    chosen = in_groups(source, wanted, groups)
    choice = DeadLetterFilter(frozenset(names), frozenset(wanted.topics))
    if is_dry_run:
        found = collect(
            spark,
            source,
            chosen,
            columns=LISTED,
            choice=choice,
            letters_max=0,
            default_retries=DEFAULT_RETRIES,
        )
        fill_report(report, found.sums, (), letters_max=None)
        return report
    if isinstance(source, ClientOptions) and not chosen.topics:
        report.numbers["messages"] = 0
        return report
    columns = tuple(dict.fromkeys((*COLUMNS, *LISTED)))
    feed = open_feed(source, chosen, columns=columns, pattern=DLQ_PATTERN, is_sparse=True)
    address = LetterAddress(choice, to_topic, to_group)
    resend(spark, report, feed, address, to, name=name, to_topic=to_topic, rate=rate)
    return report
