"""Python blocks of the pages that use Spark run as they stand, page by page, in one session.

Only the address of the name server and the folder of the broker are replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from roquet.client import Message
from roquet.sync import Producer
from roquet.testing.background import BackgroundBroker, background_broker
from tests.pages import BLOCKS
from tests.patience import TIMEOUT_MS

PROGRAMS = [each for each in BLOCKS if each.language == "python" and each.is_spark]
PAGES = sorted({block.page for block in PROGRAMS})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BackgroundBroker]:
    """A broker with the orders that the pages speak of."""
    with background_broker(folder=tmp_path) as running:
        for topic in ("Orders", "Refunds"):
            running.create_topic(topic)
        with Producer(running.namesrv, group="shop", send_timeout_ms=TIMEOUT_MS) as producer:
            for number, tag in enumerate(("paid", "sent", "paid")):
                producer.send(Message("Orders", b"books", tags=tag, keys=str(17 + number)))
        yield running


def test_there_are_programs() -> None:
    assert {"README.md", "docs/guides/spark.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_page_run(
    page: str, server: BackgroundBroker, spark: SparkSession
) -> None:
    assert spark.getActiveSession() is spark, "the blocks would start a session of their own"
    for block in (each for each in PROGRAMS if each.page == page):
        code = compile(block.at(server.namesrv, server.folder), block.where, "exec")
        exec(code, {"__name__": "__main__"})  # noqa: S102 - our own pages
