"""A lake gives the rows that its log has, and reads no more of it than a query needs."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, LessThanOrEqual

from roquet.errors import SparkError, SparkOptionError
from roquet.model.properties import encode_properties
from roquet.spark.jobs import lake_files
from roquet.spark.jobs.archive import archive
from roquet.spark.jobs.lake import Lake
from roquet.spark.jobs.verify import verify
from roquet.spark.lake.lake_options import ALIASES, LAKE_COLUMNS, OPTIONS, read_lake_options
from roquet.spark.lake.planning import plan_lake
from roquet.spark.lake.pruning import Conditions, FileFacts
from roquet.spark.lake.reading import LakeReader
from roquet.spark.lake.source import lake_type
from roquet.spark.log.selection import Selection
from roquet.spark.schema import TIMESTAMP_MAX_MS, TIMESTAMP_MIN_MS, arrow_schema
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.jobs.lake_kit import BROKER, GOLDEN
from tests.unit.spark.log.kit import Row, mixed_messages, plain_rows, stored_rows, write_store
from tests.unit.store.kit import message

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "spark-options.md"
COUNT = 400
TOPICS = 3


class Query:
    """A query of a lake without Spark: what it plans, reads and skips."""

    def __init__(self, lake: Path | str, *filters: Filter, **options: str) -> None:
        read = read_lake_options({"path": str(lake), **options})
        conditions = read.conditions.with_filters(filters)
        planned = self.planned = plan_lake(read, conditions)
        schema = arrow_schema(lake_type(read.columns))
        self.reader = LakeReader(planned.address, schema, conditions)
        self.rows = sorted(
            (row for task in planned.tasks for row in plain_rows(self.reader.batches(task))),
            key=lambda row: row.get("physicalOffset", 0),
        )
        self.tasks = len(planned.tasks)
        self.files = planned.files
        self.files_opened = sum(len(task) for task in planned.tasks)
        self.groups_read = self.reader.groups_read


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log") / "store"
    write_store(folder, mixed_messages(COUNT), step_ms=600_000)
    return folder


@pytest.fixture(scope="module")
def lake(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    given = {"broker_name": BROKER, "range_bytes": 8 << 10, "decompress": False}
    archive(HERE, str(store), str(folder), **given)  # type: ignore[arg-type]
    return folder


def expected(store: Path, selection: Selection = Selection()) -> list[Row]:  # noqa: B008 - frozen
    rows = []
    for row in stored_rows(store):
        time_ms = row["storeTimestamp"] // 1000
        properties = dict(row["properties"])
        if selection.takes(row["topic"], row["queueId"], time_ms, properties):
            day = f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d}"
            rows.append({**row, "brokerName": BROKER, "day": day})
    return rows


def test_all_rows_of_a_java_store(tmp_path: Path) -> None:
    archive(HERE, str(GOLDEN), str(tmp_path), broker_name=BROKER, decompress=False)
    found = Query(tmp_path).rows
    assert found == expected(GOLDEN)
    assert list(found[0]) == list(LAKE_COLUMNS)


def test_files_are_split_into_tasks_by_size(store: Path, lake: Path) -> None:
    query = Query(lake, maxsplitbytes="16k")
    assert query.rows == expected(store)
    assert query.tasks > 2
    assert Query(lake).tasks == 1


def test_options_select_rows(store: Path, lake: Path) -> None:
    rows = expected(store)
    words = sorted({word for row in rows for word in (row["keys"] or "").split()})
    middle = rows[COUNT // 2 + 1]
    time_ms = middle["storeTimestamp"] // 1000
    key, topic = words[len(words) // 2], middle["topic"]
    assert Query(lake, topics=topic).rows == expected(store, Selection(topics=frozenset({topic})))
    for wanted in ({key}, {middle["msgId"]}, {words[0], words[-1], "nobody's"}):
        query = Query(lake, keys=",".join(wanted))
        assert query.rows == expected(store, Selection(keys=frozenset(wanted)))
    times = Query(lake, startingtimestamp=str(time_ms), endingtimestamp=str(time_ms + 3_600_000))
    assert times.rows == expected(
        store, Selection(store_from_ms=time_ms, store_to_ms=time_ms + 3_600_000)
    )
    offset = middle["physicalOffset"]
    until = Query(lake, brokername=BROKER, endingoffsets=str(offset))
    assert until.rows == [row for row in rows if row["physicalOffset"] < offset]
    assert Query(lake, brokername="another").rows == []


def test_times_without_an_end(store: Path, lake: Path) -> None:
    most, least = str(2**63 - 1), str(-(2**63))
    rows = expected(store)
    assert Query(lake, startingTimestamp=least, endingTimestamp=most).rows == rows
    assert Query(lake, startingTimestamp=most).rows == []
    assert Query(lake, endingTimestamp=least).rows == []
    late = FileFacts(times_ms=(TIMESTAMP_MIN_MS, TIMESTAMP_MAX_MS))
    last = EqualTo(("storeTimestamp",), datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC))
    assert Conditions().with_filters([last]).may_have_file(late)


def test_columns_of_the_folder_need_no_bodies(
    store: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    iterate = pq.ParquetFile.iter_batches

    def noted(file: pq.ParquetFile, *args: object, **given: object) -> object:
        asked.append(given["columns"])
        return iterate(file, *args, **given)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    found = Query(lake, columns="topic,day").rows
    assert sorted(map(str, found)) == sorted(
        str({name: row[name] for name in ("topic", "day")}) for row in expected(store)
    )
    # That of the newest range tells what its manifest does not have yet.
    assert {str(each) for each in asked} == {"['queueId']", "['physicalOffset']"}


def test_partition_columns_are_filled_in(store: Path, lake: Path) -> None:
    query = Query(lake, columns="day,topic,queueOffset", topics="TopicA")
    names = ("day", "topic", "queueOffset")
    rows = [row for row in expected(store) if row["topic"] == "TopicA"]
    assert sorted(query.rows, key=str) == sorted(
        ({name: row[name] for name in names} for row in rows), key=str
    )


def test_a_where_opens_few_files(store: Path, lake: Path) -> None:
    rows = expected(store)
    row = rows[COUNT // 2]
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row["storeTimestamp"])
    every = Query(lake)
    for filters in (
        [EqualTo(("offsetMsgId",), row["offsetMsgId"])],
        [EqualTo(("physicalOffset",), row["physicalOffset"])],
        [In(("msgId",), (row["msgId"], None))],
        [GreaterThan(("storeTimestamp",), moment - timedelta(microseconds=1)),
         LessThanOrEqual(("storeTimestamp",), moment), EqualTo(("topic",), row["topic"])],
    ):  # fmt: skip
        query = Query(lake, *filters)
        assert row in query.rows
        assert query.groups_read <= TOPICS < every.groups_read, filters
        assert every.files == query.files
    assert Query(lake, EqualTo(("topic",), "nobody's")).files_opened == 0
    assert Query(lake, In(("day",), ())).files_opened == 0
    # What cannot be compared excludes nothing.
    for unknown in (EqualTo(("queueId",), "x"), EqualTo(("properties", "a"), "b")):
        assert Query(lake, unknown).rows == rows


def test_a_key_lookup_reads_few_row_groups(tmp_path: Path) -> None:
    messages = [
        message(bytes(100), topic="T", properties=encode_properties({"KEYS": f"o{number % 50}"}))
        for number in range(COUNT)
    ]
    write_store(tmp_path / "store", messages, step_ms=600_000)
    lake = tmp_path / "lake"
    archive(HERE, str(tmp_path / "store"), str(lake), broker_name=BROKER, range_bytes=4 << 10)
    every = Query(lake)
    assert every.files > 15
    query = Query(lake, keys="o7")
    assert [row["keys"] for row in query.rows] == ["o7"] * (COUNT // 50)
    assert query.groups_read <= COUNT // 50 < every.groups_read
    assert Query(lake, keys="o700").groups_read <= 1
    assert Query(lake, EqualTo(("keys",), "o7")).groups_read <= COUNT // 50


def test_files_without_a_manifest_are_not_read(store: Path, tmp_path: Path) -> None:
    archive(HERE, str(store), str(tmp_path), broker_name=BROKER, range_bytes=8 << 10)
    before = Query(tmp_path).rows
    manifests = sorted((tmp_path / "_manifest" / BROKER).glob("0*.json"))
    manifests[-1].unlink()
    left = Query(tmp_path).rows
    assert left == before[: len(left)]
    assert len(left) < len(before)


def test_a_query_does_not_show_what_a_run_adds_meanwhile(tmp_path: Path) -> None:
    part, lake, messages = tmp_path / "part", tmp_path / "lake", mixed_messages(60)
    write_store(part, messages[:40])
    archive(HERE, str(part), str(lake), broker_name=BROKER)
    before = Query(lake)
    shutil.rmtree(part)
    write_store(part, messages)
    archive(HERE, str(part), str(lake), broker_name=BROKER)
    files = [file for task in before.planned.tasks for file in task]
    assert all(file.is_growing for file in files)
    again = sorted(plain_rows(before.reader.batches(files)), key=lambda row: row["physicalOffset"])
    assert again == before.rows
    assert len(Query(lake).rows) == 60


def test_missing_lakes_and_damaged_files_are_errors(lake: Path, tmp_path: Path) -> None:
    with pytest.raises(SparkOptionError, match="There is no lake at"):
        Query(tmp_path / "nowhere")
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(SparkOptionError, match="It is a Delta table"):
        Query(tmp_path)
    with pytest.raises(SparkOptionError, match="has no option 'topicks'"):
        Query(lake, topicks="a")
    part = next(lake.glob("topic=*/day=*/part-*.parquet"))
    data = part.read_bytes()
    try:
        part.write_bytes(data[:-5])
        with pytest.raises(SparkError, match="is damaged"):
            Query(lake)
        part.unlink()
        with pytest.raises(SparkError, match="lacks a file that it names"):
            Query(lake)
    finally:
        part.write_bytes(data)


def test_the_page_lists_every_option() -> None:
    section = PAGE.read_text("utf-8").split("## `rocketmq-lake`")[1].split("\n## ")[0]
    listed = {line.split("`")[1] for line in section.splitlines() if line.startswith("| `")}
    assert listed == {*OPTIONS, *ALIASES}


def test_files_that_an_upload_may_replace(
    store: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_files, "_UPLOADING", frozenset({""}))
    assert not Lake(str(lake)).manifests(BROKER)[-1].is_complete
    rows = expected(store)
    assert Query(lake).rows == rows
    query = Query(lake, EqualTo(("msgId",), rows[-1]["msgId"]))
    assert rows[-1] in query.rows
    assert query.groups_read <= TOPICS


def test_files_sorted_by_key(store: Path, tmp_path: Path) -> None:
    given = {"broker_name": BROKER, "decompress": False, "is_sorted": True}
    archive(HERE, str(store), str(tmp_path), **given)  # type: ignore[arg-type]
    assert Query(tmp_path).rows == expected(store)
    for part in tmp_path.glob("topic=*/day=*/part-*.parquet"):
        keys = pq.read_table(part, columns=["keys"], partitioning=None)["keys"].to_pylist()
        assert keys == sorted(keys, key=lambda key: (key is None, key or ""))
    assert not verify(HERE, str(store), str(tmp_path), broker_name=BROKER).findings
