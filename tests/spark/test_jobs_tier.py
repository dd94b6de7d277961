"""Lake and log as one table, and segments that a running broker deletes early."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import roquet.spark
from roquet.cli.main import roquet as command
from roquet.client import Message
from roquet.runtime.clock import ManualClock
from roquet.spark import session
from roquet.spark.jobs.archive import archive
from roquet.spark.schema import COLUMNS
from roquet.store.drop import drop_segments
from roquet.testing.background import background_broker
from tests.spark.broker_side import send
from tests.unit.spark.log.kit import mixed_messages, stored_messages, write_store
from tests.unit.store.kit import NOW_MS, message, opened, put

RANGE_BYTES = 8 << 10


def offsets(spark: SparkSession, store: Path, lake: Path) -> list[int]:
    table = roquet.spark.tiered(spark, str(store), str(lake))
    assert table.columns == list(COLUMNS)
    return sorted(row.physicalOffset for row in table.select("physicalOffset").collect())


def test_one_table(spark: SparkSession, tmp_path: Path) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    write_store(store, mixed_messages(400), step_ms=1000)
    expected = [each.physical_offset for each in stored_messages(store)]
    archive(spark, str(store), str(lake), range_bytes=RANGE_BYTES)
    assert offsets(spark, store, lake) == expected
    with opened(store, clock=ManualClock(NOW_MS + 400_000)) as running:
        put(running, *(message(b"new") for _ in range(20)))
        assert len(offsets(spark, store, lake)) == 420
    expected = [each.physical_offset for each in stored_messages(store)]
    report = roquet.spark.tier(
        spark, str(store), str(lake), drop=lambda cut: drop_segments(store, cut)
    )
    assert report.outputs
    assert len(list(stored_messages(store))) < 420
    assert offsets(spark, store, lake) == expected
    archive(spark, str(store), str(lake), range_bytes=RANGE_BYTES)
    assert offsets(spark, store, lake) == expected


def test_a_store_that_apache_rocketmq_wrote(spark: SparkSession, tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden" / "data" / "store-json-clean"
    lake = tmp_path / "lake"
    expected = [each.physical_offset for each in stored_messages(golden)]
    archive(spark, str(golden), str(lake), range_bytes=RANGE_BYTES)
    assert offsets(spark, golden, lake) == expected
    report = roquet.spark.tier(spark, str(golden), str(lake))
    assert report.findings == []
    # The newest stays, whatever the lake has.
    assert report.table("Segments").rows[-1][3] == "the newest"


def test_a_running_broker_is_asked(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def shared(**_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(session, "open_session", shared)
    lake = tmp_path / "lake"
    # Segments go only after the queues of their messages have been synced.
    settings = {
        "mappedFileSizeCommitLog": 1 << 20,
        "cleanResourceInterval": 50,
        "flushConsumeQueueThoroughInterval": 50,
        "archivedFileReservedTime": 0,
    }
    with background_broker(settings) as broker:
        broker.create_topic("Big", 1)
        # Bodies that the client cannot compress fill segments.
        random = Random(7)
        send(broker, (Message("Big", random.randbytes(200_000)) for _ in range(8)))
        store = broker.running.folder / "store"
        name = broker.name
        archive(spark, str(store), str(lake), broker_name=name, range_bytes=300_000)
        words = ["spark", "tier", str(store), "--lake", str(lake), "--broker-name", name, "--json"]
        words += ["--keep", "0", "--namesrv", broker.namesrv, "--drop"]
        done = CliRunner().invoke(command, words)
        assert done.exit_code == 0, done.output
        report = json.loads(done.output)
        assert report["numbers"]["segmentsToDrop"] >= 1
        first = f"{report['numbers']['cutOffset']:020d}"
        pause = threading.Event()
        while min(path.name for path in (store / "commitlog").iterdir()) < first:
            pause.wait(0.05)
        table = roquet.spark.tiered(spark, str(store), str(lake), broker_name=name)
        assert table.where("topic = 'Big'").count() == 8
