"""Traces joined to messages, with times that are known."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from roquet.model.topic import TRACE_TOPIC
from roquet.spark.jobs.trace import trace
from tests.unit.spark.log.kit import write_store
from tests.unit.store.kit import NOW_MS, message


def joined(*fields: object) -> str:
    return "\x01".join(str(field) for field in fields) + "\x02"


def pub(number: int, cost_ms: int, *, success: str = "true") -> str:
    return joined(
        *("Pub", NOW_MS - 5, "r", "shop", "Orders", f"ID{number}", "null", f"k{number} all"),
        *("127.0.0.1:1", 10, cost_ms, 0, f"O{number}", success),
    )


def before(number: int, wait_ms: int) -> str:
    time_ms = NOW_MS + wait_ms
    return joined(
        "SubBefore", time_ms, "r", "billing", f"R{number}", f"ID{number}", 0, f"k{number}"
    )


def after(number: int, cost_ms: int, *, success: str = "true") -> str:
    return joined(
        "SubAfter", f"R{number}", f"ID{number}", cost_ms, success, f"k{number}", 0, 0, "billing"
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("traced") / "store"
    made = [message(b"x", topic="Orders", UNIQ_KEY=f"ID{number}") for number in range(3)]
    texts = [pub(number, 10 * (number + 1)) for number in range(2)] + [pub(2, 99, success="false")]
    texts += [before(number, 100 * number) + after(number, number) for number in range(2)]
    texts += [before(2, -50) + after(2, 7, success="false"), "Nonsense\x01here\x02"]
    made += [message(text.encode(), topic=TRACE_TOPIC) for text in texts]
    write_store(root, made)
    return root


def test_hops(spark: SparkSession, store: Path) -> None:
    report = trace(spark, str(store))
    assert report.numbers == {"events": 9, "unreadable": 1}
    assert report.table("Send").rows == [["Orders", 3, 1, 20, 99, 99]]
    assert report.table("Wait").rows == [["billing", "Orders", 3, 0, 0, 100, 100]]
    assert report.table("Consume").rows == [["billing", "Orders", 3, 1, 1, 7, 7]]


def test_one_message(spark: SparkSession, store: Path) -> None:
    report = trace(spark, str(store), msg_id="ID1")
    assert [row[1] for row in report.table("Events").rows] == ["SubAfter", "Pub", "SubBefore"]
    assert trace(spark, str(store), key="k2").numbers["events"] == 3
    assert trace(spark, str(store), key="all").numbers["events"] == 3
