"""Pipelines by their short names."""

import subprocess
import sys

import pytest

import roquet.spark
from roquet.cli.spark import JOBS
from roquet.spark.jobs.lag import lag


def test_every_pipeline_has_a_short_name() -> None:
    assert roquet.spark.lag is lag
    for name, module in roquet.spark.PIPELINES.items():
        assert getattr(roquet.spark, name).__module__ == f"roquet.spark.jobs.{module}"
    assert set(JOBS) - {"setup"} <= set(roquet.spark.PIPELINES.values())
    assert set(roquet.spark.__all__) == {
        *roquet.spark.PIPELINES,
        *("PIPELINES", "SOURCES", "register"),
    }
    with pytest.raises(AttributeError, match="nonsense"):
        roquet.spark.nonsense  # noqa: B018 - asked for to see it refused


def test_the_package_itself_brings_no_spark() -> None:
    code = "import sys, roquet.spark; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
