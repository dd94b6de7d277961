"""The broker's topics as the body of a registration.

Owns the batches in which topics are registered: a broker may have a hundred thousand. Large bodies
are encoded in a thread.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import NamedTuple

import msgspec

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.manager.topic_queue_mapping import TopicQueueMappingManager
from roquet.broker.manager.topic_texts import TopicTexts
from roquet.model.data_version import DataVersion
from roquet.model.topic_config import PERM_READ, PERM_WRITE, TopicConfig
from roquet.model.topic_queue_mapping import TopicQueueMappingInfo
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.register import RegisterBrokerBody, encode_register_body
from roquet.remoting.bodies.route import QueueData, TopicRouteData
from roquet.remoting.bodies.topic import TopicConfigAndMappingSerializeWrapper

__all__ = ["RegisterBody", "RegistrationBatch"]

PLAIN_BYTES_MAX = 12 << 20
"""Longer bodies are compressed, because a frame is limited to 16 MiB."""

TOPICS_AT_ONCE_MAX = 1_000
"""More topics than this are encoded in a thread."""

_NO_TOPICS = b'"topicConfigTable":{}'
_ALL = PERM_READ | PERM_WRITE


class RegistrationBatch(NamedTuple):
    """Topics that are registered together, and the version for the name server to record.

    Attributes:
        mappings: The queue mappings of the static ones.
        mapping_version: The version of all mappings.
    """

    version: DataVersion
    topics: dict[str, TopicConfig]
    mappings: dict[str, TopicQueueMappingInfo]
    mapping_version: DataVersion


class RegisterBody:
    """Builds registration bodies from topics.

    Args:
        config: The broker's settings.
        topics: The topics.
        mappings: The queue mappings of static ones.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigManager,
        mappings: TopicQueueMappingManager,
    ) -> None:
        self._config = config
        self._topics = topics
        self._mappings = mappings

    def parts(self) -> list[RegistrationBatch]:
        """Return the current topics, in one batch or as many as the settings require.

        A name server accepts topics with a version that it does not know. So each batch has a
        version of its own, and the last one that of the table.
        """
        version = self._topics.data_version
        table = self._topics.table
        # A name server would refuse a batch of one topic as a broker's first registration.
        size = max(self._config.split_registration_topics, 2)
        if not self._config.split_registration or len(table) <= size:
            return [self._part(msgspec.structs.replace(version), dict(table))]
        items = iter(table.items())
        chunks = [dict(islice(items, size)) for _ in range(0, len(table), size)]
        return [
            self._part(
                msgspec.structs.replace(version, timestamp_ms=version.timestamp_ms - later), chunk
            )
            for later, chunk in zip(range(len(chunks) - 1, -1, -1), chunks, strict=True)
        ]

    def _part(self, version: DataVersion, topics: dict[str, TopicConfig]) -> RegistrationBatch:
        mappings = self._mappings
        return RegistrationBatch(
            version, topics, mappings.infos(topics), msgspec.structs.replace(mappings.data_version)
        )

    async def encode(self, part: RegistrationBatch) -> tuple[bytes, bool]:
        """Return the body of a batch, and whether it is compressed."""
        is_short = len(part.topics) <= TOPICS_AT_ONCE_MAX and not self._config.compressed_register
        if is_short:
            return self._encode(part)
        return await asyncio.get_running_loop().run_in_executor(None, self._encode, part)

    def _encode(self, part: RegistrationBatch) -> tuple[bytes, bool]:
        if not self._config.compressed_register:
            plain = self._plain(part)
            if len(plain) <= PLAIN_BYTES_MAX:
                return plain, False
        shown = {name: self._shown(topic) for name, topic in part.topics.items()}
        return encode_register_body(self._body(part, shown), compressed=True), True

    def route(self, topic: TopicConfig) -> TopicRouteData:
        """Return the route of one topic, for its registration alone."""
        shown = self._shown(topic)
        queues = QueueData(
            broker_name=self._config.broker_name,
            perm=shown.perm,
            read_queue_nums=shown.read_queue_nums,
            topic_sys_flag=topic.topic_sys_flag,
            write_queue_nums=shown.write_queue_nums,
        )
        return TopicRouteData(queue_datas=[queues])

    def _body(self, part: RegistrationBatch, topics: dict[str, TopicConfig]) -> RegisterBrokerBody:
        return RegisterBrokerBody(
            topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
                data_version=part.version,
                mapping_data_version=part.mapping_version,
                topic_config_table=topics,
                topic_queue_mapping_info_map=part.mappings,
            )
        )

    def _plain(self, part: RegistrationBatch) -> bytes:
        texts = TopicTexts(lambda topic: encode_body(self._shown(topic)).decode())
        entries = b",".join(texts.member(name, topic) for name, topic in part.topics.items())
        # Queue ids in quotes: a long body has to be standard JSON, and name servers accept both.
        empty = encode_body(self._body(part, {}), standard=True)
        before, _, after = empty.partition(_NO_TOPICS)
        return b"".join((before, _NO_TOPICS[:-1], entries, _NO_TOPICS[-1:], after))

    def _shown(self, topic: TopicConfig) -> TopicConfig:
        """Return a topic with the permissions that clients have on this broker."""
        permission = self._config.broker_permission
        if permission & _ALL == _ALL:
            return topic
        return TopicConfig(
            topic_name=topic.topic_name,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=topic.perm & permission,
        )
