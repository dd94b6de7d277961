"""Which queues and offsets of brokers are read for the filters of a query."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    In,
    IsNotNull,
    LessThan,
    Not,
    StringStartsWith,
)

from roquet.model.message_queue import MessageQueue
from roquet.spark.broker.planning import QueueRange
from roquet.spark.broker.pushed_filters import PushedFilters

A0, A1 = MessageQueue("A", "x", 0), MessageQueue("A", "y", 1)
B0 = MessageQueue("B", "x", 0)
LIGHT, STATIC = MessageQueue("%LMQ%l", "x", 0), MessageQueue("A", "__syslo__global__", 5)
RANGES = [QueueRange(each, 10, 20) for each in (A0, A1, B0, LIGHT, STATIC)]
TOPIC, BROKER, QUEUE, OFFSET = ("topic",), ("brokerName",), ("queueId",), ("queueOffset",)


@pytest.mark.parametrize(
    ("filters", "kept", "is_left"),
    [
        ([IsNotNull(TOPIC)], RANGES, False),
        ([EqualTo(TOPIC, "B")], [RANGES[2]], False),
        ([Not(EqualTo(TOPIC, "A"))], RANGES[2:4], False),
        ([StringStartsWith(BROKER, "__")], [RANGES[4]], False),
        ([In(TOPIC, ("A", "C")), EqualTo(BROKER, "y")], [RANGES[1]], False),
        ([EqualTo(QUEUE, 0)], [RANGES[0], RANGES[2], *RANGES[3:]], True),
        ([GreaterThan(OFFSET, 20)], RANGES[3:], True),
        (
            [EqualTo(TOPIC, "B"), GreaterThan(OFFSET, 12), LessThan(OFFSET, 15)],
            [QueueRange(B0, 13, 15)],
            True,
        ),
        ([EqualTo(("tags",), "a")], RANGES, True),
    ],
)
def test_filters_narrow_ranges(
    filters: list[Filter], kept: list[QueueRange], *, is_left: bool
) -> None:
    pushed = PushedFilters(filters)
    assert pushed.narrowed(RANGES) == kept
    assert bool(pushed.left) == is_left
