"""The queues of each topic, by broker.

Owns upstream's topicQueueTable and topicQueueMappingInfoTable, both by topic and broker name, with
an index of the topics of each broker name, so that the cost of a broker leaving depends on its own
topics only.

Invariants:

* A broker name that left disappears from every route at once. Its entries are removed by
  :meth:`TopicTable.sweep`, a bounded number in each call, so that a broker with very many topics
  does not block the others.
* :attr:`TopicTable.size` counts the entries in memory, including those to be swept.
* No topic is in a table without an entry.
* Entries are replaced, never altered. Equal queues of a broker name are one object.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet

import msgspec

from roquet.model.topic_config import PERM_READ, PERM_WRITE, TopicConfig
from roquet.model.topic_queue_mapping import TopicQueueMappingInfo
from roquet.remoting.bodies.route import QueueData
from roquet.runtime.tables import compacted

__all__ = ["SWEEP_BATCH", "TopicTable", "queues_of"]

SWEEP_BATCH = 1_000
"""Entries that one sweep removes."""

_SHAPES_MAX = 1_024

_Shape = tuple[int, int, int, int]


class TopicTable:
    """The queues of topics.

    Attributes:
        queues: By topic and broker name; read only. May have entries of names that left.
        size: How many entries there are.
    """

    def __init__(self) -> None:
        self.queues: dict[str, dict[str, QueueData]] = {}
        self.size = 0
        self._mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        self._topics_of: dict[str, dict[str, None]] = {}
        self._mapped_of: dict[str, dict[str, None]] = {}
        self._shapes: dict[str, dict[_Shape, QueueData]] = {}
        self._left: deque[tuple[str, dict[str, None], dict[str, None]]] = deque()

    @property
    def is_swept(self) -> bool:
        """Whether every entry belongs to a registered broker name."""
        return not self._left

    # Reading

    def of(self, topic: str) -> dict[str, QueueData]:
        """The queues of a topic by broker name."""
        queues = self.queues.get(topic, {})
        if not self._left:
            return queues
        return {name: each for name, each in queues.items() if self.has(topic, name)}

    def has(self, topic: str, broker_name: str) -> bool:
        """Whether a broker name has queues of a topic."""
        return topic in self._topics_of.get(broker_name, ())

    def topics_of(self, broker_name: str) -> Collection[str]:
        """The topics of a broker name."""
        return self._topics_of.get(broker_name, {}).keys()

    def mappings(self, topic: str) -> dict[str, TopicQueueMappingInfo] | None:
        """The mappings of a static topic by broker name."""
        mappings = self._mappings.get(topic)
        if mappings is None or not self._left:
            return mappings
        mapped_of = self._mapped_of
        here = {name: each for name, each in mappings.items() if topic in mapped_of.get(name, ())}
        return here or None

    def of_brokers(self, broker_names: AbstractSet[str]) -> list[str]:
        """The topics that any of some broker names has."""
        return [topic for topic, of in self.queues.items() if not broker_names.isdisjoint(of)]

    def with_flag(self, matches: Callable[[int], bool]) -> list[str]:
        """The topics whose ``topicSysFlag`` matches."""
        return [
            topic
            for topic, queues in self.queues.items()
            if matches(next(iter(queues.values())).topic_sys_flag)
        ]

    # Changing

    def put(self, topic: str, queues: QueueData) -> None:
        """Set the queues that a broker name has of a topic."""
        name = queues.broker_name
        assert name, "queues belong to a broker"
        of_topic = self.queues.setdefault(topic, {})
        if name not in of_topic:
            self.size += 1
        of_topic[name] = self._shared(name, queues)
        self._topics_of.setdefault(name, {})[topic] = None

    def put_mapping(self, topic: str, broker_name: str, mapping: TopicQueueMappingInfo) -> None:
        """Set the mapping that a broker name has of a static topic."""
        of_topic = self._mappings.setdefault(topic, {})
        if broker_name not in of_topic:
            self.size += 1
        of_topic[broker_name] = mapping
        self._mapped_of.setdefault(broker_name, {})[topic] = None

    def remove(self, topic: str, broker_names: Iterable[str]) -> None:
        """Drop a topic's queues of some broker names."""
        for name in broker_names:
            topics = self._topics_of.get(name)
            if topics is not None and topic in topics:
                del topics[topic]
                self._remove_entry(self.queues, topic, name)

    def remove_topic(self, topic: str) -> None:
        """Drop a topic's queues of all broker names."""
        self.remove(topic, list(self.queues.get(topic, ())))

    def forbid_writes(self, broker_name: str) -> int:
        """Forbid sends to all topics of a broker name; return how many it has."""
        return self._set_perm(broker_name, _without_write)

    def allow_all(self, broker_name: str) -> int:
        """Allow reads and sends for all topics of a broker name; return how many it has."""
        return self._set_perm(broker_name, lambda _perm: PERM_READ | PERM_WRITE)

    def _set_perm(self, broker_name: str, perm_of: Callable[[int], int]) -> int:
        topics = self._topics_of.get(broker_name, {})
        for topic in topics:
            queues = self.queues[topic]
            old = queues[broker_name]
            new = msgspec.structs.replace(old, perm=perm_of(old.perm))
            queues[broker_name] = self._shared(broker_name, new)
        return len(topics)

    def leave(self, broker_name: str) -> None:
        """Take a broker name out of all routes; its entries wait for :meth:`sweep`."""
        topics = self._topics_of.pop(broker_name, {})
        mapped = self._mapped_of.pop(broker_name, {})
        self._shapes.pop(broker_name, None)
        if topics or mapped:
            self._left.append((broker_name, topics, mapped))

    def sweep(self, entries: int = SWEEP_BATCH) -> None:
        """Remove a limited number of entries of broker names that left."""
        while self._left:
            name, topics, mapped = self._left[0]
            for kind, current, left in (
                (self.queues, self._topics_of, topics),
                (self._mappings, self._mapped_of, mapped),
            ):
                while left:
                    if not entries:
                        return
                    entries -= 1
                    topic, _ = left.popitem()
                    if topic not in current.get(name, ()):
                        self._remove_entry(kind, topic, name)
            self._left.popleft()
            if not self._left:
                self._compact()

    def _compact(self) -> None:
        """Release the memory of removed entries."""
        self.queues = compacted(self.queues)
        self._mappings = compacted(self._mappings)
        self._topics_of = compacted(self._topics_of)
        self._mapped_of = compacted(self._mapped_of)
        self._shapes = compacted(self._shapes)

    def _remove_entry(
        self,
        table: dict[str, dict[str, QueueData]] | dict[str, dict[str, TopicQueueMappingInfo]],
        topic: str,
        broker_name: str,
    ) -> None:
        of_topic = table.get(topic)
        if of_topic is not None and of_topic.pop(broker_name, None) is not None:
            self.size -= 1
            if not of_topic:
                del table[topic]

    def _shared(self, broker_name: str, queues: QueueData) -> QueueData:
        """The shared object for equal queues of a broker name."""
        shapes = self._shapes.setdefault(broker_name, {})
        if len(shapes) >= _SHAPES_MAX:
            shapes.clear()
        shape = (
            queues.perm,
            queues.read_queue_nums,
            queues.topic_sys_flag,
            queues.write_queue_nums,
        )
        return shapes.setdefault(shape, queues)


def queues_of(broker_name: str, config: TopicConfig, *, is_acting_master: bool) -> QueueData:
    """The queues that a broker name has of a topic; an acting master takes no messages."""
    return QueueData(
        broker_name=broker_name,
        perm=_without_write(config.perm) if is_acting_master else config.perm,
        read_queue_nums=config.read_queue_nums,
        topic_sys_flag=config.topic_sys_flag,
        write_queue_nums=config.write_queue_nums,
    )


def _without_write(perm: int) -> int:
    return perm & ~PERM_WRITE
