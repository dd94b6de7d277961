"""The harness itself: the Java broker serves the stores that a Java broker wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.interop.logwalk import LogRecord, walk_commit_log
from tests.interop.oracle import JAVA_CONFIG, JavaOracle

# The first run on a machine downloads the jars within a test's setup.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

GOLDEN_CONFIG = {**JAVA_CONFIG, "maxIndexNum": 200}
GOLDEN = Path(__file__).parent.parent / "golden" / "data"


@pytest.mark.parametrize("name", ["store-json-clean", "store-json-crash"])
def test_java_serves_every_record_of_a_golden_store(
    java: JavaOracle, tmp_path: Path, name: str
) -> None:
    store = tmp_path / name
    shutil.copytree(GOLDEN / name, store, copy_function=shutil.copyfile)
    records = list(walk_commit_log(store))
    log_end = records[-1].end_offset
    topics = sorted({record.topic for record in records})
    assert set(topics) <= set(
        json.loads((store / "config/topics.json").read_text())["topicConfigTable"]
    )
    queues = 1 + max(record.queue_id for record in records)

    with java.broker(store, GOLDEN_CONFIG) as broker:
        # A started broker continues to deliver delayed messages: those lie after the old end.
        served = [
            message
            for message in java.client.consume(broker, topics, queues=queues)
            if message.physical_offset < log_end
        ]

    assert len(served) == len(records)
    by_offset = {message.physical_offset: message for message in served}
    for record in records:
        message = by_offset[record.physical_offset]
        assert _position(record) == (message.topic, message.queue_id, message.queue_offset)
        assert record.body_sha1 == message.body_sha1
        assert record.store_timestamp_ms == message.store_timestamp_ms


def _position(record: LogRecord) -> tuple[str, int, int]:
    return record.topic, record.queue_id, record.queue_offset
