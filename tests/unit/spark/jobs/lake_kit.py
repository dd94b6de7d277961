"""Runs of the archive, and the rows of a lake and of a log to compare."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq

from roquet.spark.jobs.archive import archive
from roquet.spark.report import Report
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.log.kit import stored_rows

GOLDEN = Path(__file__).parents[3] / "golden" / "data" / "store-json-clean"
BROKER = "broker-a"


def run(store: Path, lake: Path, *, range_bytes: int = 8 << 10, **more: object) -> Report:
    return archive(
        HERE,
        str(store),
        str(lake),
        broker_name=BROKER,
        range_bytes=range_bytes,
        **more,  # type: ignore[arg-type]
    )


def lake_rows(lake: Path) -> dict[int, tuple[str, bytes, str]]:
    """By physical offset: topic, body and day; a message that is there twice fails."""
    rows: dict[int, tuple[str, bytes, str]] = {}
    for path in sorted(lake.glob("topic=*/day=*/part-*.parquet")):
        table = pq.ParquetFile(path).read()
        topic = path.parts[-3].removeprefix("topic=").replace("%25", "%")
        for row in table.to_pylist():
            assert row["physicalOffset"] not in rows, f"{path} has a message again"
            rows[row["physicalOffset"]] = (topic, row["body"], path.parts[-2])
    return rows


def log_rows(store: Path) -> dict[int, tuple[str, bytes, str]]:
    return {
        row["physicalOffset"]: (
            row["topic"],
            row["body"],
            f"day={datetime.fromtimestamp(row['storeTimestamp'] / 1e6, UTC):%Y-%m-%d}",
        )
        for row in stored_rows(store)
    }
