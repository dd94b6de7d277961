"""examples/pipelines by Spark's own command, as its README says."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from roquet.client import Message
from roquet.testing.background import BackgroundBroker, background_broker
from tests.spark.broker_side import send
from tests.spark.connect_kit import connect_environment, spark_home

PROJECT = Path(__file__).parents[2] / "examples" / "pipelines"
NOON_S = 1_794_744_000
RUN_TIMEOUT_S = 240

# As in the README: without a catalog that is kept, a second run does not know the tables.
RUN = ("run", "--conf", "spark.sql.catalogImplementation=hive")

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2 * RUN_TIMEOUT_S)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the template with a storage of its own."""
    folder = tmp_path / "project"
    shutil.copytree(PROJECT, folder)
    return folder


def order(region: str, euros: float, at_s: int) -> Message:
    return Message("Orders", json.dumps({"region": region, "euros": euros, "at_s": at_s}).encode())


def run(project: Path, *words: str) -> None:
    ended = subprocess.run(
        [str(spark_home() / "bin" / "spark-pipelines"), *words],
        cwd=project,
        env=connect_environment(project.parent),
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_TIMEOUT_S,
    )
    told = ended.stdout + ended.stderr
    assert ended.returncode == 0, told[-6000:]


def name_cluster(project: Path, broker: BackgroundBroker) -> None:
    """Fill in what the README says to fill in."""
    spec = project / "spark-pipeline.yml"
    text = spec.read_text("utf-8")
    changed = text.replace("127.0.0.1:9876", broker.namesrv)
    changed = changed.replace("file:///var/lib/orders-pipeline", (project / "state").as_uri())
    assert changed.count(str(project)) == 1
    spec.write_text(changed, "utf-8")


def test_a_topic_becomes_tables_and_a_topic(project: Path) -> None:
    with background_broker() as broker:
        for topic in ("Orders", "Totals"):
            broker.create_topic(topic, 1)
        send(broker, [order("north", 2.5, NOON_S + second) for second in (0, 10, 600)])
        name_cluster(project, broker)
        run(project, *RUN)
        totals = [json.loads(each.body) for each in broker.messages("Totals")]
        assert [(each["region"], each["orders"], each["euros"]) for each in totals] == [
            ("north", 2, 5.0)
        ]
        # The next run goes on behind it, and nothing comes twice.
        send(broker, [order("south", 4.0, NOON_S + 700), order("north", 1.0, NOON_S + 1_500)])
        run(project, *RUN)
        totals = [json.loads(each.body) for each in broker.messages("Totals")]
        assert sorted((each["region"], each["orders"], each["euros"]) for each in totals) == [
            *(("north", 1, 2.5), ("north", 2, 5.0)),
            ("south", 1, 4.0),
        ]
