"""Spark Connect on this machine: a server in the process that asks for it, on a free port."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark
import pytest

from roquet.errors import JavaMissing
from roquet.spark.java import find_java
from tests.spark.conftest import SOURCE

_DEFAULTS = """\
spark.ui.enabled false
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.connect.grpc.binding.address 127.0.0.1
spark.driver.memory 768m
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto
spark.sql.session.timeZone UTC
spark.sql.shuffle.partitions 2
spark.log.level ERROR
"""


def spark_home() -> Path:
    """Where pyspark is."""
    return Path(pyspark.__file__).parent


def connect_environment(folder: Path) -> dict[str, str]:
    """The environment of a program that uses Spark Connect; skips where there is no Java.

    Args:
        folder: For Spark's settings.
    """
    try:
        find_java()
    except JavaMissing as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    (folder / "spark-defaults.conf").write_text(_DEFAULTS)
    paths = [str(SOURCE), str(SOURCE.parent), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        # Has the server take a free port, and the client find it.
        "SPARK_TESTING": "yes",
    }
