"""Headers about offsets: committed ones, a queue's bounds, offsets by time."""

from __future__ import annotations

from enum import Enum

from msgspec import field

from roquet.remoting.headers.base import (
    Header,
    Int32,
    Int64,
    RpcHeader,
    TopicHeader,
    TopicQueueHeader,
)

__all__ = [
    "BoundaryType",
    "CloneGroupOffsetRequestHeader",
    "GetConsumerStatusRequestHeader",
    "GetEarliestMsgStoretimeRequestHeader",
    "GetEarliestMsgStoretimeResponseHeader",
    "GetMaxOffsetRequestHeader",
    "GetMinOffsetRequestHeader",
    "OffsetResponseHeader",
    "QueryConsumerOffsetRequestHeader",
    "QueryCorrectionOffsetRequestHeader",
    "ResetOffsetRequestHeader",
    "SearchOffsetRequestHeader",
    "UpdateConsumerOffsetRequestHeader",
    "UpdateConsumerOffsetResponseHeader",
]


class BoundaryType(Enum):
    """Which of several messages with the same time; lower by default."""

    LOWER = "lower"
    UPPER = "upper"


class OffsetResponseHeader(Header, kw_only=True):
    """A queue offset: committed, first, next, or by time."""

    queue_offset: Int64 = field(name="offset")


class QueryConsumerOffsetRequestHeader(TopicQueueHeader, kw_only=True):
    """The committed offset of a group.

    Attributes:
        set_zero_if_not_found: Whether 0 may be returned for a new queue; true by default.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffsetRequestHeader(TopicQueueHeader, kw_only=True):
    """An offset to commit."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class UpdateConsumerOffsetResponseHeader(Header, kw_only=True):
    """Nothing."""


class SearchOffsetRequestHeader(TopicQueueHeader, kw_only=True):
    """The offset at a time."""

    topic: str
    queue_id: Int32
    timestamp_ms: Int64 = field(name="timestamp")
    boundary_type: BoundaryType | None = None


class GetMaxOffsetRequestHeader(TopicQueueHeader, kw_only=True):
    """The next offset of a queue."""

    topic: str
    queue_id: Int32
    committed: bool = True


class GetMinOffsetRequestHeader(TopicQueueHeader, kw_only=True):
    """The first offset of a queue."""

    topic: str
    queue_id: Int32


class GetEarliestMsgStoretimeRequestHeader(TopicQueueHeader, kw_only=True):
    """A queue, whose first store time is requested."""

    topic: str
    queue_id: Int32


class GetEarliestMsgStoretimeResponseHeader(Header, kw_only=True):
    """Then."""

    timestamp_ms: Int64 = field(name="timestamp")


class ResetOffsetRequestHeader(TopicQueueHeader, kw_only=True):
    """Where a group is to continue.

    Attributes:
        queue_id: One queue, or -1 for all.
        queue_offset: An offset; takes precedence over the time.
        timestamp_ms: A time; -1 is the end.
        force: Whether to move backwards too.
    """

    topic: str
    group: str
    queue_id: Int32 = -1
    queue_offset: Int64 | None = field(default=None, name="offset")
    timestamp_ms: Int64 = field(default=0, name="timestamp")
    force: bool = field(default=False, name="isForce")


class GetConsumerStatusRequestHeader(TopicHeader, kw_only=True):
    """Offsets as the clients of a group see them."""

    topic: str
    group: str
    client_address: str | None = field(default=None, name="clientAddr")


class CloneGroupOffsetRequestHeader(RpcHeader, kw_only=True):
    """Copy the offsets of one group to another."""

    source_group: str = field(name="srcGroup")
    destination_group: str = field(name="destGroup")
    topic: str | None = None
    offline: bool = False


class QueryCorrectionOffsetRequestHeader(TopicHeader, kw_only=True):
    """The smallest offsets of other groups.

    Attributes:
        filter_groups: Groups to exclude, separated by commas.
        compare_group: Whose offsets to start from.
    """

    filter_groups: str | None = None
    compare_group: str
    topic: str
