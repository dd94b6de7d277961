"""The settings of a push consumer.

Owns :class:`PushOptions`. The defaults are those of Apache RocketMQ's Java client, except
``consume_batch_max``, which only applies to batch handlers, and ``stop_timeout_ms``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from msgspec import Struct

from roquet.client.allocate import AllocateAveragely, AllocateStrategy
from roquet.errors import ConfigError
from roquet.model.topic import TRACE_TOPIC
from roquet.remoting.bodies.client import ConsumeFromWhere, MessageModel

__all__ = ["PushOptions", "PushSettings"]

_LEAST = {
    "concurrency": 1,
    "consume_batch_max": 1,
    "pull_batch_max": 1,
    "pull_batch_bytes_max": 1,
    "pull_interval_ms": 0,
    "cached_messages_max": 1,
    "cached_mib_max": 1,
    "span_max": 1,
    "consume_timeout_ms": 1,
    "suspend_ms": 1,
    "max_reconsume_times": -1,
    "stop_timeout_ms": 0,
}
BATCH_MAX = 1_024


class PushOptions(Struct, frozen=True, kw_only=True):
    """How a push consumer consumes.

    Attributes:
        orderly: Whether the messages of a queue are consumed one after the other, in order; the
            queue is locked at the broker for this client.
        message_model: Whether the clients of a group share the messages, or each gets all.
        consume_from: Where a new group starts.
        consume_from_timestamp_ms: The time for ``CONSUME_FROM_TIMESTAMP``, milliseconds since the
            epoch; ``None`` is half an hour before the consumer is created.
        allocate: How the clients of a group share the queues.
        concurrency: How many handler calls run at once.
        consume_batch_max: How many messages a batch handler gets at most.
        pull_batch_max: How many messages one pull returns at most.
        pull_batch_bytes_max: How many bytes one pull returns at most; brokers of version 4 ignore
            it.
        pull_interval_ms: How long to wait after a pull that returned messages.
        cached_messages_max: Above this many unfinished messages a queue is not pulled.
        cached_mib_max: Above this many MiB of unfinished bodies a queue is not pulled.
        cached_messages_max_of_topic: The same for all queues of a topic together.
        cached_mib_max_of_topic: The same for all queues of a topic together.
        span_max: When offsets of unfinished messages are further apart than this, a queue is not
            pulled; not for consumption in order.
        max_reconsume_times: How often a message is retried before it becomes a dead letter; -1 is
            16 times, and for consumption in order no limit.
        consume_timeout_ms: A message that a handler has had for longer is sent back to the broker,
            so that its queue's offset can advance; not for consumption in order.
        suspend_ms: In order: how long a queue waits after its handler failed.
        subscription_in_pull: Whether each pull carries the expression.
        stop_timeout_ms: How long a closing consumer waits for running handlers.
        offsets_folder: Broadcasting: where offsets are kept; ``None`` is Java's folder.
        trace: Whether consumed messages are traced.
        trace_topic: The trace topic.

    Example:
        >>> PushOptions(orderly=True).max_reconsume_times
        -1
    """

    orderly: bool = False
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_from_timestamp_ms: int | None = None
    allocate: AllocateStrategy = AllocateAveragely()
    concurrency: int = 20
    consume_batch_max: int = 32
    pull_batch_max: int = 32
    pull_batch_bytes_max: int = 256 * 1024
    pull_interval_ms: int = 0
    cached_messages_max: int = 1_000
    cached_mib_max: int = 100
    cached_messages_max_of_topic: int | None = None
    cached_mib_max_of_topic: int | None = None
    span_max: int = 2_000
    max_reconsume_times: int = -1
    consume_timeout_ms: int = 15 * 60_000
    suspend_ms: int = 1_000
    subscription_in_pull: bool = False
    stop_timeout_ms: int = 10_000
    offsets_folder: Path | None = None
    trace: bool = False
    trace_topic: str = TRACE_TOPIC

    @property
    def is_broadcasting(self) -> bool:
        """Whether each client gets all messages.

        Example:
            assert PushOptions(message_model=MessageModel.BROADCASTING).is_broadcasting
        """
        return self.message_model is MessageModel.BROADCASTING

    @property
    def is_locking(self) -> bool:
        """Whether queues are locked at the broker.

        Example:
            assert PushOptions(orderly=True).is_locking
        """
        return self.orderly and not self.is_broadcasting

    def check(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: A number is out of range.

        Example:
            try:
                PushOptions(concurrency=0).check()
            except ConfigError as error:
                print(error.message)
        """
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value < least:
                raise ConfigError(f"{name} is {value}", hint=f"It must be {least} or more.")
        for name in ("consume_batch_max", "pull_batch_max"):
            if getattr(self, name) > BATCH_MAX:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}", hint=f"It must be {BATCH_MAX} or less."
                )
        for name in ("cached_messages_max_of_topic", "cached_mib_max_of_topic"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}", hint="It must be 1 or more, or None.")


class PushSettings(TypedDict, total=False):
    """The fields of :class:`PushOptions` as keyword arguments."""

    orderly: bool
    message_model: MessageModel
    consume_from: ConsumeFromWhere
    consume_from_timestamp_ms: int | None
    allocate: AllocateStrategy
    concurrency: int
    consume_batch_max: int
    pull_batch_max: int
    pull_batch_bytes_max: int
    pull_interval_ms: int
    cached_messages_max: int
    cached_mib_max: int
    cached_messages_max_of_topic: int | None
    cached_mib_max_of_topic: int | None
    span_max: int
    max_reconsume_times: int
    consume_timeout_ms: int
    suspend_ms: int
    subscription_in_pull: bool
    stop_timeout_ms: int
    offsets_folder: Path | None
    trace: bool
    trace_topic: str
