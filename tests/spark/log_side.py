"""What tests of the source ``rocketmq-log`` have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812


def load(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    """A store as a DataFrame."""
    return spark.read.format("rocketmq-log").options(**options).load(str(path))


def spark_rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Rows as the reference gives them, in the order of the log."""
    times = {name: F.unix_micros(name) for name in frame.columns if name.endswith("Timestamp")}
    made = []
    for row in frame.withColumns(times).collect():
        values = row.asDict()
        values["body"] = bytes(values["body"])
        values["properties"] = list(values["properties"].items())
        made.append(values)
    return sorted(made, key=lambda row: row["physicalOffset"])


def sorted_properties(row: dict[str, Any]) -> dict[str, Any]:
    """Rows whose properties compare; a map of Spark has no order."""
    return {**row, "properties": sorted(row["properties"])}
