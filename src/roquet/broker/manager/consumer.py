"""The consumers that are connected, by group.

Owns the table of groups, when the clients of a group are told to share its queues anew, and the
subscriptions of groups that send no heartbeats here: what their pulls carried ("compensation"),
kept for ``subscriptionExpiredTimeout`` after the last of them.

Invariants:

* A group that has no channel is not in the table.
* Every change of a group's clients or topics tells its clients, except where each of them gets
  all messages anyway. Upstream forgets to when it drops a silent client.
* A channel is gone when its connection is, or when no heartbeat came for
  ``channelExpiredTimeout``; the connection is closed then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from msgspec import Struct

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.client_channel import ClientChannel
from roquet.broker.manager.consumer_group import Change, ConsumerGroupInfo
from roquet.model.subscription import SubscriptionData
from roquet.remoting.bodies.client import ConsumeFromWhere, ConsumeType, MessageModel
from roquet.remoting.connection import Connection
from roquet.runtime.clock import Clock

__all__ = ["ConsumerManager"]

log = logging.getLogger(__name__)

_NS_PER_MS = 1_000_000


class _Compensation(Struct):
    """A subscription that a pull carried."""

    subscription: SubscriptionData
    update_ns: int


class ConsumerManager:
    """The consumers.

    Args:
        config: The broker's settings.
        clock: The time.
        notify: Sends NOTIFY_CONSUMER_IDS_CHANGED of a group to these clients; must not raise.

    Attributes:
        table: The groups by name; read only.
        changed: Called when any group's clients or subscriptions change.
        registered: Called with the subscriptions of every heartbeat that has them.
        group_gone: Called when the last client of a group is gone.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        *,
        notify: Callable[[str, Sequence[ClientChannel]], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._notify = notify
        self.table: dict[str, ConsumerGroupInfo] = {}
        self.changed: list[Callable[[], None]] = []
        self.registered: list[Callable[[str, Sequence[SubscriptionData]], None]] = []
        self.group_gone: list[Callable[[str], None]] = []
        self._groups_of: dict[Connection, set[str]] = {}
        self._compensations: dict[str, dict[str, _Compensation]] = {}
        self._deferred: dict[str, None] = {}

    def register(
        self,
        group: str,
        channel: ClientChannel,
        *,
        consume_type: ConsumeType | None,
        message_model: MessageModel | None,
        consume_from_where: ConsumeFromWhere | None,
        subscriptions: Sequence[SubscriptionData],
        notify_enabled: bool,
        update_subscriptions: bool = True,
    ) -> bool:
        """Take a heartbeat.

        Args:
            group: The group, which exists.
            channel: The client.
            consume_type: Pull, push or POP.
            message_model: Whether every client gets all messages.
            consume_from_where: Where a new group starts.
            subscriptions: What the client subscribes to.
            notify_enabled: Whether the group wants its clients to be told of changes.
            update_subscriptions: Whether ``subscriptions`` counts.

        Returns:
            Whether clients or topics came or went.
        """
        info = self.table.get(group)
        if info is None:
            info = self.table[group] = ConsumerGroupInfo(group)
        change = info.update_settings(consume_type, message_model, consume_from_where)
        change = max(change, info.update_channel(channel, now_ns=self._clock.monotonic_ns()))
        self._groups_of.setdefault(channel.connection, set()).add(group)
        if update_subscriptions:
            change = max(change, info.update_subscriptions(subscriptions))
            for registered in self.registered:
                registered(group, subscriptions)
        has_members_changed = change is Change.MEMBERS
        if has_members_changed and notify_enabled:
            self._notify_group(info)
        if change is not Change.NONE:
            self._tell()
        return has_members_changed

    def unregister(self, group: str, channel: ClientChannel, *, notify_enabled: bool) -> None:
        """Take a good-bye."""
        if self._remove(group, channel.connection, notify=notify_enabled):
            self._tell()

    def connection_closed(self, connection: Connection) -> None:
        """Drop the clients of a connection."""
        groups = self._groups_of.get(connection)
        if groups is None:
            return
        for group in list(groups):
            self._remove(group, connection, notify=True)
        self._tell()

    def scan_not_active(self) -> None:
        """Drop and close clients that were silent for too long; forget old compensations."""
        now_ns = self._clock.monotonic_ns()
        deadline_ns = now_ns - self._config.channel_expired_timeout_ms * _NS_PER_MS
        expired = [
            (group, connection)
            for group, info in self.table.items()
            for connection, channel in info.channels.items()
            if channel.last_update_ns < deadline_ns
        ]
        for group, connection in expired:
            log.warning("A consumer of group %s is silent: %r", group, connection)
            self._remove(group, connection, notify=True)
            connection.close()
        forgot = self._forget_compensations(now_ns)
        if expired or forgot:
            self._tell()

    def find(self, group: str) -> ConsumerGroupInfo | None:
        """A group that has clients here."""
        return self.table.get(group)

    def find_channel(self, group: str, client_id: str) -> ClientChannel | None:
        """A client of a group."""
        info = self.table.get(group)
        return None if info is None else info.find_channel(client_id)

    def find_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What a group subscribes to, by its heartbeats, else by its latest pull."""
        info = self.table.get(group)
        if info is not None:
            subscription = info.subscriptions.get(topic)
            if subscription is not None:
                return subscription
        compensation = self._compensations.get(group, {}).get(topic)
        return None if compensation is None else compensation.subscription

    def compensate_subscription(
        self, group: str, topic: str, subscription: SubscriptionData
    ) -> None:
        """Note the subscription that a pull carried."""
        now_ns = self._clock.monotonic_ns()
        self._compensations.setdefault(group, {})[topic] = _Compensation(subscription, now_ns)

    def groups_of_topic(self, topic: str) -> set[str]:
        """Groups whose clients subscribe to a topic."""
        return {group for group, info in self.table.items() if topic in info.subscriptions}

    def notify_deferred(self) -> None:
        """Tell the clients of groups that changed; for ``realTimeNotifyConsumerChange=false``."""
        deferred, self._deferred = self._deferred, {}
        for group in deferred:
            info = self.table.get(group)
            if info is not None:
                self._notify(group, list(info.channels.values()))

    def _remove(self, group: str, connection: Connection, *, notify: bool) -> bool:
        info = self.table.get(group)
        if info is None or info.channels.pop(connection, None) is None:
            return False
        groups = self._groups_of[connection]
        groups.discard(group)
        if not groups:
            del self._groups_of[connection]
        if not info.channels:
            log.info("Group %s has no consumer any more", group)
            del self.table[group]
            for gone in self.group_gone:
                gone(group)
        elif notify:
            self._notify_group(info)
        return True

    def _notify_group(self, info: ConsumerGroupInfo) -> None:
        if info.is_broadcast or not self._config.notify_consumer_ids_changed:
            return
        if self._config.real_time_notify_consumer_change:
            self._notify(info.group, list(info.channels.values()))
        else:
            self._deferred[info.group] = None

    def _forget_compensations(self, now_ns: int) -> bool:
        deadline_ns = now_ns - self._config.subscription_expired_timeout_ms * _NS_PER_MS
        forgot = False
        for group, topics in list(self._compensations.items()):
            for topic in [name for name, entry in topics.items() if entry.update_ns < deadline_ns]:
                del topics[topic]
                forgot = True
            if not topics:
                del self._compensations[group]
        return forgot

    def _tell(self) -> None:
        for listener in self.changed:
            listener()
