"""The rows of the broker's benchmark: loads, measures and goals.

Owns what is measured and what must be reached. Rows whose brokers have the same settings share
brokers; a row's group only serves to choose rows. Goals are ratios to Apache RocketMQ, warm.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.report import (
    NO_GOAL,
    Better,
    Goal,
    Measure,
    Over,
    bound,
    least,
    share,
    times,
)

RATE_KEY = "msgs_per_s"
CPU_KEY = "broker_cpu_us_per_msg"
ANONYMOUS = "broker_anon_MB"
START_KEY = "start_s"

ASYNC: dict[str, str | int] = {"flushDiskType": "ASYNC_FLUSH"}
SYNC: dict[str, str | int] = {"flushDiskType": "SYNC_FLUSH"}
FAR_PERCENT = 1
"""Both brokers take messages that lie further behind than this part of memory for far."""
FAR: dict[str, str | int] = {**ASYNC, "accessMessageInMemoryMaxRatio": FAR_PERCENT}
WIDE: dict[str, str | int] = {
    **ASYNC,
    "maxTransferCountOnMessageInMemory": 256,
    "maxTransferBytesOnMessageInMemory": 1 << 20,
}
"""A pull may get 256 messages; by default upstream gives it 32 at most."""
FILTERS: dict[str, str | int] = {**ASYNC, "enablePropertyFilter": "true"}

JSON, BINARY = ("-codec", "json"), ("-codec", "binary")
SEND = ("-mode", "send", "-conns", "8", "-window", "64")
BATCH = ("-mode", "send", "-conns", "4", "-window", "16", "-batch", "32")
ALONE = ("-mode", "send", "-conns", "1", "-window", "1")
PULL = ("-mode", "pull", "-queues", "4", "-pull-max", "32")
PULL_256 = ("-mode", "pull", "-queues", "4", "-pull-max", "256")
FAN_OUT = ("-mode", "both", "-conns", "4", "-window", "64", "-groups", "10")
MIXED = ("-mode", "both", "-conns", "8", "-rate", "20000", "-groups", "1")
CROWD = ("-mode", "send", "-conns", "1000", "-rate", "20000")

HIT_EVERY = 100
# 800 messages go round, so that exactly one in a hundred is a hit.
HITS = ("-mode", "send", "-conns", "4", "-window", "25", "-batch", "32",
        "-hit-every", str(HIT_EVERY))  # fmt: skip
PLAIN_PROPERTIES = "UNIQ_KEY\x017F0000010001DEADBEEF00000000\x02WAIT\x01true\x02"
TAG_HITS = (*HITS, "-hit-props", f"TAGS\x01Hit\x02{PLAIN_PROPERTIES}")
SQL_HITS = (
    *HITS,
    *("-props", f"TAGS\x01TagA\x02price\x0150\x02{PLAIN_PROPERTIES}"),
    *("-hit-props", f"TAGS\x01TagA\x02price\x0199\x02{PLAIN_PROPERTIES}"),
)


def rate(goal: Goal = NO_GOAL, title: str = "messages/s") -> Measure:
    """Messages per second."""
    return Measure(RATE_KEY, title, Better.MORE, goal)


def cpu(goal: Goal = NO_GOAL) -> Measure:
    """User and system CPU time of the broker's process for one message."""
    return Measure(CPU_KEY, "broker CPU us/message", Better.LESS, goal, digits=1)


def latency(percentile: str, goal: Goal = NO_GOAL) -> Measure:
    """Time from request, or from when it was due, to response: p50, p99, p999 or max."""
    title = {"p999": "p99.9"}.get(percentile, percentile)
    return Measure(f"{percentile}_us", f"{title} us", Better.LESS, goal)


REFUSED = Measure("failed", "refused", Better.LESS, bound(0), over=Over.SUM)
MEMORY = Measure(
    ANONYMOUS, "anonymous MB at most", Better.LESS, bound(100, share(1 / 20)), over=Over.PEAK
)
START = Measure(START_KEY, "s until a message is stored", Better.LESS, digits=2)


@dataclass(frozen=True)
class Row:
    """One kind of work.

    Attributes:
        name: What ``--only`` takes.
        group: Which rows are chosen together; ``--only`` takes it too.
        work: What the table calls it.
        measures: What is taken from it.
        arguments: The load, as arguments of the load generator; empty for a scenario, which is
            more than a load (:mod:`benchmarks.scenarios`).
        settings: Those of the brokers.
        stored: The load that stores the messages which the row reads; empty if it reads none.
        has_limit: Whether the loop in C does the same work (``limits/limits.c``).
        is_long: Measured in the first round only.
    """

    name: str
    group: str
    work: str
    measures: tuple[Measure, ...]
    arguments: tuple[str, ...] = ()
    settings: dict[str, str | int] = field(default_factory=lambda: ASYNC)
    stored: tuple[str, ...] = ()
    has_limit: bool = False
    is_long: bool = False


def send_measures(
    times_more: float, cpu_share: float, *others: Measure, p99: Goal = NO_GOAL
) -> tuple[Measure, ...]:
    """Those of a row that sends."""
    return (
        rate(times(times_more)),
        cpu(share(cpu_share)),
        latency("p99", p99),
        *others,
        REFUSED,
        MEMORY,
    )


def pull_measures(times_more: float, cpu_share: float, title: str) -> tuple[Measure, ...]:
    """Those of a row that reads."""
    measures = (rate(times(times_more), title), cpu(share(cpu_share)), latency("p99"))
    return (*measures, REFUSED, MEMORY)


def open_measures(tail: Goal, cpu_goal: Goal) -> tuple[Measure, ...]:
    """Those of a row that sends on schedule."""
    return (
        cpu(cpu_goal),
        latency("p50"),
        latency("p99", tail),
        latency("p999", tail),
        latency("max"),
        REFUSED,
        MEMORY,
    )


PLAIN_SEND = send_measures(6, 0.08, p99=share(0.2))
BATCHES = send_measures(3, 0.2)
SYNC_SEND = send_measures(5, 0.12)
ANY_BODY = (rate(), cpu(), latency("p99"), latency("p999"), REFUSED, MEMORY)
ONE_AT_A_TIME = (latency("p50", share(0.4)), cpu(share(0.2)), latency("p99"), REFUSED, MEMORY)
NEAR = pull_measures(2.5, 0.3, "messages/s")
SCANNED = (rate(title="messages/s gone through"), cpu(), latency("p99"), REFUSED, MEMORY)
DELIVERED = (rate(times(3), "deliveries/s"), cpu(share(0.3)), latency("p99"), REFUSED, MEMORY)
COLD = (rate(times(2)), cpu(), Measure("MB_per_s", "MB/s", Better.MORE))
ALL_TOPICS = (START, rate(), cpu(), REFUSED, MEMORY)


def body(size: str) -> tuple[str, ...]:
    """Large bodies have fewer requests in flight."""
    flights = {"100": (8, 64), "16384": (8, 64), "102400": (8, 8), "4194304": (4, 2)}
    conns, window = flights[size]
    return ("-mode", "send", "-conns", str(conns), "-window", str(window), "-size", size)


def open_loop(a_second: int) -> tuple[str, ...]:
    """A load on schedule."""
    return ("-mode", "send", "-conns", "8", "-rate", str(a_second))


LOADS = (
    Row("pull-json", "pulls", "pull near, 32", NEAR, (*PULL, *JSON), stored=BATCH),
    Row("pull-binary", "pulls", "pull near, 32, binary", NEAR, (*PULL, *BINARY), stored=BATCH,
        has_limit=True),
    Row("pull-256", "pulls", "pull near, 256", NEAR, (*PULL_256, *JSON), WIDE, stored=BATCH),
    Row("alone-json", "alone", "one at a time", ONE_AT_A_TIME, (*ALONE, *JSON),
        has_limit=True),
    Row("alone-binary", "alone", "one at a time, binary", ONE_AT_A_TIME, (*ALONE, *BINARY)),
    Row("open-1k", "latency", "1,000 a second", open_measures(NO_GOAL, NO_GOAL), open_loop(1_000),
        has_limit=True),
    Row("open-10k", "latency", "10,000 a second", open_measures(share(0.5), share(0.3)),
        open_loop(10_000),
        has_limit=True),
    Row("open-30k", "latency", "30,000 a second", open_measures(share(0.25), share(0.3)),
        open_loop(30_000),
        has_limit=True),
    Row("connections", "crowds", "1,000 connections, 20/s each",
        open_measures(NO_GOAL, NO_GOAL), CROWD),
    Row("fan-out", "crowds", "fan-out to 10 groups", DELIVERED, FAN_OUT),
    Row("send-json", "sends", "send", PLAIN_SEND, (*SEND, *JSON)),
    Row("send-binary", "sends", "send, binary", PLAIN_SEND, (*SEND, *BINARY), has_limit=True),
    Row("batch-json", "sends", "batches of 32", BATCHES, (*BATCH, *JSON)),
    Row("batch-binary", "sends", "batches of 32, binary", BATCHES, (*BATCH, *BINARY),
        has_limit=True),
    Row("body-100", "bodies", "send 100 B",
        send_measures(5, 0.08, latency("p999", share(1))), body("100"),
        has_limit=True),
    Row("body-16k", "bodies", "send 16 KiB",
        send_measures(2, 0.25, latency("p999", share(1))), body("16384"),
        has_limit=True),
    Row("body-100k", "bodies", "send 100 KiB", ANY_BODY, body("102400"),
        has_limit=True),
    Row("body-4m", "bodies", "send 4 MiB", ANY_BODY, body("4194304")),
    Row("mixed", "mixed", "20,000 a second sent and pulled", open_measures(NO_GOAL, NO_GOAL),
        MIXED, is_long=True),
    Row("sync-alone", "alone", "one at a time, SYNC_FLUSH", ONE_AT_A_TIME, (*ALONE, *JSON), SYNC,
        has_limit=True),
    Row("sync-json", "sends", "SYNC_FLUSH", SYNC_SEND, (*SEND, *JSON), SYNC),
    Row("sync-binary", "sends", "SYNC_FLUSH, binary", SYNC_SEND, (*SEND, *BINARY), SYNC,
        has_limit=True),
    Row("pull-far", "pulls", "pull far, resident", pull_measures(4, 0.25, "messages/s"),
        (*PULL, *JSON), FAR, stored=BATCH),
    Row("filter-tag", "filters", "tag filter, 1 %", SCANNED,
        (*PULL, *JSON, "-filter", "Hit"), FILTERS, stored=TAG_HITS),
    Row("filter-sql", "filters", "SQL92 filter, 1 %", SCANNED,
        (*PULL, *JSON, "-filter", "price > 98", "-filter-type", "SQL92"), FILTERS,
        stored=SQL_HITS),
)  # fmt: skip
"""Pulls come first: later the rest of the log would count as far. What writes most comes last."""

PULL_COLD, TOPICS, RESTART, FRESH = "pull-cold", "topics", "restart", "start"
SCENARIOS = (
    Row(FRESH, "starts", "start from nothing", (
        Measure(START_KEY, START.title, Better.LESS, bound(0.5), digits=2),)),
    Row(PULL_COLD, "pulls", "pull cold", COLD),
    Row(TOPICS, "crowds", "10,000 topics of 8 queues", ALL_TOPICS, is_long=True),
    Row(RESTART, "starts", "restart after kill -9", (START,), is_long=True),
)  # fmt: skip
ROWS = (*LOADS, *SCENARIOS)

NEAR_SHARE = least(0.7)
"""The part of our own rate near the end that a far pull must reach."""
DD_SHARE = least(0.8)
"""The part of the speed of ``dd`` that a cold pull must reach."""
TOPICS_SHARE = least(0.75)
"""The part of our own rate that is left with many topics and idle connections."""

OTHER_GOALS = {("pull-256", CPU_KEY, "Kafka"): share(1)}
"""Goals beside further peers, by row, measure and peer."""

ROW_NAMES = tuple(row.name for row in ROWS)
GROUP_NAMES = tuple(dict.fromkeys(row.group for row in ROWS))


def chosen(names: Iterable[str] | None) -> list[Row]:
    """The rows with these names or of these groups; all of them without a name.

    Example:
        >>> [row.name for row in chosen(["starts", "sync-json"])]
        ['sync-json', 'start', 'restart']
    """
    wanted = set(names or ROW_NAMES)
    return [row for row in ROWS if wanted & {row.name, row.group}]
