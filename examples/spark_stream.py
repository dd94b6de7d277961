"""Orders summed by minute and region with Spark: to a topic, and to Parquet files.

Run it repeatedly, for example by cron: each run continues where the last one ended. The Parquet
files have every total once. The topic gets every total at least once: one that is sent again after
a failure has the same SPARK_ROW_ID.
"""

import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import roquet.spark
from roquet.sync import Admin, Message, Producer

MINUTE_S = 60
NOON_S = 1_794_744_000

Order = tuple[str, float, int]


def send_orders(namesrv: str, orders: Iterable[Order]) -> None:
    """What a shop does all day."""
    with Producer(namesrv, group="shop") as producer:
        for region, euros, at_s in orders:
            order = {"region": region, "euros": euros, "at_s": at_s}
            producer.send(Message("Orders", json.dumps(order).encode(), tags=region))


def read_orders(spark: SparkSession, namesrv: str) -> DataFrame:
    """The topic as a stream; messages that are not orders are skipped."""
    messages = (
        spark.readStream.format("rocketmq")
        .option("namesrv", namesrv)
        .option("subscribe", "Orders")
        .option("startingOffsets", "earliest")  # of the first run; later ones have a checkpoint
        .option("columns", "body")
        .option("maxOffsetsPerTrigger", 100_000)
        .load()
    )
    order = F.from_json(F.col("body").cast("string"), "region string, euros double, at_s long")
    return (
        messages.select(order.alias("order"))
        .select("order.*")
        .where("region IS NOT NULL AND at_s IS NOT NULL")
        .withColumn("at", F.timestamp_seconds("at_s"))
    )


def sum_by_minute(orders: DataFrame) -> DataFrame:
    """Totals of minutes that are over: no order may come more than a minute late."""
    return (
        orders.withWatermark("at", "1 minute")
        .groupBy(F.window("at", "1 minute"), "region")
        .agg(F.count("*").alias("orders"), F.sum("euros").alias("euros"))
        .selectExpr("window.start AS minute", "region", "orders", "euros")
    )


def run(spark: SparkSession, namesrv: str, folder: Path) -> None:
    """Sum what was ordered since the last run."""
    totals = sum_by_minute(read_orders(spark, namesrv))
    to_topic = (
        totals.selectExpr("to_json(struct(*)) AS body", "region AS tags", "region AS shardingKey")
        .writeStream.format("rocketmq")
        .option("namesrv", namesrv)
        .option("topic", "Totals")
        .option("checkpointLocation", str(folder / "checkpoints" / "topic"))
        .trigger(availableNow=True)  # or processingTime="10 seconds", to run until it is stopped
        .start()
    )
    to_parquet = (
        totals.writeStream.format("parquet")
        .partitionBy("region")
        .option("path", str(folder / "totals"))
        .option("checkpointLocation", str(folder / "checkpoints" / "parquet"))
        .trigger(availableNow=True)
        .start()
    )
    for query in (to_topic, to_parquet):
        query.awaitTermination()


def count_totals(spark: SparkSession, namesrv: str) -> int:
    """How many totals the topic has."""
    reader = spark.read.format("rocketmq").option("namesrv", namesrv)
    totals = reader.option("subscribe", "Totals").option("columns", "queueOffset").load()
    found: int = totals.count()
    return found


def main(namesrv: str, folder: Path) -> None:
    with Admin(namesrv) as admin:
        admin.topics.create("Orders")
        admin.topics.create("Totals")
    # Each partition of a stream with a state has files of its own, and 200 is for large clusters.
    # The first run fixes the number for good.
    builder = SparkSession.builder.appName("totals").config("spark.sql.shuffle.partitions", 4)
    spark = builder.getOrCreate()
    roquet.spark.register(spark)

    regions = ("north", "south")
    send_orders(namesrv, ((regions[n % 2], 10.0 + n, NOON_S + 6 * n) for n in range(30)))
    run(spark, namesrv, folder)
    print("after the first run:", count_totals(spark, namesrv), "totals")

    # Ten minutes later; one comes far too late, and its minute is closed already.
    send_orders(namesrv, [("north", 5.0, NOON_S + 10 * MINUTE_S), ("south", 7.0, NOON_S)])
    run(spark, namesrv, folder)
    print("after the second run:", count_totals(spark, namesrv), "totals")

    totals = spark.read.parquet(str(folder / "totals")).orderBy("minute", "region")
    for row in totals.collect():
        print(f"{row.minute:%H:%M} {row.region}: {row.orders} orders, {row.euros:.0f} euros")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876", Path(made))
