"""The topics of the broker, kept in ``topics.json``.

Owns the table, the topics that the broker makes for itself, and the rules by which a send or a
heartbeat makes a new one.

.. code-block:: text

    system topic                         queues          perm   made when
    SELF_TEST_TOPIC                      1               6
    TBW102                               default (8)     7      new topics may be made by senders
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

* A topic is in the file before a message of it is acknowledged, except topics of retries, which
  the heartbeats of their groups make again.
* Names that cannot be a directory never get in, and senders cannot make more than
  :data:`TOPICS_MAX` topics.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.attributes import TOPIC_ATTRIBUTES, alter_attributes
from roquet.broker.manager.config_manager import (
    EntryTexts,
    SettingsManager,
    config_path,
    decode_table,
    merge,
    pretty,
    restorer,
)
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

__all__ = ["TOPICS_MAX", "TopicConfigManager"]

log = logging.getLogger(__name__)

TOPICS_MAX = 100_000
"""Senders and heartbeats make no more topics than this; an administrator may."""

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


class TopicConfigManager(SettingsManager[TopicConfigSerializeWrapper]):
    """The topics.

    Args:
        config: The broker's settings.
        file: Where they are kept; see :meth:`at`.
        clock: The time.
        delay_level_count: How many delay levels there are; each has a queue.

    Attributes:
        table: The topics by name. Entries are replaced, never altered; read them only.
        system_topics: Names that belong to this broker.
        changed: Called after every change.
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
        self._texts = EntryTexts(2, msgspec.to_builtins)

    @classmethod
    def at(
        cls, config: BrokerConfig, files: Files, clock: Clock, *, delay_level_count: int = 18
    ) -> TopicConfigManager:
        """The topics, kept in the store of ``config``."""
        file = ConfigFile(config_path(config.store_root, _FILE_NAME), files, decode=_decode)
        return cls(config, file, clock, delay_level_count=delay_level_count)

    def select(self, topic: str) -> TopicConfig | None:
        """One topic."""
        return self.table.get(topic)

    def is_system(self, topic: str) -> bool:
        """Whether a topic belongs to the broker, by its name or by the names of this broker."""
        return topic in self.system_topics or is_system_topic(topic)

    def create_in_send(
        self, topic: str, *, default_topic: str, default_queue_nums: int, sys_flag: int
    ) -> TopicConfig | None:
        """The topic of a message; a new one takes after the default topic that the sender names.

        Returns:
            The topic, or None when it may not be made.

        Raises:
            StoreError: It could not be kept.
        """
        known = self.table.get(topic)
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
        with self._changing(restorer(self.table)):
            self.table[topic] = new
        log.info("Topic %s was made by a send after %s: %s", topic, default_topic, new)
        return new

    def create_in_send_back(
        self, topic: str, *, queue_nums: int, perm: int, sys_flag: int, order: bool = False
    ) -> TopicConfig | None:
        """The topic of a group's retries or dead letters.

        A topic of retries is in the file after the next :meth:`persist`: the heartbeats of its
        group make it again at any time, and a thousand groups that come at once should not have
        to wait for a thousand syncs. Another topic is in the file at once, if that is possible;
        a full disk does not stop consumers.

        Returns:
            The topic, or None when it may not be made.
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
        if is_retry_topic(topic):
            self._bump()
            self._tell()
        else:
            self._keep_if_possible(f"Topic {topic}")
        return new

    def update(self, topic_config: TopicConfig) -> None:
        """Make or alter a topic; its attributes say what to alter, as ``+key`` and ``-key``.

        Raises:
            ConfigError: An attribute is refused.
            StoreError: It could not be kept.
        """
        self.update_all([topic_config])

    def update_all(self, topic_configs: Sequence[TopicConfig]) -> None:
        """As :meth:`update`, for several at once: all or none.

        Raises:
            ConfigError: An attribute is refused.
            StoreError: They could not be kept.
        """
        if not topic_configs:
            return
        with self._changing(restorer(self.table)):
            for given in topic_configs:
                name = given.topic_name
                assert name, "a topic has a name"
                known = self.table.get(name)
                self.table[name] = TopicConfig(
                    attributes=alter_attributes(
                        {} if known is None else known.attributes,
                        given.attributes,
                        TOPIC_ATTRIBUTES,
                        is_new=known is None,
                    ),
                    order=given.order,
                    perm=given.perm,
                    read_queue_nums=given.read_queue_nums,
                    topic_filter_type=given.topic_filter_type,
                    topic_name=name,
                    topic_sys_flag=given.topic_sys_flag,
                    write_queue_nums=given.write_queue_nums,
                )

    def delete(self, topic: str) -> None:
        """Drop a topic, if it is there.

        Raises:
            StoreError: That could not be kept.
        """
        if topic in self.table:
            with self._changing(restorer(self.table)):
                del self.table[topic]

    def update_order_config(self, ordered: Mapping[str, str]) -> None:
        """Make ordered the topics for which the name server lists queues; none is made unordered.

        Raises:
            StoreError: That could not be kept.
        """
        newly = [
            known
            for topic in ordered
            if (known := self.table.get(topic)) is not None and not known.order
        ]
        if not newly:
            return
        with self._changing(restorer(self.table)):
            for known in newly:
                assert known.topic_name is not None
                self.table[known.topic_name] = msgspec.structs.replace(known, order=True)

    def is_order_topic(self, topic: str) -> bool:
        """Whether producers keep to the queues that the name server lists."""
        known = self.table.get(topic)
        return known is not None and known.order

    def _may_create(self, topic: str) -> bool:
        fault = topic_fault(topic)
        if fault is None and len(self.table) >= TOPICS_MAX:
            fault = f"there are {TOPICS_MAX} topics"
        if fault is not None and (more := self._log_limiter.allow("refused")) is not None:
            log.warning("Topic %.300r was not made: %.300s%s", topic, fault, more)
        return fault is None

    def _take(self, loaded: TopicConfigSerializeWrapper) -> bool:
        for name, topic_config in loaded.topic_config_table.items():
            topic_config.topic_name = name
        self.data_version = loaded.data_version
        return merge(self.table, loaded.topic_config_table)

    def _picture(self) -> TopicConfigSerializeWrapper:
        return TopicConfigSerializeWrapper(
            data_version=msgspec.structs.replace(self.data_version),
            topic_config_table=dict(self.table),
        )

    def _text(self, picture: TopicConfigSerializeWrapper) -> str:
        version = pretty(msgspec.to_builtins(picture.data_version), level=1)
        topics = self._texts.text(dict(picture.topic_config_table))
        return f'{{\n\t"dataVersion":{version},\n\t"topicConfigTable":{topics}\n}}'
