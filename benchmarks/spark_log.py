"""Spark on a large store: every row of ``rocketmq-log`` is right, every rebuilt file is equal.

Run with ``python -m benchmarks.spark_log``. It makes a store of ``--gigabytes`` with Roquet's own
store and lets Spark read it; every row is decoded a second time by ``roquet.format``, and all
columns are compared. With ``--rebuild`` Spark rebuilds queues and index instead, and all files are
compared with those of the store. ``--standalone`` does so on a Master and a Worker that are started
for it. Owns the store and the session of :mod:`benchmarks.spark` too.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import SparkSession

import roquet.spark
from benchmarks.spark_log_workers import SEGMENT_BYTES, PlainSource, RowCheck
from roquet.model.message import BrokerMessage
from roquet.model.properties import encode_properties
from roquet.spark.jobs.rebuild import rebuild
from roquet.spark.packaging import executor_conf, pack
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.results import PutMessageResult
from tests.spark.standalone import standalone

ROOT = Path(__file__).resolve().parent.parent
POOL = 20_000
BURST = 256
TOPICS = 12
SMALL_TOPIC = "BenchmarkSmall"
SMALL_EVERY = 1_000
"""One of so many messages is of the small topic."""
INDEX_SLOTS, INDEX_ENTRIES = 1_000_000, 4_000_000  # a fifth of the usual, for several files
COUNT_FILE = "messages.count"
SEED = 11


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
        topic = SMALL_TOPIC if number % SMALL_EVERY == 0 else f"BenchmarkTopic{number % TOPICS}"
        made.append(
            BrokerMessage(
                topic=topic,
                queue_id=number % 4,
                body=filler[start : start + size],
                properties=encode_properties(named),
                born_timestamp_ms=1_700_000_000_000 + number,
            )
        )
    return made


def build(root: Path, total_bytes: int, messages: Sequence[BrokerMessage]) -> int:
    """Write a store that repeats the messages; return how many it has."""
    config = MessageStoreConfig(
        commit_log_file_bytes=SEGMENT_BYTES,
        index_slots=INDEX_SLOTS,
        index_entries=INDEX_ENTRIES,
    )
    store = DefaultMessageStore(root, config)
    store.load()
    store.start()
    sent = count = 0

    def count_stored(result: PutMessageResult) -> None:
        nonlocal count
        count += result.is_stored  # messages are refused if the disk is slow

    try:
        while store.commit_log.wrote_offset < total_bytes:
            at = sent % len(messages)
            burst = messages[at : at + BURST]
            for message in burst:
                store.submit(message, count_stored)
            store.finish_burst()
            sent += len(burst)
    finally:
        store.shutdown()
    return count


# -- every row ----------------------------------------------------------------------------------


def check_rows(spark: SparkSession, store: Path, count: int, report: Path) -> dict[str, int]:
    """Compare every row; the numbers of rows must agree too."""
    frame = spark.read.format("rocketmq-log").load(str(store))
    sums = {"log": str(store / "commitlog"), "report": str(report)}
    frame.write.format("row-check").mode("append").options(**sums).save()
    offsets = spark.read.format("rocketmq-log").schema("physicalOffset long").load(str(store))
    distinct = offsets.distinct().count()
    found: dict[str, int] = json.loads(report.read_text("utf-8"))
    return {"stored": count, "distinct": distinct, **found}


# -- every rebuilt file -------------------------------------------------------------------------


def check_rebuild(spark: SparkSession, store: Path, count: int, out: Path) -> dict[str, int]:
    """Rebuild queues and index, and compare all files."""
    report = rebuild(spark, str(store), str(out))
    found = {"stored": count, "findings": len(report.findings), "files": 0, "differing": 0}
    found |= {
        name: int(str(report.numbers[name])) for name in ("records", "entries", "indexEntries")
    }
    for part in ("consumequeue", "index"):
        there, made = _files(store / part), _files(out / part)
        found["files"] += len(there)
        found["differing"] += len(there.keys() ^ made.keys())
        found["differing"] += sum(
            not filecmp.cmp(there[name], made[name], shallow=False)
            for name in there.keys() & made.keys()
        )
    return found


def _files(root: Path) -> dict[str, Path]:
    """Files by name; those of an index, which are named by the time they were made, by number."""
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    if root.name == "index":
        return {str(number): path for number, path in enumerate(paths)}
    return {path.relative_to(root).as_posix(): path for path in paths}


def open_spark(
    master: str,
    scratch: Path,
    python: Path = Path(sys.executable),
    conf: Mapping[str, str] = MappingProxyType({}),
) -> SparkSession:
    """A session whose workers import this checkout."""
    os.environ["PYSPARK_PYTHON"] = str(python)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
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
        .config(map=dict(conf))
        .getOrCreate()
    )
    roquet.spark.register(spark)
    spark.dataSource.register(PlainSource)
    spark.dataSource.register(RowCheck)
    return spark


@contextmanager
def session(scratch: Path, master: str | None) -> Iterator[SparkSession]:
    """A session that is closed again; without a master, on a cluster of its own.

    Its executors are sent Roquet, as they always are, and find this package in the checkout.
    """
    with ExitStack() as stack:
        if master:
            spark = open_spark(master, scratch)
        else:
            cluster = stack.enter_context(standalone(scratch / "cluster"))
            conf = executor_conf(pack(scratch / "packages.tar.gz"), cluster.master)
            conf["spark.executorEnv.PYTHONPATH"] += f"{os.pathsep}{ROOT}"
            spark = open_spark(cluster.master, scratch, cluster.python, conf)
        stack.callback(spark.stop)
        yield spark


def stored(root: Path, total_bytes: int, messages: Sequence[BrokerMessage]) -> int:
    """How many messages a store has; it is created if missing."""
    told = root / COUNT_FILE
    if not told.exists():
        count = build(root, total_bytes, messages)
        told.write_text(str(count), "utf-8")
    return int(told.read_text("utf-8"))


def main() -> int:
    """Compare, print, and exit with 0 if everything is right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--store", type=Path, help="use a store that is there, or make and keep it")
    parser.add_argument("--rebuild", action="store_true", help="compare rebuilt files, not rows")
    parser.add_argument(
        "--standalone", action="store_true", help="on a cluster that is started for it"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        store = options.store or scratch / "store"
        count = stored(store, int(options.gigabytes * (1 << 30)), make_messages(SEED))
        with session(scratch, None if options.standalone else options.master) as spark:
            if options.rebuild:
                found = check_rebuild(spark, store, count, scratch / "rebuilt")
                is_right = not (found["differing"] or found["findings"] or found["files"] == 0)
                is_right &= found["records"] == found["entries"] == found["stored"]
            else:
                found = check_rows(spark, store, count, scratch / "check.json")
                is_right = not found["wrong"]
                is_right &= found["rows"] == found["stored"] == found["distinct"]
    print(json.dumps(found))
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
