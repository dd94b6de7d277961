"""Dead letters, replay and compaction with a session, and by their commands."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from roquet.cli.main import roquet
from roquet.client import ClientOptions
from roquet.errors import SparkOptionError
from roquet.model.message import BrokerMessage
from roquet.model.properties import encode_properties
from roquet.model.sys_flag import COMPRESSED
from roquet.spark import session
from roquet.spark.broker.outgoing import ROW_ID
from roquet.spark.jobs.compact import compact
from roquet.spark.jobs.inputs import Wanted
from roquet.testing.background import BackgroundBroker, background_broker
from tests.unit.spark.log.kit import write_store
from tests.unit.store.kit import message

WANTED = Wanted(topics=["Prices"])


def price(keys: str, body: str, queue_id: int = 0, *, topic: str = "Prices") -> BrokerMessage:
    named = {"KEYS": keys, "TAGS": "eu", "unit": "cent"} if keys else {"unit": "cent"}
    properties = encode_properties(named)
    return message(body.encode(), topic=topic, queue_id=queue_id, properties=properties)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("compact") / "store"
    made = [
        *(price("tea all", "1"), price("milk", "2", 1), price("salt", "3"), price("", "4")),
        *(price("tea", "5", 2), price("salt", ""), price("milk", "", 1), price("milk", "6", 1)),
        *(price("tea", "7", topic="Others"), price("bread", "", 3), price(" rice  x", "8")),
        price("poison", "9", topic="%DLQ%billing")._replace(reconsume_times=17),
    ]
    # All at one time, so that the place in the log decides.
    write_store(root, made)
    return root


@pytest.fixture(scope="module")
def broker() -> Iterator[BackgroundBroker]:
    with background_broker() as running:
        yield running


def test_the_last_value_of_each_key_stays(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "prices")
    report = compact(spark, str(store), wanted=WANTED, out=out)
    assert report.numbers == {
        "messages": 10,
        "withoutKey": 1,
        "keys": 5,
        "tombstones": 2,
        "values": 3,
    }
    found = {row["key"]: row for row in spark.read.parquet(out).collect()}
    assert {key: bytes(row["body"]) for key, row in found.items()} == {
        "tea": b"5",
        "milk": b"6",
        "rice": b"8",
    }
    assert found["tea"]["properties"]["unit"] == "cent"
    assert (found["milk"]["queueId"], found["milk"]["tags"]) == (1, "eu")
    counted = compact(spark, str(store), wanted=WANTED, out=out, is_dry_run=True)
    assert counted.numbers == report.numbers
    again = compact(spark, str(store), wanted=WANTED, out=out, is_overwrite=True)
    assert again.numbers == report.numbers


def test_what_is_damaged_deletes_no_key(spark: SparkSession, tmp_path: Path) -> None:
    broken = price("tea", "not compressed")._replace(sys_flag=COMPRESSED)
    write_store(tmp_path / "store", [price("tea", "1"), broken, price("milk", "2")])
    segment = min((tmp_path / "store" / "commitlog").iterdir())
    source = str(tmp_path / "store")
    report = compact(spark, source, wanted=WANTED, out="unused", is_dry_run=True)
    assert report.numbers == {
        "messages": 2,
        "withoutKey": 0,
        "keys": 2,
        "tombstones": 0,
        "values": 2,
    }
    assert [each.kind for each in report.findings] == ["damaged"]
    data = bytearray(segment.read_bytes())
    data[4:8] = bytes(4)
    segment.write_bytes(data)
    report = compact(spark, source, wanted=WANTED, out="unused", is_dry_run=True)
    assert report.numbers["values"] == 1
    assert report.has_findings


def test_values_go_to_a_topic_and_from_there_again(
    spark: SparkSession, store: Path, broker: BackgroundBroker
) -> None:
    broker.create_topic("Latest")
    to = ClientOptions(namesrv=broker.namesrv)
    report = compact(spark, str(store), wanted=WANTED, to=to, to_topic="Latest")
    assert report.outputs == ["topic Latest"]
    found = broker.messages("Latest")
    assert sorted((each.properties["KEYS"].split()[0], each.body) for each in found) == [
        *(("milk", b"6"), ("rice", b"8"), ("tea", b"5"))
    ]
    assert all(each.properties[ROW_ID].startswith("compact/Prices/") for each in found)
    wanted = Wanted(topics=["Latest"])
    counted = compact(spark, to, wanted=wanted, to=to, to_topic="Other", is_dry_run=True)
    assert counted.numbers["values"] == 3


def test_what_is_not_said_or_makes_no_sense_is_refused(spark: SparkSession, store: Path) -> None:
    to = ClientOptions(namesrv="127.0.0.1:1")
    with pytest.raises(SparkOptionError, match="One topic"):
        compact(spark, str(store), wanted=Wanted(), out="x")
    with pytest.raises(SparkOptionError, match="to Parquet files or"):
        compact(spark, str(store), wanted=WANTED, out="x", to=to, to_topic="y")
    with pytest.raises(SparkOptionError, match="which cluster"):
        compact(spark, str(store), wanted=WANTED, to_topic="y")
    with pytest.raises(SparkOptionError, match="to itself"):
        compact(spark, to, wanted=WANTED, to=to, to_topic="Prices")


def test_the_commands_run(
    spark: SparkSession,
    store: Path,
    broker: BackgroundBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def opened(**_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(session, "open_session", opened)
    broker.create_topic("Back")

    def call(*words: str) -> dict[str, object]:
        result = CliRunner().invoke(roquet, ["spark", *words, "--json"])
        assert result.exit_code == 0, result.output
        found: dict[str, object] = json.loads(result.stdout)["numbers"]
        return found

    path, namesrv = str(store), ["--namesrv", broker.namesrv]
    assert call("dlq", "list", path) == {"groups": 1, "letters": 1}
    assert call("dlq", "show", path, "--id", "poison") == {"letters": 1}
    to = ["--to-topic", "Back", "--rate", "1000", *namesrv]
    assert call("dlq", "replay", path, *to) == {"messages": 1}
    assert call("replay", path, "--topics", "Others", *to) == {"messages": 1}
    assert call("compact", path, "--topics", "Others", "--out", str(tmp_path / "o"))["values"] == 1
    assert {each.body for each in broker.messages("Back")} == {b"9", b"7"}
    counted = call("replay", *namesrv, "--topics", "Back", "--to-topic", "B", "--dry-run")
    assert counted["messages"] == 2
    result = CliRunner().invoke(roquet, ["spark", "replay", path, "--topics", "Others"])
    assert result.exit_code == 2
    assert "--to-topic" in result.output
