"""Which rows of a log are wanted.

Owns the conditions that are looked at before a row is made: time, queue, topic, keys, in the order
of what they cost. A selection travels to the executors with each task.
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
    """The rows that a reader gives; an empty condition takes all.

    Attributes:
        topics: Names of topics.
        topic_pattern: A regular expression that a topic's whole name matches.
        queue_ids: Numbers of queues.
        keys: Words of KEYS, or unique ids, of which a message has one.
        store_from_ms: Store time of the first message.
        store_to_ms: Store time at which messages are not wanted any more.
    """

    topics: frozenset[str] = frozenset()
    topic_pattern: str | None = None
    queue_ids: frozenset[int] = frozenset()
    keys: frozenset[str] = frozenset()
    store_from_ms: int = ALWAYS_MS
    store_to_ms: int = NEVER_MS

    @property
    def is_timed(self) -> bool:
        """Whether a store time is asked for."""
        return self.store_from_ms > ALWAYS_MS or self.store_to_ms < NEVER_MS

    def topic_test(self) -> Callable[[str], bool] | None:
        """Tells of a topic's name whether its rows are wanted; ``None`` if all are."""
        if self.topics:
            return self.topics.__contains__
        if self.topic_pattern is not None:
            return partial(_matches, re.compile(self.topic_pattern))
        return None

    def takes_keys(self, properties: Mapping[str, str]) -> bool:
        """Whether a message of these properties has one of the keys."""
        if not self.keys:
            return True
        words = properties.get(prop.KEYS, "").split()
        unique = properties.get(prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
        return unique in self.keys or not self.keys.isdisjoint(words)

    def takes(
        self, topic: str, queue_id: int, store_ms: int, properties: Mapping[str, str]
    ) -> bool:
        """Whether one row is wanted."""
        test = self.topic_test()
        return (
            self.store_from_ms <= store_ms < self.store_to_ms
            and (not self.queue_ids or queue_id in self.queue_ids)
            and (test is None or test(topic))
            and self.takes_keys(properties)
        )


def _matches(pattern: re.Pattern[str], topic: str) -> bool:
    return pattern.fullmatch(topic) is not None
