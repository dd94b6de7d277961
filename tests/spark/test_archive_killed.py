"""Drivers of ``archive`` that are killed or told to end, and what is in the lake afterwards.

Runs over a log are killed at every step in ``tests/unit/spark/jobs/test_archive_killed.py``; here
real processes are. Of a stream over topics images are taken: what is in the lake while Spark is
held at a stage is what a driver leaves that is killed there, and a new query goes on from it.
"""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from roquet.client.options import ClientOptions
from roquet.spark.broker.source import RocketMQSource
from roquet.spark.jobs.follow import CHECKPOINT, archive_topics
from roquet.spark.jobs.inputs import Wanted
from roquet.spark.jobs.lake import read_lake
from roquet.testing.background import background_broker
from tests.spark.archive_killed import BEFORE_MANIFEST
from tests.spark.broker_killed import (
    BATCH_ROWS,
    BEFORE_PLAN,
    PLANNED,
    READING,
    STAGES,
    StoppingSource,
)
from tests.spark.broker_side import forget_commit, send_numbers
from tests.spark.conftest import QUICK_START
from tests.spark.stages import Driver, Stages, driver, wait_until
from tests.unit.spark.jobs.lake_kit import BROKER, lake_rows, log_rows
from tests.unit.spark.log.kit import mixed_messages, write_store

pytestmark = pytest.mark.slow

COUNT = BATCH_ROWS * 3
QUEUES = 2
QUICK = ["--conf", f"spark.driver.extraJavaOptions={QUICK_START}"]


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    (tmp_path / "stages").mkdir()
    return Stages(tmp_path / "stages")


def end_quietly(started: Driver, number: signal.Signals, told: str) -> None:
    assert started.end(number) == 0, started.errors
    assert started.errors == ""
    assert told in started.output


def test_a_log(spark: SparkSession, tmp_path: Path, stages: Stages) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    messages = mixed_messages(160)
    write_store(store, messages[:120], step_ms=60_000)
    manifests = lake / "_manifest" / BROKER
    words = ["spark", "archive", str(store), "--lake", str(lake), "--broker-name", BROKER]
    words += ["--follow", "--interval", "100ms", "--master", "local[2]", *QUICK]
    stages.hold(BEFORE_MANIFEST, 0)
    with driver(tmp_path, "tests.spark.archive_killed", [str(stages.folder), *words]) as killed:
        killed.wait_until(
            lambda: stages.is_reached(BEFORE_MANIFEST, 0) and any(manifests.glob("0*.json"))
        )
        killed.kill()
    # Files of the first range are there without a manifest, and a range behind it has one.
    assert not (manifests / f"{0:020d}.json").exists()
    assert (manifests / "run.json").exists()
    assert any(lake.rglob(f"part-*-{0:020d}.parquet"))

    shutil.rmtree(store)
    write_store(store, messages, step_ms=60_000)
    rows = log_rows(store)
    with driver(tmp_path, "roquet", words) as started:
        started.wait_until(lambda: not (manifests / "run.json").exists())
        end_quietly(started, signal.SIGTERM, "newMessages")
    assert lake_rows(lake) == rows
    assert read_lake(spark, str(lake)).count() == len(rows)
    assert not [path for path in lake.rglob("*") if path.name.startswith(".")]


# ---------------------------------------------------------------------------------- topics


def numbers(spark: SparkSession, lake: Path) -> list[int]:
    return sorted(
        int(bytes(row.body)) for row in read_lake(spark, str(lake)).select("body").collect()
    )


def whole_files(lake: Path) -> set[Path]:
    """The files that readers without Spark's list would see, as far as they are whole."""
    found = set()
    for path in lake.rglob("part-*.parquet"):
        try:
            pq.ParquetFile(path).close()
        except pa.ArrowInvalid:
            continue
        found.add(path)
    return found


def images(stages: Stages, lake: Path, folder: Path) -> Iterator[Path]:
    """What the lake is at each stage of the second batch, while the stream is held there."""

    def held(stage: str, number: int, name: str) -> Path:
        wait_until(lambda: stages.is_reached(stage, number), lambda: f"nobody came to {stage}")
        return Path(shutil.copytree(lake, folder / name))

    yield held(BEFORE_PLAN, 1, "before the plan")
    uncommitted = Path(shutil.copytree(lake, folder / "files listed, batch not committed"))
    forget_commit(uncommitted / CHECKPOINT, 0)
    yield uncommitted
    before = whole_files(lake)
    stages.let_go(BEFORE_PLAN, 1)
    yield held(PLANNED, 1, "planned")
    stages.let_go(PLANNED, 1)
    # One task has written its file, the other has not begun, and neither is listed.
    wait_until(lambda: len(whole_files(lake)) > len(before), lambda: "no task has written a file")
    yield held(READING, BATCH_ROWS // QUEUES, "files written, not listed")
    stages.let_go(READING, BATCH_ROWS // QUEUES)


def test_topics(spark: SparkSession, tmp_path: Path, stages: Stages) -> None:
    lake = tmp_path / "lake"
    stages.hold(BEFORE_PLAN, 1)
    stages.hold(PLANNED, 1)
    stages.hold(READING, BATCH_ROWS // QUEUES)
    with background_broker() as broker:
        broker.create_topic("Numbers", QUEUES)
        send_numbers(broker, "Numbers", 0, COUNT)
        cluster, wanted = ClientOptions(namesrv=broker.namesrv), Wanted(topics=["Numbers"])

        def follow() -> None:
            options = {STAGES: str(stages.folder), "maxOffsetsPerTrigger": str(BATCH_ROWS)}
            archive_topics(spark, cluster, str(lake), wanted=wanted, options=options)

        spark.dataSource.register(StoppingSource)
        thread = threading.Thread(target=follow)
        thread.start()
        try:
            found = list(images(stages, lake, tmp_path))
        finally:
            for path in stages.folder.glob("* held"):
                path.unlink()
            thread.join()
            spark.dataSource.register(RocketMQSource)
        assert numbers(spark, lake) == list(range(COUNT))
        for image in found[:-1]:
            shutil.rmtree(lake)
            # Spark's list of files has their whole paths.
            shutil.copytree(image, lake)
            archive_topics(spark, cluster, str(lake), wanted=wanted)
            assert numbers(spark, lake) == list(range(COUNT)), image.name
        shutil.rmtree(lake)
        shutil.copytree(found[-1], lake)
        words = ["spark", "archive", "--namesrv", broker.namesrv, "--topics", "Numbers"]
        words += ["--lake", str(lake), "--follow", "--interval", "100ms", "--master", "local[1]"]
        words += QUICK
        with driver(tmp_path, "roquet", words) as started:
            # The second batch once more, and then all that is left.
            started.wait_until((lake / CHECKPOINT / "commits" / "2").exists)
            end_quietly(started, signal.SIGINT, "messages")
        assert numbers(spark, lake) == list(range(COUNT))
        send_numbers(broker, "Numbers", COUNT, COUNT + 5)
        archive_topics(spark, cluster, str(lake), wanted=wanted)
        assert numbers(spark, lake) == list(range(COUNT + 5))
