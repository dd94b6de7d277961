"""What becomes of the filters of a query, which Spark hands to ``rocketmq``.

Owns which queues and offsets a batch reads for them:

=============== ==================================== =========================================
column          filters                              what happens
=============== ==================================== =========================================
``topic``       ``=``, ``<>``, ``IN``, ``NOT IN``,   only their queues are read, and Spark does
``brokerName``  ranges, ``LIKE 'prefix%'``,          not check them again
                ``IS NOT NULL``
``queueId``     the same, without prefixes           only these queues or offsets are read, and
``queueOffset``                                      Spark checks the filter
all others                                           Spark checks the filter
=============== ==================================== =========================================

Light queues and those of static topics have messages that name another queue or offset, so their
numbers do not narrow what is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyspark.sql.datasource import Filter

from roquet.model.topic import LMQ_PREFIX
from roquet.spark.broker.planning import QueueRange
from roquet.spark.log.conditions import NumberCondition, TextCondition
from roquet.spark.log.pushed_filters import column_of, narrowed_number, narrowed_text

__all__ = ["PushedFilters"]

_TEXTS = ("topic", "brokerName")
_NUMBERS = ("queueId", "queueOffset")
_STATIC_PREFIX = "__syslo__"


class PushedFilters:
    """Takes the filters of one query.

    Args:
        filters: The filters.

    Attributes:
        left: The filters that Spark has to check.
    """

    def __init__(self, filters: Sequence[Filter]) -> None:
        self._texts = dict.fromkeys(_TEXTS, TextCondition())
        self._numbers = dict.fromkeys(_NUMBERS, NumberCondition())
        self.left = [each for each in filters if not self._takes(each)]

    def _takes(self, pushed: Filter) -> bool:
        column = column_of(pushed)
        if column in _TEXTS:
            text = narrowed_text(self._texts[column], pushed)
            self._texts[column] = self._texts[column] if text is None else text
            return text is not None
        if column in _NUMBERS:
            number = narrowed_number(self._numbers[column], pushed)
            self._numbers[column] = self._numbers[column] if number is None else number
        return False

    def narrowed(self, ranges: Iterable[QueueRange]) -> list[QueueRange]:
        """Return the parts of some ranges that can have messages for the query."""
        return [kept for each in ranges if (kept := self._narrowed(each)) is not None]

    def _narrowed(self, wanted: QueueRange) -> QueueRange | None:
        queue = wanted.queue
        is_taken = self._texts["topic"].takes(queue.topic.encode())
        if not is_taken or not self._texts["brokerName"].takes(queue.broker_name.encode()):
            return None
        if queue.topic.startswith(LMQ_PREFIX) or queue.broker_name.startswith(_STATIC_PREFIX):
            return wanted
        offsets = self._numbers["queueOffset"]
        start = max(wanted.start_offset, offsets.low)
        end = min(wanted.end_offset, offsets.high + 1)
        if start >= end or not self._numbers["queueId"].takes(queue.queue_id):
            return None
        return replace(wanted, start_offset=start, end_offset=end)
