"""Speed of replication: pairs of master and slave, and a slave that catches up.

Run with ``make bench`` or ``python -m benchmarks.ha``. All processes share this machine. A pair of
Roquet is compared with a pair of Apache RocketMQ 5.4.0, a master that has a slave with the same
master alone, and a slave that catches up with a plain copy of the same bytes over a socket. Both
sides of a row are up, or prepared, in the same run and measured in turn; the median of several
rounds counts.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks import plain_copy
from benchmarks.broker import APACHE, FAILURES, GIB, ROQUET, Numbers, in_turn, make_lines
from benchmarks.guests import cpu_s
from benchmarks.lab import Lab, Lengths, Stage
from benchmarks.load import BenchmarkError, describe
from benchmarks.memory import Ballast
from benchmarks.pairs import (
    Pair,
    Second,
    behind_bytes,
    connected_slave,
    replication,
    wait_follows,
)
from benchmarks.progress import say, steps_bar
from benchmarks.report import Better, Line, Measure, show, times
from benchmarks.rows import (
    ASYNC,
    BATCH,
    CPU_KEY,
    JSON,
    REFUSED,
    SEND,
    Row,
    latency,
    rate,
)
from benchmarks.sides import JavaSide, RoquetSide, Running, Side, stopping
from tests.interop.process import ProcessError

SYNC_PAIR, ASYNC_COST, ASYNC_FAR = "sync-pair", "async-cost", "async-far"
CATCH_UP = "catch-up"
ALONE, COPY = "no slave", "plain copy"

SYNC_MASTER: dict[str, str | int] = {
    **ASYNC,
    "brokerRole": "SYNC_MASTER",
    "inSyncReplicas": 2,
    "minInSyncReplicas": 1,
    "allAckInSyncStateSet": "false",
}
"""Upstream's default, one replica in sync, is the master itself: it would wait for nobody."""
ASYNC_MASTER: dict[str, str | int] = {**ASYNC, "brokerRole": "ASYNC_MASTER"}

SLAVE_PID = "-slave-pid"
SLAVE_CPU_KEY = "slave_cpu_us_per_msg"
BEHIND_KEY = "behind_MB"
SPEED_KEY, ALL_KEY = "MB_per_s", "until_same_s"
MASTER_CPU_S, SLAVE_CPU_S = "master_cpu_s_per_gib", "slave_cpu_s_per_gib"

MB = 1_000_000
CATCH_UP_POLL_S = 0.02
CATCH_UP_BYTES_A_SECOND_MIN = 20 * MB
START_MARGIN_S = 120
DISK_COPIES = 3.5
"""The master, its slave, the plain copy, and the segments that are made ahead."""


def pair_cpu() -> tuple[Measure, Measure]:
    """User and system CPU time of both brokers for one message."""
    return (
        Measure(CPU_KEY, "master CPU us/message", Better.LESS, digits=1),
        Measure(SLAVE_CPU_KEY, "slave CPU us/message", Better.LESS, digits=1),
    )


def catch_up_measures() -> tuple[Measure, ...]:
    """Those of a slave that catches up."""
    return (
        Measure(SPEED_KEY, "MB/s", Better.MORE, times(0.6)),
        Measure(ALL_KEY, "s from the slave's start", Better.LESS, digits=2),
        Measure(MASTER_CPU_S, "master CPU s/GiB", Better.LESS, digits=2),
        Measure(SLAVE_CPU_S, "slave CPU s/GiB", Better.LESS, digits=2),
    )


def cost_measures(cost: Measure) -> tuple[Measure, ...]:
    """Those of a master with a slave."""
    behind = Measure(BEHIND_KEY, "MB behind at the end", Better.LESS)
    return (cost, *pair_cpu(), latency("p99"), behind, REFUSED)


ROWS = (
    Row(SYNC_PAIR, "pairs", "SYNC_MASTER and SLAVE",
        (rate(times(4)), *pair_cpu(), latency("p99"), REFUSED), (*SEND, *JSON), SYNC_MASTER),
    Row(ASYNC_COST, "pairs", "ASYNC_MASTER with a SLAVE",
        cost_measures(rate(times(0.8))), (*SEND, *JSON), ASYNC_MASTER),
    Row(ASYNC_FAR, "pairs", "ASYNC_MASTER, slave elsewhere",
        cost_measures(rate(times(0.8))), (*SEND, *JSON), ASYNC_MASTER),
    Row(CATCH_UP, "catch-up", "a slave catches up", catch_up_measures(), (), ASYNC_MASTER),
)  # fmt: skip
ROW_NAMES = tuple(row.name for row in ROWS)
PEERS = {SYNC_PAIR: APACHE, ASYNC_COST: ALONE, ASYNC_FAR: ALONE, CATCH_UP: COPY}
SECONDS = {SYNC_PAIR: Second.SLAVE, ASYNC_COST: Second.SLAVE, ASYNC_FAR: Second.SINK}
"""What the master of a row has; a slave on another machine is a process that drops everything."""


class Bench:
    """One run of the benchmark.

    Args:
        lab: Where it runs.
        sides: The pairs of each row that sends, in the order of the first round.
        gib: How far behind the slave is that catches up.
    """

    def __init__(self, lab: Lab, sides: Mapping[str, Mapping[str, Side]], *, gib: float) -> None:
        self.numbers = Numbers()
        self.failures: list[str] = []
        self._lab = lab
        self._sides = sides
        self._gib = gib

    def run(self, wanted: Sequence[Row], rounds: int) -> None:
        """Measure the rows in all rounds; failures are recorded, the others continue."""
        with steps_bar(rounds * len(wanted)) as step:
            for row in wanted:
                with Stage(self._lab, self._sides.get(row.name, {}), row.settings, [row]) as stage:
                    for number in range(rounds):
                        step(row.name)
                        self._measure(stage, row, number)

    def _measure(self, stage: Stage, row: Row, number: int) -> None:
        try:
            if row.name == CATCH_UP:
                self._measure_catch_up(row, number)
                return
            for name, running in in_turn(stage.running(), number):
                values = measure_sends(self._lab, running, row)
                self._note(name, row, values, describe(values))
        except (*FAILURES, OSError, EOFError) as error:
            self.failures.append(row.name)
            say(f"error: {row.name}: {error}")
            stage.close()

    def _measure_catch_up(self, row: Row, number: int) -> None:
        found = measure_catch_up(self._lab, int(self._gib * GIB), is_copy_first=bool(number % 2))
        for name, values in found.items():
            self._note(name, row, values, f"{values[SPEED_KEY]:,.0f} MB/s")

    def _note(self, side: str, row: Row, values: dict[str, float], words: str) -> None:
        self.numbers.results[side, row.name].append(values)
        say(f"{side}: {row.name} {words}")


def measure_sends(lab: Lab, running: Running, row: Row) -> dict[str, float]:
    """Send to a master whose slave has everything that was sent before.

    Raises:
        BenchmarkError: Not a single message was stored.
    """
    arguments = (*row.arguments, "-topic", lab.new_topic("Load"))
    if running.slave is not None:
        wait_follows(running)
        arguments = (*arguments, SLAVE_PID, str(running.slave.pid))
    values = lab.load(running, arguments)
    if not values["messages"]:
        raise BenchmarkError("no message was stored")
    if running.slave is not None:
        values[BEHIND_KEY] = behind_bytes(replication(running)) / MB
    return values


def measure_catch_up(
    lab: Lab, log_bytes: int, *, is_copy_first: bool
) -> dict[str, dict[str, float]]:
    """Stop a slave, store so many bytes on its master, and start it again; copy the same bytes.

    The slave has a first record before it is stopped: an empty one would begin with the master's
    newest segment.

    Raises:
        BenchmarkError: The disk is too small for it.
    """
    needed = int(DISK_COPIES * log_bytes)
    if shutil.disk_usage(lab.base).free < needed:
        raise BenchmarkError(f"{lab.base} needs {needed / GIB:.1f} GiB; --gib makes it less")
    pair = Pair("roquet", RoquetSide())
    with lab.folder() as folder, stopping(pair.start(folder, ASYNC_MASTER)) as running:
        first_offset = wait_follows(running)
        assert running.slave is not None
        running.slave.stop()
        running.slave = None
        say(f"storing {log_bytes / GIB:g} GiB while the slave is away")
        lab.fill(running, lab.new_topic("Fill"), log_bytes, BATCH)
        end_offset = replication(running).master_commit_log_max_offset
        log = folder / "master" / "store" / "commitlog"

        def copied() -> dict[str, float]:
            return _copy(lab, log, first_offset, end_offset)

        found = {COPY: copied()} if is_copy_first else {}
        found[ROQUET] = _catch_up(lab, pair, folder, running)
        if not is_copy_first:
            found[COPY] = copied()
    return found


def _copy(lab: Lab, log: Path, first_offset: int, end_offset: int) -> dict[str, float]:
    parts = plain_copy.parts_of(log, first_offset, end_offset)
    with lab.folder() as folder:
        lab.settle()
        took_s = plain_copy.copy(parts, folder / "copy")
        copied = (folder / "copy").stat().st_size
    if copied != end_offset - first_offset:
        raise BenchmarkError(f"{copied:,} bytes were copied of {end_offset - first_offset:,}")
    return {SPEED_KEY: copied / took_s / MB, ALL_KEY: took_s}


def _catch_up(lab: Lab, pair: Pair, folder: Path, running: Running) -> dict[str, float]:
    """Start the slave, and watch its reports from the first one until it has everything."""
    lab.settle()
    started = time.monotonic()
    slave = pair.start_slave(folder, running, ASYNC_MASTER)
    deadline = started + START_MARGIN_S
    began: tuple[float, int] | None = None
    master_cpu_s = cpu_s(running.pid)
    while True:
        info, now = replication(running), time.monotonic()
        seen = connected_slave(info)
        if seen is not None and began is None:
            began = now, seen.slave_ack_offset
            deadline += seen.diff_bytes / CATCH_UP_BYTES_A_SECOND_MIN
        if began is not None and not behind_bytes(info):
            break
        if not slave.is_running() or now > deadline:
            raise BenchmarkError(f"the slave does not catch up\n{slave.log_tail()}")
        time.sleep(CATCH_UP_POLL_S)
    took_s, copied = now - began[0], info.master_commit_log_max_offset - began[1]
    if not copied:
        raise BenchmarkError("the slave was too fast to be measured; --gib makes it more")
    return {
        SPEED_KEY: copied / took_s / MB,
        ALL_KEY: now - started,
        MASTER_CPU_S: (cpu_s(running.pid) - master_cpu_s) * GIB / copied,
        SLAVE_CPU_S: cpu_s(slave.pid) * GIB / copied,
    }


def lines_of(numbers: Numbers, wanted: Sequence[Row], *, gib: float) -> list[Line]:
    """The table: each row with the peer that it is compared with."""
    lines: list[Line] = []
    for row in wanted:
        peer = PEERS[row.name]
        work = f"{row.work}, {gib:g} GiB" if row.name == CATCH_UP else row.work
        lines += [
            replace(line, row=work, peer=peer) for line in make_lines(numbers, [row], peer=peer)
        ]
    return lines


def make_sides(
    wanted: Sequence[Row], *, skip_java: bool
) -> tuple[dict[str, dict[str, Side]], JavaSide | None]:
    """The pairs of each row that sends, and the Java side if one of them is of it."""
    names = {row.name for row in wanted}
    java = JavaSide(brokers=2) if SYNC_PAIR in names and not skip_java else None
    sides: dict[str, dict[str, Side]] = {}
    for name, second in SECONDS.items():
        sides[name] = {}
        if PEERS[name] == ALONE:
            sides[name][ALONE] = Pair("roquet, alone", RoquetSide(), Second.NOTHING)
        elif java is not None:
            sides[name][APACHE] = Pair("java", java)
        sides[name][ROQUET] = Pair("roquet", RoquetSide(), second)
    return sides, java


def positive(text: str) -> float:
    """The number of an option.

    Example:
        >>> positive("0.25")
        0.25
    """
    number = float(text)
    if not 0 < number < 1_000:
        raise argparse.ArgumentTypeError(f"not a positive number: {text}")
    return number


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", choices=ROW_NAMES, action="append", metavar="ROW",
        help=f"one of the rows {', '.join(ROW_NAMES)}; may be repeated")  # fmt: skip
    add("--rounds", type=int, default=3)
    add("--seconds", type=float, default=5, help="measured time of each load")
    add("--warm", type=float, default=12, metavar="SECONDS", help="load before the first round")
    add("--gib", type=positive, default=2.0, help="how far behind the slave of catch-up is")
    add("--skip-java", action="store_true", help="measure Roquet alone")
    add("--cold", action="store_true", help="leave free memory as it is")
    add("--check", action="store_true", help="exit 1 when a goal is missed")
    add("--dir", type=Path, default=None, help="where to put the files")
    add("--json", type=Path, default=None, metavar="FILE", help="write the table for programs")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace, base: Path, stack: ExitStack) -> int:
    """Measure the requested rows, print them, and return the exit code."""
    wanted = [row for row in ROWS if not options.only or row.name in options.only]
    sides, java = make_sides(wanted, skip_java=options.skip_java)
    ballast = None
    if not options.cold:
        ballast = stack.enter_context(Ballast(base))
        say(f"filled free memory with {ballast.fill() / GIB:.1f} GiB of page cache")
    lab = Lab(base, Lengths(options.seconds, options.warm), ballast)
    bench = Bench(lab, sides, gib=options.gib)
    bench.run(wanted, options.rounds)
    facts: dict[str, object] = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "warm_s": options.warm,
        "gib": options.gib,
        "page_cache": "as it was" if options.cold else "filled",
        "java_heap_mb": None if java is None else java.heap_mb,
        "failed": ", ".join(bench.failures) or None,
    }
    lines = lines_of(bench.numbers, wanted, gib=options.gib)
    code = show(lines, facts, json_file=options.json, is_checked=options.check)
    return 2 if bench.failures else code


def main(arguments: list[str] | None = None) -> int:
    """Run the requested rows and print them."""
    options = parse(arguments)
    base = Path(tempfile.mkdtemp(prefix="roquet-bench-", dir=options.dir))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and so clean up
    stack = ExitStack()
    try:
        return run(options, base, stack)
    except (BenchmarkError, ProcessError, OSError) as error:
        say(f"error: {error}")
        return 2
    finally:
        stack.close()
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
