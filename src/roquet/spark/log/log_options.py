"""The options of ``rocketmq-log``.

Owns their names, meaning and defaults. A test compares docs/reference/spark-options.md with them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from roquet.errors import SparkOptionError
from roquet.spark.log.corrupt import MODES, PERMISSIVE
from roquet.spark.log.reading import ReadRules
from roquet.spark.log.selection import ALWAYS_MS, NEVER_MS, Selection
from roquet.spark.log.splits import SPLIT_BYTES
from roquet.spark.options import EARLIEST, LATEST, Options
from roquet.spark.schema import COLUMNS, choose_columns

FORMAT = "rocketmq-log"

OPTIONS = (
    "path",
    "paths",
    "columns",
    "topics",
    "subscribePattern",
    "queueIds",
    "keys",
    "useQueues",
    "useIndex",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsets",
    "endingOffsets",
    "mode",
    "checkCrc",
    "decompress",
    "brokerName",
    "failOnDataLoss",
    "minPartitions",
    "maxSplitBytes",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
)
ALIASES = {"subscribe": "topics", "topic": "topics"}


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options of a query.

    Attributes:
        paths: A store directory, or segment files.
        columns: The columns of the source if no schema is given.
        rules: How rows are made.
        start_offset: Physical offset to start at, or EARLIEST or LATEST.
        end_offset: Physical offset to end at, or LATEST; for a batch.
        use_queues: Whether to find messages through their ConsumeQueues; ``None`` if it pays.
        use_index: Whether to find keys and ids through the index; ``None`` if it pays.
        split_bytes: About how much a task reads.
        tasks_min: The minimum number of tasks.
        rows_per_trigger: The maximum number of messages in a micro-batch.
        bytes_per_trigger: The maximum number of bytes in a micro-batch.
    """

    paths: tuple[str, ...]
    columns: tuple[str, ...]
    rules: ReadRules
    start_offset: int
    end_offset: int
    use_queues: bool | None
    use_index: bool | None
    split_bytes: int
    tasks_min: int
    rows_per_trigger: int | None
    bytes_per_trigger: int | None


def read_log_options(given: Mapping[str, str], *, is_stream: bool = False) -> LogOptions:
    """Read the options that Spark passes.

    Raises:
        SparkOptionError: An option is unknown or cannot be used.
        SparkSchemaError: The option ``columns`` names an unknown column.
    """
    options = Options(FORMAT, given, known=OPTIONS, aliases=ALIASES)
    if "topics" in options and "subscribePattern" in options:
        raise SparkOptionError(
            f"Set only one of {options.given_as('topics')!r}, 'subscribePattern' of {FORMAT}.",
            hint="A pattern such as Orders|Refunds matches several topics.",
        )
    if is_stream and ("endingOffsets" in options or "endingTimestamp" in options):
        raise SparkOptionError(
            f"A stream of {FORMAT} has no end.",
            hint="Omit endingOffsets and endingTimestamp, or use spark.read.",
        )
    pattern = options.pattern("subscribePattern")
    use_queues = _auto(options, "useQueues", is_stream=is_stream)
    if use_queues and pattern is None and not options.names("topics"):
        raise SparkOptionError(
            f"The option 'useQueues' of {FORMAT} needs topics.",
            hint="Set topics or subscribePattern; reading all topics is faster without it.",
        )
    from_ms, to_ms = options.time_ms("startingTimestamp"), options.time_ms("endingTimestamp")
    selection = Selection(
        topics=frozenset(options.names("topics")),
        topic_pattern=None if pattern is None else pattern.pattern,
        queue_ids=frozenset(options.integers("queueIds")),
        keys=frozenset(options.names("keys")),
        store_from_ms=ALWAYS_MS if from_ms is None else from_ms,
        store_to_ms=NEVER_MS if to_ms is None else to_ms,
    )
    rules = ReadRules(
        selection=selection,
        mode=options.choice("mode", MODES, PERMISSIVE),
        check_crc=options.boolean("checkCrc", default=False),
        decompress=options.boolean("decompress", default=True),
        broker_name=options.text("brokerName"),
        fail_on_data_loss=options.boolean("failOnDataLoss", default=True),
    )
    return LogOptions(
        paths=_paths(options),
        columns=choose_columns(options.names("columns")) or tuple(COLUMNS),
        rules=rules,
        start_offset=_offset(options, "startingOffsets", EARLIEST),
        end_offset=_offset(options, "endingOffsets", LATEST),
        use_queues=use_queues,
        use_index=_auto(options, "useIndex", is_stream=is_stream),
        split_bytes=options.size_bytes("maxSplitBytes", minimum=1 << 10) or SPLIT_BYTES,
        tasks_min=options.integer("minPartitions", minimum=1, maximum=1 << 20) or 1,
        rows_per_trigger=options.integer("maxOffsetsPerTrigger", minimum=1),
        bytes_per_trigger=options.size_bytes("maxBytesPerTrigger"),
    )


def _auto(options: Options, name: str, *, is_stream: bool) -> bool | None:
    """Read an option that is ``auto`` by default, which a stream does not have."""
    word = options.choice(name, ["auto", "true", "false"], "auto")
    if word == "auto":
        return False if is_stream else None
    return word == "true"


def _paths(options: Options) -> tuple[str, ...]:
    many = options.text("paths")
    if many is None:
        path = options.required("path", "Name a store: .load(PATH), the directory with commitlog.")
        return (path,)
    try:
        found = json.loads(many)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise options.bad("paths", "not a list of paths", "Write .load([PATH, PATH]).")
    return tuple(found)


def _offset(options: Options, name: str, default: int) -> int:
    """Read a position in the log: a word or a physical offset."""
    text = options.text(name)
    if text is None:
        return default
    word = text.strip().lower()
    if word == "latest":
        return LATEST
    if word == "earliest" and default == EARLIEST:
        return EARLIEST
    if not word.isdecimal():
        words = "earliest, latest" if default == EARLIEST else "latest"
        raise options.bad(
            name,
            "not a position in the log",
            f"Write {words}, or the physicalOffset of a record.",
        )
    return int(word)
