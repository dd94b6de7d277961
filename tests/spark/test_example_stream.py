"""examples/spark_stream.py does what it shows."""

import importlib.util
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from roquet.testing.background import background_broker

EXAMPLES = Path(__file__).parents[2] / "examples"

PRINTED = """\
after the first run: 2 totals
after the second run: 6 totals
12:00 north: 5 orders, 70 euros
12:00 south: 5 orders, 75 euros
12:01 north: 5 orders, 120 euros
12:01 south: 5 orders, 125 euros
12:02 north: 5 orders, 170 euros
12:02 south: 5 orders, 175 euros
"""


def test_the_stream(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    spec = importlib.util.spec_from_file_location("spark_stream", EXAMPLES / "spark_stream.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        with background_broker() as broker:
            module.main(broker.namesrv, tmp_path)
        # With Spark's 200 it takes minutes.
        assert spark.conf.get("spark.sql.shuffle.partitions") == "4"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    assert capsys.readouterr().out == PRINTED
