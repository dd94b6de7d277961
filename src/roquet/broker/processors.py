"""All processors of a broker.

Owns which processors a broker has; other modules only pass them to the registry.
"""

from __future__ import annotations

from roquet.broker.admin.clean_up import CleanUpAdmin
from roquet.broker.admin.client_relay import ClientRelayAdmin
from roquet.broker.admin.config_update import ConfigUpdateAdmin
from roquet.broker.admin.connection import ConnectionAdmin
from roquet.broker.admin.consume_stats import ConsumeStatsAdmin
from roquet.broker.admin.forbidden import ForbiddenAdmin
from roquet.broker.admin.group import GroupAdmin
from roquet.broker.admin.group_offset import GroupOffsetAdmin
from roquet.broker.admin.offset import OffsetAdmin
from roquet.broker.admin.queue_dump import QueueDumpAdmin
from roquet.broker.admin.queue_lock import QueueLockAdmin
from roquet.broker.admin.replication import ReplicationAdmin
from roquet.broker.admin.reset_offset import ResetOffsetAdmin
from roquet.broker.admin.runtime_info import RuntimeInfoAdmin
from roquet.broker.admin.slave_tables import SlaveTablesAdmin
from roquet.broker.admin.stats import StatsAdmin
from roquet.broker.admin.subscription import SubscriptionAdmin
from roquet.broker.admin.topic import TopicAdmin
from roquet.broker.components import BrokerComponents
from roquet.broker.processor.client_manage import ClientManageProcessor
from roquet.broker.processor.consumer_manage import ConsumerManageProcessor
from roquet.broker.processor.query_message import QueryMessageProcessor
from roquet.broker.processor.recall_message import RecallMessageProcessor
from roquet.broker.processor.reply_message import ReplyMessageProcessor

__all__ = ["admin_processors", "client_processors"]

_CLIENT = (
    QueryMessageProcessor,
    RecallMessageProcessor,
    ReplyMessageProcessor,
    ClientManageProcessor,
    ConsumerManageProcessor,
    OffsetAdmin,
    QueueLockAdmin,
    ConnectionAdmin,
)
_ADMIN = (
    TopicAdmin,
    GroupAdmin,
    RuntimeInfoAdmin,
    ConsumeStatsAdmin,
    SubscriptionAdmin,
    ResetOffsetAdmin,
    ClientRelayAdmin,
    GroupOffsetAdmin,
    QueueDumpAdmin,
    CleanUpAdmin,
    ForbiddenAdmin,
    ConfigUpdateAdmin,
    StatsAdmin,
    ReplicationAdmin,
    SlaveTablesAdmin,
)


def client_processors(components: BrokerComponents) -> list[object]:
    """Return the processors for clients, except sends, pulls and those of the services."""
    return [each(components) for each in _CLIENT]


def admin_processors(components: BrokerComponents) -> list[object]:
    """Return the processors for administrators."""
    return [each(components) for each in _ADMIN]
