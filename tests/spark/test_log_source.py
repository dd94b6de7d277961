"""``rocketmq-log`` in a real session; what needs no Spark is tested in tests/unit/spark/log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from roquet.spark.log.corrupt import message_row
from tests.spark.log_side import load, sorted_properties, spark_rows
from tests.unit.spark.log.kit import mixed_messages, stored_messages, stored_rows, write_store
from tests.unit.store.kit import opened, put

GOLDEN = Path(__file__).parents[1] / "golden" / "data"


@pytest.mark.parametrize("name", ["store-json-crash", "store-ext-clean"])
def test_a_golden_store_is_a_data_frame(spark: SparkSession, name: str) -> None:
    frame = load(spark, GOLDEN / name, decompress="false", brokerName="b", maxSplitBytes="9000")
    assert frame.rdd.getNumPartitions() > 2
    wanted = [sorted_properties({**row, "brokerName": "b"}) for row in stored_rows(GOLDEN / name)]
    assert [sorted_properties(row) for row in spark_rows(frame)] == wanted


def test_only_the_columns_of_the_schema_are_read(spark: SparkSession) -> None:
    store = GOLDEN / "store-json-clean"
    frame = (
        spark.read.format("rocketmq-log")
        .schema("queueOffset long, tags string, _corrupt string")
        .load(str(store))
    )
    found = Counter((row.queueOffset, row.tags, row["_corrupt"]) for row in frame.collect())
    assert found == Counter((m.queue_offset, m.tags, None) for m in stored_messages(store))


def test_damage_is_a_row_or_an_error(spark: SparkSession, tmp_path: Path) -> None:
    write_store(tmp_path, mixed_messages(40))
    segment = min((tmp_path / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    data[4] ^= 0xFF
    segment.write_bytes(data)
    frame = load(spark, tmp_path, columns="topic,physicalOffset,_corrupt")
    bad = frame.where("_corrupt is not null").collect()
    assert [(row.topic, row.physicalOffset) for row in bad] == [(None, 0)]
    assert load(spark, tmp_path, mode="DROPMALFORMED").count() == 39
    with pytest.raises(PySparkException, match="damaged at physical offset 0") as caught:
        load(spark, tmp_path, mode="FAILFAST").collect()
    assert "Traceback" not in str(caught.value).split("Driver stacktrace")[0]


def test_a_session_knows_the_sources_without_registration(spark: SparkSession) -> None:
    fresh = spark.newSession()
    assert fresh.read.format("rocketmq-log").load(str(GOLDEN / "store-json-clean")).count() == 143


@pytest.mark.parametrize(
    ("read", "sentence"),
    [
        (lambda s, p: load(s, p, topicks="a"), "rocketmq-log has no option 'topicks'.\nHINT: Did"),
        (lambda s, p: load(s, p / "none").collect(), "none does not exist.\nHINT: Pass"),
        (lambda s, p: load(s, p.parent).collect(), "it has no commitlog.\nHINT: Give"),
        (
            lambda s, p: (
                s.read.format("rocketmq-log").schema("topik string").load(str(p)).collect()
            ),
            "The source has no column 'topik'.\nHINT: Did you mean 'topic'?",
        ),
        (lambda s, p: load(s, p, startingOffsets="5").collect(), "where no record starts.\nDETAIL"),
        (lambda s, _: s.read.format("rocketmq-log").load().collect(), "needs the option 'path'"),
    ],
)
def test_bad_input_is_one_sentence_with_a_hint(
    spark: SparkSession, read: Callable[[SparkSession, Path], object], sentence: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        read(spark, GOLDEN / "store-json-clean")
    text = str(caught.value)
    assert sentence in text
    assert "Traceback" not in text
    assert 'File "' not in text


def test_a_stream_that_cannot_be_read_says_why(spark: SparkSession) -> None:
    frame = (
        spark.readStream.format("rocketmq-log")
        .option("endingOffsets", "5")
        .load(str(GOLDEN / "store-json-clean"))
    )
    query = frame.writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException, match="A stream of rocketmq-log has no end"):
        query.awaitTermination()


def test_a_growing_log_is_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """Three runs of one query: the second repeats the batch whose sink failed as it was planned."""
    path, out, checkpoint = tmp_path / "store", tmp_path / "out", tmp_path / "checkpoint"
    failing = {"at": 1}

    def write(frame: DataFrame, batch_id: int) -> None:
        if batch_id == failing["at"]:
            raise RuntimeError("the sink fails here")
        frame.write.mode("overwrite").parquet(str(out / f"batch={batch_id}"))

    def run() -> None:
        query = (
            spark.readStream.format("rocketmq-log")
            .option("maxOffsetsPerTrigger", "60")
            .option("columns", "physicalOffset,topic")
            .load(str(path))
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def written() -> list[tuple[int, int]]:
        frame = spark.read.parquet(str(out))
        return [(r.batch, r.physicalOffset) for r in frame.orderBy("physicalOffset").collect()]

    with opened(path) as store:
        put(store, *mixed_messages(100))
        with pytest.raises(StreamingQueryException, match="the sink fails here"):
            run()
        failing["at"] = -1
        put(store, *mixed_messages(30))
        run()
        put(store, *mixed_messages(10))
        run()
    offsets = [message_row(each)["physicalOffset"] for each in stored_messages(path)]
    assert [offset for _, offset in written()] == offsets
    assert Counter(batch for batch, _ in written()) == {0: 60, 1: 40, 2: 30, 3: 10}
