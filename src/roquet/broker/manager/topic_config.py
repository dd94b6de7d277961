"""The topics of the broker, kept in ``topics.json``.

Owns the table, the broker's own topics, and the rules by which a send or a heartbeat creates a new
one.

.. code-block:: text

    system topic                         queues          perm   condition
    SELF_TEST_TOPIC                      1               6
    TBW102                               default (8)     7      senders may create topics
    BenchmarkTest                        1024            6
    <cluster>                            16              7 or 1
    <broker name>                        1               7 or 1
    OFFSET_MOVED_EVENT                   1               6
    SCHEDULE_TOPIC_XXXX                  delay levels    6
    RMQ_SYS_TRACE_TOPIC                  1               6      tracing is on
    <cluster>_REPLY_TOPIC                1               6
    rmq_sys_REVIVE_LOG_<cluster>         revive queues   6
    rmq_sys_SYNC_BROKER_MEMBER_<broker>  1               1
    RMQ_SYS_[ROCKSDB_]TRANS_[OP_]HALF_TOPIC  1           6

Invariants:

* A topic is in the file before a message of it is acknowledged, except retry topics, which the
  heartbeats of their groups create again, and dead letter topics while the disk is full.
* Many changes share one write of the file, which does not block the event loop: see
  :mod:`roquet.broker.manager.staged`.
* Names that cannot be a directory are never accepted, and senders cannot create more than
  :data:`TOPICS_MAX` topics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.attributes import TOPIC_ATTRIBUTES, alter_attributes
from roquet.broker.manager.change_log import ChangeLog
from roquet.broker.manager.config_manager import (
    config_path,
    decode_table,
    merge,
    pretty,
)
from roquet.broker.manager.staged import StagedManager
from roquet.broker.manager.text_blocks import TextBlocks
from roquet.broker.manager.topic_texts import TopicTexts
from roquet.model.data_version import DataVersion
from roquet.model.topic import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    BENCHMARK_TOPIC,
    OFFSET_MOVED_EVENT,
    ROCKSDB_TRANS_HALF_TOPIC,
    ROCKSDB_TRANS_OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    is_retry_topic,
    is_system_topic,
    topic_fault,
)
from roquet.model.topic_config import PERM_INHERIT, PERM_READ, PERM_WRITE, TopicConfig
from roquet.remoting.bodies.topic import TopicConfigSerializeWrapper
from roquet.runtime.clock import Clock
from roquet.runtime.config_file import ConfigFile
from roquet.runtime.files import Files
from roquet.runtime.log_budget import LogBudget
from roquet.runtime.settings import INT_MAX

__all__ = ["TOPICS_MAX", "TopicConfigManager"]

log = logging.getLogger(__name__)

TOPICS_MAX = 100_000
"""Limit on topics that senders and heartbeats may create; not for administrators."""

FRESH_MAX = 1_024
"""New dead letter topics that are tracked before those in the file are forgotten."""

BENCHMARK_QUEUES = 1024
REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"
SYNC_BROKER_MEMBER_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"

_FILE_NAME = "topics.json"
_ALL = PERM_READ | PERM_WRITE


def _decode(text: str) -> TopicConfigSerializeWrapper:
    return decode_table(TopicConfigSerializeWrapper, text)


def _topic(name: str, queues: int, perm: int = _ALL) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)


def _system_topics(config: BrokerConfig, delay_level_count: int) -> Iterator[TopicConfig]:
    cluster, broker = config.cluster_name, config.broker_name
    yield _topic(SELF_TEST_TOPIC, 1)
    if config.auto_create_topic:
        queues = config.default_topic_queue_nums
        yield _topic(AUTO_CREATE_TOPIC_KEY_TOPIC, queues, PERM_INHERIT | _ALL)
    yield _topic(BENCHMARK_TOPIC, BENCHMARK_QUEUES)
    yield TopicConfig(topic_name=cluster, perm=PERM_INHERIT | (_ALL if config.cluster_topic else 0))
    yield _topic(broker, 1, PERM_INHERIT | (_ALL if config.broker_topic else 0))
    yield _topic(OFFSET_MOVED_EVENT, 1)
    yield _topic(SCHEDULE_TOPIC, delay_level_count)
    if config.trace_topic:
        yield _topic(config.trace_topic_name, 1)
    yield _topic(cluster + REPLY_TOPIC_SUFFIX, 1)
    yield _topic(REVIVE_TOPIC_PREFIX + cluster, config.revive_queue_nums)
    yield _topic(SYNC_BROKER_MEMBER_PREFIX + broker, 1, PERM_INHERIT)
    yield _topic(TRANS_HALF_TOPIC, 1)
    yield _topic(TRANS_OP_HALF_TOPIC, 1)
    yield _topic(ROCKSDB_TRANS_HALF_TOPIC, 1)
    yield _topic(ROCKSDB_TRANS_OP_HALF_TOPIC, 1)


class TopicConfigManager(StagedManager[TopicConfigSerializeWrapper]):
    """The topics.

    Args:
        config: The broker's settings.
        file: Their file; see :meth:`at`.
        clock: The time.
        delay_level_count: How many delay levels there are; each has a queue.

    Attributes:
        table: The topics by name. Entries are replaced, never modified; read only.
        system_topics: Names that belong to this broker.
        changed: Called after every change.
        changes: The names of recently changed topics.
    """

    def __init__(
        self,
        config: BrokerConfig,
        file: ConfigFile[TopicConfigSerializeWrapper],
        clock: Clock,
        *,
        delay_level_count: int = 18,
    ) -> None:
        super().__init__(file, clock)
        self._config = config
        self.table: dict[str, TopicConfig] = {
            topic.topic_name: topic
            for topic in _system_topics(config, delay_level_count)
            if topic.topic_name is not None
        }
        self.system_topics = frozenset(self.table)
        self._lines = LogBudget(log, clock)
        self.changes = ChangeLog()
        self._staged_topics = self._stages(self.table, self.changes.note)
        texts = TopicTexts(lambda topic: pretty(msgspec.to_builtins(topic), level=2))
        self._texts = TextBlocks[TopicConfig](2, texts.member)
        self._fresh: dict[str, int] = {}

    @classmethod
    def at(
        cls, config: BrokerConfig, files: Files, clock: Clock, *, delay_level_count: int = 18
    ) -> TopicConfigManager:
        """Return the topics in the store of ``config``."""
        file = ConfigFile(config_path(config.store_root, _FILE_NAME), files, decode=_decode)
        return cls(config, file, clock, delay_level_count=delay_level_count)

    def select(self, topic: str) -> TopicConfig | None:
        """One topic."""
        return self.table.get(topic)

    def has_batch_queues(self, topic: str) -> bool:
        """Whether a topic exists and has batch consume queues."""
        known = self.table.get(topic)
        return known is not None and known.has_batch_queues

    def is_system(self, topic: str) -> bool:
        """Whether a topic is a system topic, of any broker or of this one."""
        return topic in self.system_topics or is_system_topic(topic)

    def create_in_send(
        self, topic: str, *, default_topic: str, default_queue_nums: int, sys_flag: int
    ) -> TopicConfig | None:
        """Return the topic of a message; a new one is modelled on the sender's default topic.

        A new one is staged: it is in the table, and its messages may be stored, once
        :meth:`when_committed` has called back.

        Returns:
            The topic, or None if it may not be created.
        """
        known = self._staged_topics.get(topic)
        if known is not None:
            return known
        default = self.table.get(default_topic)
        if default is None or not self._may_create(topic):
            return None
        if default_topic == AUTO_CREATE_TOPIC_KEY_TOPIC and not self._config.auto_create_topic:
            return None
        if not default.perm & PERM_INHERIT:
            return None
        queues = max(0, min(default_queue_nums, default.write_queue_nums))
        new = _topic(topic, queues, default.perm & ~PERM_INHERIT)
        new.topic_sys_flag = sys_flag
        new.topic_filter_type = default.topic_filter_type
        self._staged_topics.stage(self._new_change(), topic, new)
        self._lines.info("Topic %s is created by a send, like %s: %s", topic, default_topic, new)
        return new

    def create_in_send_back(
        self, topic: str, *, queue_nums: int, perm: int, sys_flag: int, order: bool = False
    ) -> TopicConfig | None:
        """Return the retry or dead letter topic of a group.

        A retry topic is in the file after the next :meth:`persist`: the heartbeats of its group
        create it again at any time, and a thousand groups that come at once should not have to
        wait for a thousand syncs. Another topic is written at once, if that is possible; a full
        disk does not stop consumers. :meth:`when_kept` reports when that is done.

        Returns:
            The topic, or None if it may not be created.
        """
        known = self.table.get(topic)
        if known is not None and known.order == order:
            return known
        if known is not None:
            new = msgspec.structs.replace(known, order=order)
        elif self._may_create(topic):
            new = _topic(topic, queue_nums, perm)
            new.topic_sys_flag = sys_flag
            new.order = order
        else:
            return None
        self.table[topic] = new
        self.changes.note(topic)
        if is_retry_topic(topic):
            self._bump()
            self.tell_changed()
        else:
            self._note_fresh(topic)
            self._keep_if_possible(f"Topic {topic}")
        return new

    def _note_fresh(self, topic: str) -> None:
        """Track a topic that is not in the file before the next edit is."""
        if len(self._fresh) >= FRESH_MAX:
            written = self._written_edits
            self._fresh = {name: edits for name, edits in self._fresh.items() if edits > written}
        self._fresh[topic] = self._edits + 1

    def when_kept(self, topic: str, callback: Callable[[], None]) -> None:
        """Call a function once a topic is in the file, or its write has failed."""
        edits = self._fresh.get(topic)
        if edits is None:
            callback()
        elif edits <= self._written_edits:
            del self._fresh[topic]
            callback()
        else:
            self._when_written(edits, callback)

    def stage_all(self, topic_configs: Sequence[TopicConfig]) -> None:
        """Create or change topics, all or none, once committed.

        The attributes of a topic are changes, as ``+key`` and ``-key``.

        Raises:
            ConfigError: An attribute is refused.
        """
        new: dict[str, TopicConfig] = {}
        for given in topic_configs:
            name = given.topic_name
            assert name, "a topic has a name"
            known = new.get(name) or self._staged_topics.get(name)
            attributes = {} if known is None else known.attributes
            if given.attributes:
                attributes = alter_attributes(
                    attributes, given.attributes, TOPIC_ATTRIBUTES, is_new=known is None
                )
            new[name] = TopicConfig(
                attributes=attributes,
                order=given.order,
                perm=given.perm,
                read_queue_nums=given.read_queue_nums,
                topic_filter_type=given.topic_filter_type,
                topic_name=name,
                topic_sys_flag=given.topic_sys_flag,
                write_queue_nums=given.write_queue_nums,
            )
        self._stage(new)

    def stage_delete(self, topics: Iterable[str]) -> None:
        """Delete topics, those that exist, once committed."""
        self._stage({name: None for name in topics if self._staged_topics.get(name) is not None})

    def adopt(self, table: Mapping[str, TopicConfig], version: DataVersion) -> list[str]:
        """Become a copy of a master's table; return the names of the topics that are gone.

        This broker's own system topics stay. Entries with names or queue numbers that are invalid
        are ignored.
        """
        kept = {name: each for name, each in table.items() if self._is_adoptable(name, each)}
        gone = [name for name in self.table if name not in kept and name not in self.system_topics]
        for name in gone:
            del self.table[name]
            self.changes.note(name)
        for name, each in kept.items():
            topic = msgspec.structs.replace(each, topic_name=name)
            if self.table.get(name) != topic:
                self.table[name] = topic
                self.changes.note(name)
        self._adopt_version(version)
        self.tell_changed()
        return gone

    def _is_adoptable(self, name: str, topic: TopicConfig) -> bool:
        fault = topic_fault(name)
        if fault is None and not (
            0 <= topic.read_queue_nums <= INT_MAX and 0 <= topic.write_queue_nums <= INT_MAX
        ):
            fault = f"{topic.read_queue_nums} and {topic.write_queue_nums} queues"
        if fault is not None and (more := self._log_limiter.allow("not adopted")) is not None:
            log.warning("Topic %.300r of the master was ignored: %.300s%s", name, fault, more)
        return fault is None

    def stage_order_config(self, ordered: Mapping[str, str]) -> None:
        """Mark topics as ordered if the name server lists queues for them, once committed.

        No topic is marked as unordered.
        """
        self._stage(
            {
                topic: msgspec.structs.replace(known, order=True)
                for topic in ordered
                if (known := self._staged_topics.get(topic)) is not None and not known.order
            }
        )

    def _stage(self, entries: Mapping[str, TopicConfig | None]) -> None:
        if entries:
            change = self._new_change()
            for name, entry in entries.items():
                self._staged_topics.stage(change, name, entry)

    def is_order_topic(self, topic: str) -> bool:
        """Whether producers use only the queues that the name server lists."""
        known = self.table.get(topic)
        return known is not None and known.order

    def _may_create(self, topic: str) -> bool:
        fault = topic_fault(topic)
        if fault is None and len(self._staged_topics) >= TOPICS_MAX:
            fault = f"there are {TOPICS_MAX} topics"
        if fault is not None and (more := self._log_limiter.allow("refused")) is not None:
            log.warning("Topic %.300r was not created: %.300s%s", topic, fault, more)
        return fault is None

    def _take(self, loaded: TopicConfigSerializeWrapper) -> bool:
        for name, topic_config in loaded.topic_config_table.items():
            topic_config.topic_name = name
        self.data_version = loaded.data_version
        return merge(self.table, loaded.topic_config_table)

    def _snapshot(self) -> TopicConfigSerializeWrapper:
        return TopicConfigSerializeWrapper(
            data_version=self._pictured_version(),
            topic_config_table=self._staged_topics.snapshot(),
        )

    def _pieces(self, snapshot: TopicConfigSerializeWrapper) -> Iterator[bytes]:
        version = pretty(msgspec.to_builtins(snapshot.data_version), level=1)
        yield f'{{\n\t"dataVersion":{version},\n\t"topicConfigTable":'.encode()
        yield from self._texts.pieces(snapshot.topic_config_table)
        yield b"\n}"
