"""A lake that Spark wrote, read by Spark."""

from pathlib import Path

from pyspark.sql import SparkSession

from roquet.spark.jobs.archive import archive
from roquet.spark.jobs.inputs import read_log
from roquet.spark.jobs.lake import read_lake
from roquet.spark.schema import COLUMNS

STORE = Path(__file__).parents[1] / "golden" / "data" / "store-json-clean"


def test_the_lake_equals_the_log(spark: SparkSession, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    report = archive(spark, str(STORE), lake, broker_name="a", range_bytes=8 << 10)
    assert report.numbers["ranges"] == 5
    columns = [name for name in COLUMNS if name != "properties"]
    found = read_lake(spark, lake).select("properties", *columns).orderBy("physicalOffset")
    log = read_log(spark, str(STORE), brokerName="a").orderBy("physicalOffset")
    assert found.collect() == log.select("properties", *columns).collect()
    days = read_lake(spark, lake).where("topic = '%RETRY%golden_retry'").select("day").distinct()
    assert [row["day"] for row in days.collect()] == ["2026-11-15"]
