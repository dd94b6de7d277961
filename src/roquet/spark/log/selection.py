"""Selects the rows of a log to read.

Owns the conditions that are checked before a row is made: time, queue, topic, keys, cheapest first.
A selection is sent to the executors with each task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from roquet.model import properties as prop

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
    """

    topics: frozenset[str] = frozenset()
    topic_pattern: str | None = None
    queue_ids: frozenset[int] = frozenset()
    keys: frozenset[str] = frozenset()
    store_from_ms: int = ALWAYS_MS
    store_to_ms: int = NEVER_MS

    def topic_test(self) -> Callable[[str], bool] | None:
        """Return a function that tells whether to read a topic; ``None`` for all topics."""
        if self.topics:
            return self.topics.__contains__
        if self.topic_pattern is not None:
            return partial(_matches, re.compile(self.topic_pattern))
        return None

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
        """Whether a row is selected."""
        test = self.topic_test()
        return (
            self.store_from_ms <= store_ms < self.store_to_ms
            and (not self.queue_ids or queue_id in self.queue_ids)
            and (test is None or test(topic))
            and self.takes_keys(properties)
        )


def _matches(pattern: re.Pattern[str], topic: str) -> bool:
    return pattern.fullmatch(topic) is not None
