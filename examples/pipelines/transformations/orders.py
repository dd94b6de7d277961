"""A topic as a table, totals by minute as another, and those once more as a topic."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

spark = SparkSession.active()
NAMESRV = spark.conf.get("orders.namesrv", "127.0.0.1:9876")
TOPIC = spark.conf.get("orders.topic", "Orders")
TOTALS_TOPIC = spark.conf.get("orders.totals.topic", "Totals")


def order_messages() -> DataFrame:
    """The topic as a stream of orders, each with its queue and offset."""
    messages = (
        spark.readStream.format("rocketmq")
        .option("namesrv", NAMESRV)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("columns", "brokerName,queueId,queueOffset,storeTimestamp,body")
        .load()
    )
    order = F.from_json(F.col("body").cast("string"), "region string, euros double, at_s long")
    return messages.withColumn("order", order).selectExpr(
        "brokerName",
        "queueId",
        "queueOffset",
        "storeTimestamp",
        "order.region",
        "order.euros",
        "timestamp_seconds(order.at_s) AS at",
    )


@dp.table(comment="Every order, as it was sent, with its place in the topic.")
def orders() -> DataFrame:
    return order_messages()


# A watermark is set on the topic itself: Spark has to know its input when the flow is declared, and
# a table of this project is only known when it runs.
@dp.table(comment="Totals of minutes that are over.")
def totals() -> DataFrame:
    return (
        order_messages()
        .where("region IS NOT NULL AND at IS NOT NULL")
        .withWatermark("at", "1 minute")
        .groupBy(F.window("at", "1 minute"), "region")
        .agg(F.count("*").alias("orders"), F.sum("euros").alias("euros"))
        .selectExpr("window.start AS minute", "region", "orders", "euros")
    )


dp.create_sink("totals_topic", "rocketmq", {"namesrv": NAMESRV, "topic": TOTALS_TOPIC})


@dp.append_flow(target="totals_topic")
def totals_to_topic() -> DataFrame:
    return spark.readStream.table("totals").selectExpr(
        "to_json(struct(*)) AS body", "region AS tags", "region AS shardingKey"
    )
