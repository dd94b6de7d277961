"""The connected consumers, by group.

Owns the table of groups, the notices on which the clients of a group rebalance, and the
subscriptions of groups that send no heartbeats here: those that their pulls carried
("compensation"), kept for ``subscriptionExpiredTimeout`` after the last of them.

Invariants:

* A group without a channel is not in the table.
* Every change of a group's clients or topics notifies its clients, except where each of them gets
  all messages anyway. Upstream does not when it drops a silent client.
* The number of groups per connection is limited, and so are all channels, subscriptions and
  compensations; further ones are refused.
* A channel is removed when its connection closes, or after ``channelExpiredTimeout`` without a
  heartbeat; the connection is then closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from msgspec import Struct

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.client_channel import ClientChannel
from roquet.broker.manager.consumer_group import ConsumerGroupInfo, HeartbeatEffect
from roquet.model.subscription import SubscriptionData
from roquet.remoting.bodies.client import ConsumeFromWhere, ConsumeType, MessageModel
from roquet.remoting.connection import Connection
from roquet.runtime.clock import Clock
from roquet.runtime.log_budget import LogBudget

__all__ = ["GROUPS_PER_CONNECTION_MAX", "ConsumerManager"]

log = logging.getLogger(__name__)

GROUPS_PER_CONNECTION_MAX = 4_096
CHANNELS_MAX = 200_000
"""Pairs of groups and connections."""

SUBSCRIPTIONS_MAX = 200_000
"""Pairs of groups and topics; further topics in heartbeats are ignored."""

COMPENSATIONS_MAX = 100_000
CHANNELS_A_TURN = 2_000
"""Channels that a scan checks before other work may run."""

_NS_PER_MS = 1_000_000


class _Compensation(Struct):
    """A subscription from a pull."""

    subscription: SubscriptionData
    update_ns: int


class ConsumerManager:
    """The consumers by group.

    Args:
        config: The broker's settings.
        clock: The time.
        notify: Sends NOTIFY_CONSUMER_IDS_CHANGED for a group to these clients; must not raise.

    Attributes:
        table: The groups by name; read only.
        changed: Called when any group's clients or subscriptions change.
        registered: Called with the subscriptions of every heartbeat that has them.
        group_gone: Called when the last client of a group is removed.
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
        self._groups_of: dict[Connection, dict[str, None]] = {}
        self._compensations: dict[str, dict[str, _Compensation]] = {}
        self._deferred: dict[str, None] = {}
        self._lines = LogBudget(log, clock)
        self._channels = 0
        self._subscriptions = 0
        self._compensation_count = 0

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
        """Register the consumer of a heartbeat.

        Args:
            group: The group, which exists.
            channel: The client.
            consume_type: Pull, push or POP.
            message_model: Whether every client gets all messages.
            consume_from_where: Where a new group starts.
            subscriptions: The client's subscriptions.
            notify_enabled: Whether the group wants its clients to be notified of changes.
            update_subscriptions: Whether to apply ``subscriptions``.

        Returns:
            Whether clients or topics were added or removed.
        """
        connection = channel.connection
        if not self.takes(group, connection):
            return False
        info = self.table.get(group)
        if info is None or connection not in info.channels:
            self._channels += 1
        if info is None:
            info = self.table[group] = ConsumerGroupInfo(group, lines=self._lines)
        change = info.update_settings(consume_type, message_model, consume_from_where)
        change = max(change, info.update_channel(channel, now_ns=self._clock.monotonic_ns()))
        self._groups_of.setdefault(connection, {})[group] = None
        if update_subscriptions and self._has_room(info, subscriptions):
            before = len(info.subscriptions)
            change = max(change, info.update_subscriptions(subscriptions))
            self._subscriptions += len(info.subscriptions) - before
            for registered in self.registered:
                registered(group, subscriptions)
        has_members_changed = change is HeartbeatEffect.MEMBERS
        if has_members_changed and notify_enabled:
            self._notify_group(info)
        if change is not HeartbeatEffect.NONE:
            self._tell()
        return has_members_changed

    def takes(self, group: str, connection: Connection) -> bool:
        """Whether a client is in a group or may join it; a refusal is logged."""
        info = self.table.get(group)
        if info is not None and connection in info.channels:
            return True
        fault = self._fault(connection)
        if fault is not None:
            self._lines.warning("A consumer of group %.300s was refused: %s", group, fault)
        return fault is None

    def unregister(self, group: str, channel: ClientChannel, *, notify_enabled: bool) -> None:
        """Remove a client that unregisters."""
        if self._remove(group, channel.connection, notify=notify_enabled):
            self._tell()

    def connection_closed(self, connection: Connection, limit: int | None = None) -> int:
        """Remove a connection's clients from at most ``limit`` groups; return from how many."""
        groups = list(islice(self._groups_of.get(connection, ()), limit))
        for group in groups:
            self._remove(group, connection, notify=True)
        if groups:
            self._tell()
        return len(groups)

    def scan(self) -> Iterator[None]:
        """Remove and close clients that were silent for too long; drop expired compensations.

        Runs in steps, with other work in between.
        """
        now_ns = self._clock.monotonic_ns()
        deadline_ns = now_ns - self._config.channel_expired_timeout_ms * _NS_PER_MS
        looked_at = 0
        has_changed = False
        for group, info in list(self.table.items()):
            expired = [
                connection
                for connection, channel in info.channels.items()
                if channel.last_update_ns < deadline_ns
            ]
            looked_at += len(info.channels) + 1
            for connection in expired:
                self._lines.warning("A consumer of group %s is silent: %r", group, connection)
                self._remove(group, connection, notify=True)
                connection.close()
                has_changed = True
            if looked_at >= CHANNELS_A_TURN:
                looked_at = 0
                yield
        if self._forget_compensations(now_ns) or has_changed:
            self._tell()

    def find(self, group: str) -> ConsumerGroupInfo | None:
        """Return a group that has clients here."""
        return self.table.get(group)

    def find_channel(self, group: str, client_id: str) -> ClientChannel | None:
        """Return a client of a group."""
        info = self.table.get(group)
        return None if info is None else info.find_channel(client_id)

    def find_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return a group's subscription to a topic: from its heartbeats, else its last pull."""
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
        """Keep the subscription of a pull."""
        now_ns = self._clock.monotonic_ns()
        topics = self._compensations.get(group)
        if topics is None or topic not in topics:
            if self._compensation_count >= COMPENSATIONS_MAX:
                self._lines.warning("The subscription of group %.300s was not kept", group)
                return
            self._compensation_count += 1
            topics = self._compensations.setdefault(group, {})
        topics[topic] = _Compensation(subscription, now_ns)

    def groups_of_topic(self, topic: str) -> set[str]:
        """Groups whose clients subscribe to a topic."""
        return {group for group, info in self.table.items() if topic in info.subscriptions}

    def notify_deferred(self) -> None:
        """Notify the clients of changed groups; for ``realTimeNotifyConsumerChange=false``."""
        deferred, self._deferred = self._deferred, {}
        for group in deferred:
            info = self.table.get(group)
            if info is not None:
                self._notify(group, list(info.channels.values()))

    def _remove(self, group: str, connection: Connection, *, notify: bool) -> bool:
        info = self.table.get(group)
        if info is None or info.channels.pop(connection, None) is None:
            return False
        self._channels -= 1
        groups = self._groups_of[connection]
        del groups[group]
        if not groups:
            del self._groups_of[connection]
        if not info.channels:
            self._lines.info("Group %s has no consumers any more", group)
            self._subscriptions -= len(info.subscriptions)
            del self.table[group]
            for gone in self.group_gone:
                gone(group)
        elif notify:
            self._notify_group(info)
        return True

    def _fault(self, connection: Connection) -> str | None:
        """Return why a connection may not join another group."""
        if len(self._groups_of.get(connection, ())) >= GROUPS_PER_CONNECTION_MAX:
            return "its connection is in too many groups"
        if self._channels >= CHANNELS_MAX:
            return "there are too many consumers"
        return None

    def _has_room(self, info: ConsumerGroupInfo, given: Sequence[SubscriptionData]) -> bool:
        if self._subscriptions + len(given) <= SUBSCRIPTIONS_MAX:
            return True
        named = {each.topic for each in given}
        if self._subscriptions - len(info.subscriptions) + len(named) <= SUBSCRIPTIONS_MAX:
            return True
        self._lines.warning("Topics of group %.300s were ignored: there are too many", info.group)
        return False

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
                self._compensation_count -= 1
                forgot = True
            if not topics:
                del self._compensations[group]
        return forgot

    def _tell(self) -> None:
        for listener in self.changed:
            listener()
