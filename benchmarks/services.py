"""The cost of delayed messages and open transactions for plain sends.

Run with ``make bench`` or ``python -m benchmarks.services``. One broker takes the load of
``send-json`` (see :mod:`benchmarks.broker`) before and after it was filled, over the wire, with
delayed messages of all levels and with half messages that are never ended. Under that load some of
them come due all the time, and a producer is checked for the others round after round and never
responds. The numbers of both loads are of the same process in the same minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from benchmarks.load import BenchmarkError, Peer, Result, build_loadgen, describe, run_loadgen
from benchmarks.memory import Ballast
from benchmarks.progress import say
from benchmarks.report import NO_GOAL, Goal, Line, bound, show
from benchmarks.rows import ANONYMOUS, ASYNC, JSON, SEND
from benchmarks.sides import RoquetSide, Running, stopping
from roquet.broker.stored_copy import records_in
from roquet.model.delay_level import DelayLevels
from roquet.model.message import StoredMessage
from roquet.model.topic import SCHEDULE_TOPIC
from roquet.remoting.codes import RequestCode, ResponseCode
from tests.interop.process import ProcessError

SERVICES, BACKLOG = "services", "backlog"
ROW_NAMES = (SERVICES, BACKLOG)

DELAYED_TOPIC, OPEN_TOPIC, PROBE_TOPIC = "ServicesDelayed", "ServicesOpen", "ServicesProbe"
QUEUES = 4
BODY = b"x" * 1024
WINDOW = 512
LEVELS = DelayLevels()

PROBE_LEVEL = 1
PROBES_A_STEP = 10
PROBES_MAX = 10_000_000
PROBE_STEP_S = 0.02
PULL_SUBSCRIPTION = "4"

BACKLOG_LEVEL = 2
BACKLOG_TIMEOUT_S = 120
POLL_S = 0.02

SLOWER_GOAL = bound(round(1 / 0.75, 2))
MEMORY_GOAL = bound(400)
LATE_GOAL = bound(100)
START_GOAL = bound(5)

Message = tuple[str, int, str]
"""Topic, queue and properties."""


@dataclass
class Numbers:
    """The results.

    Attributes:
        plain: Loads before the broker was filled.
        filled: Loads after it was filled.
        late_ms: How late messages were delivered that came due under load.
        facts: Single numbers, by the names of their lines.
    """

    plain: list[Result] = field(default_factory=list)
    filled: list[Result] = field(default_factory=list)
    late_ms: list[int] = field(default_factory=list)
    facts: dict[str, float] = field(default_factory=dict)


def fill(peer: Peer, count: int, message: Callable[[int], Message]) -> float:
    """Store messages with many requests in flight; return messages per second.

    Raises:
        BenchmarkError: The broker refused one, and not because it was busy.
    """
    began = time.monotonic()
    again: list[int] = []
    sent = done = in_flight = 0
    while done < count:
        while in_flight < WINDOW and (again or sent < count):
            number = again.pop() if again else sent
            sent += number == sent
            topic, queue_id, properties = message(number)
            peer.send(topic, queue_id, opaque=number, properties=properties, body=BODY)
            in_flight += 1
        for _ in range(min(in_flight, WINDOW // 4)):
            answer = peer.answer()
            in_flight -= 1
            if answer.code == ResponseCode.SYSTEM_BUSY:
                again.append(answer.opaque)
            elif answer.code != ResponseCode.SUCCESS:
                raise BenchmarkError(f"a message was refused: {answer.code} {answer.remark}")
            else:
                done += 1
    return count / (time.monotonic() - began)


def max_offset(peer: Peer, topic: str, queue_id: int) -> int:
    """The next offset of a queue."""
    peer.request(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})
    answer = peer.answer()
    if answer.code != ResponseCode.SUCCESS:
        raise BenchmarkError(f"{topic} has no end: {answer.code} {answer.remark}")
    return int((answer.ext_fields or {})["offset"])


def stored(peer: Peer, topic: str) -> int:
    """How many messages a topic has."""
    return sum(max_offset(peer, topic, queue_id) for queue_id in range(QUEUES))


def read(peer: Peer, topic: str, queue_offset: int) -> Iterator[StoredMessage]:
    """All messages of a topic's first queue from an offset on."""
    end_offset = max_offset(peer, topic, 0)
    while queue_offset < end_offset:
        fields = {
            "consumerGroup": "bench_readers",
            "topic": topic,
            "queueId": "0",
            "queueOffset": str(queue_offset),
            "maxMsgNums": "32",
            "sysFlag": PULL_SUBSCRIPTION,
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
        }
        peer.request(RequestCode.PULL_MESSAGE, fields)
        answer = peer.answer()
        if answer.code != ResponseCode.SUCCESS:
            raise BenchmarkError(f"{topic} cannot be read: {answer.code} {answer.remark}")
        for message in records_in(answer.body):
            yield message
            queue_offset = message.queue_offset + 1


class Probe:
    """Sends delayed messages at a steady pace, and measures when they are delivered.

    Args:
        address: Where the broker listens.
        first: The number of its first message; no two have the same.
    """

    def __init__(self, address: str, *, first: int) -> None:
        self._address = address
        self._first = first
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        with Peer(address) as peer:
            self._began_offset = max_offset(peer, SCHEDULE_TOPIC, PROBE_LEVEL - 1)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        number = self._first
        properties = f"DELAY\x01{PROBE_LEVEL}\x02"
        try:
            with Peer(self._address) as peer:
                while not self._stopping.wait(PROBE_STEP_S):
                    for _ in range(PROBES_A_STEP):
                        peer.send(PROBE_TOPIC, 0, opaque=number, properties=properties)
                        number += 1
                    for _ in range(PROBES_A_STEP):
                        peer.answer()
        except OSError as error:
            self._failure = error

    def late_ms(self) -> list[int]:
        """How late each message was put into its queue; to be called when all of them are due."""
        if self._failure is not None:
            raise BenchmarkError(f"the probe failed: {self._failure}")
        with Peer(self._address) as peer:
            due_ms = {
                message.unique_key: LEVELS.deliver_timestamp_ms(
                    PROBE_LEVEL, message.store_timestamp_ms
                )
                for message in read(peer, SCHEDULE_TOPIC, self._began_offset)
                if message.properties.get("REAL_TOPIC") == PROBE_TOPIC
            }
            return [
                message.store_timestamp_ms - due_ms[message.unique_key]
                for message in read(peer, PROBE_TOPIC, 0)
                if message.unique_key in due_ms
            ]


@contextmanager
def silent_producer(address: str) -> Iterator[None]:
    """A producer that never responds to transaction checks."""
    with Peer(address, timeout_s=1.0) as peer:
        data = {"clientID": "bench", "producerDataSet": [{"groupName": "bench_group"}]}
        peer.request(RequestCode.HEART_BEAT, {}, body=json.dumps(data).encode())
        peer.answer()
        stopping_ = threading.Event()

        def listen() -> None:
            while not stopping_.is_set():
                try:
                    peer.drain()
                except TimeoutError:
                    continue
                except OSError:
                    return

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield
        finally:
            stopping_.set()
            thread.join()


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
        self._program = build_loadgen(base)
        self._side = RoquetSide()

    def run(self, wanted: Sequence[str]) -> None:
        """Measure the wanted rows."""
        if SERVICES in wanted:
            with self._folder() as folder:
                with stopping(self._side.start(folder, ASYNC)) as running:
                    self._measure(running)
                say("starting again")
                with stopping(self._side.start(folder, ASYNC)) as running:
                    self.numbers.facts["s until a message is stored"] = running.start_s
        if BACKLOG in wanted:
            with self._folder() as folder:
                self._measure_backlog(folder)

    def _measure(self, running: Running) -> None:
        options, numbers = self._options, self.numbers
        self._settle()
        self._load(running, options.warm)
        for _ in range(options.loads):
            self._settle()
            numbers.plain.append(self._load(running, options.seconds))
            say(f"without them {describe(numbers.plain[-1].values)}")
        self._fill(running)
        with silent_producer(running.address):
            for number in range(options.loads):
                self._settle()  # everything is late while the filling is written to disk
                with Probe(running.address, first=1 + number * PROBES_MAX) as probe:
                    numbers.filled.append(self._load(running, options.seconds))
                say(f"with them {describe(numbers.filled[-1].values)}")
                time.sleep(2 * LEVELS.deliver_timestamp_ms(PROBE_LEVEL, 0) / 1000)
                late_ms = probe.late_ms()
                say(f"{len(late_ms):,} delivered, at most {max(late_ms)} ms late")
                numbers.late_ms += late_ms
        with Peer(running.address) as peer:
            waiting = options.delayed - stored(peer, DELAYED_TOPIC)
        numbers.facts["delayed messages that wait"] = waiting

    def _fill(self, running: Running) -> None:
        def delayed(number: int) -> Message:
            level = number % LEVELS.max_level + 1
            return DELAYED_TOPIC, number % QUEUES, f"DELAY\x01{level}\x02TAGS\x01TagA\x02"

        def half(number: int) -> Message:
            properties = "TRAN_MSG\x01true\x02PGROUP\x01bench_group\x02TAGS\x01TagA\x02"
            return OPEN_TOPIC, number % QUEUES, properties

        facts = self.numbers.facts
        with Peer(running.address) as peer:
            # The first message of a queue creates its files, which would make it late.
            peer.send(PROBE_TOPIC, 0)
            peer.answer()
            for title, count, message in (
                ("delayed messages/s sent", self._options.delayed, delayed),
                ("half messages/s sent", self._options.transactions, half),
            ):
                facts[title] = fill(peer, count, message)
                say(f"{count:,} {title}: {facts[title]:,.0f}")

    def _measure_backlog(self, folder: Path) -> None:
        """Messages that came due while the broker was down."""
        count = self._options.backlog

        def delayed(number: int) -> Message:
            return DELAYED_TOPIC, number % QUEUES, f"DELAY\x01{BACKLOG_LEVEL}\x02TAGS\x01TagA\x02"

        with stopping(self._side.start(folder, ASYNC)) as running, Peer(running.address) as peer:
            fill(peer, count, delayed)
            before = stored(peer, DELAYED_TOPIC)
        time.sleep(LEVELS.deliver_timestamp_ms(BACKLOG_LEVEL, 0) / 1000)
        with stopping(self._side.start(folder, ASYNC)) as running, Peer(running.address) as peer:
            began, at = time.monotonic(), stored(peer, DELAYED_TOPIC)
            first = at
            while at < count:
                if time.monotonic() - began > BACKLOG_TIMEOUT_S:
                    raise BenchmarkError(f"{count - at} of {count} messages were not delivered")
                time.sleep(POLL_S)
                at = stored(peer, DELAYED_TOPIC)
            rate = (count - first) / (time.monotonic() - began)
        say(f"{count - before:,} were due, {count - first:,} delivered at {rate:,.0f} a second")
        self.numbers.facts["due messages/s delivered"] = rate

    def _settle(self) -> None:
        """Wait until everything is written, so that no load slows down the next one."""
        os.sync()
        if self._ballast is not None:
            self._ballast.fill()

    def _load(self, running: Running, seconds: float) -> Result:
        return run_loadgen(
            self._program,
            running.address,
            running.pid,
            (*SEND, *JSON),
            seconds=seconds,
            warm=min(self._options.warm, 2),
        )

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        folder = Path(tempfile.mkdtemp(dir=self._base))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def percentile(values: Sequence[float], part: float) -> float:
    """The value that this fraction of all values does not exceed.

    Example:
        >>> percentile([5, 1, 2, 3, 4], 0.6), percentile([7], 0.99)
        (3, 7)
    """
    ordered = sorted(values)
    return ordered[max(-int(-len(ordered) * part // 1) - 1, 0)]


def make_lines(numbers: Numbers) -> list[Line]:
    """The table."""

    def line(row: str, title: str, value: float, goal: Goal = NO_GOAL, digits: int = 0) -> Line:
        return Line(row, title, None, value, goal, digits)

    lines: list[Line] = []
    if numbers.plain and numbers.filled:
        plain = max(each.values["msgs_per_s"] for each in numbers.plain)
        filled = max(each.values["msgs_per_s"] for each in numbers.filled)
        cpu, filled_cpu = (
            min(each.values.get("broker_cpu_us_per_msg", 0.0) for each in loads)
            for loads in (numbers.plain, numbers.filled)
        )
        memory = max(each.values[ANONYMOUS] for each in numbers.filled)
        refused = sum(each.values["failed"] for each in numbers.filled)
        lines += [
            line(SERVICES, "messages/s without them", plain),
            line(SERVICES, "messages/s with them", filled),
            line(SERVICES, "times slower with them", plain / filled, SLOWER_GOAL, 2),
            line(SERVICES, "broker CPU us/message without them", cpu, digits=1),
            line(SERVICES, "broker CPU us/message with them", filled_cpu, digits=1),
            line(SERVICES, "refused", refused, bound(0)),
            line(SERVICES, "anonymous MB under load", memory, MEMORY_GOAL),
        ]
    if numbers.late_ms:
        lines += [
            line(SERVICES, "p50 ms late under load", percentile(numbers.late_ms, 0.5)),
            line(SERVICES, "p99 ms late under load", percentile(numbers.late_ms, 0.99), LATE_GOAL),
        ]
    for title, value in numbers.facts.items():
        row = BACKLOG if title.startswith("due") else SERVICES
        is_start = title.startswith("s until")
        lines.append(line(row, title, value, START_GOAL if is_start else NO_GOAL, 2 * is_start))
    return lines


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=ROW_NAMES, action="append", metavar="ROW",
                        help=f"one of {', '.join(ROW_NAMES)}; may be repeated")  # fmt: skip
    parser.add_argument("--delayed", type=int, default=1_000_000, help="delayed messages")
    parser.add_argument("--transactions", type=int, default=100_000, help="half messages")
    parser.add_argument("--backlog", type=int, default=100_000, help="messages due at a start")
    parser.add_argument("--loads", type=int, default=3, help="loads before, and loads after")
    parser.add_argument("--seconds", type=float, default=10, help="measured time of each load")
    parser.add_argument("--warm", type=float, default=10, help="load on a fresh broker before")
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
        bench.run(options.only or ROW_NAMES)
    except (BenchmarkError, ProcessError, OSError) as error:
        say(f"error: {error}")
        return 2
    finally:
        stack.close()
        shutil.rmtree(base, ignore_errors=True)
    lines = make_lines(bench.numbers)
    facts: dict[str, object] = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "delayed": options.delayed,
        "transactions": options.transactions,
        "seconds": options.seconds,
        "memory": "cold" if options.cold else "filled",
    }
    return show(lines, facts, json_file=options.json, is_checked=options.check)


if __name__ == "__main__":
    sys.exit(main())
