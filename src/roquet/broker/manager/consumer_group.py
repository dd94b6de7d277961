"""The clients of one consumer group, and their subscriptions.

Owns when a heartbeat counts as a change. The newer subscription to a topic wins; a topic that a
heartbeat does not list is dropped: all clients of a group must have the same subscriptions.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from roquet.broker.manager.client_channel import ClientChannel
from roquet.model.subscription import SubscriptionData
from roquet.remoting.bodies.client import ConsumeFromWhere, ConsumeType, MessageModel
from roquet.remoting.connection import Connection
from roquet.runtime.log_budget import LogBudget

__all__ = ["SUBSCRIPTIONS_MAX", "ConsumerGroupInfo", "HeartbeatEffect"]

SUBSCRIPTIONS_MAX = 10_000
"""Limit on the topics of one group; further ones in a heartbeat are ignored."""


class HeartbeatEffect(enum.IntEnum):
    """The effect of a heartbeat, in ascending order."""

    NONE = 0
    SETTINGS = 1
    """Something changed that needs no rebalance."""

    MEMBERS = 2
    """Clients or topics were added or removed, so the group must rebalance."""


class ConsumerGroupInfo:
    """One group.

    Attributes:
        group: Its name.
        channels: Its clients by connection; read only.
        subscriptions: Its subscriptions by topic; read only.
        consume_type: Pull, push or POP, from the last heartbeat.
        message_model: Whether every client gets all messages.
        consume_from_where: Where a new group starts.

    Args:
        lines: Logs the changes.
    """

    def __init__(
        self,
        group: str,
        consume_type: ConsumeType | None = None,
        message_model: MessageModel | None = None,
        consume_from_where: ConsumeFromWhere | None = None,
        *,
        lines: LogBudget,
    ) -> None:
        self.group = group
        self._lines = lines
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
        """Its client ids, in the order of registration."""
        return [channel.client_id for channel in self.channels.values()]

    def find_channel(self, client_id: str) -> ClientChannel | None:
        """Return a client by its id."""
        for channel in self.channels.values():
            if channel.client_id == client_id:
                return channel
        return None

    def update_settings(
        self,
        consume_type: ConsumeType | None,
        message_model: MessageModel | None,
        consume_from_where: ConsumeFromWhere | None,
    ) -> HeartbeatEffect:
        """Apply the group settings of a heartbeat."""
        old = (self.consume_type, self.message_model, self.consume_from_where)
        self.consume_type = consume_type
        self.message_model = message_model
        self.consume_from_where = consume_from_where
        is_new = old != (consume_type, message_model, consume_from_where)
        return HeartbeatEffect.SETTINGS if is_new else HeartbeatEffect.NONE

    def update_channel(self, channel: ClientChannel, *, now_ns: int) -> HeartbeatEffect:
        """Register or refresh the client of a heartbeat."""
        known = self.channels.get(channel.connection)
        if known is not None and known.client_id == channel.client_id:
            known.last_update_ns = now_ns
            return HeartbeatEffect.NONE
        # The caller may use its channel for several groups, which expire one by one.
        self.channels[channel.connection] = msgspec.structs.replace(channel, last_update_ns=now_ns)
        if known is None:
            self._lines.info("Consumer %s joined group %s", channel.client_id, self.group)
            return HeartbeatEffect.MEMBERS
        # Upstream does not notify the others either: it would do so for every heartbeat of two
        # clients that share a connection.
        self._lines.warning(
            "Consumers %s and %s of group %s share a connection",
            known.client_id, channel.client_id, self.group,
        )  # fmt: skip
        return HeartbeatEffect.SETTINGS

    def update_subscriptions(self, subscriptions: Iterable[SubscriptionData]) -> HeartbeatEffect:
        """Apply the subscriptions of a heartbeat."""
        change = HeartbeatEffect.NONE
        named: set[str] = set()
        for subscription in subscriptions:
            topic = subscription.topic
            if not topic:
                continue
            if len(named) >= SUBSCRIPTIONS_MAX:
                self._lines.warning("Group %s subscribes to too many topics", self.group)
                break
            named.add(topic)
            old = self.subscriptions.get(topic)
            if old is None:
                self._lines.info("Group %s subscribes to %s", self.group, topic)
                change = HeartbeatEffect.MEMBERS
            elif subscription.sub_version > old.sub_version:
                change = max(change, HeartbeatEffect.SETTINGS)
            else:
                continue
            self.subscriptions[topic] = subscription
        for topic in [topic for topic in self.subscriptions if topic not in named]:
            self._lines.warning("Group %s no longer subscribes to %s", self.group, topic)
            del self.subscriptions[topic]
            change = HeartbeatEffect.MEMBERS
        return change
