"""The asyncio client: producers, consumers and what they share.

Speaks RocketMQ's remoting protocol to Roquet and to Apache RocketMQ 4.9 and 5.x. Everything runs on
one event loop. Imports ``roquet.model``, ``roquet.format``, ``roquet.runtime``, ``roquet.filter``
and ``roquet.remoting``; never server code.
"""

from typing import TYPE_CHECKING

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
from roquet.client.callbacks import ConsumerCallbacks, ProducerCallbacks
from roquet.client.compression import Compression
from roquet.client.expression import Expression, Sql, subscription_of
from roquet.client.handler import BatchHandler, ConsumeResult, Handler
from roquet.client.hooks import (
    ConsumeContext,
    ConsumeHook,
    ConsumeReturn,
    EndTransactionContext,
    EndTransactionHook,
    MessageKind,
    SendContext,
    SendHook,
)
from roquet.client.instance import ClientInstance
from roquet.client.lite_options import LitePullOptions
from roquet.client.lite_pull import LitePullConsumer
from roquet.client.message import Message, ReceivedMessage, SendResult, SendStatus
from roquet.client.offset_store import (
    LocalFileOffsetStore,
    OffsetStore,
    ReadOffset,
    RemoteBrokerOffsetStore,
)
from roquet.client.options import ClientOptions
from roquet.client.outgoing_message import split_batch
from roquet.client.producer import Producer
from roquet.client.producer_options import ProducerOptions
from roquet.client.pull_api import PullApi, PullResult, PullStatus
from roquet.client.push_consumer import PushConsumer
from roquet.client.push_options import PushOptions
from roquet.client.queue_choice import (
    QueueSelector,
    select_by_hash,
    select_by_random,
    select_by_sharding_key,
)
from roquet.client.request_reply import reply
from roquet.client.route import PublishRoute, RouteCache, TopicRoute
from roquet.client.simple_pull import SimplePull
from roquet.client.trace import TraceConsumeHook, TraceDispatcher, TraceSendHook
from roquet.client.transaction import TransactionListener, TransactionResult, TransactionState
from roquet.client.transaction_producer import TransactionProducer
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.client import ConsumeFromWhere, MessageModel
from roquet.remoting.tls import ClientTlsConfig
from roquet.runtime.deprecation import deprecated_names

__all__ = [
    "AclHook",
    "AllocateAveragely",
    "AllocateAveragelyByCircle",
    "AllocateByConfig",
    "AllocateByConsistentHash",
    "AllocateByMachineRoom",
    "AllocateMachineRoomNearby",
    "AllocateStrategy",
    "BatchHandler",
    "ClientInstance",
    "ClientOptions",
    "ClientTlsConfig",
    "Compression",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeHook",
    "ConsumeResult",
    "ConsumeReturn",
    "ConsumerCallbacks",
    "EndTransactionContext",
    "EndTransactionHook",
    "Expression",
    "Handler",
    "LitePullConsumer",
    "LitePullOptions",
    "LocalFileOffsetStore",
    "Message",
    "MessageKind",
    "MessageModel",
    "MessageQueue",
    "OffsetStore",
    "Producer",
    "ProducerCallbacks",
    "ProducerOptions",
    "PublishRoute",
    "PullApi",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "PushOptions",
    "QueueSelector",
    "ReadOffset",
    "ReceivedMessage",
    "RemoteBrokerOffsetStore",
    "RouteCache",
    "SendContext",
    "SendHook",
    "SendResult",
    "SendStatus",
    "SimplePull",
    "Sql",
    "TopicRoute",
    "TraceConsumeHook",
    "TraceDispatcher",
    "TraceSendHook",
    "TransactionListener",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "reply",
    "select_by_hash",
    "select_by_random",
    "select_by_sharding_key",
    "split_batch",
    "subscription_of",
]

if not TYPE_CHECKING:
    __getattr__ = deprecated_names(
        __name__,
        {"ConsumerFace": "ConsumerCallbacks", "ProducerFace": "ProducerCallbacks"},
    )
