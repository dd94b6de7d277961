"""The last value of each key of a topic, as Parquet or as a topic.

A message's key is the first word of its KEYS. The last message of a key is the one stored last; an
empty body is a tombstone, which deletes the key. Messages without a key are skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as f

from roquet.client.options import ClientOptions
from roquet.errors import SparkOptionError
from roquet.spark.broker.connect import connect_options
from roquet.spark.jobs.inputs import Wanted
from roquet.spark.jobs.lake_files import public_address
from roquet.spark.jobs.message_feeds import Source, read_source, source_name
from roquet.spark.jobs.spark_files import is_written_by_spark
from roquet.spark.lake.parquet_sink import write_parquet
from roquet.spark.report import Report

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["compact"]

DAMAGED = "damaged"
_COLUMNS = (
    *("topic", "queueId", "queueOffset", "body", "tags", "keys", "properties", "msgId"),
    *("bornTimestamp", "storeTimestamp", "physicalOffset"),
)


def compact(
    spark: SparkSession,
    source: Source,
    *,
    wanted: Wanted,
    out: str | None = None,
    to: ClientOptions | None = None,
    to_topic: str | None = None,
    is_overwrite: bool = False,
    is_dry_run: bool = False,
) -> Report:
    """Keep the last value of each key.

    Args:
        spark: A session that knows the sources.
        source: A store directory, or the connection to a cluster.
        wanted: Which messages, of exactly one topic.
        out: A folder or URI for Parquet files.
        to: The cluster of ``to_topic``.
        to_topic: The topic to send the values to; those of one key always go to the same queue.
        is_overwrite: Whether existing Parquet files are replaced.
        is_dry_run: Only count.

    Returns:
        Numbers of messages, keys, tombstones and values. Damaged bytes are a finding (``damaged``).

    Raises:
        SparkOptionError: The topic or the target is missing.
    """
    topic = _check(source, wanted, out, to, to_topic)
    report = Report(job="compact", source=source_name(source), is_dry_run=is_dry_run)
    read, kept = Observation(), Observation()
    found = with_key(read_source(spark, source, wanted, columns=_COLUMNS))
    # A body that cannot be decompressed is null, too, but not a tombstone.
    is_whole = f.col("topic").isNotNull() & f.col("body").isNotNull()
    messages = found.observe(
        read,
        f.count_if(is_whole).alias("messages"),
        f.count_if(is_whole & f.col("key").isNull()).alias("withoutKey"),
        f.count_if(~is_whole).alias(DAMAGED),
    )
    last = last_values(messages.where(is_whole)).observe(
        kept,
        f.count("*").alias("keys"),
        f.count_if(_is_tombstone()).alias("tombstones"),
    )
    values = last.where(~_is_tombstone())
    if is_dry_run:
        values.write.format("noop").mode("overwrite").save()
    elif out is not None:
        if is_written_by_spark(spark, out):
            values.write.mode("overwrite" if is_overwrite else "error").parquet(out)
        else:
            write_parquet(values, out, is_overwrite=is_overwrite)
        report.outputs.append(public_address(out))
    else:
        assert to is not None
        assert to_topic is not None
        _send(values, to, to_topic, f"compact/{topic}")
        report.outputs.append(f"topic {to_topic}")
    numbers = {**read.get, **kept.get}
    damaged = int(numbers.pop(DAMAGED))
    report.numbers |= numbers
    report.numbers["values"] = int(numbers["keys"]) - int(numbers["tombstones"])
    if damaged:
        report.add_finding(
            DAMAGED, report.source, f"{damaged} damaged ranges; run roquet spark audit"
        )
    return report


def _check(
    source: Source, wanted: Wanted, out: str | None, to: ClientOptions | None, to_topic: str | None
) -> str:
    if len(wanted.topics) != 1:
        raise SparkOptionError(
            "One topic is compacted at a time.", hint="Name it: --topics Prices."
        )
    if (out is None) == (to_topic is None):
        raise SparkOptionError(
            "The values go to Parquet files or to a topic.",
            hint="Set either --out or --to-topic.",
        )
    if to_topic is not None and to is None:
        raise SparkOptionError(
            "It is unclear which cluster has the topic.", hint="Set --to-namesrv."
        )
    (topic,) = wanted.topics
    if to_topic == topic and isinstance(source, ClientOptions):
        raise SparkOptionError(
            f"The values of {topic} would be sent to itself.", hint="Choose another topic."
        )
    return topic


def with_key(messages: DataFrame) -> DataFrame:
    """Add a column ``key``: the first word of KEYS, or null."""
    word = f.element_at(f.split(f.trim("keys"), " +"), 1)
    return messages.withColumn("key", f.when(f.length(word) > 0, word))


def last_values(messages: DataFrame) -> DataFrame:
    """Return for each key the columns of the message stored last."""
    place = f.struct("storeTimestamp", "physicalOffset", "queueOffset")
    columns = [name for name in messages.columns if name != "key"]
    found = (
        messages.where(f.col("key").isNotNull())
        .groupBy("key")
        .agg(f.max_by(f.struct(*columns), place).alias("last"))
    )
    return found.select("key", "last.*")


def _is_tombstone() -> Column:
    return f.length("body") == 0


def _send(values: DataFrame, to: ClientOptions, topic: str, write_id: str) -> None:
    rows = values.select("body", "tags", "keys", "properties", f.col("key").alias("shardingKey"))
    options = {**connect_options(to), "topic": topic, "writeId": write_id}
    rows.write.format("rocketmq").options(**options).mode("append").save()
