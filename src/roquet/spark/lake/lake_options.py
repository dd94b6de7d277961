"""The options of ``rocketmq-lake``.

Owns their names, meaning and defaults. A test compares docs/reference/spark-options.md with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from roquet.spark.lake.pruning import Bounds, Conditions
from roquet.spark.options import Options
from roquet.spark.schema import COLUMNS, TIMESTAMP_MAX_MS, TIMESTAMP_MIN_MS, choose_columns

__all__ = ["DAY", "FORMAT", "LAKE_COLUMNS", "OPTIONS", "LakeOptions", "read_lake_options"]

FORMAT = "rocketmq-lake"
DAY = "day"
LAKE_COLUMNS = {**COLUMNS, DAY: "string"}
"""The columns of a lake, in order, with their types."""

OPTIONS = (
    "path",
    "columns",
    "lakeFormat",
    "topics",
    "brokerName",
    "keys",
    "startingTimestamp",
    "endingTimestamp",
    "endingOffsets",
    "maxSplitBytes",
)
ALIASES = {"subscribe": "topics", "topic": "topics"}

LAKE_FORMATS = ("parquet", "delta", "iceberg")
SPLIT_BYTES = 64 << 20
"""About how much a task reads: compressed files are several times larger in memory."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class LakeOptions:
    """The options of a query.

    Attributes:
        address: Where the lake is.
        columns: The columns of the source if no schema is given.
        lake_format: The kind of the lake.
        broker_name: The broker whose messages are read; ``None`` for all.
        conditions: Which rows.
        split_bytes: About how much a task reads.
    """

    address: str
    columns: tuple[str, ...]
    lake_format: str
    broker_name: str | None
    conditions: Conditions
    split_bytes: int


def read_lake_options(given: Mapping[str, str]) -> LakeOptions:
    """Read the options that Spark passes.

    Raises:
        SparkOptionError: An option is unknown or cannot be used.
        SparkSchemaError: The option ``columns`` names an unknown column.
    """
    options = Options(FORMAT, given, known=OPTIONS, aliases=ALIASES)
    topics, broker_name = frozenset(options.names("topics")), options.text("brokerName")
    equal = {"topic": topics} if topics else {}
    if broker_name is not None:
        equal["brokerName"] = frozenset([broker_name])
    from_ms, to_ms = options.time_ms("startingTimestamp"), options.time_ms("endingTimestamp")
    bounds = {}
    if from_ms is not None or to_ms is not None:
        last_ms = None if to_ms is None else to_ms - 1
        bounds["storeTimestamp"] = Bounds(_moment(from_ms), _moment(last_ms, last=True))
    end_offset = options.integer("endingOffsets", minimum=0)
    if end_offset is not None:
        bounds["physicalOffset"] = Bounds(None, end_offset - 1)
    return LakeOptions(
        address=options.required("path", "Name a lake: .load(URI), where archive wrote."),
        columns=choose_columns(options.names("columns"), tuple(LAKE_COLUMNS))
        or tuple(LAKE_COLUMNS),
        lake_format=options.choice("lakeFormat", LAKE_FORMATS, "parquet"),
        broker_name=broker_name,
        conditions=Conditions(keys=frozenset(options.names("keys")), equal=equal, bounds=bounds),
        split_bytes=options.size_bytes("maxSplitBytes", minimum=1 << 10) or SPLIT_BYTES,
    )


def _moment(time_ms: int | None, *, last: bool = False) -> datetime | None:
    """Return the first or the last microsecond of a millisecond."""
    if time_ms is None:
        return None
    # Beyond these, no message of a lake has a time.
    time_ms = min(max(time_ms, TIMESTAMP_MIN_MS), TIMESTAMP_MAX_MS)
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    return moment + timedelta(microseconds=999) if last else moment
