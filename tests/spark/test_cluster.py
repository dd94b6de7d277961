"""Jobs on a cluster whose executors have no Roquet until it is sent along.

One driver does all of them (:mod:`tests.spark.cluster_job`), because it is starting that costs;
what came of them is looked at here.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roquet.errors import JavaMissing
from roquet.spark.java import find_java
from roquet.spark.packaging import FOLDER
from roquet.testing.background import BackgroundBroker, background_broker
from tests.spark.broker_side import send_numbers
from tests.spark.cluster_job import BROKER, SOUND, STORE, TOPIC_BATCH, TOPIC_IN, TOPIC_STREAM
from tests.spark.conftest import SOURCE
from tests.spark.log_side import sorted_properties
from tests.spark.standalone import Standalone, standalone
from tests.unit.spark.jobs.audit_faults import FAULTS
from tests.unit.spark.jobs.rebuilt_files import GOLDEN, GOLDEN_STORES, check_golden
from tests.unit.spark.log.kit import stored_messages, stored_rows

JOB_TIMEOUT_S = 500
COUNT = 100

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(JOB_TIMEOUT_S + 100)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Standalone]:
    try:
        find_java()
    except JavaMissing as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with standalone(folder) as running:
        yield running


@pytest.fixture(scope="module")
def broker() -> Iterator[BackgroundBroker]:
    with background_broker() as made:
        for topic in (TOPIC_IN, TOPIC_BATCH, TOPIC_STREAM):
            made.create_topic(topic, 3)
        send_numbers(made, TOPIC_IN, 0, COUNT)
        yield made


@pytest.fixture(scope="module")
def told(cluster: Standalone, broker: BackgroundBroker, folder: Path) -> dict[str, Any]:
    job = [sys.executable, "-m", "tests.spark.cluster_job"]
    environment = os.environ | {
        # The driver has Roquet. Sources are planned there, by the Python that executors have too.
        "PYTHONPATH": os.pathsep.join([str(SOURCE), str(SOURCE.parent)]),
        "PYSPARK_PYTHON": str(cluster.python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    ended = subprocess.run(
        [*job, cluster.master, broker.namesrv, str(folder)],
        cwd=SOURCE.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    found: dict[str, Any] = pickle.loads((folder / "told").read_bytes())  # noqa: S301 - it is ours
    return found


def test_executors_are_given_roquet(cluster: Standalone, told: dict[str, Any]) -> None:
    """What they import is the copy that Spark unpacked, the compiled decoder with it."""
    alone = [str(cluster.python), "-c", "import pyspark, pyarrow, roquet"]
    refused = subprocess.run(alone, cwd=cluster.work, env={}, capture_output=True, check=False)
    assert b"No module named 'roquet'" in refused.stderr
    unpacked = [Path(name).resolve() for name in told["modules"]]
    assert all(cluster.work in path.parents and FOLDER in path.parts for path in unpacked), unpacked


def test_every_row_of_a_store(told: dict[str, Any]) -> None:
    for name in GOLDEN_STORES:
        rows = stored_rows(GOLDEN / name)
        wanted = [sorted_properties({**row, "brokerName": BROKER}) for row in rows]
        assert [sorted_properties(row) for row in told["rows"][name]] == wanted


def test_a_store_is_summed_up_and_archived(told: dict[str, Any]) -> None:
    messages = list(stored_messages(STORE))
    assert told["stats"]["messages"] == len(messages)
    assert told["stats"]["bytes"] == sum(each.store_size for each in messages)
    numbers, in_lake = told["archive"]
    assert (numbers["ranges"], numbers["messages"], in_lake) == (5, len(messages), len(messages))


def test_rebuilt_files_are_those_of_the_broker(told: dict[str, Any], folder: Path) -> None:
    assert told["rebuilt"] == dict.fromkeys(GOLDEN_STORES, 0)
    for name in GOLDEN_STORES:
        check_golden(name, folder / "rebuilt" / name)


def test_planted_faults_are_found_and_nothing_else(told: dict[str, Any]) -> None:
    expected = {name: fault.kinds for name, fault in FAULTS.items()}
    assert told["faults"] == {SOUND: set(), **expected}
    for name, (records, findings) in told["sound"].items():
        assert (name, records, findings) == (name, len(stored_rows(GOLDEN / name)), 0)


def test_topics_are_read_and_written(told: dict[str, Any], broker: BackgroundBroker) -> None:
    stored = {
        (each.queue_id, each.queue_offset, int(each.body)) for each in broker.messages(TOPIC_IN)
    }
    assert len(stored) == COUNT
    assert sorted(told["topics"]) == sorted(stored)
    for topic in (TOPIC_BATCH, TOPIC_STREAM):
        bodies = sorted(int(each.body) for each in broker.messages(topic))
        assert bodies == [2 * number for number in range(COUNT)]
