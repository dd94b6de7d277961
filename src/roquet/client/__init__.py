"""The asyncio client: producers, consumers and what they share.

Speaks RocketMQ's remoting protocol to Roquet and to Apache RocketMQ 4.9 and 5.x. Everything runs on
one event loop. Imports ``roquet.model``, ``roquet.format``, ``roquet.runtime``, ``roquet.filter``
and ``roquet.remoting``; never server code.
"""

from roquet.client.acl import AclHook
from roquet.client.allocate import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
    AllocateByConsistentHash,
    AllocateByMachineRoom,
    AllocateMachineRoomNearby,
    AllocateStrategy,
)
from roquet.client.compression import Compression
from roquet.client.expression import Expression, Sql, subscription_of
from roquet.client.faces import ConsumerFace, ProducerFace
from roquet.client.instance import ClientInstance
from roquet.client.message import Message, ReceivedMessage, SendResult, SendStatus
from roquet.client.offset_store import (
    LocalFileOffsetStore,
    OffsetStore,
    ReadOffset,
    RemoteBrokerOffsetStore,
)
from roquet.client.options import ClientOptions
from roquet.client.pull_api import PullApi, PullResult, PullStatus
from roquet.client.route import PublishRoute, RouteCache, TopicRoute

__all__ = [
    "AclHook",
    "AllocateAveragely",
    "AllocateAveragelyByCircle",
    "AllocateByConfig",
    "AllocateByConsistentHash",
    "AllocateByMachineRoom",
    "AllocateMachineRoomNearby",
    "AllocateStrategy",
    "ClientInstance",
    "ClientOptions",
    "Compression",
    "ConsumerFace",
    "Expression",
    "LocalFileOffsetStore",
    "Message",
    "OffsetStore",
    "ProducerFace",
    "PublishRoute",
    "PullApi",
    "PullResult",
    "PullStatus",
    "ReadOffset",
    "ReceivedMessage",
    "RemoteBrokerOffsetStore",
    "RouteCache",
    "SendResult",
    "SendStatus",
    "Sql",
    "TopicRoute",
    "subscription_of",
]
