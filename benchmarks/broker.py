"""Speed of the broker against Apache RocketMQ 5.4.0, both sides in the same run.

Run with ``make bench`` or ``python -m benchmarks.broker``. Both brokers are up and have been under
load before a row is measured, on one after the other; which one is first alternates by round. Of
several rounds the median of each side counts. Absolute numbers differ from machine to machine and
from minute to minute; the goals are about the ratios.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from benchmarks import rows, scenarios
from benchmarks.chart import to_svg
from benchmarks.guests import FreshApache, Guest, Limit
from benchmarks.kafka import Kafka
from benchmarks.lab import Lab, Lengths, Stage
from benchmarks.load import BenchmarkError, describe
from benchmarks.memory import Ballast
from benchmarks.nats import Nats
from benchmarks.progress import say, steps_bar
from benchmarks.report import NO_GOAL, Better, Goal, Line, Measure, bound, share, show, times
from benchmarks.rows import Row
from benchmarks.scenarios import Sizes
from benchmarks.sides import JavaSide, RoquetSide, Side
from tests.interop.process import ProcessError

ROQUET, APACHE = "Roquet", "Apache"
PEERS = ("kafka", "nats")

DESCRIPTORS = 16_384
GIB = 1 << 30
FAILURES = (BenchmarkError, ProcessError, subprocess.SubprocessError)

NOT_SLOWER = 0.97
"""The fraction of the previous commit's rate that a change must keep."""

T = TypeVar("T")


@dataclass
class Numbers:
    """The results of all rounds, by side and row."""

    results: dict[tuple[str, str], list[dict[str, float]]] = field(
        default_factory=lambda: defaultdict(list[dict[str, float]])
    )

    def of(self, side: str, row: str, measure: Measure) -> float | None:
        """The number that counts."""
        return measure.of(self.results.get((side, row), []))


class Bench:
    """One run of the benchmark.

    Args:
        lab: Where it runs.
        wanted: The rows to measure.
        sides: The sides by name, in the order in which the first round measures them.
        sizes: How large scenarios are.
        guests: What is measured beside them where it can do a row.
    """

    def __init__(
        self,
        lab: Lab,
        wanted: Sequence[Row],
        sides: Mapping[str, Side],
        *,
        sizes: Sizes,
        guests: Sequence[Guest] = (),
    ) -> None:
        self.numbers = Numbers()
        self.failures: list[str] = []
        self._lab = lab
        self._wanted = wanted
        self._sides = sides
        self._sizes = sizes
        self._guests = guests

    def run(self, rounds: int) -> None:
        """Measure every wanted row in every round; failures are recorded, the others continue."""
        with steps_bar(sum(len(self._rounds(row, rounds)) for row in self._wanted)) as step:
            for settings, loads in stages(self._wanted):
                with Stage(self._lab, self._sides, settings, loads) as stage:
                    for number, row in itertools.product(range(rounds), loads):
                        if number in self._rounds(row, rounds):
                            step(row.name)
                            self._measure(row, number, stage)
            for row in self._wanted:
                for number in self._rounds(row, rounds) if not row.arguments else ():
                    step(row.name)
                    self._measure(row, number, None)

    def _measure(self, row: Row, number: int, stage: Stage | None) -> None:
        try:
            if stage is None:
                self._measure_scenario(row, number)
            else:
                self._measure_load(stage, row, number)
        except FAILURES as error:
            self.failures.append(row.name)
            say(f"error: {row.name}: {error}")
            if stage is not None:
                stage.close()

    @staticmethod
    def _rounds(row: Row, rounds: int) -> range:
        return range(1 if row.is_long else rounds)

    def _measure_load(self, stage: Stage, row: Row, number: int) -> None:
        for name, running in in_turn(stage.running(), number):
            self._note(name, row, self._lab.measure(running, row))
        for guest in self._guests:
            if guest.can(row):
                self._measure_guest(guest, row)

    def _measure_guest(self, guest: Guest, row: Row) -> None:
        try:
            self._note(guest.name, row, guest.measure(self._lab, row))
        except FAILURES as error:
            self.failures.append(f"{row.name} of {guest.name}")
            say(f"error: {guest.name}: {row.name}: {error}")
            guest.close()

    def _measure_scenario(self, row: Row, number: int) -> None:
        for name, side in in_turn(self._sides, number):
            self._note(name, row, scenarios.run(self._lab, row.name, side, self._sizes))

    def _note(self, side: str, row: Row, values: dict[str, float]) -> None:
        self.numbers.results[side, row.name].append(values)
        words = [describe(values)] if rows.RATE_KEY in values else []
        if rows.START_KEY in values:
            words.append(f"{values[rows.START_KEY]:.2f} s until a message is stored")
        say(f"{side}: {row.name} {', '.join(words)}")


def in_turn(sides: Mapping[str, T], number: int) -> list[tuple[str, T]]:
    """The sides in the order of a round: each of two is the first one every other time.

    The second one pays for what the first one left to the disk and the processor, which would make
    two equal sides differ.

    Example:
        >>> in_turn({"before": 1, "after": 2}, 1)
        [('after', 2), ('before', 1)]
    """
    items = list(sides.items())
    return items[::-1] if number % 2 else items


def stages(wanted: Sequence[Row]) -> Iterator[tuple[dict[str, str | int], list[Row]]]:
    """The loads by the settings of their brokers."""
    left = [row for row in wanted if row.arguments]
    while left:
        settings = left[0].settings
        yield settings, [row for row in left if row.settings == settings]
        left = [row for row in left if row.settings != settings]


def goal_beside_apache(measure: Measure) -> Goal:
    """The goals beside Apache RocketMQ."""
    return measure.goal


def make_lines(
    numbers: Numbers,
    wanted: Sequence[Row],
    *,
    peer: str = APACHE,
    goal_of: Callable[[Measure], Goal] = goal_beside_apache,
) -> list[Line]:
    """The table, in the order of the rows; further peers follow the lines of a row."""
    lines: list[Line] = []
    others = [name for name in dict.fromkeys(side for side, _ in numbers.results)
              if name not in {ROQUET, peer}]  # fmt: skip
    for row in wanted:
        lines += [
            Line(
                row.work,
                measure.title,
                numbers.of(peer, row.name, measure),
                numbers.of(ROQUET, row.name, measure),
                goal_of(measure),
                measure.digits,
                better=measure.better,
            )
            for measure in row.measures
        ]
        lines += _own_lines(numbers, row)
        for other in others:
            lines += _other_lines(numbers, row, other)
    return lines


def _own_lines(numbers: Numbers, row: Row) -> list[Line]:
    """What a row has to reach beside another number of our own."""

    def compare(title: str, part: float | None, whole: float | None, goal: Goal) -> list[Line]:
        if part is None or not whole:
            return []
        return [Line(row.work, title, None, part / whole, goal, 2)]

    rate = rows.rate()
    ours = numbers.of(ROQUET, row.name, rate)
    if row.name == "pull-far":
        near = numbers.of(ROQUET, "pull-json", rate)
        return compare("part of our own rate near the end", ours, near, rows.NEAR_SHARE)
    if row.name == rows.TOPICS:
        plain = numbers.of(ROQUET, "send-json", rate)
        return compare("part of our own rate with one topic", ours, plain, rows.TOPICS_SHARE)
    if row.name == rows.PULL_COLD:
        pulled, plain = (
            numbers.of(ROQUET, row.name, Measure(key, "", Better.MORE))
            for key in (scenarios.LOG_RATE_KEY, scenarios.DD_KEY)
        )
        return compare("part of the speed of dd", pulled, plain, rows.DD_SHARE)
    return []


def _other_lines(numbers: Numbers, row: Row, other: str) -> list[Line]:
    """The lines of a further peer."""
    return [
        Line(
            row.work,
            measure.title,
            theirs,
            numbers.of(ROQUET, row.name, measure),
            rows.OTHER_GOALS.get((row.name, measure.key, other), NO_GOAL),
            measure.digits,
            peer=other,
            better=measure.better,
        )
        for measure in row.measures
        if measure is not rows.REFUSED
        if (theirs := numbers.of(other, row.name, measure)) is not None
    ]


def goal_beside_roquet(measure: Measure) -> Goal:
    """The goals beside another Roquet: rate and CPU must not be worse."""
    if measure is rows.REFUSED:
        return measure.goal
    if measure.key == rows.CPU_KEY:
        return share(round(1 / NOT_SLOWER, 2))
    if measure.key == rows.ANONYMOUS:
        return bound(measure.goal.number)
    return times(NOT_SLOWER) if measure.better is Better.MORE else NO_GOAL


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
    add = parser.add_argument
    add("--only", choices=(*rows.GROUP_NAMES, *rows.ROW_NAMES), action="append", metavar="ROW",
        help=f"one of the groups {', '.join(rows.GROUP_NAMES)} or of the rows "
        f"{', '.join(rows.ROW_NAMES)}; may be repeated")  # fmt: skip
    add("--rounds", type=int, default=3)
    add("--seconds", type=float, default=5, help="measured time of each load")
    add("--warm", type=float, default=12, metavar="SECONDS", help="load before the first row")
    add("--mixed-seconds", type=float, default=120, help="measured time of the row mixed")
    add("--cold-gib", type=float, default=2, help="log of the row pull-cold")
    add("--restart-gib", type=float, default=4, help="log of the row restart")
    add("--topics", type=int, default=10_000, help="topics of the row topics")
    add("--skip-java", action="store_true", help="measure Roquet alone")
    add("--cold-peer", action="store_true", help="also measure an Apache broker just started")
    add("--peers", type=peer_names, default=(), metavar="PEERS",
        help=f"further peers, separated by commas: {', '.join(PEERS)}")  # fmt: skip
    add("--limits", action="store_true", help="also measure a loop in C that moves the same bytes")
    add("--against", type=Path, default=None, metavar="CHECKOUT",
        help="compare with another checkout of Roquet")  # fmt: skip
    add("--cold", action="store_true", help="leave free memory as it is")
    add("--check", action="store_true", help="exit 1 when a goal is missed")
    add("--dir", type=Path, default=None, help="where to put the files")
    add("--json", type=Path, default=None, metavar="FILE", help="write the table for programs")
    add("--chart", type=Path, default=None, metavar="FILE", help="write a chart as SVG")
    return parser.parse_args(arguments)


def make_sides(options: argparse.Namespace) -> tuple[str, dict[str, Side]]:
    """The peer that goals are about, and all sides."""
    ours: dict[str, Side] = {ROQUET: RoquetSide()}
    if options.against is not None:
        return "before", {"before": RoquetSide(checkout=options.against), **ours}
    return APACHE, ours if options.skip_java else {APACHE: JavaSide(), **ours}


def peer_names(text: str) -> list[str]:
    """The further peers of an option.

    Example:
        >>> peer_names("nats,kafka")
        ['nats', 'kafka']
    """
    names = text.split(",")
    if not set(names) <= set(PEERS):
        raise argparse.ArgumentTypeError(f"not among {', '.join(PEERS)}: {text}")
    return names


def make_guests(options: argparse.Namespace, base: Path, stack: ExitStack) -> list[Guest]:
    """What is measured beside the two sides; what this machine lacks is named and skipped."""
    makers: list[Callable[[], Guest]] = []
    if options.cold_peer:
        makers.append(FreshApache)
    if options.limits:
        makers.append(lambda: Limit(base))
    if "kafka" in options.peers:
        makers.append(Kafka)
    if "nats" in options.peers:
        makers.append(lambda: Nats(base))
    guests: list[Guest] = []
    for make in makers:
        try:
            guests.append(make())
        except BenchmarkError as error:
            say(f"without one of the peers: {error}")
        else:
            stack.callback(guests[-1].close)
    return guests


def facts_of(options: argparse.Namespace, sides: Mapping[str, Side]) -> dict[str, object]:
    """The conditions of a run."""
    java = sides.get(APACHE)
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "warm_s": options.warm,
        "page_cache": "as it was" if options.cold else "filled",
        "java_heap_mb": java.heap_mb if isinstance(java, JavaSide) else None,
    }


def run(options: argparse.Namespace, base: Path, stack: ExitStack) -> int:
    """Measure the requested rows, print them, and return the exit code."""
    peer, sides = make_sides(options)
    wanted = rows.chosen(options.only)
    ballast = None
    if not options.cold:
        ballast = stack.enter_context(Ballast(base))
        say(f"filled free memory with {ballast.fill() / GIB:.1f} GiB of page cache")
    lengths = Lengths(options.seconds, options.warm, options.mixed_seconds)
    sizes = Sizes(
        cold_bytes=int(options.cold_gib * GIB),
        restart_bytes=int(options.restart_gib * GIB),
        topics=options.topics,
    )
    bench = Bench(
        Lab(base, lengths, ballast),
        wanted,
        sides,
        sizes=sizes,
        guests=make_guests(options, base, stack),
    )
    bench.run(options.rounds)
    lines = make_lines(
        bench.numbers,
        wanted,
        peer=peer,
        goal_of=goal_beside_roquet if options.against else goal_beside_apache,
    )
    if options.chart is not None:
        options.chart.parent.mkdir(parents=True, exist_ok=True)
        options.chart.write_text(to_svg(lines, title=f"Roquet, times better than {peer}"))
    facts = {**facts_of(options, sides), "failed": ", ".join(bench.failures) or None}
    code = show(lines, facts, json_file=options.json, is_checked=options.check, peer=peer)
    return 2 if bench.failures else code


def main(arguments: list[str] | None = None) -> int:
    """Run the requested rows and print them."""
    options = parse(arguments)
    base = Path(tempfile.mkdtemp(prefix="roquet-bench-", dir=options.dir))
    allow_descriptors(DESCRIPTORS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and so clean up
    stack = ExitStack()
    try:
        return run(options, base, stack)
    except (BenchmarkError, ProcessError) as error:
        say(f"error: {error}")
        return 2
    finally:
        stack.close()
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
