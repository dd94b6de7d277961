"""The pipelines of the demo, over the log of the running broker and over the wire."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from pyspark.sql import functions as f

from roquet.cli.spark.run import print_report
from roquet.spark.jobs.archive import archive
from roquet.spark.jobs.audit import audit
from roquet.spark.jobs.dlq import list_letters
from roquet.spark.jobs.lag import lag
from roquet.spark.jobs.lake import read_lake
from roquet.spark.jobs.stats import stats
from roquet.spark.jobs.verify import verify
from roquet.spark.session import open_session
from scripts.demo.screen import bars, say, spark_line
from scripts.demo.servers import Failed
from scripts.demo.shop import BILLING, ORDERS, SHIPPING, Sent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from roquet.spark.report import Report

STREAM_TIMEOUT_S = 60
ORDER_SCHEMA = "order int, customer int, item string, price double"
BROKER_NAME = "demo"


def run_pipelines(folder: Path, namesrv: str, sent: Sent) -> None:
    """Run all pipelines in one session."""
    store = str(folder / "store")
    click.echo("Spark starts, which takes some seconds.")
    with open_session(app_name="demo", master="local[2]") as spark:
        say("Statistics from the files of the running broker: roquet spark stats STORE")
        _shown(stats(spark, store, hot_keys=5))
        say("A stream: revenue by category, in windows of a second, through the broker")
        _stream(spark, namesrv, folder)
        say("How far the groups are: roquet spark lag STORE")
        _lag(spark, store)
        say("Dead letters: roquet spark dlq list STORE")
        _dead_letters(spark, store, sent)
        say("Every record against its checksum, queue and index: roquet spark audit STORE")
        _shown(audit(spark, store))
        say("The log as a Parquet lake: roquet spark archive STORE --lake LAKE")
        lake = str(folder / "lake")
        _shown(archive(spark, store, lake, broker_name=BROKER_NAME))
        _shown(verify(spark, store, lake, broker_name=BROKER_NAME, check_bodies=True))
        _check_lake(spark, lake, sent)


def _shown(report: Report) -> None:
    print_report(report)
    if report.has_findings:
        raise Failed(f"{report.job} found {len(report.findings)} things that should not be")


def _lag(spark: SparkSession, store: str) -> None:
    """Check that billing has consumed all orders and shipping has not."""
    report = lag(spark, store, groups=[BILLING, SHIPPING])
    _shown(report)
    behind = {row[0]: row[2] for row in report.table("Groups").rows if row[1] == ORDERS}
    if behind.get(BILLING) != 0 or not behind.get(SHIPPING):
        raise Failed(f"shipping is behind and billing is not, but lag says {behind}")


def _dead_letters(spark: SparkSession, store: str, sent: Sent) -> None:
    report = list_letters(spark, store, letters_shown=5)
    _shown(report)
    dead = report.numbers["letters"]
    if not isinstance(dead, int) or dead < len(sent.poison):
        raise Failed(f"{len(sent.poison)} orders are poison, but {dead} are dead letters")


def _stream(spark: SparkSession, namesrv: str, folder: Path) -> None:
    """Windowed aggregates of the orders, as a cron job would compute them."""
    orders = (
        spark.readStream.format("rocketmq")
        .option("namesrv", namesrv)
        .option("subscribe", ORDERS)
        .option("startingOffsets", "earliest")
        .load()
        .select(
            "storeTimestamp", f.from_json(f.col("body").cast("string"), ORDER_SCHEMA).alias("o")
        )
        .where("o.price is not null")
    )
    revenue = (
        orders.withWatermark("storeTimestamp", "10 seconds")
        .groupBy(f.window("storeTimestamp", "1 second"), "o.item")
        .agg(f.sum("o.price").alias("revenue"), f.count("*").alias("orders"))
    )
    query = (
        revenue.writeStream.format("memory")
        .queryName("revenue")
        .outputMode("complete")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(STREAM_TIMEOUT_S):
        raise Failed(f"the stream did not end within {STREAM_TIMEOUT_S} s")
    found = spark.table("revenue")
    by_item = found.groupBy("item").agg(f.sum("revenue").alias("revenue")).collect()
    bars("revenue by category", {row["item"]: row["revenue"] for row in by_item})
    by_second = found.groupBy("window").agg(f.sum("orders").alias("orders")).orderBy("window")
    spark_line("orders a second", [row["orders"] for row in by_second.collect()])


def _check_lake(spark: SparkSession, lake: str, sent: Sent) -> None:
    found = read_lake(spark, lake).where(f.col("topic") == ORDERS).count()
    if found != len(sent.orders):
        raise Failed(f"the lake has {found} orders, {len(sent.orders)} were acknowledged")
    click.echo(f"The lake has all {found:,} orders.")
