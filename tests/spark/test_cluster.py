"""Jobs on a cluster whose executors have no Roquet until it is sent along."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.errors import JavaMissing
from roquet.spark.java import find_java
from roquet.spark.packaging import FOLDER
from tests.spark.conftest import SOURCE
from tests.spark.standalone import Standalone, standalone
from tests.unit.spark.log.kit import stored_messages

STORE = Path(__file__).parents[1] / "golden" / "data" / "store-json-clean"
JOB_TIMEOUT_S = 300


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    try:
        find_java()
    except JavaMissing as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with standalone(tmp_path) as running:
        yield running


def test_a_store_is_read_summed_up_and_archived(cluster: Standalone, tmp_path: Path) -> None:
    alone = [str(cluster.python), "-c", "import pyspark, pyarrow, roquet"]
    refused = subprocess.run(alone, cwd=tmp_path, env={}, capture_output=True, check=False)
    assert b"No module named 'roquet'" in refused.stderr

    job = [sys.executable, "-m", "tests.spark.cluster_job", cluster.master, str(STORE)]
    environment = os.environ | {
        # The driver has Roquet. Sources are planned there, by the Python that executors have too.
        "PYTHONPATH": os.pathsep.join([str(SOURCE), str(SOURCE.parent)]),
        "PYSPARK_PYTHON": str(cluster.python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    ended = subprocess.run(
        [*job, str(tmp_path / "lake")],
        cwd=SOURCE.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    told = json.loads(ended.stdout)

    # What was imported is the copy that Spark unpacked, the compiled decoder with it.
    unpacked = [Path(name).resolve() for name in told["modules"]]
    assert all(cluster.work in path.parents and FOLDER in path.parts for path in unpacked), unpacked

    messages = list(stored_messages(STORE))
    assert told["partitions"] > 1
    expected = sorted([each.physical_offset, each.body.hex()] for each in messages)
    assert sorted(told["rows"]) == expected
    assert told["stats"]["messages"] == len(messages)
    assert told["stats"]["bytes"] == sum(each.store_size for each in messages)
    assert (told["archive"]["ranges"], told["archive"]["messages"]) == (5, len(messages))
    assert told["lake"] == len(messages)
