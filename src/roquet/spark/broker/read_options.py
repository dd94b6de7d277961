"""The options of reading from brokers.

Owns their names (those of Spark's Kafka source where the meaning is the same, with rocketmq-spark's
as aliases), their defaults, and which of them exclude each other. No request is sent: whether
topics and queues exist is checked later.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from roquet.client.expression import Expression, Sql, subscription_of
from roquet.client.names import check_group, check_topic
from roquet.client.options import ClientOptions
from roquet.errors import ClientError, SparkOptionError
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SUBSCRIBE_ALL
from roquet.spark.broker.connect import CONNECT_ALIASES, CONNECT_OPTIONS, client_options
from roquet.spark.broker.offsets import QueueOffsets, by_queue, parse_assignment
from roquet.spark.options import EARLIEST, LATEST, Options, parse_offsets

__all__ = ["READ_ALIASES", "READ_OPTIONS", "Position", "ReadOptions", "read_options"]

SOURCE = "rocketmq"
DEFAULT_GROUP = "spark-rocketmq-source"
DEFAULT_PULL_BATCH = 256
DEFAULT_PULL_TIMEOUT_MS = 10_000
DEFAULT_RETRY_TIMEOUT_MS = 120_000
DEFAULT_OFFSET_RETRIES = 60
DEFAULT_OFFSET_RETRY_MS = 1_000
DEFAULT_TRIGGER_DELAY_MS = 15 * 60_000

READ_OPTIONS = (
    *CONNECT_OPTIONS,
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "subExpression",
    "subExpressionType",
    "groupId",
    "groupIdPrefix",
    "columns",
    "decompress",
    "pullBatchSize",
    "pullTimeoutMs",
    "pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)

READ_ALIASES = {
    **CONNECT_ALIASES,
    "topic": "subscribe",
    "consumerGroup": "groupId",
    "kafkaConsumer.pollTimeoutMs": "pollTimeoutMs",
}


@dataclass(frozen=True)
class Position:
    """Where to start or end; the first attribute that is set counts.

    Attributes:
        timestamp_ms: One time for all queues.
        timestamps_ms: A time for each queue.
        offsets: An offset for each queue, or earliest or latest for all queues.
    """

    timestamp_ms: int | None
    timestamps_ms: QueueOffsets | None
    offsets: QueueOffsets | int


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What to read, and how.

    Attributes:
        client: How to reach the cluster.
        topics: The topics, if they are named.
        topic_pattern: A pattern that whole topic names must match, if given.
        assigned: The queues, if they are named.
        start: Where to start; ``None`` for the default: earliest in a batch, latest in a stream.
        end: Where a batch ends.
        is_late_start_fatal: Whether a starting time after the last message is an error.
        fail_on_data_loss: Whether missing messages are an error.
        min_partitions: The minimum number of tasks.
        max_records_per_partition: The maximum number of offsets in a task.
        max_offsets_per_trigger: The maximum number of offsets in a micro-batch.
        max_bytes_per_trigger: About how many bytes of messages are in a micro-batch at most.
        min_offsets_per_trigger: The number of offsets that a micro-batch waits for.
        max_trigger_delay_ms: How long it waits for them.
        expression: The filter that the broker applies.
        group: The consumer group.
        columns: The columns to read; empty for all.
        decompress: Whether bodies are decompressed.
        pull_batch: The maximum number of messages per request.
        pull_timeout_ms: The timeout of a request.
        retry_timeout_ms: How long a task retries while brokers are unreachable.
        offset_retries: How often the driver retries.
        offset_retry_ms: How long it waits before each retry.
    """

    client: ClientOptions
    topics: tuple[str, ...]
    topic_pattern: re.Pattern[str] | None
    assigned: tuple[MessageQueue, ...]
    start: Position | None
    end: Position
    is_late_start_fatal: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    expression: Expression
    group: str
    columns: tuple[str, ...]
    decompress: bool
    pull_batch: int
    pull_timeout_ms: int
    retry_timeout_ms: int
    offset_retries: int
    offset_retry_ms: int


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Read the options of a source.

    Raises:
        SparkOptionError: An option is unknown, missing or cannot be used.
    """
    options = Options(SOURCE, given, known=READ_OPTIONS, aliases=READ_ALIASES)
    topics, pattern, assigned = _topics(options)
    most = options.integer("maxOffsetsPerTrigger", minimum=1)
    least = options.integer("minOffsetsPerTrigger", minimum=1)
    if most is not None and least is not None and least > most:
        raise options.bad(
            "minOffsetsPerTrigger", f"more than maxOffsetsPerTrigger ({most})", "Write less."
        )
    strategy = options.choice("startingOffsetsByTimestampStrategy", ["latest", "error"], "latest")
    return ReadOptions(
        client=client_options(options),
        topics=topics,
        topic_pattern=pattern,
        assigned=assigned,
        start=_position(options, "starting", None),
        end=_ending(options),
        is_late_start_fatal=strategy == "error",
        fail_on_data_loss=options.boolean("failOnDataLoss", default=True),
        min_partitions=options.integer("minPartitions", minimum=1),
        max_records_per_partition=options.integer("maxRecordsPerPartition", minimum=1),
        max_offsets_per_trigger=most,
        max_bytes_per_trigger=options.size_bytes("maxBytesPerTrigger"),
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=_or(options.duration_ms("maxTriggerDelay"), DEFAULT_TRIGGER_DELAY_MS),
        expression=_expression(options),
        group=_group(options),
        columns=options.names("columns"),
        decompress=options.boolean("decompress", default=True),
        pull_batch=_number(options, "pullBatchSize", DEFAULT_PULL_BATCH),
        pull_timeout_ms=_number(options, "pullTimeoutMs", DEFAULT_PULL_TIMEOUT_MS),
        retry_timeout_ms=_number(options, "pollTimeoutMs", DEFAULT_RETRY_TIMEOUT_MS),
        offset_retries=_number(
            options, "fetchOffset.numRetries", DEFAULT_OFFSET_RETRIES, minimum=0
        ),
        offset_retry_ms=_number(
            options, "fetchOffset.retryIntervalMs", DEFAULT_OFFSET_RETRY_MS, minimum=0
        ),
    )


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _number(options: Options, name: str, default: int, *, minimum: int = 1) -> int:
    return _or(options.integer(name, minimum=minimum, maximum=2**31 - 1), default)


# --------------------------------------------------------------------------------------- topics


def _topics(
    options: Options,
) -> tuple[tuple[str, ...], re.Pattern[str] | None, tuple[MessageQueue, ...]]:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if options.text(name)]
    if len(given) != 1:
        names = "'subscribe', 'subscribePattern', 'assign'"
        shown = ", ".join(repr(options.given_as(name)) for name in given)
        raise SparkOptionError(
            f"Set only one of {names} of {SOURCE}."
            if given
            else f"{SOURCE} needs one of the options {names}.",
            detail=f"given: {shown}" if given else None,
            hint="Name topics as in subscribe=Orders,Payments.",
        )
    topics = tuple(dict.fromkeys(options.names("subscribe")))
    assigned: tuple[MessageQueue, ...] = ()
    if given == ["assign"]:
        try:
            assigned = tuple(parse_assignment(options.text("assign") or ""))
        except ValueError as error:
            raise options.bad(
                "assign", str(error), 'Write it as {"Orders": {"broker-a": [0, 1]}}.'
            ) from None
    for topic in (*topics, *(queue.topic for queue in assigned)):
        try:
            check_topic(topic)
        except ClientError as error:
            raise SparkOptionError(error.message, detail=error.detail, hint=error.hint) from None
    if given == ["subscribe"] and not topics:
        raise options.bad("subscribe", "naming no topic", "Write it as Orders,Payments.")
    return topics, options.pattern("subscribePattern"), assigned


# ------------------------------------------------------------------------------------ positions


def _position(options: Options, side: str, default: int | None) -> Position | None:
    names = (f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets")
    if default is None and not any(name in options for name in names):
        return None
    found = options.offsets(names[2], EARLIEST if default is None else default)
    return Position(
        timestamp_ms=options.time_ms(names[0]),
        timestamps_ms=_times(options, names[1]),
        offsets=found if isinstance(found, int) else by_queue(found),
    )


def _ending(options: Options) -> Position:
    found = _position(options, "ending", LATEST)
    assert found is not None
    if found.offsets == EARLIEST or (
        isinstance(found.offsets, dict) and EARLIEST in found.offsets.values()
    ):
        raise options.bad(
            "endingOffsets", "the beginning", "Write latest, or offsets where to end."
        )
    return found


def _times(options: Options, name: str) -> QueueOffsets | None:
    text = options.text(name)
    if text is None:
        return None
    try:
        return by_queue(parse_offsets(text))
    except ValueError as error:
        raise options.bad(
            name,
            str(error),
            'Write JSON as {"topic":{"broker-a":{"0":1700000000000}}}, milliseconds since 1970.',
        ) from None


# -------------------------------------------------------------------------------------- filters


def _expression(options: Options) -> Expression:
    text = options.text("subExpression", SUBSCRIBE_ALL) or SUBSCRIBE_ALL
    kind = options.choice("subExpressionType", ["TAG", "SQL92"], "TAG")
    if kind == "SQL92" and "subExpression" not in options:
        raise SparkOptionError(
            f"The option 'subExpressionType' of {SOURCE} is SQL92, but there is no expression.",
            hint="Set it as subExpression, such as price > 10.",
        )
    found: Expression = Sql(text) if kind == "SQL92" else text
    try:
        subscription_of("topic", found, version_ms=0)
    except ClientError as error:
        raise options.bad(
            "subExpression",
            f"not an expression ({error.detail})",
            error.hint or "Write paid || sent.",
        ) from None
    return found


def _group(options: Options) -> str:
    """Return the group. The default is fixed, because brokers keep every group that ever pulled."""
    group = options.text("groupId")
    prefix = options.text("groupIdPrefix")
    if group is None and prefix is not None:
        what = options.text("subscribe") or options.text("subscribePattern")
        digest = hashlib.sha256((what or options.text("assign") or "").encode()).hexdigest()
        group = f"{prefix}-{digest[:12]}"
    try:
        check_group(group or DEFAULT_GROUP)
    except ClientError as error:
        raise SparkOptionError(error.message, detail=error.detail, hint=error.hint) from None
    return group or DEFAULT_GROUP
