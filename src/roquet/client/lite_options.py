"""The settings of a lite pull consumer.

Owns :class:`LitePullOptions` and the same names as keyword arguments, :class:`LitePullSettings`.
The defaults are those of Apache RocketMQ's Java client, except that a pull requests 32 messages,
not 10.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from msgspec import Struct, field

from roquet.client.allocate import AllocateAveragely, AllocateStrategy
from roquet.errors import ConfigError
from roquet.model.topic import TRACE_TOPIC
from roquet.remoting.bodies.client import ConsumeFromWhere, MessageModel

__all__ = ["LitePullOptions", "LitePullSettings"]


class LitePullOptions(Struct, frozen=True, kw_only=True):
    """How a lite pull consumer reads.

    Attributes:
        message_model: Whether the clients of the group share the messages, or each gets all.
        allocate: How queues are shared.
        consume_from: Where a new group starts.
        consume_from_timestamp_ms: The time for ``CONSUME_FROM_TIMESTAMP``; by default half an hour
            before the start.
        auto_commit: Whether the messages of a poll count as consumed at the next poll.
        pull_batch_max: How many messages a pull requests.
        suspend_ms: How long a broker may hold a pull while there are no messages.
        retry_ms: How long to wait after a failure.
        rebalance_ms: How often queues are rebalanced, even without a known change.
        cached_messages_max_of_all: How many messages may wait to be polled.
        cached_messages_max: The same for one queue.
        cached_mib_max: How many MiB of one queue may wait to be polled.
        span_max: The maximum span of the offsets of one queue that wait to be polled.
        offsets_folder: Where a broadcasting consumer keeps its offsets; by default Java's folder.
        trace: Whether polled messages are traced.
        trace_topic: The trace topic.

    Example:
        >>> LitePullOptions().auto_commit
        True
    """

    message_model: MessageModel = MessageModel.CLUSTERING
    allocate: AllocateStrategy = field(default_factory=AllocateAveragely)
    consume_from: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_from_timestamp_ms: int | None = None
    auto_commit: bool = True
    pull_batch_max: int = 32
    suspend_ms: int = 20_000
    retry_ms: int = 1_000
    rebalance_ms: int = 20_000
    cached_messages_max_of_all: int = 10_000
    cached_messages_max: int = 1_000
    cached_mib_max: int = 100
    span_max: int = 2_000
    offsets_folder: Path | None = None
    trace: bool = False
    trace_topic: str = TRACE_TOPIC

    def check(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: A number is too small.

        Example:
            LitePullOptions(pull_batch_max=64).check()
        """
        for name in (
            "pull_batch_max",
            "suspend_ms",
            "retry_ms",
            "rebalance_ms",
            "cached_messages_max_of_all",
            "cached_messages_max",
            "cached_mib_max",
            "span_max",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", hint="It must be 1 or more.")


class LitePullSettings(TypedDict, total=False):
    """The fields of :class:`LitePullOptions` as keyword arguments."""

    message_model: MessageModel
    allocate: AllocateStrategy
    consume_from: ConsumeFromWhere
    consume_from_timestamp_ms: int | None
    auto_commit: bool
    pull_batch_max: int
    suspend_ms: int
    retry_ms: int
    rebalance_ms: int
    cached_messages_max_of_all: int
    cached_messages_max: int
    cached_mib_max: int
    span_max: int
    offsets_folder: Path | None
    trace: bool
    trace_topic: str
