"""The input of a pipeline.

Owns the selection that every pipeline takes, and converts it to options of the sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ALL", "Wanted", "read_log"]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Selects messages; by default all.

    Attributes:
        topics: Names of topics; empty for all.
        from_ms: The first store time, in milliseconds since the epoch.
        to_ms: The end of the store times, exclusive.
    """

    topics: Sequence[str] = ()
    from_ms: int | None = None
    to_ms: int | None = None

    def log_options(self) -> dict[str, str]:
        """Return the selection as options of ``rocketmq-log``."""
        options: dict[str, str] = {}
        if self.topics:
            options["topics"] = ",".join(self.topics)
        if self.from_ms is not None:
            options["startingTimestamp"] = str(self.from_ms)
        if self.to_ms is not None:
            options["endingTimestamp"] = str(self.to_ms)
        return options


ALL = Wanted()


def read_log(
    spark: SparkSession,
    store: str,
    wanted: Wanted = ALL,
    *,
    columns: Sequence[str] = (),
    **options: str,
) -> DataFrame:
    """Read messages of a store directory, with only the columns that are needed.

    Args:
        spark: A session that knows the sources.
        store: The directory.
        wanted: Which messages.
        columns: The columns to decode; empty for all.
        options: Further options of ``rocketmq-log``.
    """
    reader = spark.read.format("rocketmq-log").options(**wanted.log_options(), **options)
    if columns:
        reader = reader.option("columns", ",".join(columns))
    return reader.load(store)
