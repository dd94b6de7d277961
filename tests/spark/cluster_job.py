"""The driver of `test_cluster`: a process of its own, since one process has one Spark context.

``python -m tests.spark.cluster_job MASTER NAMESRV FOLDER`` does all that is to be shown on a
cluster, one after the other, and leaves what came of it in ``FOLDER/told``, pickled.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from roquet.cli.spark import spark as spark_command
from roquet.runtime import compiled
from roquet.runtime.clock import ManualClock
from roquet.spark.jobs.archive import archive
from roquet.spark.jobs.audit import audit
from roquet.spark.jobs.lake import read_lake
from roquet.spark.jobs.rebuild import rebuild
from roquet.spark.session import open_session
from roquet.spark.tasks import run_tasks
from tests.patience import TIMEOUT_MS
from tests.spark import broker_side, log_side
from tests.spark.conftest import QUICK_START
from tests.unit.spark.jobs.audit_faults import FAULTS, SPLIT_BYTES, Planter, filled, kinds_of
from tests.unit.spark.jobs.rebuilt_files import GOLDEN, GOLDEN_STORES
from tests.unit.store.synthetic import NOW_MS

CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.sql.shuffle.partitions": "2",
}

BROKER = "a"
STORE = GOLDEN / "store-json-clean"
TOPIC_IN, TOPIC_BATCH, TOPIC_STREAM = "In", "FromBatch", "FromStream"
GOLDEN_SPLIT_BYTES = 8192
AT_A_TIME = 4
GOLDEN_NOW_MS = 1_800_000_000_000  # later than the newest golden record
SOUND = "nothing"
"""The name of the store without a fault."""

MODULES = ["roquet", "roquet.spark.log.reading", "msgspec"]
if compiled.is_built("roquet.spark.log._decoder"):
    MODULES.append("roquet.spark.log._decoder")

Row = dict[str, Any]


class Job(NamedTuple):
    """What every part is given."""

    spark: SparkSession
    namesrv: str
    folder: Path


def where(name: str) -> str:
    """The file of a module that an executor imports."""
    return str(import_module(name).__file__)


def sum_up(master: str) -> dict[str, Any]:
    """The numbers that the command ``roquet spark stats`` tells."""
    settings = [flag for each in CONF.items() for flag in ("--conf", "=".join(each))]
    command = ["stats", str(STORE), "--master", master, "--json", *settings]
    summed = CliRunner().invoke(spark_command, command, catch_exceptions=False)
    numbers: dict[str, Any] = json.loads(summed.stdout)["numbers"]
    return numbers


def read_stores(job: Job) -> dict[str, list[Row]]:
    """Every row of every golden store, with all its columns."""
    sizes = {"maxSplitBytes": str(GOLDEN_SPLIT_BYTES)}
    options = {"decompress": "false", "brokerName": BROKER, **sizes}
    frames = {name: log_side.load(job.spark, GOLDEN / name, **options) for name in GOLDEN_STORES}
    return {name: log_side.spark_rows(frame) for name, frame in frames.items()}


def archive_store(job: Job) -> tuple[dict[str, Any], int]:
    """What the archive's report says, and how many messages are in the lake."""
    lake = str(job.folder / "lake")
    report = archive(
        job.spark, str(STORE), lake, broker_name=BROKER, range_bytes=GOLDEN_SPLIT_BYTES
    )
    return dict(report.numbers), read_lake(job.spark, lake).count()


def rebuild_stores(job: Job) -> dict[str, int]:
    """Findings by store; what was built is in ``FOLDER/rebuilt``."""
    found = {}
    for name in GOLDEN_STORES:
        new = job.folder / "rebuilt" / name
        report = rebuild(job.spark, str(GOLDEN / name), str(new), split_bytes=GOLDEN_SPLIT_BYTES)
        found[name] = len(report.findings)
    return found


def audit_sound_stores(job: Job) -> dict[str, tuple[object, int]]:
    """Records and findings of every golden store."""
    told: dict[str, tuple[object, int]] = {}
    clock = ManualClock(GOLDEN_NOW_MS)
    for name in GOLDEN_STORES:
        report = audit(job.spark, str(GOLDEN / name), split_bytes=GOLDEN_SPLIT_BYTES, clock=clock)
        told[name] = (report.numbers["records"], len(report.findings))
    return told


def audit_fault(job: Job, name: str) -> set[str]:
    """The kinds of findings in a store with this fault."""
    store = filled(job.folder / "faults" / name)
    if name != SOUND:
        FAULTS[name].plant(Planter(store))
    clock = ManualClock(NOW_MS)
    return kinds_of(audit(job.spark, str(store.root), split_bytes=SPLIT_BYTES, clock=clock))


def audit_faults(job: Job) -> dict[str, set[str]]:
    """What is found for each fault there is, and in a store with none; several at a time."""
    names = [SOUND, *FAULTS]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return dict(zip(names, pool.map(partial(audit_fault, job), names), strict=True))


def read_and_write_topics(job: Job) -> list[tuple[int, int, int]]:
    """A topic is read and copied, once as a batch and once as a stream; the rows of the batch."""
    columns = ("queueId", "queueOffset", "body")
    frame = broker_side.load(job.spark, job, TOPIC_IN, columns=",".join(columns))
    rows = [(row.queueId, row.queueOffset, int(bytes(row.body))) for row in frame.collect()]
    # A row that is answered late would be sent twice.
    given = {"namesrv": job.namesrv, "sendTimeoutMs": str(TIMEOUT_MS)}
    doubled = (sf.col("body").cast("string").cast("int") * 2).cast("string").alias("body")
    batch = frame.select(doubled).write.format("rocketmq").mode("append")
    batch.options(**given, topic=TOPIC_BATCH).save()
    stream = broker_side.load_stream(job.spark, job, TOPIC_IN, maxOffsetsPerTrigger="40")
    query = (
        stream.select(doubled)
        .writeStream.format("rocketmq")
        .options(**given, topic=TOPIC_STREAM)
        .option("checkpointLocation", str(job.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return rows


PARTS: dict[str, Callable[[Job], object]] = {
    "modules": lambda job: run_tasks(job.spark, MODULES, where),
    "rows": read_stores,
    "archive": archive_store,
    "rebuilt": rebuild_stores,
    "sound": audit_sound_stores,
    "faults": audit_faults,
    "topics": read_and_write_topics,
}


def main(master: str, namesrv: str, folder: Path) -> None:
    """Do all parts."""
    told: dict[str, object] = {"stats": sum_up(master)}
    with open_session(app_name="cluster", master=master, conf=CONF) as spark:
        job = Job(spark, namesrv, folder)
        told |= {name: part(job) for name, part in PARTS.items()}
    (folder / "told").write_bytes(pickle.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
