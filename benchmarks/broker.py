"""Speed of the broker against Apache RocketMQ 5.4.0, both sides in the same run.

Run with ``make bench`` or ``python -m benchmarks.broker``. Every row starts one side, measures,
stops it, then does the same with the other; that is a round. Of several rounds the best of each
side counts, the one least disturbed by others on the machine. Absolute numbers differ from machine
to machine and from minute to minute; the ratios are what the goals are about.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.load import (
    BenchmarkError,
    Result,
    build_loadgen,
    fill_queues,
    idle_connections,
    run_loadgen,
)
from benchmarks.memory import Ballast
from benchmarks.report import Better, Goal, Kind, Line, Measure, show
from benchmarks.sides import JavaSide, RoquetSide, Running, Settings, Side
from roquet.runtime.memory import physical_memory_bytes
from tests.interop.javabroker import write_topics
from tests.interop.process import ProcessError

ASYNC = "ASYNC_FLUSH"
SYNC = "SYNC_FLUSH"
PULL_TOPIC = "LoadGenPull"

MANY_TOPICS = 5_000
MANY_QUEUES = 4
MANY_CONNECTIONS = 2_000

SEND = ("-mode", "send", "-conns", "8", "-window", "64")
BATCH = ("-mode", "send", "-conns", "4", "-window", "16", "-batch", "32")
ALONE = ("-mode", "send", "-conns", "1", "-window", "1")
PULL = ("-mode", "pull", "-queues", "4", "-pull-max", "32", "-topic", PULL_TOPIC)


def times(number: float) -> Goal:
    """At least so many times the other side."""
    return Goal(Kind.TIMES, number)


def share(number: float) -> Goal:
    """At most this part of the other side: 8 is an eighth."""
    return Goal(Kind.SHARE, number)


def bound(number: float) -> Goal:
    """At most this, whatever the other side does."""
    return Goal(Kind.BOUND, number)


def rate(goal: Goal) -> Measure:
    """Messages a second."""
    return Measure("msgs_per_s", "messages/s", Better.MORE, goal)


def cpu(goal: Goal) -> Measure:
    """CPU time of the broker for one message."""
    return Measure("broker_cpu_us_per_msg", "broker CPU us/message", Better.LESS, goal, digits=1)


def latency(percentile: str, goal: Goal = Goal()) -> Measure:  # noqa: B008  frozen
    """Time from request to answer."""
    return Measure(f"{percentile}_us", f"{percentile} us", Better.LESS, goal)


REFUSED = Measure("failed", "refused", Better.LESS, bound(0))
SEND_MEASURES = (rate(times(5)), cpu(share(8)), latency("p99", share(3)), REFUSED)
SYNC_MEASURES = (rate(times(4)), cpu(Goal()), latency("p99"), REFUSED)
BATCH_MEASURES = (rate(times(3)), cpu(share(4)), latency("p99"), REFUSED)
ALONE_MEASURES = (latency("p50", share(2)), latency("p99"), REFUSED)
PULL_MEASURES = (rate(times(2)), cpu(share(3)), latency("p99"))
PURE_MEASURES = (rate(times(1.3)), cpu(Goal()), latency("p99"), REFUSED)


@dataclass(frozen=True)
class Row:
    """One load.

    Attributes:
        name: What ``--only`` takes.
        group: Which rows may share a broker.
        arguments: The load, in the load generator's words.
        measures: What is taken from it.
    """

    name: str
    group: str
    arguments: tuple[str, ...]
    measures: tuple[Measure, ...]


JSON, BINARY = ("-codec", "json"), ("-codec", "binary")

# Pulls come first: later the rest of the log would count as cold for a broker that judges by
# distance from its end. Batches, which write most, come last.
ROWS = (
    Row("pull-json", ASYNC, (*PULL, *JSON), PULL_MEASURES),
    Row("pull-binary", ASYNC, (*PULL, *BINARY), PULL_MEASURES),
    Row("alone-json", ASYNC, (*ALONE, *JSON), ALONE_MEASURES),
    Row("alone-binary", ASYNC, (*ALONE, *BINARY), ALONE_MEASURES),
    Row("send-json", ASYNC, (*SEND, *JSON), SEND_MEASURES),
    Row("send-binary", ASYNC, (*SEND, *BINARY), SEND_MEASURES),
    Row("batch-json", ASYNC, (*BATCH, *JSON), BATCH_MEASURES),
    Row("batch-binary", ASYNC, (*BATCH, *BINARY), BATCH_MEASURES),
    Row("sync-json", SYNC, (*SEND, *JSON), SYNC_MEASURES),
    Row("sync-binary", SYNC, (*SEND, *BINARY), SYNC_MEASURES),
    Row("pure-json", "pure", (*SEND, *JSON), PURE_MEASURES),
)
# Rows that are no load of their own.
MEMORY, START, MANY = "memory", "start", "many"
ROW_NAMES = (*(row.name for row in ROWS), MEMORY, START, MANY)

MEMORY_GOAL = bound(150)
START_GOAL = bound(1)
MANY_START_GOAL = bound(5)
MANY_MEMORY_GOAL = bound(400)
MANY_RATE_SHARE = 0.75

ANONYMOUS = "broker_anon_MB"

# What is pulled stays in memory, and lasts for the measured time.
PULL_RATE_MAX = 700_000
WARM_S = 2.0
PULL_WARM_S = 0.5
PULL_PART_READ = 0.8
PULL_MEMORY_SHARE = 0.1
RECORD_BYTES = 1_300
FILL_LOADS_MAX = 20


@dataclass
class Numbers:
    """What all rounds saw, by side and row."""

    results: dict[tuple[str, str], list[Result]] = field(
        default_factory=lambda: defaultdict(list[Result])
    )
    starts_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list[float]))
    many: list[dict[str, float]] = field(default_factory=list)

    def best(self, side: str, row: str, measure: Measure) -> float | None:
        """The number that counts; refusals of all rounds count together."""
        results = self.results.get((side, row), [])
        values = [each.values[measure.key] for each in results if measure.key in each.values]
        if not values:
            return None
        return sum(values) if measure is REFUSED else measure.better.best(values)

    def anonymous_mb(self, side: str) -> float | None:
        """The most anonymous memory under any load, the pure lane's left out."""
        values = [
            each.values.get(ANONYMOUS, 0.0)
            for (name, row), results in self.results.items()
            for each in results
            if name == side and not row.startswith("pure")
        ]
        return max(values) if values else None


class Bench:
    """One run of the benchmark.

    Args:
        base: A folder for everything.
        wanted: The rows to measure.
        seconds: How long each load is measured.
        hot_s: How long a broker is under load before rows are measured that share it; with 0 each
            row has a broker of its own.
        java: The other side; ``None`` measures Roquet alone.
        ballast: What fills free memory before each load; ``None`` leaves it as it is.
    """

    def __init__(
        self,
        base: Path,
        wanted: Sequence[str],
        *,
        seconds: float,
        hot_s: float,
        java: Side | None,
        ballast: Ballast | None = None,
    ) -> None:
        self.numbers = Numbers()
        self._base = base
        self._wanted = wanted
        self._seconds = seconds
        self._hot_s = hot_s
        self._java = java
        self._ballast = ballast
        self._program = build_loadgen(base)

    def round(self) -> None:
        """Measure every wanted row once on each side."""
        for group in (ASYNC, SYNC, "pure"):
            rows = [row for row in ROWS if row.group == group and row.name in self._wanted]
            starts_wanted = group == ASYNC and {START, MEMORY} & set(self._wanted)
            if group == ASYNC and MEMORY in self._wanted and not rows:
                rows = [row for row in ROWS if row.name == "send-json"]
            if not rows and not starts_wanted:
                continue
            ours = RoquetSide(pure=group == "pure")
            sides = [ours] if self._java is None else [self._java, ours]
            for part in [[row] for row in rows] if rows and not self._hot_s else [rows]:
                for side in sides:
                    self._measure_group(side, group, part)
        if MANY in self._wanted:
            self._measure_many()

    def _measure_group(self, side: Side, group: str, rows: Sequence[Row]) -> None:
        kind = SYNC if group == SYNC else ASYNC
        with self._running(side, {"flushDiskType": kind}) as running:
            name = "java" if side is self._java else "roquet"
            if group != "pure":
                self.numbers.starts_s[name].append(running.start_s)
            say(f"{side.name}: first message after {running.start_s:.2f} s")
            if self._hot_s:
                self._load(running, SEND, self._hot_s)
            stored = 0.0
            for row in rows:
                if row.measures is PULL_MEASURES:
                    stored = stored or self._fill(running)
                    result = self._pull(running, row, stored)
                else:
                    result = self._load(running, row.arguments, self._seconds)
                self.numbers.results[name, row.name].append(result)
                say(f"{side.name}: {row.name} {describe(result)}")

    def _fill(self, running: Running) -> float:
        """Store what the pulls read; gives how many messages that are."""
        wanted = min(
            PULL_RATE_MAX * (self._seconds + PULL_WARM_S),
            physical_memory_bytes() * PULL_MEMORY_SHARE / RECORD_BYTES,
        )
        stored = 0.0
        for _ in range(FILL_LOADS_MAX):
            result = self._load(running, (*BATCH, "-topic", PULL_TOPIC), 1, warm=0)
            stored += result.values["msgs_per_s"]
            if stored >= wanted:
                break
        return stored

    def _pull(self, running: Running, row: Row, stored: float) -> Result:
        """Pull for as long as no reader comes to the end, where it would have to wait."""
        probe = self._load(running, row.arguments, PULL_WARM_S, warm=PULL_WARM_S)
        rate_seen = max(probe.values["msgs_per_s"], 1.0)
        seconds = min(self._seconds, PULL_PART_READ * stored / rate_seen - PULL_WARM_S)
        return self._load(running, row.arguments, max(seconds, PULL_WARM_S), warm=PULL_WARM_S)

    def _measure_many(self) -> None:
        """Many topics and idle connections, against the same load without them."""
        side = RoquetSide()
        topics = [f"Many{number:05}" for number in range(MANY_TOPICS)]
        settings: Settings = {"flushDiskType": ASYNC}
        with self._running(side, settings) as running:
            self._load(running, SEND, self._hot_s or WARM_S)
            small = self._load(running, SEND, self._seconds)
        say(f"{side.name}: alone {describe(small)}")
        with self._folder() as folder:
            write_topics(folder / "store", dict.fromkeys(topics, MANY_QUEUES))
            with stopping(side.start(folder, settings)) as running:
                count = fill_queues(running.address, topics, queues=MANY_QUEUES)
            say(f"{side.name}: {count:,} queues with a message each; starting again")
            with stopping(side.start(folder, settings)) as running:
                say(f"{side.name}: first message after {running.start_s:.2f} s")
                with idle_connections(running.address, MANY_CONNECTIONS):
                    self._load(running, SEND, self._hot_s or WARM_S)
                    large = self._load(running, SEND, self._seconds)
                say(f"{side.name}: with them {describe(large)}")
                self.numbers.many.append(
                    {
                        "start_s": running.start_s,
                        ANONYMOUS: large.values[ANONYMOUS],
                        "small": small.values["msgs_per_s"],
                        "large": large.values["msgs_per_s"],
                    }
                )

    def _load(
        self,
        running: Running,
        arguments: Sequence[str],
        seconds: float,
        *,
        warm: float = WARM_S,
    ) -> Result:
        os.sync()  # what the load before left to write must not slow this one down
        if self._ballast is not None:
            self._ballast.fill()
        return run_loadgen(
            self._program,
            running.address,
            running.pid,
            arguments,
            seconds=seconds,
            warm=warm,
        )

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        folder = Path(tempfile.mkdtemp(dir=self._base))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def _running(self, side: Side, settings: Settings) -> Iterator[Running]:
        with self._folder() as folder, stopping(side.start(folder, settings)) as running:
            yield running


@contextmanager
def stopping(running: Running) -> Iterator[Running]:
    """End a side cleanly, or at once when something went wrong."""
    try:
        yield running
        running.stop()
    except BaseException:
        running.kill()
        raise


def say(text: str) -> None:
    """Show that something happens; results go to standard output, this does not."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def describe(result: Result) -> str:
    """One result in a few words."""
    values = result.values
    words = [
        f"{values['msgs_per_s']:,.0f} messages/s",
        f"{values.get('broker_cpu_us_per_msg', 0):.1f} us CPU",
        f"p50 {values.get('p50_us', -1):,.0f} us",
        f"p99 {values.get('p99_us', -1):,.0f} us",
        f"{values.get(ANONYMOUS, 0):,.0f} MB",
    ]
    if values["failed"]:
        words.append(f"{values['failed']:,.0f} refused, {result.first_failure}")
    return ", ".join(words)


def make_lines(numbers: Numbers, wanted: Sequence[str]) -> list[Line]:
    """The table, in the order of the rows."""
    lines = [
        Line(
            row.name,
            measure.title,
            numbers.best("java", row.name, measure),
            numbers.best("roquet", row.name, measure),
            measure.goal,
            measure.digits,
        )
        for row in ROWS
        if row.name in wanted
        for measure in row.measures
    ]
    if MEMORY in wanted:
        java, roquet = numbers.anonymous_mb("java"), numbers.anonymous_mb("roquet")
        lines.append(Line(MEMORY, "anonymous MB under load", java, roquet, MEMORY_GOAL))
    if START in wanted:
        best = {side: min(values) for side, values in numbers.starts_s.items()}
        title = "s until a message is stored"
        lines.append(Line(START, title, best.get("java"), best.get("roquet"), START_GOAL, 2))
    if numbers.many:
        start_s = min(each["start_s"] for each in numbers.many)
        memory = max(each[ANONYMOUS] for each in numbers.many)
        small = max(each["small"] for each in numbers.many)
        large = max(each["large"] for each in numbers.many)
        slowdown = bound(round(1 / MANY_RATE_SHARE, 2))
        lines += [
            Line(MANY, "s until a message is stored", None, start_s, MANY_START_GOAL, 2),
            Line(MANY, "anonymous MB under load", None, memory, MANY_MEMORY_GOAL),
            Line(MANY, "messages/s without them", None, small, Goal()),
            Line(MANY, "messages/s with them", None, large, Goal()),
            Line(MANY, "times slower with them", None, small / large, slowdown, 2),
        ]
    return lines


def allow_descriptors(count: int) -> None:
    """Let this process, and those it starts, have many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=ROW_NAMES, action="append", metavar="ROW",
                        help=f"one of {', '.join(ROW_NAMES)}; may be repeated")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="measured time of each load")
    parser.add_argument("--hot", type=float, default=0, metavar="SECONDS",
                        help="rows share a broker that was under load so long before")  # fmt: skip
    parser.add_argument("--skip-java", action="store_true", help="measure Roquet alone")
    parser.add_argument("--cold", action="store_true", help="leave free memory as it is")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    parser.add_argument("--dir", type=Path, default=None, help="where to put the files")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the rows that were asked for and print them."""
    options = parse(arguments)
    wanted: Sequence[str] = options.only or ROW_NAMES
    base = Path(tempfile.mkdtemp(prefix="roquet-bench-", dir=options.dir))
    allow_descriptors(4 * MANY_CONNECTIONS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and so clean up
    stack = ExitStack()
    try:
        java = None if options.skip_java or set(wanted) == {MANY} else JavaSide()
        ballast = None if options.cold else stack.enter_context(Ballast(base))
        bench = Bench(
            base, wanted, seconds=options.seconds, hot_s=options.hot, java=java, ballast=ballast
        )
        for number in range(1, options.rounds + 1):
            say(f"round {number} of {options.rounds}")
            bench.round()
    except (BenchmarkError, ProcessError) as error:
        say(f"error: {error}")
        return 2
    finally:
        stack.close()
        shutil.rmtree(base, ignore_errors=True)
    lines = make_lines(bench.numbers, wanted)
    facts: dict[str, object] = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "brokers": f"after {options.hot:g} s of load" if options.hot else "fresh",
        "memory": "cold" if options.cold else "filled",
        "java_heap_mb": None if java is None else java.heap_mb,
    }
    return show(lines, facts, as_json=options.json, is_checked=options.check)


if __name__ == "__main__":
    sys.exit(main())
