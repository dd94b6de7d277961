"""The store of a Java broker, read by ``rocketmq-log`` while it runs, and after it was killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from roquet.spark.log.source import RocketMQLogSource
from roquet.spark.schema import struct_type
from tests.interop.javabroker import write_topics
from tests.interop.javaclient import JavaSendResult
from tests.interop.logwalk import walk_commit_log
from tests.interop.oracle import JavaOracle
from tests.interop.spark_log_kit import QUEUES, TOPIC, dispatched
from tests.unit.spark.log.kit import Row, plain_rows, rows, stored_rows, without

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


def places(found: list[Row]) -> list[tuple[int, int]]:
    return sorted((row["queueId"], row["queueOffset"]) for row in found)


def sent_places(sent: list[JavaSendResult]) -> list[tuple[int, int]]:
    return sorted((each.queue_id, each.queue_offset) for each in sent)


def test_the_log_of_a_running_java_broker_is_read(java: JavaOracle, tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "config").mkdir(parents=True)
    write_topics(store, {TOPIC: QUEUES})
    stream = RocketMQLogSource({"path": str(store), "topics": TOPIC}).streamReader(
        struct_type(["queueId", "queueOffset"])
    )
    with java.broker(store) as broker:
        sent = list(
            java.client.produce(
                broker, TOPIC, queues=QUEUES, count=400, size=300, seed=1, window=16
            )
        )
        found = dispatched(store, 400)
        assert places(found) == sent_places(sent)
        by_id = {row["offsetMsgId"]: row for row in found}
        for each in sent:
            row = by_id[each.offset_message_id]
            assert (row["topic"], row["flag"]) == (TOPIC, each.flag)
            assert dict(row["properties"]).items() >= each.properties.items()

        start = stream.initialOffset()
        middle = stream.latestOffset(start, ReadAllAvailable())
        more = list(java.client.produce(broker, TOPIC, queues=QUEUES, count=50, size=300, seed=2))
        dispatched(store, 450)
        end = stream.latestOffset(middle, ReadAllAvailable())
        assert stream.reportLatestOffset() == end
        for bounds, wanted in (((start, middle), sent), ((middle, end), more)):
            tasks = stream.partitions(*bounds)
            followed = [row for task in tasks for row in plain_rows(stream.read(task))]
            assert places(followed) == sent_places(wanted)
    # The broker was killed: its abort file is there, its queues may lag behind.
    assert (store / "abort").exists()
    whole = [without(row, "brokerName") for row in rows(store)]
    assert whole == stored_rows(store)
    assert [row["physicalOffset"] for row in whole] == [
        record.physical_offset for record in walk_commit_log(store)
    ]
    assert places([row for row in whole if row["topic"] == TOPIC]) == sent_places(sent + more)
