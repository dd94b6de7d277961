"""examples/pipelines declares a graph whose flows work; Spark Connect is not needed for that."""

import json
import runpy
from pathlib import Path

from pyspark.pipelines.flow import AutoCdcFlow, Flow
from pyspark.pipelines.graph_element_registry import (
    GraphElementRegistry,
    graph_element_registration_context,
)
from pyspark.pipelines.output import Output
from pyspark.sql import DataFrame, SparkSession

from roquet.client import Message
from roquet.testing.background import background_broker
from tests.spark.broker_side import load, send

PROJECT = Path(__file__).parents[2] / "examples" / "pipelines"
NOON_S = 1_794_744_000


class Graph(GraphElementRegistry):
    """Keeps what a project declares."""

    def __init__(self) -> None:
        self.outputs: list[str] = []
        self.flows: dict[str, Flow] = {}

    def register_output(self, output: Output) -> None:
        self.outputs.append(output.name)

    def register_flow(self, flow: Flow) -> None:
        self.flows[flow.name] = flow

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        raise NotImplementedError

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        raise NotImplementedError


def run_to_table(rows: DataFrame, name: str, folder: Path) -> None:
    query = (
        rows.writeStream.option("checkpointLocation", str(folder / f"{name}-checkpoint"))
        .option("path", str(folder / name))
        .trigger(availableNow=True)
        .toTable(name)
    )
    assert query.awaitTermination(120)


def test_the_project(spark: SparkSession, tmp_path: Path) -> None:
    graph = Graph()
    with background_broker() as broker:
        broker.create_topic("Orders", 1)
        broker.create_topic("Totals", 1)
        orders = [
            {"region": "north", "euros": 2.5, "at_s": NOON_S + second} for second in (0, 10, 600)
        ]
        send(broker, (Message("Orders", json.dumps(order).encode()) for order in orders))
        spark.conf.set("orders.namesrv", broker.namesrv)
        try:
            with graph_element_registration_context(graph):
                runpy.run_path(str(PROJECT / "transformations" / "orders.py"))
            assert graph.outputs == ["orders", "totals", "totals_topic"]
            for name in ("orders", "totals"):
                run_to_table(graph.flows[name].func(), name, tmp_path)
            query = (
                graph.flows["totals_to_topic"]
                .func()
                .writeStream.format("rocketmq")
                .options(namesrv=broker.namesrv, topic="Totals")
                .option("checkpointLocation", str(tmp_path / "topic"))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(120)
            bodies = [
                json.loads(bytes(row.body)) for row in load(spark, broker, "Totals").collect()
            ]
            assert [(each["orders"], each["euros"]) for each in bodies] == [(2, 5.0)]
            text = (PROJECT / "transformations" / "regions.sql").read_text("utf-8")
            select = text.partition(" AS\n")[2]
            assert [tuple(row) for row in spark.sql(select).collect()] == [("north", 2, 5.0)]
        finally:
            spark.conf.unset("orders.namesrv")
            for name in ("orders", "totals"):
                spark.sql(f"DROP TABLE IF EXISTS {name}")
