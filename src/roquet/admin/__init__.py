"""The admin API, used by the command line and the dashboard.

Imports ``roquet.client`` and what is below it; never server code.
"""

from typing import TYPE_CHECKING

from roquet.admin.admin import Admin
from roquet.admin.clients import Clients
from roquet.admin.clusters import Clusters
from roquet.admin.dead_letters import DeadLetters
from roquet.admin.groups import Groups
from roquet.admin.kv import KvValues
from roquet.admin.messages import Messages
from roquet.admin.offsets import Offsets
from roquet.admin.results import (
    BrokerInfo,
    GroupProgress,
    MessagesFound,
    QueueOffsets,
    QueueReset,
    ReplicaLag,
    ServerResults,
    TopicStats,
)
from roquet.admin.settings import Settings
from roquet.admin.stats import Stats, StatsName
from roquet.admin.topics import Topics
from roquet.admin.tracks import MessageTrack, TrackType
from roquet.runtime.deprecation import deprecated_names

__all__ = [
    "Admin",
    "BrokerInfo",
    "Clients",
    "Clusters",
    "DeadLetters",
    "GroupProgress",
    "Groups",
    "KvValues",
    "MessageTrack",
    "Messages",
    "MessagesFound",
    "Offsets",
    "QueueOffsets",
    "QueueReset",
    "ReplicaLag",
    "ServerResults",
    "Settings",
    "Stats",
    "StatsName",
    "TopicStats",
    "Topics",
    "TrackType",
]

if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__, {"Gathered": "ServerResults"})
