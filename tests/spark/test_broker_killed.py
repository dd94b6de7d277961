"""Drivers that are killed in the middle of a batch, and what is in the topic afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from roquet.spark.broker.outgoing import ROW_ID
from roquet.testing.background import background_broker
from tests.spark.broker_killed import (
    BATCH,
    BATCH_ROWS,
    HALF_SENT,
    MARK,
    SENT,
    STAGE,
    STAGES,
    copy_options,
)
from tests.spark.broker_side import send_numbers

pytestmark = pytest.mark.slow

COUNT = BATCH_ROWS * (len(STAGES) + 2)


def _run_until_killed(arguments: list[str], folder: Path, stage: str, batch: int) -> None:
    mark = folder / f"stopped {stage}"
    log = folder / f"{stage}.log"
    with log.open("wb") as output:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.broker_killed", *arguments],
            env={**os.environ, STAGE: stage, BATCH: str(batch), MARK: str(mark)},
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + 120
            while not mark.exists():
                assert driver.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()


@pytest.mark.timeout(600)
def test_a_driver_killed_at_every_stage(spark: SparkSession, tmp_path: Path) -> None:
    """The source is exact; the sink writes at least once, and marks what it repeats."""
    checkpoint = tmp_path / "checkpoint"
    with background_broker() as broker:
        broker.create_topic("Source", 2)
        broker.create_topic("Target", 2)
        send_numbers(broker, "Source", 0, COUNT)
        arguments = [broker.namesrv, "Source", "Target", str(checkpoint)]
        for number, stage in enumerate(STAGES):
            # Each of them finishes what the one before began, and then stops itself.
            _run_until_killed(arguments, tmp_path, stage, number + 1)
        reading, writing = copy_options(broker.namesrv, "Source", "Target")
        query = (
            spark.readStream.format("rocketmq")
            .options(**reading)
            .load()
            .writeStream.format("rocketmq")
            .options(checkpointLocation=str(checkpoint), **writing)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        stored = broker.messages("Target")
    ids: dict[int, set[str]] = {}
    for each in stored:
        ids.setdefault(int(each.body), set()).add(each.properties[ROW_ID])
    assert sorted(ids) == list(range(COUNT))
    # A number with two ids would have been in two batches, or twice in one.
    assert all(len(found) == 1 for found in ids.values())
    repeats = Counter(each.properties[ROW_ID] for each in stored)
    repeated_batches = {int(row_id.split("/")[1]) for row_id, count in repeats.items() if count > 1}
    assert repeated_batches == {STAGES.index(HALF_SENT) + 1, STAGES.index(SENT) + 1}
