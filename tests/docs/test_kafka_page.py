"""The comparison with Spark's Kafka connector names every option there, and tests that use ours."""

from __future__ import annotations

import re

from roquet.spark.broker.connect import CONNECT_OPTIONS
from roquet.spark.broker.read_options import READ_ALIASES, READ_OPTIONS
from roquet.spark.broker.write_options import WRITE_ALIASES, WRITE_OPTIONS
from roquet.spark.schema import COLUMNS
from tests.pages import ROOT

PAGE = (ROOT / "docs" / "reference" / "spark-kafka.md").read_text("utf-8")

# As in the integration guide of Spark 4.
KAFKA_OPTIONS = """
assign subscribe subscribePattern kafka.bootstrap.servers startingTimestamp
startingOffsetsByTimestamp startingOffsets endingTimestamp endingOffsetsByTimestamp endingOffsets
failOnDataLoss kafkaConsumer.pollTimeoutMs fetchOffset.numRetries fetchOffset.retryIntervalMs
maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay minPartitions maxRecordsPerPartition
groupIdPrefix kafka.group.id includeHeaders startingOffsetsByTimestampStrategy
"""


def rows() -> list[list[str]]:
    found = re.findall(r"(?m)^\| (.*) \|$", PAGE)
    return [row.split(" | ") for row in found if not row.startswith("Kafka |")]


def test_every_option_of_kafka_is_compared() -> None:
    named = {word for row in rows() for word in re.findall(r"`([^`]+)`", row[0])}
    assert named >= set(KAFKA_OPTIONS.split())


def test_every_row_of_ours_has_a_test_that_uses_it() -> None:
    for row in rows():
        if len(row) != 4 or row[2].startswith(("none: RocketMQ", "none: Spark has")):
            continue
        path = re.fullmatch(r"`([\w/.]+)`", row[3])
        assert path is not None, row
        text = (ROOT / "tests" / path[1]).read_text("utf-8")
        # What has the name that Kafka's connector gives it is only named there.
        cells = row[2] if not row[2].startswith("the same") else row[0] + row[2]
        names = re.findall(r"`([\w.]+)`", cells)
        assert not names or any(name.rstrip("…") in text for name in names), row


def test_every_test_file_exists() -> None:
    for path in re.findall(r"`([\w/]+\.py)`", PAGE):
        assert (ROOT / "tests" / path).is_file(), path


def test_what_is_called_the_same_is_an_option() -> None:
    known = {*READ_OPTIONS, *READ_ALIASES, *WRITE_OPTIONS, *WRITE_ALIASES, *CONNECT_OPTIONS}
    for row in rows():
        if len(row) == 4 and row[2].startswith("the same") and row[0].startswith("`"):
            names = set(re.findall(r"`([\w.]+)`", row[0]))
            assert names <= known | {"latestOffset"}, row


def test_columns_of_ours_are_columns() -> None:
    section = PAGE.partition("## Columns of a row")[2].partition("## ")[0]
    cells = [row.split(" | ")[2] for row in re.findall(r"(?m)^\| (`.*) \|$", section)]
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} <= set(COLUMNS)
