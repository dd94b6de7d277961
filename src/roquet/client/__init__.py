"""The asyncio client: producers, consumers and what they share.

Speaks RocketMQ's remoting protocol to Roquet and to Apache RocketMQ 4.9 and 5.x. Everything runs on
one event loop. Imports ``roquet.model``, ``roquet.format``, ``roquet.runtime`` and
``roquet.remoting``; never server code.
"""

from roquet.client.acl import AclHook
from roquet.client.compression import Compression
from roquet.client.faces import ConsumerFace, ProducerFace
from roquet.client.instance import ClientInstance
from roquet.client.message import Message, ReceivedMessage, SendResult, SendStatus
from roquet.client.options import ClientOptions
from roquet.client.route import PublishRoute, RouteCache, TopicRoute

__all__ = [
    "AclHook",
    "ClientInstance",
    "ClientOptions",
    "Compression",
    "ConsumerFace",
    "Message",
    "ProducerFace",
    "PublishRoute",
    "ReceivedMessage",
    "RouteCache",
    "SendResult",
    "SendStatus",
    "TopicRoute",
]
