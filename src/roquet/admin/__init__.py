"""Administration: what the command line and the dashboard ask of a cluster.

Imports ``roquet.client`` and what is below it; never server code.
"""

from roquet.admin.admin import Admin
from roquet.admin.clusters import Clusters
from roquet.admin.groups import Groups
from roquet.admin.kv import KvValues
from roquet.admin.results import (
    BrokerInfo,
    Gathered,
    GroupProgress,
    QueueOffsets,
    QueueReset,
    TopicStats,
)
from roquet.admin.settings import Settings
from roquet.admin.topics import Topics

__all__ = [
    "Admin",
    "BrokerInfo",
    "Clusters",
    "Gathered",
    "GroupProgress",
    "Groups",
    "KvValues",
    "QueueOffsets",
    "QueueReset",
    "Settings",
    "TopicStats",
    "Topics",
]
