"""Message tracks: which groups have consumed a message.

Applies the rule of upstream's tools: a connected group that has committed an offset after the
message has consumed it.
"""

from __future__ import annotations

import asyncio
from enum import Enum

from msgspec import Struct

from roquet.admin.clients import Clients
from roquet.admin.offsets import Offsets
from roquet.admin.topics import Topics
from roquet.client import ReceivedMessage
from roquet.errors import RoquetError
from roquet.model.subscription import SUBSCRIBE_ALL
from roquet.remoting.bodies.client import ConsumerConnection, ConsumeType, MessageModel

__all__ = ["MessageTrack", "MessageTracker", "TrackType"]


class TrackType(Enum):
    """The status of a message in a group; the values are upstream's.

    Example:
        >>> TrackType("NOT_CONSUME_YET").name
        'NOT_CONSUMED_YET'
    """

    CONSUMED = "CONSUMED"
    """Its committed offset is after the message."""

    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    """The same, but it does not subscribe to the message's tag."""

    PULL = "PULL"
    """It is a pull consumer, so brokers do not know."""

    NOT_CONSUMED_YET = "NOT_CONSUME_YET"
    """Its committed offset is before the message."""

    NOT_ONLINE = "NOT_ONLINE"
    """None of its clients is connected."""

    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    """Its clients keep their offsets to themselves."""

    UNKNOWN = "UNKNOWN"
    """The broker gave no information."""


class MessageTrack(Struct, frozen=True, kw_only=True):
    """The status of a message in a group.

    Attributes:
        group: The group.
        type: The status.
        failure: Why the status is not known.

    Example:
        >>> MessageTrack(group="billing", type=TrackType.CONSUMED).failure is None
        True
    """

    group: str
    type: TrackType
    failure: RoquetError | None = None


class MessageTracker:
    """Finds out which groups have consumed a message.

    Args:
        topics: Finds the groups of a topic.
        clients: Finds the connected clients.
        offsets: Finds the progress of groups.
    """

    def __init__(self, topics: Topics, clients: Clients, offsets: Offsets) -> None:
        self._topics = topics
        self._clients = clients
        self._offsets = offsets

    async def of(self, message: ReceivedMessage) -> list[MessageTrack]:
        """Return the status of a message in each group."""
        found = (await self._topics.groups(message.topic)).partial("Listing the groups")
        groups = sorted({group for part in found.values() for group in part})
        return list(await asyncio.gather(*(self._track(message, group) for group in groups)))

    async def _track(self, message: ReceivedMessage, group: str) -> MessageTrack:
        try:
            return MessageTrack(group=group, type=await self._type(message, group))
        except RoquetError as error:
            return MessageTrack(group=group, type=TrackType.UNKNOWN, failure=error)

    async def _type(self, message: ReceivedMessage, group: str) -> TrackType:
        found = (await self._clients.consumers(group)).partial(f"Listing the clients of {group}")
        online = [each for each in found.values() if each.connection_set]
        if not online:
            return TrackType.NOT_ONLINE
        connection = online[0]
        if connection.message_model is MessageModel.BROADCASTING:
            return TrackType.CONSUME_BROADCASTING
        if connection.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return TrackType.PULL
        committed = await self._offsets.committed(group, message.queue)
        if committed is None or committed <= message.queue_offset:
            return TrackType.NOT_CONSUMED_YET
        is_wanted = _is_wanted(message, connection)
        return TrackType.CONSUMED if is_wanted else TrackType.CONSUMED_BUT_FILTERED


def _is_wanted(message: ReceivedMessage, connection: ConsumerConnection) -> bool:
    subscription = connection.subscription_table.get(message.topic)
    if subscription is None or not subscription.tags_set:
        return True
    return SUBSCRIBE_ALL in subscription.tags_set or message.tags in subscription.tags_set
