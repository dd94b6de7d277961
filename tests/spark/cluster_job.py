"""The driver of `test_cluster`: a process of its own, since one process has one Spark context.

``python -m tests.spark.cluster_job MASTER STORE LAKE`` prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from importlib.util import find_spec

from click.testing import CliRunner

from roquet.cli.spark import spark as spark_command
from roquet.spark.jobs.archive import archive
from roquet.spark.jobs.inputs import read_log
from roquet.spark.jobs.lake import read_lake
from roquet.spark.session import open_session
from roquet.spark.tasks import run_tasks
from tests.spark.conftest import QUICK_START

CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.sql.shuffle.partitions": "2",
}


MODULES = ["roquet", "roquet.spark.log.reading", "msgspec"]
if find_spec("roquet._arrow"):
    MODULES.append("roquet._arrow")


def where(name: str) -> str:
    """The file of a module that an executor imports."""
    return str(import_module(name).__file__)


def main(master: str, store: str, lake: str) -> None:
    """Sum a store up by the command, then read it, archive it, and read the archive."""
    settings = [flag for each in CONF.items() for flag in ("--conf", "=".join(each))]
    command = ["stats", store, "--master", master, "--json", *settings]
    summed = CliRunner().invoke(spark_command, command, catch_exceptions=False)
    with open_session(app_name="cluster", master=master, conf=CONF) as spark:
        columns = ("physicalOffset", "body")
        log = read_log(spark, store, columns=columns, maxSplitBytes="8192", decompress="false")
        rows = [[row["physicalOffset"], bytes(row["body"]).hex()] for row in log.collect()]
        archived = archive(spark, store, lake, broker_name="a", range_bytes=8 << 10)
        told = {
            "modules": run_tasks(spark, MODULES, where),
            "partitions": log.rdd.getNumPartitions(),
            "rows": rows,
            "stats": json.loads(summed.stdout)["numbers"],
            "archive": archived.numbers,
            "lake": read_lake(spark, lake).count(),
        }
    print(json.dumps(told))  # noqa: T201 - for the test


if __name__ == "__main__":
    main(*sys.argv[1:])
