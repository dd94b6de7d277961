"""Lakes on a real HDFS, and jobs on a real YARN whose containers have no Roquet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from roquet.errors import SparkError
from roquet.spark.jobs.archive import archive
from roquet.spark.jobs.inputs import read_log
from roquet.spark.jobs.lake import Lake, read_lake
from roquet.spark.jobs.tier import tiered
from roquet.spark.jobs.verify import verify
from roquet.spark.schema import COLUMNS
from tests.interop import javabuild
from tests.spark.conftest import QUICK_START, SOURCE
from tests.spark.hadoop import Hadoop, hadoop
from tests.spark.standalone import SPARK_HOME, python_without_roquet
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.jobs.lake_kit import BROKER
from tests.unit.spark.log.kit import mixed_messages, write_store

pytest.importorskip("hdfs_native", reason="hdfs-native is not installed: pip install .[hdfs]")

JOB_TIMEOUT_S = 240
pytestmark = [pytest.mark.cluster, pytest.mark.interop, pytest.mark.timeout(2 * JOB_TIMEOUT_S)]

RANGE_BYTES = 8 << 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    try:
        with hadoop(tmp_path_factory.mktemp("hadoop")) as running:
            yield running
    except javabuild.OracleMissingError as error:
        if javabuild.is_required():
            pytest.fail(f"CI has Java and Maven, so Hadoop must be there: {error}")
        pytest.skip(f"Hadoop cannot be run here: {error}")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log") / "store"
    write_store(folder, mixed_messages(60), step_ms=600_000)
    return folder


def test_all_jobs_and_reads(
    spark: SparkSession, cluster: Hadoop, store: Path, tmp_path: Path
) -> None:
    lake = f"{cluster.lakes}/lakes/orders"
    with pytest.raises(SparkError, match="holds nothing of"):
        verify(HERE, str(store), lake, broker_name=BROKER)
    write_store(tmp_path / "young", mixed_messages(40), step_ms=600_000)
    for log in (tmp_path / "young", store):  # the newest range is replaced
        archive(HERE, str(log), lake, broker_name=BROKER, range_bytes=RANGE_BYTES)
        assert not verify(HERE, str(log), lake, broker_name=BROKER, check_bodies=True).findings
    columns = [name for name in COLUMNS if name != "properties"]
    rows = read_log(spark, str(store), brokerName=BROKER).orderBy("physicalOffset")
    expected = rows.select("properties", *columns).collect()
    assert len(expected) == 60
    ours = spark.read.format("rocketmq-lake").load(lake)
    both = tiered(spark, str(store), lake, broker_name=BROKER)
    for frame in (read_lake(spark, lake), ours, both):
        found = frame.orderBy("physicalOffset").select("properties", *columns).collect()
        assert found == expected
    assert read_lake(spark, lake, keys=["key-7"]).count() == 1
    names = [info.base_name for info in Lake(lake).below(is_deep=True) if info.is_file]
    assert not [name for name in names if name.startswith(".") or name == "run.json"]


def test_a_job_on_yarn(cluster: Hadoop, store: Path, tmp_path: Path) -> None:
    """As the guide says, but for Spark's jars, which are on the node already."""
    lake = f"{cluster.lakes}/lakes/yarn"
    python = python_without_roquet(tmp_path / "python")
    conf = {
        "spark.pyspark.python": str(python),
        "spark.executor.instances": "2",
        "spark.executor.memory": "512m",
        "spark.executor.memoryOverhead": "256m",
        "spark.yarn.am.memory": "256m",
        "spark.yarn.am.extraJavaOptions": QUICK_START,
        "spark.executor.extraJavaOptions": QUICK_START,
        "spark.driver.extraJavaOptions": QUICK_START,
        "spark.driver.host": "127.0.0.1",
        "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",
    }
    words = ["spark", "archive", str(store), "--lake", lake, "--broker-name", BROKER]
    words += ["--master", "yarn", "--json"]
    words += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    environment = os.environ | {
        "HADOOP_CONF_DIR": str(cluster.conf),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(SOURCE),
    }
    environment.pop("PYSPARK_PYTHON", None)
    done = subprocess.run(
        [sys.executable, "-m", "roquet", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:] + containers_told(cluster)
    assert json.loads(done.stdout)["numbers"]["messages"] == 60
    assert not verify(HERE, str(store), lake, broker_name=BROKER, check_bodies=True).findings
    # Executors imported the copy that YARN unpacked for them.
    assert (
        list(cluster.data.glob("local/filecache/*/packages.tar.gz"))
        or list(cluster.data.glob("local/usercache/*/appcache/*/filecache/*/packages.tar.gz"))
        or list(cluster.data.glob("local/usercache/*/filecache/*/packages.tar.gz"))
    )


def containers_told(cluster: Hadoop) -> str:
    """The end of what containers printed, for a test that fails."""
    logs = sorted(cluster.data.glob("logs/*/*/stderr"))
    return "\n".join(f"--- {path}\n{path.read_text(errors='replace')[-2000:]}" for path in logs)
