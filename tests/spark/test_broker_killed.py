"""Drivers that are killed in the middle of a batch, and what is in the topic afterwards."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from roquet.spark.broker.outgoing import ROW_ID
from roquet.testing.background import background_broker
from tests.spark.broker_killed import (
    BATCH_ROWS,
    BEFORE_PLAN,
    HALF_SENT,
    PLANNED,
    SENT,
    copy_options,
)
from tests.spark.broker_side import send_numbers
from tests.spark.stages import WAIT_S, Stages, driver

pytestmark = pytest.mark.slow

KILLED_BATCH = 1
COUNT = BATCH_ROWS * 3


@pytest.mark.parametrize(
    ("stage", "repeats"),
    [(BEFORE_PLAN, False), (PLANNED, False), (HALF_SENT, True), (SENT, True)],
)
def test_a_driver_killed_in_a_batch(
    spark: SparkSession, tmp_path: Path, stage: str, *, repeats: bool
) -> None:
    """The source is exact; the sink writes at least once, and marks what it repeats."""
    checkpoint = tmp_path / "checkpoint"
    with background_broker() as broker:
        broker.create_topic("Source", 2)
        broker.create_topic("Target", 2)
        send_numbers(broker, "Source", 0, COUNT)
        stages = Stages(tmp_path / "stages")
        stages.folder.mkdir()
        stages.hold(stage, KILLED_BATCH)
        arguments = [broker.namesrv, "Source", "Target", str(checkpoint), str(stages.folder)]
        with driver(tmp_path, "tests.spark.broker_killed", arguments) as started:
            started.wait_until(lambda: stages.is_reached(stage, KILLED_BATCH))
            started.kill()
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
        assert query.awaitTermination(WAIT_S)
        stored = broker.messages("Target")
    ids: dict[int, set[str]] = {}
    for each in stored:
        ids.setdefault(int(each.body), set()).add(each.properties[ROW_ID])
    assert sorted(ids) == list(range(COUNT))
    # A number with two ids would have been in two batches, or twice in one.
    assert all(len(found) == 1 for found in ids.values())
    counts = Counter(each.properties[ROW_ID] for each in stored)
    repeated = {int(row_id.split("/")[1]) for row_id, count in counts.items() if count > 1}
    assert repeated == ({KILLED_BATCH} if repeats else set())
