"""Growth of a store, of which all times and sizes are known."""

from pathlib import Path

from pyspark.sql import SparkSession

from roquet.spark.jobs.capacity import capacity
from tests.unit.spark.log.kit import mixed_messages, stored_messages, write_store

HOUR_MS = 3_600_000


def test_growth_of_ten_days(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_store(store, mixed_messages(241), step_ms=HOUR_MS)
    messages = list(stored_messages(store))
    last_day = max(each.store_timestamp_ms for each in messages) // (24 * HOUR_MS)
    recent = [each for each in messages if each.store_timestamp_ms // (24 * HOUR_MS) > last_day - 4]
    report = capacity(spark, str(store), days=4, reserved_hours=240)
    numbers = report.numbers
    assert numbers["logBytes"] == sum(each.store_size for each in messages)
    assert not numbers["isExtrapolated"]
    assert [row[1] for row in report.table("Days").rows][1:3] == [24, 24]
    assert sum(int(str(row[1])) for row in report.table("Topics").rows) == len(recent)
    span_days = (recent[-1].store_timestamp_ms - recent[0].store_timestamp_ms) / (24 * HOUR_MS)
    least = sum(each.store_size for each in recent) / span_days
    assert isinstance(numbers["bytesADay"], int)
    assert least < numbers["bytesADay"] < 10 * least
    assert (numbers["daysToFull"], report.findings) == (None, [])


def test_a_disk_that_will_be_full(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_store(store, mixed_messages(30), step_ms=1000)
    report = capacity(spark, str(store), reserved_hours=1e12, days_min=1e12)
    assert report.numbers["isExtrapolated"] is True
    (finding,) = report.findings
    assert finding.kind == "full"
    assert capacity(spark, str(store), is_dry_run=True).numbers == {"tasks": 1}
