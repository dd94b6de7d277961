"""Bodies of topics: their settings, their queues, lists of them."""

from __future__ import annotations

from msgspec import Struct, field

from roquet.model.data_version import DataVersion
from roquet.model.message_queue import MessageQueue
from roquet.model.topic_config import TopicConfig
from roquet.model.topic_queue_mapping import TopicQueueMappingDetail, TopicQueueMappingInfo

__all__ = [
    "CreateTopicListRequestBody",
    "TopicConfigAndMappingSerializeWrapper",
    "TopicConfigAndQueueMapping",
    "TopicConfigSerializeWrapper",
    "TopicList",
    "TopicOffset",
    "TopicQueueMappingSerializeWrapper",
    "TopicStatsTable",
]


class TopicConfigSerializeWrapper(Struct, rename="camel", kw_only=True):
    """Topics by name."""

    data_version: DataVersion = field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)


class TopicConfigAndMappingSerializeWrapper(TopicConfigSerializeWrapper, kw_only=True):
    """Topics by name, and where the queues of static ones are."""

    mapping_data_version: DataVersion = field(default_factory=DataVersion)
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] = field(default_factory=dict)
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = field(default_factory=dict)


class TopicQueueMappingSerializeWrapper(Struct, rename="camel", kw_only=True):
    """Where the queues of static topics are."""

    data_version: DataVersion = field(default_factory=DataVersion)
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingDetail] | None = None


class TopicConfigAndQueueMapping(TopicConfig, kw_only=True):
    """One topic, and where its queues are if it is static."""

    mapping_detail: TopicQueueMappingDetail | None = None


class CreateTopicListRequestBody(Struct, rename="camel", kw_only=True):
    """Topics to create or change."""

    topic_config_list: list[TopicConfig] | None = None


class TopicList(Struct, rename="camel", kw_only=True):
    """Names of topics; with the address of a broker if system topics were requested."""

    broker_addr: str | None = None
    topic_list: list[str] = field(default_factory=list)


class TopicOffset(Struct, rename="camel", kw_only=True):
    """First and next offset of a queue, and when its last message was stored."""

    last_update_timestamp_ms: int = field(default=0, name="lastUpdateTimestamp")
    max_offset: int = 0
    min_offset: int = 0


class TopicStatsTable(Struct, rename="camel", kw_only=True):
    """The queues of a topic."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0
