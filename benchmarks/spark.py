"""Speed of the Spark sources and of ``archive``, as ratios of one run.

Run with ``make bench`` or ``python -m benchmarks.spark``. It makes a store of ``--megabytes`` with
Roquet's own store and lets Spark work on it on ``--master``; a second one, of 1 KiB messages, is
served by a Roquet broker. Each row compares two ways to the same result, in turn; of several rounds
the best of each counts. Files are read from the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.load import RUN_MARGIN_S, BenchmarkError
from benchmarks.progress import say
from benchmarks.report import Goal, Line, bound, least, show, times
from benchmarks.rows import ASYNC
from benchmarks.sides import RoquetSide, Running, Settings, stopping
from benchmarks.spark_log import (
    INDEX_ENTRIES,
    INDEX_SLOTS,
    SEED,
    make_messages,
    open_spark,
    stored,
)
from benchmarks.spark_log_workers import SEGMENT_BYTES
from benchmarks.spark_queries import check_equal, few_messages, ways
from roquet.model.message import BrokerMessage
from roquet.model.properties import encode_properties
from roquet.spark.jobs.archive import archive
from roquet.spark.jobs.audit import audit
from tests.interop.javabroker import write_topics
from tests.interop.process import ProcessError
from tests.spark.s3_gateway import BUCKET, Gateway, s3_gateway, variables

QUEUE_TOPIC = "SparkQueues"
QUEUES = 8
QUEUE_POOL = 4_096
BODY_BYTES = 1024
PLAIN_BYTES = 64 << 20
QUEUES_PART = 1.5
"""The broker's store relative to the log: the client alone must have enough to consume."""

CLIENT_WARM_S = 0.5
LOOK_S = 0.3

BROKER_MB_S_MIN = 150
BROKER_PART_MIN = 0.6
GROWTH_MAX = 2.4
WHERE_MIN = 5
OPTION_MAX = 1.2
WORKER_MB_MAX = 300
S3_PART_MIN = 0.7

COLUMNS, SCAN, ARCHIVE, BROKER = "columns", "scan", "archive", "broker"
ARCHIVE_S3 = "archive-s3"
AUDIT, GROWTH, MEMORY = "audit", "growth", "memory"
WHERES = ("where-topic", "where-time", "where-key")
ROW_NAMES = (COLUMNS, SCAN, *WHERES, AUDIT, ARCHIVE, ARCHIVE_S3, BROKER, GROWTH, MEMORY)

MB_S = "MB/s"


class Way(Enum):
    """Which of the two ways of a row."""

    OTHER = "other"
    OURS = "ours"
    OPTION = "option"
    """Of a query with a filter: by the option that selects the same."""


@dataclass(frozen=True)
class Job:
    """One way to a result.

    Attributes:
        row: The row it belongs to.
        way: Whether it is the one that has to be faster.
        title: What it does.
        work: The function that does it.
        size_bytes: How much it reads.
    """

    row: str
    way: Way
    title: str
    work: Callable[[], object]
    size_bytes: int


def sink(frame: DataFrame) -> None:
    """Compute all rows, with all columns, and discard them."""
    frame.write.format("noop").mode("overwrite").save()


def sink_of(frame: Callable[[], DataFrame]) -> None:
    """The same, with the time that it takes to make the frame."""
    sink(frame())


def sum_by_topic(frame: DataFrame) -> None:
    """A query that needs two columns."""
    frame.groupBy("topic").agg(f.sum("storeSize")).collect()


def make_queue_messages() -> list[BrokerMessage]:
    """Messages as the benchmark of the client has them: 1 KiB, a tag, a key, a unique key."""
    made = []
    for number in range(QUEUE_POOL):
        named = {
            "UNIQ_KEY": f"7F0000010B9F18B4AAC2{number:012X}",
            "TAGS": "TagA",
            "KEYS": "order-4711",
            "WAIT": "true",
        }
        message = BrokerMessage(
            topic=QUEUE_TOPIC,
            queue_id=number % QUEUES,
            body=b"x" * BODY_BYTES,
            properties=encode_properties(named),
            born_timestamp_ms=1_700_000_000_000 + number,
        )
        made.append(message)
    return made


class WorkerMemory:
    """The peak memory of Spark's Python processes while watched."""

    def __init__(self) -> None:
        self.most_bytes = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch during the block; earlier peaks do not count."""
        for pid in _workers():
            # Resets the peak of a process (VmHWM) to its current memory.
            with suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")
        stop = threading.Event()
        thread = threading.Thread(target=self._look, args=(stop,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _look(self, stop: threading.Event) -> None:
        is_last = False
        while not is_last:
            is_last = stop.wait(LOOK_S)
            peaks = (_resident_most_bytes(pid) for pid in _workers())
            self.most_bytes = max(self.most_bytes, *peaks, 0)


def _workers() -> list[int]:
    """Spark's Python processes below this one."""
    return [pid for pid, command in _below(os.getpid()) if b"pyspark.daemon" in command]


def _below(root: int) -> Iterator[tuple[int, bytes]]:
    """All descendants of a process, with their commands."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            parent = _status(int(entry.name)).get("PPid")
            if parent is not None:
                children[int(parent)].append(int(entry.name))
    waiting = list(children[root])
    while waiting:
        pid = waiting.pop()
        waiting += children[pid]
        try:
            yield pid, Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def _resident_most_bytes(pid: int) -> int:
    return int(_status(pid).get("VmHWM", "0 kB").split()[0]) << 10


class Bench:
    """One run.

    Args:
        base: A folder for everything that is not kept.
        options: How much, how often, which rows.
    """

    def __init__(self, base: Path, options: argparse.Namespace) -> None:
        self.seconds: dict[tuple[str, Way], list[float]] = defaultdict(list)
        self.sizes: dict[tuple[str, Way], int] = {}
        self.client_mb_s: list[float] = []
        self.memory = WorkerMemory()
        self._gateway: Gateway | None = None
        self._base = base
        self._options = options
        self._wanted: Sequence[str] = options.only or ROW_NAMES
        kept: Path = options.store or base
        self._store = kept / f"log-{options.megabytes}"
        self._served = kept / f"broker-{options.megabytes}"
        self._total_bytes: int = options.megabytes << 20

    def run(self) -> None:
        """Measure the wanted rows."""
        say("stores are made")
        self.messages = stored(self._store, self._total_bytes, make_messages(SEED))
        with ExitStack() as stack:
            if ARCHIVE_S3 in self._wanted:
                os.environ.update(variables())
                self._gateway = stack.enter_context(s3_gateway(self._base / "gateway"))
            running = None
            if BROKER in self._wanted:
                running = stack.enter_context(self._broker())
            spark = open_spark(self._options.master, self._base)
            stack.callback(spark.stop)
            jobs = self._jobs(spark, running)
            for number in range(1, self._options.rounds + 1):
                say(f"round {number} of {self._options.rounds}")
                self._round(jobs, running)

    def _round(self, jobs: Sequence[Job], running: Running | None) -> None:
        for job in jobs:
            with self.memory.watched() if job.way is Way.OURS else nullcontext():
                began = time.perf_counter()
                job.work()
                spent = time.perf_counter() - began
            self.seconds[job.row, job.way].append(spent)
            self.sizes[job.row, job.way] = job.size_bytes
            say(f"{job.row}: {job.title}: {spent:.2f} s, {job.size_bytes / spent / 1e6:,.0f} MB/s")
            shutil.rmtree(self._base / "lake", ignore_errors=True)
        if running is not None:
            self.client_mb_s.append(self._run_client(running) * BODY_BYTES / 1e6)
            say(f"{BROKER}: the client alone: {self.client_mb_s[-1]:,.0f} MB/s")

    # --------------------------------------------------------------------------------- the jobs

    def _jobs(self, spark: SparkSession, running: Running | None) -> list[Job]:
        jobs = [*self._read_jobs(spark), *self._audit_jobs(spark), *self._archive_jobs(spark)]
        if not set(WHERES).isdisjoint(self._wanted):
            jobs += self._where_jobs(spark)
        if GROWTH in self._wanted:
            half = self._half(spark)
            whole, part = "all of the log", "half of it"
            jobs += [
                Job(GROWTH, Way.OTHER, part, lambda: sink(self._read(spark, endingOffsets=half)),
                    int(half)),
                Job(GROWTH, Way.OURS, whole, lambda: sink(self._read(spark)), self._total_bytes),
            ]  # fmt: skip
        if running is not None:
            jobs.append(self._broker_job(spark, running))
        return [job for job in jobs if job.row in self._wanted]

    def _read(self, spark: SparkSession, **options: str) -> DataFrame:
        return spark.read.format("rocketmq-log").options(**options).load(str(self._store))

    def _read_jobs(self, spark: SparkSession) -> list[Job]:
        first = str(min((self._store / "commitlog").iterdir()))
        one_task_bytes = min(self._total_bytes, SEGMENT_BYTES)
        plain_bytes = min(self._total_bytes, PLAIN_BYTES)

        def plain() -> None:
            sink(spark.read.format("plain-log").option("bytes", str(plain_bytes)).load(first))

        def one_task() -> None:
            reader = spark.read.format("rocketmq-log").option("maxSplitBytes", "1g")
            sink(reader.load(first))

        total = self._total_bytes
        two = "topic,storeSize"
        return [
            Job(COLUMNS, Way.OTHER, "sum by topic, all columns read",
                lambda: sum_by_topic(self._read(spark)), total),
            Job(COLUMNS, Way.OURS, "sum by topic, two columns read",
                lambda: sum_by_topic(self._read(spark, columns=two)), total),
            Job(SCAN, Way.OTHER, "a plain source, one task", plain, plain_bytes),
            Job(SCAN, Way.OURS, "rocketmq-log, one task", one_task, one_task_bytes),
        ]  # fmt: skip

    def _where_jobs(self, spark: SparkSession) -> Iterator[Job]:
        """Queries of a few messages."""

        def read(**options: str) -> DataFrame:
            return self._read(spark, **options)

        for query in few_messages(read(columns="storeTimestamp")):
            if query.row not in self._wanted:
                continue
            frames = ways(spark, query, read)
            check_equal(query, [frame().count() for frame in frames])
            titles = (query.where, "the same, handed to the source", f"by option {query.options}")
            for way, title, frame in zip(Way, titles, frames, strict=True):
                yield Job(query.row, way, title, partial(sink_of, frame), self._total_bytes)

    def _audit_jobs(self, spark: SparkSession) -> list[Job]:
        def ours() -> None:
            report = audit(spark, str(self._store))
            if report.findings:
                raise BenchmarkError(f"the audit of a sound store finds {report.findings[0]}")

        total = self._total_bytes
        return [
            Job(AUDIT, Way.OTHER, "sum by topic, two columns read",
                lambda: sum_by_topic(self._read(spark, columns="topic,storeSize")), total),
            Job(AUDIT, Way.OURS, "audit", ours, total),
        ]  # fmt: skip

    def _archive_jobs(self, spark: SparkSession) -> list[Job]:
        lake = str(self._base / "lake")

        def by_spark() -> None:
            log = self._read(spark, brokerName="bench")
            dated = log.withColumn("day", f.date_format("storeTimestamp", "yyyy-MM-dd"))
            writer = dated.write.partitionBy("topic", "day").option("compression", "zstd")
            writer.option("parquet.compression.codec.zstd.level", "1").parquet(lake)

        def ours() -> None:
            archive(spark, str(self._store), lake, broker_name="bench")

        total = self._total_bytes
        jobs = [
            Job(ARCHIVE, Way.OTHER, "Spark's own writer of Parquet", by_spark, total),
            Job(ARCHIVE, Way.OURS, "archive", ours, total),
        ]
        gateway = self._gateway
        if gateway is not None:

            def to_s3() -> None:
                archive(spark, str(self._store), gateway.uri("bench"), broker_name="bench")
                shutil.rmtree(gateway.folder / BUCKET / "bench")

            jobs += [
                Job(ARCHIVE_S3, Way.OTHER, "archive to a folder", ours, total),
                Job(ARCHIVE_S3, Way.OURS, "archive to S3", to_s3, total),
            ]
        return jobs

    def _half(self, spark: SparkSession) -> str:
        """The offset of the message in the middle."""
        offsets = self._read(spark, columns="physicalOffset")
        behind = offsets.where(f"physicalOffset >= {self._total_bytes // 2}")
        return str(behind.agg(f.min("physicalOffset")).collect()[0][0])

    # -------------------------------------------------------------------------------- the broker

    @contextmanager
    def _broker(self) -> Iterator[Running]:
        """A broker on the store of queues."""
        store = self._served / "store"
        size_bytes = int(self._total_bytes * QUEUES_PART)
        self._queued = stored(store, size_bytes, make_queue_messages())
        write_topics(store, {QUEUE_TOPIC: QUEUES})
        settings: Settings = {
            **ASYNC,
            "maxHashSlotNum": INDEX_SLOTS,
            "maxIndexNum": INDEX_ENTRIES,
        }
        with stopping(RoquetSide().start(self._served, settings)) as running:
            yield running

    def _broker_job(self, spark: SparkSession, running: Running) -> Job:
        given = {"namesrv": running.namesrv_address, "subscribe": QUEUE_TOPIC}

        def read() -> None:
            sink(spark.read.format("rocketmq").options(**given).load())

        found = spark.read.format("rocketmq").options(**given, columns="queueOffset").load().count()
        if found != self._queued:
            raise BenchmarkError(f"{found} of {self._queued} messages came through the broker")
        return Job(BROKER, Way.OURS, "rocketmq", read, self._queued * BODY_BYTES)

    def _run_client(self, running: Running) -> float:
        """Messages per second of a push consumer with a batch handler, in its own process."""
        group = f"bench_{time.time_ns()}"  # a kept store knows the groups of earlier runs
        seconds: float = self._options.client_seconds
        command = [
            *(sys.executable, "-m", "benchmarks.client_load", "consume", "--batches"),
            *("--topic", QUEUE_TOPIC, "--namesrv", running.namesrv_address, "--group", group),
            *("--warm", str(CLIENT_WARM_S), "--seconds", str(seconds)),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + RUN_MARGIN_S, check=False
        )
        if done.returncode != 0:
            raise BenchmarkError(f"the client failed: {done.stderr[-2000:]}")
        return float(json.loads(done.stdout)["msgs_per_s"])

    # --------------------------------------------------------------------------------- the table

    def _mb_s(self, row: str, way: Way) -> float | None:
        seconds = self.seconds.get((row, way))
        return self.sizes[row, way] / min(seconds) / 1e6 if seconds else None

    def lines(self) -> list[Line]:
        """The table, in the order of the rows."""
        made = []
        goals = {COLUMNS: times(2), SCAN: times(8), AUDIT: times(0.5), ARCHIVE: times(2)}
        goals[ARCHIVE_S3] = times(S3_PART_MIN)
        for row, goal in {**goals, **dict.fromkeys(WHERES, times(WHERE_MIN))}.items():
            other, ours = self._mb_s(row, Way.OTHER), self._mb_s(row, Way.OURS)
            made.append(Line(row, MB_S, other, ours, goal))
            option = self._mb_s(row, Way.OPTION)
            if option is not None and ours is not None:
                slower = option / ours
                made.append(Line(row, "times its option", None, slower, bound(OPTION_MAX), 2))
        if self.client_mb_s:
            ours = self._mb_s(BROKER, Way.OURS)
            made.append(Line(BROKER, MB_S, max(self.client_mb_s), ours, broker_goal(ours)))
        if (GROWTH, Way.OURS) in self.seconds:
            half, whole = (min(self.seconds[GROWTH, way]) for way in Way)
            made += [
                Line(GROWTH, "seconds, half and all", half, whole, digits=2),
                Line(GROWTH, "times half of it", None, whole / half, bound(GROWTH_MAX), 2),
            ]
        worker_mb = self.memory.most_bytes / 1e6
        made.append(Line(MEMORY, "MB of a worker", None, worker_mb, bound(WORKER_MB_MAX)))
        return [line for line in made if line.row in self._wanted]


def broker_goal(mb_s: float | None) -> Goal:
    """One of two goals is enough: the one that was reached, or else the part of the client.

    Example:
        >>> str(broker_goal(170)), str(broker_goal(90))
        ('>= 150', '>= 0.6x')
    """
    is_fast = mb_s is not None and mb_s >= BROKER_MB_S_MIN
    return least(BROKER_MB_S_MIN) if is_fast else times(BROKER_PART_MIN)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=ROW_NAMES, action="append", metavar="ROW",
                        help=f"one of {', '.join(ROW_NAMES)}; may be repeated")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=512, help="of each store")
    parser.add_argument("--client-seconds", type=float, default=1.5,
                        help="measured time of the client alone")  # fmt: skip
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    parser.add_argument("--dir", type=Path, default=None, help="where to put the files")
    parser.add_argument("--store", type=Path, default=None, metavar="DIR",
                        help="use the stores in it, or make and keep them there")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table for programs")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the requested rows and print them."""
    options = parse(arguments)
    base = Path(tempfile.mkdtemp(prefix="roquet-bench-", dir=options.dir))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and so clean up
    try:
        bench = Bench(base, options)
        bench.run()
    except (BenchmarkError, ProcessError, subprocess.TimeoutExpired) as error:
        say(f"error: {error}")
        return 2
    finally:
        shutil.rmtree(base, ignore_errors=True)
    lines = bench.lines()
    facts: dict[str, object] = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "pyarrow": pa.__version__,
        "master": options.master,
        "rounds": options.rounds,
        "megabytes": options.megabytes,
        "messages": bench.messages,
    }
    return show(lines, facts, json_file=options.json, is_checked=options.check, peer="other way")


if __name__ == "__main__":
    sys.exit(main())
