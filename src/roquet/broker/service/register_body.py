"""The topics of the broker as the body of a registration.

Owns the texts of single topics, which are made again only for topics that changed: a broker may
have thousands, and each new one registers all.
"""

from __future__ import annotations

import asyncio
from functools import partial

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.model.data_version import DataVersion
from roquet.model.topic_config import PERM_READ, PERM_WRITE, TopicConfig
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.register import RegisterBrokerBody, encode_register_body
from roquet.remoting.bodies.route import QueueData, TopicRouteData
from roquet.remoting.bodies.topic import TopicConfigAndMappingSerializeWrapper
from roquet.runtime.clock import Clock

__all__ = ["RegisterBody"]

PLAIN_BYTES_MAX = 12 << 20
"""Longer bodies are compressed, because a frame ends at 16 MiB."""

_NO_TOPICS = b'"topicConfigTable":{}'
_ALL = PERM_READ | PERM_WRITE


class RegisterBody:
    """Makes bodies of topics.

    Args:
        config: The broker's settings.
        topics: The topics.
        clock: The time.
    """

    def __init__(self, config: BrokerConfig, topics: TopicConfigManager, clock: Clock) -> None:
        self._config = config
        self._topics = topics
        self._mapping_version = DataVersion(timestamp_ms=clock.now_ms())
        self._texts: dict[str, tuple[TopicConfig, bytes]] = {}

    async def encode(self) -> tuple[bytes, bool]:
        """The body with all topics as they are now, and whether it is compressed."""
        if not self._config.compressed_register:
            plain = self._plain()
            if len(plain) <= PLAIN_BYTES_MAX:
                return plain, False
        shown = {name: self._shown(topic) for name, topic in self._topics.table.items()}
        squeeze = partial(encode_register_body, self._body(shown), compressed=True)
        return await asyncio.get_running_loop().run_in_executor(None, squeeze), True

    def route(self, topic: TopicConfig) -> TopicRouteData:
        """One topic, as it is registered alone."""
        shown = self._shown(topic)
        queues = QueueData(
            broker_name=self._config.broker_name,
            perm=shown.perm,
            read_queue_nums=shown.read_queue_nums,
            topic_sys_flag=topic.topic_sys_flag,
            write_queue_nums=shown.write_queue_nums,
        )
        return TopicRouteData(queue_datas=[queues])

    def _body(self, topics: dict[str, TopicConfig]) -> RegisterBrokerBody:
        version = self._topics.data_version
        return RegisterBrokerBody(
            topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
                data_version=DataVersion(
                    counter=version.counter,
                    state_version=version.state_version,
                    timestamp_ms=version.timestamp_ms,
                ),
                mapping_data_version=self._mapping_version,
                topic_config_table=topics,
            )
        )

    def _plain(self) -> bytes:
        texts: dict[str, tuple[TopicConfig, bytes]] = {}
        for name, topic in self._topics.table.items():
            known = self._texts.get(name)
            if known is None or known[0] is not topic:
                # Settings of a topic are replaced, never altered, so the same ones have this text.
                text = encode_body({name: self._shown(topic)})
                known = (topic, text[1:-1])
            texts[name] = known
        self._texts = texts
        before, _, after = encode_register_body(self._body({})).partition(_NO_TOPICS)
        entries = b",".join(text for _, text in texts.values())
        return b"".join((before, _NO_TOPICS[:-1], entries, _NO_TOPICS[-1:], after))

    def _shown(self, topic: TopicConfig) -> TopicConfig:
        """A topic with what clients may do with it here."""
        permission = self._config.broker_permission
        if permission & _ALL == _ALL:
            return topic
        return TopicConfig(
            topic_name=topic.topic_name,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=topic.perm & permission,
        )
