"""Topics of a live cluster in a lake, each message once."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from roquet.cli.main import roquet
from roquet.client.options import ClientOptions
from roquet.spark import session
from roquet.spark.jobs.follow import archive_topics
from roquet.spark.jobs.inputs import Wanted
from roquet.spark.jobs.lake import read_lake
from roquet.testing.background import background_broker
from tests.spark.broker_side import send_numbers


def numbers(spark: SparkSession, lake: Path, topic: str) -> list[int]:
    rows = read_lake(spark, str(lake)).where(f"topic = '{topic}'").select("body", "day").collect()
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    assert {row.day for row in rows} <= {today, min(row.day for row in rows)}
    return sorted(int(bytes(row.body)) for row in rows)


def test_topics(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def shared(**_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(session, "open_session", shared)
    lake = tmp_path / "lake"
    with background_broker() as broker:
        broker.create_topic("Numbers", 2)
        broker.create_topic("Others", 1)
        send_numbers(broker, "Numbers", 0, 20)
        send_numbers(broker, "Others", 0, 5)
        cluster = ClientOptions(namesrv=broker.namesrv)
        wanted = Wanted(topics=["Numbers", "Others"])
        report = archive_topics(spark, cluster, str(lake), wanted=wanted)
        assert report.numbers == {"batches": 1, "messages": 25}
        send_numbers(broker, "Numbers", 20, 30)
        words = ["spark", "archive", "--namesrv", broker.namesrv, "--lake", str(lake)]
        result = CliRunner().invoke(roquet, [*words, "--topics", "Numbers,Others", "--json"])
        assert (result.exit_code, '"messages":10' in result.output) == (0, True), result.output
        assert numbers(spark, lake, "Numbers") == list(range(30))
        assert numbers(spark, lake, "Others") == list(range(5))

        send_numbers(broker, "Others", 5, 9)
        stopping = threading.Event()
        found = []

        def run() -> None:
            found.append(
                archive_topics(
                    spark, cluster, str(lake), wanted=wanted, stopping=stopping, interval_s=0.05
                )
            )

        thread = threading.Thread(target=run)
        thread.start()
        try:
            for count in (9, 14):
                while thread.is_alive() and len(numbers(spark, lake, "Others")) < count:
                    stopping.wait(0.1)
                if count == 9:
                    send_numbers(broker, "Others", 9, 14)
        finally:
            stopping.set()
            thread.join()
        assert found[0].numbers["messages"] == 9
        assert numbers(spark, lake, "Others") == list(range(14))
