"""The Spark source ``rocketmq-log``: every row right, and how fast, as ratios of one run.

Run with ``python -m benchmarks.spark_log``. It makes a store of ``--gigabytes`` with Roquet's own
store, lets Spark read it on ``local[2]``, and compares: all columns against two, all columns
against a plain source that unpacks record by record, twice the bytes against once. ``--check-rows``
decodes every row a second time by ``roquet.format`` and compares all columns. Rounds alternate, the
best of each side counts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import roquet.spark
from benchmarks.report import Goal, Kind
from benchmarks.spark_log_workers import SEGMENT_BYTES, PlainSource, RowCheck
from roquet.model.message import BrokerMessage
from roquet.model.properties import encode_properties
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore

ROOT = Path(__file__).resolve().parent.parent
POOL = 20_000
BURST = 256
TOPICS = 12
COUNT_FILE = "messages.count"

GOALS = {
    "two columns, times all columns": Goal(Kind.TIMES, 2),
    "all columns, times the plain source": Goal(Kind.TIMES, 8),
    "twice the bytes, times the seconds": Goal(Kind.BOUND, 2.4),
    "memory of a Python worker, MB": Goal(Kind.BOUND, 300),
}


# -- the store ----------------------------------------------------------------------------------


def make_messages(seed: int) -> list[BrokerMessage]:
    """Messages of many sizes and topics, as producers send them."""
    rng = random.Random(seed)
    filler = rng.randbytes(1 << 20)
    made = []
    for number in range(POOL):
        size = int(rng.lognormvariate(4.8, 0.8))
        start = rng.randrange(len(filler) - size)
        named = {
            "MSG_REGION": "DefaultRegion",
            "UNIQ_KEY": f"7F0000010B9F18B4AAC2{number:012X}",
            "CLUSTER": "DefaultCluster",
            "WAIT": "true",
            "TRACE_ON": "true",
        }
        if number % 3:
            named |= {"TAGS": f"Tag{number % 7}", "KEYS": f"order-{number}"}
        made.append(
            BrokerMessage(
                topic=f"BenchmarkTopic{number % TOPICS}",
                queue_id=number % 4,
                body=filler[start : start + size],
                properties=encode_properties(named),
                born_timestamp_ms=1_700_000_000_000 + number,
            )
        )
    return made


def build(root: Path, total_bytes: int) -> int:
    """Write a store; tells how many messages it has."""
    messages = make_messages(11)
    store = DefaultMessageStore(root, MessageStoreConfig(commit_log_file_bytes=SEGMENT_BYTES))
    store.load()
    store.start()
    count = 0
    try:
        while store.commit_log.wrote_offset < total_bytes:
            at = count % POOL
            burst = messages[at : at + BURST]
            for message in burst:
                store.submit(message, lambda _: None)
            store.finish_burst()
            count += len(burst)
    finally:
        store.shutdown()
    return count


# -- every row ----------------------------------------------------------------------------------


def check_rows(spark: SparkSession, store: Path, count: int) -> dict[str, int]:
    """Compare every row; the numbers of rows must agree too."""
    report = store.parent / "check.json"
    frame = spark.read.format("rocketmq-log").load(str(store))
    sums = {"log": str(store / "commitlog"), "report": str(report)}
    frame.write.format("row-check").mode("append").options(**sums).save()
    offsets = spark.read.format("rocketmq-log").schema("physicalOffset long").load(str(store))
    distinct = offsets.distinct().count()
    found: dict[str, int] = json.loads(report.read_text("utf-8"))
    return {"stored": count, "distinct": distinct, **found}


# -- speed --------------------------------------------------------------------------------------


class WorkerMemory:
    """The most memory that a Python process below this one had, looked at while queries run."""

    def __init__(self) -> None:
        """Look from now on."""
        self.most_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def close(self) -> int:
        """Stop; gives the most bytes."""
        self._stop.set()
        self._thread.join()
        return self.most_bytes

    def _look(self) -> None:
        while not self._stop.wait(0.1):
            for entry in Path("/proc").iterdir():
                if not entry.name.isdecimal():
                    continue
                try:
                    if b"pyspark.daemon" not in (entry / "cmdline").read_bytes():
                        continue
                    for line in (entry / "status").read_text().splitlines():
                        if line.startswith("VmHWM:"):
                            self.most_bytes = max(self.most_bytes, int(line.split()[1]) << 10)
                except OSError:
                    continue


def seconds(job: Callable[[], object]) -> float:
    """How long a job takes."""
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def sink(frame: DataFrame) -> None:
    """Read all rows, with all columns, and forget them."""
    frame.write.format("noop").mode("overwrite").save()


def measure(spark: SparkSession, store: Path, total_bytes: int, rounds: int) -> dict[str, float]:
    """The best seconds of each query, scaled to the same bytes."""
    log = str(store)
    first = str(min((store / "commitlog").iterdir()))
    plain_bytes = min(64 << 20, total_bytes)
    half = spark.read.format("rocketmq-log").load(log).agg({"physicalOffset": "max"})
    middle = half.collect()[0][0] // 2
    bound = (
        spark.read.format("rocketmq-log")
        .schema("physicalOffset long")
        .load(log)
        .where(f"physicalOffset >= {middle}")
        .agg({"physicalOffset": "min"})
        .collect()[0][0]
    )

    def read(**options: str) -> DataFrame:
        return spark.read.format("rocketmq-log").options(**options).load(log)

    jobs: dict[str, tuple[Callable[[], object], float]] = {
        "all columns": (lambda: sink(read()), total_bytes),
        "half": (lambda: sink(read(endingOffsets=str(bound))), bound),
        "all columns, sum by topic": (
            lambda: read().groupBy("topic").sum("storeSize").collect(),
            total_bytes,
        ),
        "two columns, sum by topic": (
            lambda: read(columns="topic,storeSize").groupBy("topic").sum("storeSize").collect(),
            total_bytes,
        ),
        "one topic of twelve": (
            lambda: sink(read(topics="BenchmarkTopic3")),
            total_bytes,
        ),
        "plain source": (
            lambda: sink(
                spark.read.format("plain-log").option("bytes", str(plain_bytes)).load(first)
            ),
            plain_bytes,
        ),
        "all columns, one task, as much": (
            lambda: sink(
                spark.read.format("rocketmq-log")
                .option("endingOffsets", "latest")
                .option("maxSplitBytes", "1g")
                .load(first)
            ),
            min(SEGMENT_BYTES, total_bytes),
        ),
    }
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, (job, size) in jobs.items():
            rate = size / seconds(job) / 1e6
            best[name] = max(best.get(name, 0.0), rate)
    best["half seconds"] = bound / 1e6 / best["half"]
    best["whole seconds"] = total_bytes / 1e6 / best["all columns"]
    return best


def open_spark(master: str, scratch: Path) -> SparkSession:
    """A session whose workers import this checkout."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    spark = (
        SparkSession.builder.master(master)
        .appName("roquet-benchmark")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(scratch / "spark"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    roquet.spark.register(spark)
    spark.dataSource.register(PlainSource)
    spark.dataSource.register(RowCheck)
    return spark


def main() -> int:
    """Measure, print, and tell by the exit code whether every goal was reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--check-rows", action="store_true", help="compare every row")
    parser.add_argument("--skip-speed", action="store_true", help="only compare rows")
    parser.add_argument("--store", type=Path, help="use a store that is there, or make and keep it")
    parser.add_argument("--json", action="store_true", help="print one object")
    arguments = parser.parse_args()
    report: dict[str, Any] = {}
    good = True
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        store = arguments.store or scratch / "store"
        total_bytes = int(arguments.gigabytes * (1 << 30))
        if not (store / COUNT_FILE).exists():
            (store / COUNT_FILE).write_text(str(build(store, total_bytes)), "utf-8")
        count = report["messages"] = int((store / COUNT_FILE).read_text("utf-8"))
        spark = open_spark(arguments.master, scratch)
        try:
            if not arguments.skip_speed:
                memory = WorkerMemory()
                rates = measure(spark, store, total_bytes, arguments.rounds)
                report["MB/s"] = {name: round(rate, 1) for name, rate in rates.items()}
                ratios = {
                    "two columns, times all columns": rates["two columns, sum by topic"]
                    / rates["all columns, sum by topic"],
                    "all columns, times the plain source": rates["all columns, one task, as much"]
                    / rates["plain source"],
                    "twice the bytes, times the seconds": rates["whole seconds"]
                    / rates["half seconds"],
                    "memory of a Python worker, MB": memory.close() / 1e6,
                }
                for name, value in ratios.items():
                    goal = GOALS[name]
                    reached = (
                        value >= goal.number if goal.kind is Kind.TIMES else value <= goal.number
                    )
                    good &= reached
                    report[name] = f"{value:.2f} ({goal}: {'reached' if reached else 'MISSED'})"
            if arguments.check_rows:
                found = report["check"] = check_rows(spark, store, count)
                good = found["wrong"] == 0
                good &= found["rows"] == found["stored"] == found["distinct"]
        finally:
            spark.stop()
    print(json.dumps(report) if arguments.json else _text(report))
    return 0 if good else 1


def _text(report: dict[str, Any]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in report.items())


if __name__ == "__main__":
    sys.exit(main())
