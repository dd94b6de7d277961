"""Groups against the heads of their queues."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from roquet.cli.main import roquet
from roquet.client.options import ClientOptions
from roquet.errors import ClientError
from roquet.model.message_queue import MessageQueue
from roquet.spark import session
from roquet.spark.jobs.inputs import Wanted
from roquet.spark.jobs.lag import lag
from roquet.spark.jobs.store_config import read_group_offsets
from roquet.testing.background import background_broker
from tests.spark.broker_side import send_numbers
from tests.spark.lag_kit import check_live, commit
from tests.unit.spark.log.kit import stored_messages

STORE = Path(__file__).parents[1] / "golden" / "data" / "store-json-clean"
GROUP, TOPIC = "golden_orderly", "GoldenOrder"


def write_offsets(store: Path, offsets: dict[int, int]) -> None:
    path = store / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": {f"{TOPIC}@{GROUP}": offsets}}))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STORE, tmp_path / "store"))


def test_a_java_store_as_it_is(spark: SparkSession) -> None:
    report = lag(spark, str(STORE))
    offsets = read_group_offsets(STORE)
    assert report.numbers["queues"] == sum(len(queues) for queues in offsets.values())
    ends: dict[tuple[str, int], int] = {}
    for each in stored_messages(STORE):
        ends[each.topic, each.queue_id] = max(
            ends.get((each.topic, each.queue_id), 0), each.queue_offset + 1
        )
    expected = {
        (group, topic, queue): ends.get((topic, queue), 0)
        for (group, topic), queues in offsets.items()
        for queue in queues
    }
    found = {(row[0], row[1], row[3]): row[5] for row in report.table("Queues").rows}
    assert found == expected


def test_messages_and_seconds(spark: SparkSession, store: Path) -> None:
    write_offsets(store, {0: 1, 1: 3})
    times = {
        each.queue_offset: each.store_timestamp_ms
        for each in stored_messages(store)
        if (each.topic, each.queue_id) == (TOPIC, 0)
    }
    now_ms = max(times.values()) + 60_000
    report = lag(spark, str(store), wanted=Wanted(to_ms=now_ms), messages_max=5, seconds_max=10.0)
    age = round((now_ms - times[1]) / 1000, 3)
    assert report.table("Groups").rows == [[GROUP, TOPIC, 2, age]]
    assert [row[6:] for row in report.table("Queues").rows] == [[2, age], [0, None]]
    assert [each.kind for each in report.findings] == ["behind"]


def test_offsets_that_cannot_be(spark: SparkSession, store: Path) -> None:
    write_offsets(store, {0: 99, 7: 5})
    report = lag(spark, str(store), groups=[GROUP])
    assert [(each.kind, each.where) for each in report.findings] == [
        ("ahead", f"{GROUP} at {TOPIC} queue 0"),
        ("ahead", f"{GROUP} at {TOPIC} queue 7"),
    ]
    assert lag(spark, str(store), groups=["nobody"]).numbers == {"queues": 0}
    assert lag(spark, str(store), is_dry_run=True).numbers == {"queues": 2}


def test_a_live_cluster(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def shared(**_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(session, "open_session", shared)
    with background_broker() as broker:
        broker.create_topic("Live", 2)
        send_numbers(broker, "Live", 0, 20)
        check_live(spark, broker, broker.name, "Live")
        commit(broker, "lost", {MessageQueue("Live", broker.name, 0): 99})
        words = ["spark", "lag", "--namesrv", broker.namesrv, "--groups", "lost", "--json"]
        result = CliRunner().invoke(roquet, words)
        assert result.exit_code == 2, result.output
        report = json.loads(result.output)
        assert report["source"] == broker.namesrv
        assert [each["kind"] for each in report["findings"]] == ["ahead"]
        assert report["findings"][0]["where"] == f"lost at Live {broker.name} queue 0"
        both = ["spark", "lag", str(STORE), "--namesrv", broker.namesrv]
        result = CliRunner().invoke(roquet, both)
        assert (result.exit_code, "not both" in result.output) == (2, True)
    with pytest.raises(ClientError):
        lag(spark, ClientOptions(namesrv=broker.namesrv))
