"""The options and columns of the sink.

Owns their names and defaults, and the checks that need no cluster: required columns, their types,
and that nothing is overwritten.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roquet.client.compression import Compression
from roquet.client.names import check_group, check_publish_topic
from roquet.client.options import ClientOptions
from roquet.client.producer_options import ProducerOptions
from roquet.errors import ClientError, ConfigError, SparkOptionError, SparkSchemaError
from roquet.spark.broker.connect import CONNECT_ALIASES, CONNECT_OPTIONS, client_options
from roquet.spark.options import Options
from roquet.spark.schema import COLUMNS

__all__ = ["SINK_COLUMNS", "WRITE_OPTIONS", "WriteOptions", "check_columns", "write_options"]

SINK = "rocketmq"
DEFAULT_GROUP = "spark-rocketmq-sink"
DEFAULT_SEND_TIMEOUT_MS = 3_000
DEFAULT_RETRY_TIMEOUT_MS = 120_000
DEFAULT_IN_FLIGHT = 16
DEFAULT_BATCH_BYTES = 256 << 10

WRITE_OPTIONS = (
    *CONNECT_OPTIONS,
    "topic",
    "groupId",
    "writeId",
    "batchBytes",
    "maxInFlight",
    "sendTimeoutMs",
    "retryTimeoutMs",
    "compression",
    "compressOverBytes",
    "maxMessageBytes",
)

WRITE_ALIASES = {**CONNECT_ALIASES, "producerGroup": "groupId"}

_OF_SPARK = frozenset({"checkpointlocation", "queryname"})
"""Options of a query that Spark also passes to the sink."""

SINK_COLUMNS: dict[str, tuple[str, ...]] = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string", "array<string>"),
    "properties": ("map<string,string>",),
    "shardingKey": ("string",),
    "queueId": ("int", "bigint"),
    "brokerName": ("string",),
    "delayLevel": ("int", "bigint"),
    "deliverAt": ("timestamp", "bigint"),
}
"""The columns of the sink, with the types that each may have."""


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """Where to write, and how.

    Attributes:
        client: How to reach the cluster.
        topic: The topic of every row; ``None`` if it is in a column.
        group: The producer group.
        write_id: The prefix of row ids; ``None`` for the id of the query.
        batch_bytes: The maximum number of bytes in a request.
        in_flight: The maximum number of requests in flight.
        retry_timeout_ms: How long a row is retried while brokers are unreachable.
        producer: The options of the producer.
    """

    client: ClientOptions
    topic: str | None
    group: str
    write_id: str | None
    batch_bytes: int
    in_flight: int
    retry_timeout_ms: int
    producer: ProducerOptions


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Read the options of a sink.

    Raises:
        SparkOptionError: An option is unknown, missing or cannot be used.
    """
    own = {name: value for name, value in given.items() if name.lower() not in _OF_SPARK}
    options = Options(SINK, own, known=WRITE_OPTIONS, aliases=WRITE_ALIASES)
    topic = options.text("topic")
    group = options.text("groupId") or DEFAULT_GROUP
    kind = options.choice("compression", [each.value for each in Compression], "zlib")
    producer = ProducerOptions(
        send_timeout_ms=_number(options, "sendTimeoutMs", DEFAULT_SEND_TIMEOUT_MS),
        compression=Compression(kind),
        compress_over_bytes=options.size_bytes("compressOverBytes") or 4_096,
        max_message_bytes=options.size_bytes("maxMessageBytes") or 4 << 20,
    )
    try:
        check_group(group)
        if topic is not None:
            check_publish_topic(topic)
        producer.check()
    except (ClientError, ConfigError) as error:
        raise SparkOptionError(error.message, detail=error.detail, hint=error.hint) from None
    return WriteOptions(
        client=client_options(options),
        topic=topic,
        group=group,
        write_id=options.text("writeId"),
        batch_bytes=options.size_bytes("batchBytes") or DEFAULT_BATCH_BYTES,
        in_flight=_number(options, "maxInFlight", DEFAULT_IN_FLIGHT),
        retry_timeout_ms=_number(options, "retryTimeoutMs", DEFAULT_RETRY_TIMEOUT_MS),
        producer=producer,
    )


def _number(options: Options, name: str, default: int) -> int:
    found = options.integer(name, minimum=1, maximum=2**31 - 1)
    return default if found is None else found


def check_columns(columns: Mapping[str, str], options: WriteOptions) -> None:
    """Refuse a DataFrame whose columns do not fit the sink.

    Columns that only a source has are allowed and ignored, so that what was read can be written
    back; ``queueId`` and ``brokerName`` then name the target queue.

    Args:
        columns: Names and types, as Spark writes them.
        options: Where to write.

    Raises:
        SparkSchemaError: A column is missing, unknown or of another type.
    """
    if "body" not in columns:
        raise SparkSchemaError(
            "The sink needs a column 'body'.", hint="Name it: select(col('value').alias('body'))."
        )
    if options.topic is None and "topic" not in columns:
        raise SparkSchemaError(
            "The sink does not know where to write.", hint="Set the option or the column 'topic'."
        )
    for name, found in columns.items():
        types = SINK_COLUMNS.get(name)
        if types is None:
            if name not in COLUMNS:
                raise _unknown(name, tuple(SINK_COLUMNS))
        elif found not in types:
            raise SparkSchemaError(
                f"The column {name!r} is of type {found}, and must be {' or '.join(types)}.",
                hint=f"Cast it: col({name!r}).cast({types[0]!r}).",
            )
    if "shardingKey" in columns and "queueId" in columns:
        raise SparkSchemaError(
            "The columns 'shardingKey' and 'queueId' both say which queue.", hint="Drop one."
        )
    if "delayLevel" in columns and "deliverAt" in columns:
        raise SparkSchemaError(
            "The columns 'delayLevel' and 'deliverAt' both say when.", hint="Drop one."
        )


def _unknown(name: str, known: Sequence[str]) -> SparkSchemaError:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"It takes: {', '.join(known)}."
    return SparkSchemaError(f"The sink has no column {name!r}.", hint=hint)
