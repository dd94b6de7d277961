"""``roquet spark tier`` on the store of a Java broker: running, stopped, and started again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install .[spark]")

from click.testing import CliRunner

from roquet.cli.main import roquet
from roquet.spark import session
from roquet.spark.jobs.archive import archive
from roquet.spark.jobs.verify import verify
from tests.interop.javabroker import JavaBroker, write_topics
from tests.interop.oracle import JavaOracle
from tests.interop.spark_log_kit import QUEUES, TOPIC, dispatched
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.jobs.lake_kit import lake_rows, log_rows

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

COUNT = 800
RANGE_BYTES = 20_000


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def opened(**_: object) -> Iterator[object]:
        yield HERE

    monkeypatch.setattr(session, "open_session", opened)


def run_tier(java: JavaOracle, broker: JavaBroker, lake: Path) -> tuple[int, str]:
    words = ["spark", "tier", str(broker.store), "--lake", str(lake), "--keep", "0s", "--drop"]
    words += ["--namesrv", java.namesrv.address, "--broker-name", broker.broker_name, "--json"]
    done = CliRunner().invoke(roquet, words)
    return done.exit_code, done.output


def segments(store: Path) -> list[str]:
    return sorted(path.name for path in (store / "commitlog").iterdir())


def test_segments_of_a_java_broker(java: JavaOracle, tmp_path: Path) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    (store / "config").mkdir(parents=True)
    write_topics(store, {TOPIC: QUEUES})
    with java.broker(store) as broker:
        name = broker.broker_name
        list(
            java.client.produce(
                broker, TOPIC, queues=QUEUES, count=COUNT, size=300, seed=3, window=16
            )
        )
        dispatched(store, COUNT)
        archive(HERE, str(store), str(lake), broker_name=name, range_bytes=RANGE_BYTES)
        before = segments(store)
        assert len(before) > 4
        # It would delete by age only, so the report says that nothing is gained.
        code, told = run_tier(java, broker, lake)
        assert code == 1, told
        assert f"The broker {name} deletes segments by their age only." in told
        assert "Lower its fileReservedTime" in told
        assert segments(store) == before
        broker.stop()
    # The segment that it had made in advance goes with it.
    rows, before = log_rows(store), segments(store)
    archive(HERE, str(store), str(lake), broker_name=name, range_bytes=RANGE_BYTES)
    code, told = run_tier(java, broker, lake)
    assert code == 0, told
    numbers = json.loads(told)["numbers"]
    gone = numbers["segmentsToDrop"]
    assert gone >= 2
    assert segments(store) == before[gone:]
    assert lake_rows(lake) == rows
    with java.broker(store) as again:
        left = {at: row for at, row in rows.items() if at >= numbers["cutOffset"]}
        found = java.client.consume(again, [TOPIC], queues=QUEUES)
        assert len(found) == len([row for row in left.values() if row[0] == TOPIC])
        list(java.client.produce(again, TOPIC, queues=QUEUES, count=5, size=300, seed=4))
        again.stop()
    archive(HERE, str(store), str(lake), broker_name=name, range_bytes=RANGE_BYTES)
    assert lake_rows(lake) == rows | log_rows(store)
    assert not verify(HERE, str(store), str(lake), broker_name=name).findings
