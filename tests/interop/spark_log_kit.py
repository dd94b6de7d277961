"""A topic of a Java broker, read from its store by ``rocketmq-log``."""

from __future__ import annotations

from pathlib import Path

from tests.interop.agent import wait_until
from tests.unit.spark.log.kit import Row, rows

TOPIC = "SparkLog"
QUEUES = 4


def dispatched(store: Path, count: int) -> list[Row]:
    """The rows of the topic, once the broker has put the last of them into its queue."""
    found: list[Row] = []

    def is_enough() -> bool:
        found[:] = rows(store, topics=TOPIC, checkCrc="true", maxSplitBytes="10k")
        return len(found) >= count

    wait_until(is_enough, lambda: AssertionError(f"{len(found)} of {count} are in the queues"))
    return found
