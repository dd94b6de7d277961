"""``roquet bench``: how fast a cluster stores and delivers messages.

Owns the options and the report; the loads are in ``bench_load.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine

import click
from msgspec import Struct

from roquet.cli.bench_load import (
    ConsumePlan,
    Limits,
    SendPlan,
    Show,
    Tally,
    consume_load,
    send_load,
)
from roquet.cli.client import EXIT_INTERRUPTED, nearest_topic, run_client
from roquet.cli.completion import complete_group, complete_topic
from roquet.cli.connection import Connection, connection_options
from roquet.cli.output import format_bytes, json_option, plural, print_json, print_table
from roquet.cli.progress import part_bar
from roquet.client.names import check_group, check_topic

__all__ = ["BenchReport", "LatencyFacts", "bench"]

EXIT_FAILED = 1
SECONDS = 10.0
PERCENTILES = (50, 90, 99, 99.9)


class LatencyFacts(Struct, frozen=True, kw_only=True, rename="camel"):
    """Latencies in milliseconds, for programs."""

    mean: float
    p50: float
    p90: float
    p99: float
    p999: float
    max: float


class BenchReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a load, for programs.

    Attributes:
        body_bytes: The size of all bodies together.
        failed: Messages that were not stored.
        less_safe: Messages that were stored less safely than configured.
        seconds: From the first message to the last.
        latency_ms: Of send requests, or of messages from birth to handler.
    """

    topic: str
    messages: int
    body_bytes: int
    failed: int
    less_safe: int
    seconds: float
    messages_per_second: float
    bytes_per_second: float
    latency_ms: LatencyFacts | None


def report_of(topic: str, tally: Tally) -> BenchReport:
    """The result of a load."""
    latencies = tally.latencies
    facts = None
    if latencies.count:
        p50, p90, p99, p999 = (latencies.percentile_us(each) / 1_000 for each in PERCENTILES)
        facts = LatencyFacts(
            mean=round(latencies.mean_us / 1_000, 3),
            p50=p50,
            p90=p90,
            p99=p99,
            p999=p999,
            max=latencies.max_us / 1_000,
        )
    return BenchReport(
        topic=topic,
        messages=tally.messages,
        body_bytes=tally.body_bytes,
        failed=tally.failed,
        less_safe=tally.less_safe,
        seconds=round(tally.seconds, 6),
        messages_per_second=round(tally.rate, 1),
        bytes_per_second=round(tally.body_bytes / tally.seconds, 1) if tally.seconds else 0.0,
        latency_ms=facts,
    )


def _limits(count: int | None, seconds: float | None) -> Limits:
    if count is None and seconds is None:
        seconds = SECONDS
    return Limits(count=count, seconds=seconds)


def _run(
    connection: Connection,
    topic: str,
    load: Callable[[Tally, Show], Coroutine[None, None, None]],
    *,
    as_json: bool,
) -> None:
    """Run a load and print its result, also if it was interrupted."""
    tally = Tally()
    exit_code = 0
    try:
        with part_bar(topic) as show, nearest_topic(connection, connection.wrap(topic)):
            run_client(connection, lambda: load(tally, show))
    except KeyboardInterrupt:
        exit_code = EXIT_INTERRUPTED
    if tally.first_failure is not None:
        failed = plural(tally.failed, "message")
        click.echo(f"Warning: Not stored: {failed}; the first: {tally.first_failure}", err=True)
        exit_code = exit_code or EXIT_FAILED
    report = report_of(topic, tally)
    if as_json:
        print_json(report)
    else:
        _print(report)
    if exit_code:
        raise click.exceptions.Exit(exit_code)


def _print(report: BenchReport) -> None:
    per_second = f"{report.messages_per_second:,.0f}"
    rows = [
        ("messages", f"{report.messages:,}"),
        ("seconds", f"{report.seconds:.2f}"),
        ("messages/s", per_second),
        ("bytes/s", format_bytes(round(report.bytes_per_second))),
    ]
    if report.failed:
        rows.append(("not stored", f"{report.failed:,}"))
    if report.less_safe:
        rows.append(("stored less safely", f"{report.less_safe:,}"))
    latency = report.latency_ms
    if latency is not None:
        rows += [
            ("mean ms", f"{latency.mean:.2f}"),
            ("p50 ms", f"{latency.p50:.2f}"),
            ("p90 ms", f"{latency.p90:.2f}"),
            ("p99 ms", f"{latency.p99:.2f}"),
            ("p99.9 ms", f"{latency.p999:.2f}"),
            ("max ms", f"{latency.max:.2f}"),
        ]
    print_table(report.topic, ("measure", "value"), rows, numbers=("value",))


_count_option = click.option(
    "--count", type=click.IntRange(min=1), help="Stop after this many messages."
)
_seconds_option = click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop after this many seconds; 10 without --count.",
)


@click.group()
def bench() -> None:
    """Measure how fast a cluster takes and gives messages."""


@bench.command("send")
@click.argument("topic", shell_complete=complete_topic)
@connection_options
@click.option(
    "--size",
    type=click.IntRange(min=1),
    default=1024,
    show_default=True,
    help="Bytes of each body.",
)
@_count_option
@_seconds_option
@click.option(
    "--in-flight",
    type=click.IntRange(min=1, max=65_535),
    default=256,
    show_default=True,
    help="Requests in flight at once.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1, max=10_000),
    default=1,
    show_default=True,
    help="Messages in each request.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    help="At most this many messages per second.",
)
@click.option("-t", "--tag", help="The tag of each message.")
@json_option
def bench_send(
    topic: str,
    *,
    connection: Connection,
    size: int,
    count: int | None,
    seconds: float | None,
    in_flight: int,
    batch: int,
    rate: float | None,
    tag: str | None,
    as_json: bool,
) -> None:
    """Send messages to TOPIC as fast as they are acknowledged. They stay in the topic.

    \b
    roquet bench send Orders --size 200 --seconds 30
    roquet bench send Orders --count 1000000 --batch 32 --json
    """  # noqa: D301 - click keeps lines behind this mark as they are
    check_topic(topic)
    plan = SendPlan(
        topic=topic,
        size=size,
        in_flight=in_flight,
        batch=batch,
        rate=rate,
        tag=tag,
        limits=_limits(count, seconds),
    )
    options = connection.options()
    _run(
        connection,
        topic,
        lambda tally, show: send_load(options, plan, tally, show),
        as_json=as_json,
    )


@bench.command("consume")
@click.argument("topic", shell_complete=complete_topic)
@connection_options
@click.option(
    "-g",
    "--group",
    shell_complete=complete_group,
    help="Consume as this group and commit its offsets; without it, nothing is committed.",
)
@click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where to start if the group has no committed offset.",
)
@_count_option
@_seconds_option
@click.option(
    "--in-flight",
    type=click.IntRange(min=1, max=65_535),
    default=20,
    show_default=True,
    help="Concurrent handler calls.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1, max=1_024),
    default=32,
    show_default=True,
    help="Messages in each call.",
)
@json_option
def bench_consume(
    topic: str,
    *,
    connection: Connection,
    group: str | None,
    start: str,
    count: int | None,
    seconds: float | None,
    in_flight: int,
    batch: int,
    as_json: bool,
) -> None:
    """Consume messages of TOPIC as fast as they arrive. The clock starts with the first one.

    \b
    roquet bench consume Orders --count 1000000
    roquet bench consume Orders --from latest --seconds 60
    """  # noqa: D301 - click keeps lines behind this mark as they are
    check_topic(topic)
    if group is not None:
        check_group(group)
    plan = ConsumePlan(
        topic=topic,
        group=group,
        from_first=start == "earliest",
        in_flight=in_flight,
        batch=batch,
        limits=_limits(count, seconds),
    )
    options = connection.options()
    _run(
        connection,
        topic,
        lambda tally, show: consume_load(options, plan, tally, show),
        as_json=as_json,
    )
