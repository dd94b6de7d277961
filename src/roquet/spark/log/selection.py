"""Selects the rows of a log to read.

Owns the conditions that are checked before a row is made, cheapest first. They come from options,
and from the filters of a query (:mod:`roquet.spark.log.pushed_filters`). A selection is sent to the
executors with each task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from roquet.model import properties as prop
from roquet.spark.log.conditions import NumberCondition, TextCondition

ALWAYS_MS = -(2**63)
NEVER_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows to read; an empty condition selects all.

    Attributes:
        topics: Names of topics.
        topic_pattern: A regular expression that must match a topic's whole name.
        queue_ids: Queue ids.
        keys: Words of KEYS, or unique ids; a message must have one of them.
        store_from_ms: The first store time.
        store_to_ms: The end of the store times, exclusive.
        numbers: Conditions by column: ``queueId``, ``queueOffset``, ``physicalOffset``.
        texts: Conditions by column: ``topic``, ``tags``, ``keys``, ``msgId``.
    """

    topics: frozenset[str] = frozenset()
    topic_pattern: str | None = None
    queue_ids: frozenset[int] = frozenset()
    keys: frozenset[str] = frozenset()
    store_from_ms: int = ALWAYS_MS
    store_to_ms: int = NEVER_MS
    numbers: Mapping[str, NumberCondition] = field(default_factory=dict)
    texts: Mapping[str, TextCondition] = field(default_factory=dict)

    def topic_test(self) -> Callable[[str], bool] | None:
        """Return a function that tells whether to read a topic; ``None`` for all topics."""
        condition = self.texts.get("topic")
        if condition is None:
            return self._option_test()
        return partial(_takes_topic, self._option_test(), condition)

    def _option_test(self) -> Callable[[str], bool] | None:
        if self.topics:
            return self.topics.__contains__
        if self.topic_pattern is not None:
            return partial(_matches, re.compile(self.topic_pattern))
        return None

    def takes_queue(self, queue_id: int) -> bool:
        """Whether to read a queue."""
        condition = self.numbers.get("queueId")
        is_given = not self.queue_ids or queue_id in self.queue_ids
        return is_given and (condition is None or condition.takes(queue_id))

    def takes_keys(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties has one of the keys."""
        if not self.keys:
            return True
        words = properties.get(prop.KEYS, "").split()
        unique = properties.get(prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
        return unique in self.keys or not self.keys.isdisjoint(words)

    def takes(
        self, topic: str, queue_id: int, store_ms: int, properties: Mapping[str, str]
    ) -> bool:
        """Whether the options select a row."""
        test = self.topic_test()
        return (
            self.store_from_ms <= store_ms < self.store_to_ms
            and (not self.queue_ids or queue_id in self.queue_ids)
            and (test is None or test(topic))
            and self.takes_keys(properties)
        )

    def takes_values(self, value_of: Callable[[str], object]) -> bool:
        """Whether a row satisfies the conditions of the query; ``value_of`` has its columns."""
        for column, number in self.numbers.items():
            value = value_of(column)
            if not isinstance(value, int) or not number.takes(value):
                return False
        for column, text in self.texts.items():
            value = value_of(column)
            if not isinstance(value, str) or not text.takes(value.encode()):
                return False
        return True


def _takes_topic(test: Callable[[str], bool] | None, condition: TextCondition, topic: str) -> bool:
    return (test is None or test(topic)) and condition.takes(topic.encode())


def _matches(pattern: re.Pattern[str], topic: str) -> bool:
    return pattern.fullmatch(topic) is not None
