"""Administration: what the command line and the dashboard ask of a cluster.

Imports ``roquet.client`` and what is below it; never server code.
"""

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
    Gathered,
    GroupProgress,
    MessagesFound,
    QueueOffsets,
    QueueReset,
    TopicStats,
)
from roquet.admin.settings import Settings
from roquet.admin.stats import Stats, StatsName
from roquet.admin.topics import Topics
from roquet.admin.tracks import MessageTrack, TrackType

__all__ = [
    "Admin",
    "BrokerInfo",
    "Clients",
    "Clusters",
    "DeadLetters",
    "Gathered",
    "GroupProgress",
    "Groups",
    "KvValues",
    "MessageTrack",
    "Messages",
    "MessagesFound",
    "Offsets",
    "QueueOffsets",
    "QueueReset",
    "Settings",
    "Stats",
    "StatsName",
    "TopicStats",
    "Topics",
    "TrackType",
]
