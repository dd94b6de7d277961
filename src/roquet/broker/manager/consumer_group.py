"""The clients of one consumer group, and what they subscribe to.

Owns when a heartbeat counts as a change. Of the subscription to one topic the newer wins; a topic
that a heartbeat does not name is dropped: all clients of a group must subscribe to the same.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable

import msgspec

from roquet.broker.manager.client_channel import ClientChannel
from roquet.model.subscription import SubscriptionData
from roquet.remoting.bodies.client import ConsumeFromWhere, ConsumeType, MessageModel
from roquet.remoting.connection import Connection

__all__ = ["SUBSCRIPTIONS_MAX", "Change", "ConsumerGroupInfo"]

log = logging.getLogger(__name__)

SUBSCRIPTIONS_MAX = 10_000
"""Topics of one group; what a heartbeat names beyond them is not taken."""


class Change(enum.IntEnum):
    """What a heartbeat did, the greater the more."""

    NONE = 0
    SETTINGS = 1
    """Something is new that others need not share their queues anew for."""

    MEMBERS = 2
    """Clients or topics came or went, so queues must be shared anew."""


class ConsumerGroupInfo:
    """One group.

    Attributes:
        group: Its name.
        channels: Its clients by connection; read only.
        subscriptions: By topic; read only.
        consume_type: Pull, push or POP, as the last heartbeat said.
        message_model: Whether every client gets all messages.
        consume_from_where: Where a new group starts.
    """

    def __init__(
        self,
        group: str,
        consume_type: ConsumeType | None = None,
        message_model: MessageModel | None = None,
        consume_from_where: ConsumeFromWhere | None = None,
    ) -> None:
        self.group = group
        self.channels: dict[Connection, ClientChannel] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.consume_type = consume_type
        self.message_model = message_model
        self.consume_from_where = consume_from_where

    @property
    def is_broadcast(self) -> bool:
        """Whether every client gets all messages."""
        return self.message_model is MessageModel.BROADCASTING

    def client_ids(self) -> list[str]:
        """Its clients, in the order in which they came."""
        return [channel.client_id for channel in self.channels.values()]

    def find_channel(self, client_id: str) -> ClientChannel | None:
        """A client by its id."""
        for channel in self.channels.values():
            if channel.client_id == client_id:
                return channel
        return None

    def update_settings(
        self,
        consume_type: ConsumeType | None,
        message_model: MessageModel | None,
        consume_from_where: ConsumeFromWhere | None,
    ) -> Change:
        """Take what a heartbeat says of the group."""
        old = (self.consume_type, self.message_model, self.consume_from_where)
        self.consume_type = consume_type
        self.message_model = message_model
        self.consume_from_where = consume_from_where
        is_new = old != (consume_type, message_model, consume_from_where)
        return Change.SETTINGS if is_new else Change.NONE

    def update_channel(self, channel: ClientChannel, *, now_ns: int) -> Change:
        """Take the client that a heartbeat came from."""
        known = self.channels.get(channel.connection)
        if known is not None and known.client_id == channel.client_id:
            known.last_update_ns = now_ns
            return Change.NONE
        # The caller's channel may be that of several groups, which expire one by one.
        self.channels[channel.connection] = msgspec.structs.replace(channel, last_update_ns=now_ns)
        if known is None:
            log.info("Consumer %s of group %s is here", channel.client_id, self.group)
            return Change.MEMBERS
        # Upstream does not tell the others either: it would for every heartbeat of two clients
        # that share a connection.
        log.error(
            "Consumers %s and %s of group %s share a connection",
            known.client_id, channel.client_id, self.group,
        )  # fmt: skip
        return Change.SETTINGS

    def update_subscriptions(self, subscriptions: Iterable[SubscriptionData]) -> Change:
        """Take the subscriptions of a heartbeat."""
        change = Change.NONE
        named: set[str] = set()
        for subscription in subscriptions:
            topic = subscription.topic
            if not topic:
                continue
            if len(named) >= SUBSCRIPTIONS_MAX:
                log.warning("Group %s subscribes to too many topics", self.group)
                break
            named.add(topic)
            old = self.subscriptions.get(topic)
            if old is None:
                log.info("Group %s subscribes to %s", self.group, topic)
                change = Change.MEMBERS
            elif subscription.sub_version > old.sub_version:
                change = max(change, Change.SETTINGS)
            else:
                continue
            self.subscriptions[topic] = subscription
        for topic in [topic for topic in self.subscriptions if topic not in named]:
            log.warning("Group %s no longer subscribes to %s", self.group, topic)
            del self.subscriptions[topic]
            change = Change.MEMBERS
        return change
