"""Speed of the Python client against Apache RocketMQ's Java client, in the same run.

Run with ``make bench`` or ``python -m benchmarks.client``. Both clients talk to the same Roquet
broker, in turn; each is a process of its own. Of several rounds the median of each side counts. One
process that sends and consumes many messages shows whether its memory stays constant.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.load import RUN_MARGIN_S, BenchmarkError, build_loadgen, run_loadgen
from benchmarks.memory import Ballast
from benchmarks.progress import say
from benchmarks.report import Better, Line, Measure, bound, least, show, times
from benchmarks.rows import ASYNC, BATCH, REFUSED, latency, rate
from benchmarks.sides import RoquetSide, Running, stopping
from tests.interop import javabuild
from tests.interop.javabroker import write_topics
from tests.interop.process import ProcessError

SEND_TOPIC, PUSH_TOPIC, MEMORY_TOPIC = "ClientSend", "ClientPush", "ClientMemory"
QUEUES = 8
PUSH_QUEUES = 4

JAVA_PROJECT = Path(__file__).parent / "javaclient"
JAVA_MAIN = "roquet.bench.Sends"
JAVA_OPTIONS = ("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC")
JAVA_THREADS = 64
IN_FLIGHT = 256
BODY_BYTES = 1024

PUSH_RATE_MAX = 300_000
PUSH_WARM_S = 1
FILL_LOADS_MAX = 30
MESSAGES_A_SECOND_MIN = 2_000
GROWTH_MB_MAX = 8


CPU = Measure("client_cpu_us_per_msg", "client CPU us/message", Better.LESS, digits=1)
ALONE_RATE = Measure("msgs_per_s", "messages/s of one process", Better.MORE, least(25_000))
PUSH_RATE = Measure("msgs_per_s", "messages/s", Better.MORE, least(100_000))


@dataclass(frozen=True)
class Row:
    """One load of a client.

    Attributes:
        name: What ``--only`` takes.
        arguments: The load of :mod:`benchmarks.client_load`.
        measures: What is taken from it.
        has_java: Whether the Java client does the same.
    """

    name: str
    arguments: tuple[str, ...]
    measures: tuple[Measure, ...]
    has_java: bool = False


IN_FLIGHT_ARGUMENTS = ("--in-flight", str(IN_FLIGHT), "--size", str(BODY_BYTES))
SEND_MEASURES = (rate(times(3)), ALONE_RATE, CPU, latency("p50"), latency("p99"), REFUSED)
ROWS = (
    Row(
        "send",
        ("send", "--topic", SEND_TOPIC, *IN_FLIGHT_ARGUMENTS),
        SEND_MEASURES,
        has_java=True,
    ),
    Row(
        "linger",
        ("send", "--topic", SEND_TOPIC, "--linger-ms", "1", *IN_FLIGHT_ARGUMENTS),
        (rate(), CPU, latency("p50"), latency("p99"), REFUSED),
    ),
    Row("push", ("consume", "--topic", PUSH_TOPIC), (PUSH_RATE, CPU)),
    Row("push-batch", ("consume", "--topic", PUSH_TOPIC, "--batches"), (PUSH_RATE, CPU)),
)
MEMORY = "memory"
ROW_NAMES = (*(row.name for row in ROWS), MEMORY)


@dataclass
class Numbers:
    """The results of all rounds, by side and row.

    Attributes:
        results: The output of the loads.
        anonymous_mb: Memory of the process that sent and consumed, one sample after the other.
        messages_a_second: How fast that was.
    """

    results: dict[tuple[str, str], list[dict[str, float]]] = field(
        default_factory=lambda: defaultdict(list[dict[str, float]])
    )
    anonymous_mb: list[float] = field(default_factory=list)
    messages_a_second: float = 0

    def of(self, side: str, row: str, measure: Measure) -> float | None:
        """The number that counts."""
        return measure.of(self.results.get((side, row), []))


class Bench:
    """One run.

    Args:
        base: A folder for everything.
        options: How much, how long, how often.
        ballast: Fills free memory before each load; ``None`` leaves it as it is.
    """

    def __init__(self, base: Path, options: argparse.Namespace, ballast: Ballast | None) -> None:
        self.numbers = Numbers()
        self._base = base
        self._options = options
        self._ballast = ballast
        self._wanted: Sequence[str] = options.only or ROW_NAMES
        self._groups = 0
        self._java: javabuild.JavaToolkit | None = None
        if not options.skip_java and any(row.has_java for row in self._rows()):
            try:
                self._java = javabuild.build(JAVA_PROJECT)
            except (javabuild.OracleMissingError, javabuild.OracleBuildError) as error:
                raise BenchmarkError(
                    f"the Java client cannot be run: {error}\n--skip-java measures Roquet alone."
                ) from error

    def _rows(self) -> list[Row]:
        return [row for row in ROWS if row.name in self._wanted]

    def run(self) -> None:
        """Measure the wanted rows."""
        if self._rows():
            with self._broker() as running:
                if any(row.arguments[0] == "consume" for row in self._rows()):
                    self._fill(running)
                for number in range(1, self._options.rounds + 1):
                    say(f"round {number} of {self._options.rounds}")
                    self._round(running)
        if MEMORY in self._wanted:
            with self._broker() as running:
                self._measure_memory(running)

    def _round(self, running: Running) -> None:
        for row in self._rows():
            if row.has_java and self._java is not None:
                self._note("java", row, self._run_java(self._java, running))
            self._note("roquet", row, self._run_client(running, row))

    def _note(self, side: str, row: Row, values: dict[str, float]) -> None:
        self.numbers.results[side, row.name].append(values)
        say(
            f"{side}: {row.name} {values['msgs_per_s']:,.0f} messages/s, "
            f"{values['client_cpu_us_per_msg']:.1f} us CPU, {values['failed']:.0f} refused"
        )

    # ----------------------------------------------------------------------------- one load each

    def _run_java(self, toolkit: javabuild.JavaToolkit, running: Running) -> dict[str, float]:
        options = self._options
        home = self._base / "java"
        home.mkdir(exist_ok=True)
        loads = (running.namesrv_address, SEND_TOPIC, JAVA_THREADS, BODY_BYTES)
        return self._run(
            [
                *(toolkit.java, *JAVA_OPTIONS, f"-Duser.home={home}", "-cp", toolkit.classpath),
                *(JAVA_MAIN, *map(str, loads), str(options.java_warm), str(options.seconds)),
            ],
            options.java_warm + options.seconds,
        )

    def _run_client(self, running: Running, row: Row) -> dict[str, float]:
        options = self._options
        self._groups += 1
        warm = options.warm
        if row.arguments[0] == "consume":
            warm = min(warm, PUSH_WARM_S)
        times_s = ("--warm", str(warm), "--seconds", str(options.seconds))
        names = ("--namesrv", running.namesrv_address, "--group", f"bench_{self._groups}")
        return self._run(
            [sys.executable, "-m", "benchmarks.client_load", *row.arguments, *names, *times_s],
            options.warm + options.seconds,
        )

    def _run(self, command: Sequence[str], seconds: float) -> dict[str, float]:
        self._settle()
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + RUN_MARGIN_S, check=False
        )
        if done.returncode != 0:
            raise BenchmarkError(f"{' '.join(command[-20:])} failed:\n{done.stderr[-2000:]}")
        values = json.loads(done.stdout)
        self._anonymous_kb: list[int] = values.pop("anon_kb", [])
        return {name: float(value) for name, value in values.items()}

    def _fill(self, running: Running) -> None:
        """Store the messages for all rounds; each group starts with the first message."""
        program = build_loadgen(self._base)
        wanted = PUSH_RATE_MAX * (self._options.seconds + PUSH_WARM_S)
        stored = 0.0
        arguments = (*BATCH, "-topic", PUSH_TOPIC, "-queues", str(PUSH_QUEUES))
        for _ in range(FILL_LOADS_MAX):
            result = run_loadgen(
                program, running.address, running.pid, arguments, seconds=1, warm=0
            )
            stored += result.values["msgs_per_s"]
            if stored >= wanted:
                break
        say(f"{stored:,.0f} messages to consume")

    def _measure_memory(self, running: Running) -> None:
        count = self._options.messages
        say(f"{count:,} messages sent and consumed by one process")
        values = self._run(
            [
                *(sys.executable, "-m", "benchmarks.client_load", "both"),
                *("--topic", MEMORY_TOPIC, "--count", str(count), *IN_FLIGHT_ARGUMENTS),
                *("--namesrv", running.namesrv_address),
            ],
            count / MESSAGES_A_SECOND_MIN,
        )
        self.numbers.anonymous_mb = [each / 1024 for each in self._anonymous_kb]
        self.numbers.messages_a_second = values["msgs_per_s"]

    def _settle(self) -> None:
        os.sync()
        if self._ballast is not None:
            self._ballast.fill()

    @contextmanager
    def _broker(self) -> Iterator[Running]:
        folder = Path(tempfile.mkdtemp(dir=self._base))
        try:
            topics = {SEND_TOPIC: QUEUES, MEMORY_TOPIC: QUEUES, PUSH_TOPIC: PUSH_QUEUES}
            write_topics(folder / "store", topics)
            with stopping(RoquetSide().start(folder, ASYNC)) as running:
                yield running
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def growth_mb(samples: Sequence[float]) -> float:
    """How much more memory the last fifth of the time took than the second fifth.

    The first fifth is skipped: caches fill, and the allocator gets its first arenas.

    Example:
        >>> growth_mb([1, 9, 20, 20, 20, 20, 20, 21, 22, 22])
        2.0
    """
    fifth = max(len(samples) // 5, 1)
    return statistics.median(samples[-fifth:]) - statistics.median(samples[fifth : 2 * fifth])


def make_lines(numbers: Numbers) -> list[Line]:
    """The table, in the order of the rows."""
    lines = [
        Line(
            row.name,
            measure.title,
            numbers.of("java", row.name, measure),
            numbers.of("roquet", row.name, measure),
            measure.goal,
            measure.digits,
            better=measure.better,
        )
        for row in ROWS
        if ("roquet", row.name) in numbers.results
        for measure in row.measures
    ]
    samples = numbers.anonymous_mb
    if samples:
        growth_goal = bound(GROWTH_MB_MAX)
        lines += [
            Line(MEMORY, "messages/s sent and consumed", None, numbers.messages_a_second),
            Line(MEMORY, "anonymous MB at most", None, max(samples), digits=1),
            Line(MEMORY, "anonymous MB more at the end", None, growth_mb(samples), growth_goal, 1),
        ]
    return lines


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=ROW_NAMES, action="append", metavar="ROW",
                        help=f"one of {', '.join(ROW_NAMES)}; may be repeated")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="measured time of each load")
    parser.add_argument("--warm", type=float, default=2, help="load before it")
    parser.add_argument("--java-warm", type=float, default=2, help="the same for the Java client")
    parser.add_argument("--messages", type=int, default=10_000_000, help="of the row 'memory'")
    parser.add_argument("--skip-java", action="store_true", help="measure Roquet's client alone")
    parser.add_argument("--cold", action="store_true", help="leave free memory as it is")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    parser.add_argument("--dir", type=Path, default=None, help="where to put the files")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table for programs")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the requested rows and print them."""
    options = parse(arguments)
    base = Path(tempfile.mkdtemp(prefix="roquet-bench-", dir=options.dir))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and so clean up
    stack = ExitStack()
    try:
        ballast = None if options.cold else stack.enter_context(Ballast(base))
        bench = Bench(base, options, ballast)
        bench.run()
    except (BenchmarkError, ProcessError, subprocess.TimeoutExpired) as error:
        say(f"error: {error}")
        return 2
    finally:
        stack.close()
        shutil.rmtree(base, ignore_errors=True)
    lines = make_lines(bench.numbers)
    facts: dict[str, object] = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "messages": options.messages,
        "memory": "cold" if options.cold else "filled",
    }
    return show(lines, facts, json_file=options.json, is_checked=options.check, peer="Java")


if __name__ == "__main__":
    sys.exit(main())
