"""Shows where messages spend their time: joins the trace topic with the messages.

The hops of a message: **send** (as the producer saw it), **wait** (from storing to the start of a
consumption) and **consume**. Times come from the clocks of several machines; a negative wait counts
as 0. With a message id or a key, it lists single events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as f

from roquet.model.topic import TRACE_TOPIC
from roquet.spark.jobs.inputs import ALL, Wanted, read_log
from roquet.spark.jobs.trace_text import Event, parse_trace
from roquet.spark.report import Cell, Report, Table, iso_time
from roquet.spark.tasks import task_count

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["trace"]

_EVENT_SCHEMA = (
    "kind string, msgId string, timeMs bigint, `group` string, topic string, requestId string,"
    " costMs bigint, isSuccess boolean, keys string, times int, returned string"
)
_TEXT, _LONG = pa.string(), pa.int64()
_EVENT_TYPES = pa.schema(
    [
        ("kind", _TEXT),
        ("msgId", _TEXT),
        ("timeMs", _LONG),
        ("group", _TEXT),
        ("topic", _TEXT),
        ("requestId", _TEXT),
        ("costMs", _LONG),
        ("isSuccess", pa.bool_()),
        ("keys", _TEXT),
        ("times", pa.int32()),
        ("returned", _TEXT),
    ]
)
_UNREADABLE = "unreadable"
"""The kind of a row that only counts what could not be parsed."""

_NO_EVENT = Event(_UNREADABLE, "", *[None] * 8)
_HOPS = ["messages", "failed", "p50 ms", "p99 ms", "max ms"]
_EVENTS_MAX = 1_000


def trace(
    spark: SparkSession,
    store: str,
    *,
    wanted: Wanted = ALL,
    trace_topic: str = TRACE_TOPIC,
    msg_id: str | None = None,
    key: str | None = None,
    is_dry_run: bool = False,
) -> Report:
    """Summarize traces, or list those of one message.

    Args:
        spark: A session that knows the sources.
        store: The store directory.
        wanted: Which messages; topics are those of the messages, not of their traces.
        trace_topic: The topic to which clients write traces.
        msg_id: Only this message, by its unique id.
        key: Only messages with this key.
        is_dry_run: Only report how many tasks would read.

    Returns:
        The tables ``Send``, ``Wait`` and ``Consume``, or ``Events`` for an id or key.
    """
    report = Report(job="trace", source=store, is_dry_run=is_dry_run)
    traces = read_log(
        spark,
        store,
        Wanted(topics=[trace_topic], from_ms=wanted.from_ms, to_ms=wanted.to_ms),
        columns=("body",),
    )
    if is_dry_run:
        report.numbers["tasks"] = task_count(traces)
        return report
    parsed = traces.mapInArrow(events_of, _EVENT_SCHEMA).cache()
    events = parsed.where(f.col("kind") != _UNREADABLE)
    if msg_id is not None:
        events = events.where(f.col("msgId") == msg_id)
    if key is not None:
        events = events.where(f.array_contains(f.split("keys", " "), key))
    try:
        report.numbers["events"] = events.count()
        unread = parsed.where(f.col("kind") == _UNREADABLE).agg(f.sum("times")).first()
        report.numbers["unreadable"] = (unread[0] if unread is not None else None) or 0
        if msg_id is not None or key is not None:
            _add_events(report, events)
        else:
            _add_hops(report, events, read_log(spark, store, wanted, columns=_MESSAGE_COLUMNS))
    finally:
        parsed.unpersist()
    return report


def events_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Parse bodies of trace messages; a last row counts what cannot be parsed."""
    bad = 0
    for batch in batches:
        rows: list[Event] = []
        for body in batch.column("body").to_pylist():
            found, unread = parse_trace((body or b"").decode("utf-8", "replace"))
            fit = [each for each in found if _fits(each)]
            rows += fit
            bad += unread + len(found) - len(fit)
        yield _batch(rows)
    if bad:
        yield _batch([_NO_EVENT._replace(times=bad)])


def _fits(event: Event) -> bool:
    """Whether the numbers of an event are within their columns."""
    longs = (event.time_ms or 0, event.cost_ms or 0)
    return all(abs(each) < 1 << 63 for each in longs) and abs(event.times or 0) < 1 << 31


def _batch(rows: Sequence[Event]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(_EVENT_TYPES)
    arrays = [
        pa.array(column, kind) for column, kind in zip(columns, _EVENT_TYPES.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_EVENT_TYPES)


_MESSAGE_COLUMNS = ("topic", "msgId", "storeTimestamp")


def _add_events(report: Report, events: DataFrame) -> None:
    rows = events.orderBy("timeMs").limit(_EVENTS_MAX).collect()
    report.add_table(
        "Events",
        ["time", "kind", "message", "group", "topic", "ms", "success", "times before"],
        [_event_cells(Event(*row)) for row in rows],
    )


def _event_cells(event: Event) -> Sequence[Cell]:
    return [
        iso_time(event.time_ms),
        event.kind,
        event.msg_id,
        event.group,
        event.topic,
        event.cost_ms,
        event.is_success,
        event.times,
    ]


def _add_hops(report: Report, events: DataFrame, messages: DataFrame) -> None:
    stored = messages.where("topic not like '\\\\%RETRY\\\\%%'").groupBy("msgId", "topic")
    stored = stored.agg(f.unix_millis(f.min("storeTimestamp")).alias("storeMs"))
    sends = events.where("kind = 'Pub'").join(stored.select("msgId"), "msgId", "left_semi")
    report.tables.append(_hop("Send", sends, ["topic"], f.col("costMs"), f.expr("not isSuccess")))
    begins = events.where("kind = 'SubBefore'").drop("topic").join(stored, "msgId")
    wait_ms = f.greatest(f.col("timeMs") - f.col("storeMs"), f.lit(0))
    by_group = ["group", "topic"]
    report.tables.append(_hop("Wait", begins, by_group, wait_ms, f.expr("false")))
    ends = (
        events.where("kind = 'SubAfter'")
        .select("requestId", "msgId", "costMs", "isSuccess")
        .join(begins.select("requestId", "msgId", "group", "topic"), ["requestId", "msgId"])
    )
    report.tables.append(_hop("Consume", ends, by_group, f.col("costMs"), f.expr("not isSuccess")))


def _hop(title: str, events: DataFrame, by: Sequence[str], value: Column, failed: Column) -> Table:
    rows = (
        events.groupBy(*by)
        .agg(
            f.count("*").alias("messages"),
            f.count_if(failed).alias("failed"),
            f.percentile_approx(value, [0.5, 0.99]).alias("parts"),
            f.max(value).alias("most"),
        )
        .orderBy(*by)
        .collect()
    )
    cells: list[list[Cell]] = [
        [*(row[name] for name in by), row["messages"], row["failed"], *row["parts"], row["most"]]
        for row in rows
    ]
    return Table(title, [*by, *_HOPS], cells)
