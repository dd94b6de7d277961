"""One Spark session for all tests of this folder: starting it is what costs."""

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import roquet.spark

HERE = Path(__file__).parent
SOURCE = HERE.parent.parent / "src"

# What makes a short-lived JVM start quickly: no compiling for the long run, no parallel collector.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -XX:-UsePerfData"


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in this hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # One worker runs them all, so that one session is started.
            item.add_marker(pytest.mark.xdist_group("spark"))
            # Spark's own code, and what it calls in threads, warns of things beyond our reach.
            item.add_marker(pytest.mark.filterwarnings("ignore:::pyspark"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )


def java_is_there() -> bool:
    java = shutil.which("java")
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        java = str(Path(home) / "bin" / "java")
    if java is None:
        return False
    return subprocess.run([java, "-version"], check=False, capture_output=True).returncode == 0


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two threads that knows both sources."""
    if not java_is_there():
        reason = "Spark needs Java 17 or newer: apt-get install default-jre-headless"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    scratch = tmp_path_factory.mktemp("spark")
    # Its Python processes import what the test imports, installed or not.
    paths = [str(SOURCE), str(SOURCE.parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = (
            SparkSession.builder.master("local[2]")
            .appName("roquet-tests")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "768m")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.extraJavaOptions", f"{QUICK_START} -Dderby.system.home={scratch}")
            .config("spark.local.dir", str(scratch / "local"))
            .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
    roquet.spark.register(session)
    try:
        yield session
    finally:
        session.stop()
