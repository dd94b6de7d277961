"""The tables of a broker: their texts, and changes of them that take effect at once.

Servers stage a change and wait until it is in the file; a test writes it where it stands.
"""

from __future__ import annotations

from typing import TypeVar

from roquet.broker.manager.config_manager import ConfigManager
from roquet.broker.manager.staged import StagedManager
from roquet.broker.manager.subscription_group import SubscriptionGroupManager
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.manager.topic_queue_mapping import TopicQueueMappingManager
from roquet.model.subscription import SubscriptionGroupConfig
from roquet.model.topic_config import TopicConfig
from roquet.model.topic_queue_mapping import TopicQueueMappingDetail

T = TypeVar("T")


def commit(manager: StagedManager[T]) -> None:
    """Write and apply what is staged, if anything is."""
    if manager._staged > manager._settled:
        manager.commit_staged()


def text_of(manager: ConfigManager[T]) -> str:
    """What a write would leave in the file."""
    return b"".join(manager._pieces(manager._snapshot())).decode()


def put_topics(topics: TopicConfigManager, *configs: TopicConfig) -> None:
    topics.stage_all(configs)
    commit(topics)


def drop_topics(topics: TopicConfigManager, *names: str) -> None:
    topics.stage_delete(names)
    commit(topics)


def put_groups(groups: SubscriptionGroupManager, *configs: SubscriptionGroupConfig) -> None:
    groups.stage_all(configs)
    commit(groups)


def drop_group(groups: SubscriptionGroupManager, name: str) -> None:
    groups.stage_delete(name)
    commit(groups)


def forbid(
    groups: SubscriptionGroupManager, group: str, topic: str, bit: int, *, forbidden: bool
) -> None:
    groups.stage_forbidden(group, topic, bit, forbidden=forbidden)
    commit(groups)


def put_mapping(
    mappings: TopicQueueMappingManager, detail: TopicQueueMappingDetail, *, force: bool = False
) -> None:
    mappings.stage(detail, force=force)
    commit(mappings)


def drop_mappings(mappings: TopicQueueMappingManager, *topics: str) -> None:
    mappings.stage_delete(topics)
    commit(mappings)
