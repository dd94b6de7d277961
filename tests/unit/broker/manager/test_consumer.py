"""Consumers join, stay and leave; who is notified, and what they subscribe to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.manager import consumer_group as module
from roquet.broker.manager.client_channel import ClientChannel
from roquet.broker.manager.consumer import ConsumerManager
from roquet.model.subscription import SubscriptionData
from roquet.remoting.bodies.client import ConsumeFromWhere, ConsumeType, MessageModel
from roquet.runtime.clock import ManualClock
from tests.unit.broker.manager.kit import Calls, channel, connection


class Consumers:
    """A manager that records whom it notifies."""

    def __init__(self, config: BrokerConfig | None = None) -> None:
        self.clock = ManualClock()
        self.told: list[tuple[str, list[str]]] = []
        self.manager = ConsumerManager(config or BrokerConfig(), self.clock, notify=self._notify)
        self.calls = Calls()
        self.manager.changed.append(self.calls)

    def _notify(self, group: str, channels: Sequence[ClientChannel]) -> None:
        self.told.append((group, [each.client_id for each in channels]))

    def register(
        self,
        group: str,
        client: ClientChannel,
        *topics: str | SubscriptionData,
        model: MessageModel = MessageModel.CLUSTERING,
        consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY,
        notify_enabled: bool = True,
    ) -> bool:
        return self.manager.register(
            group,
            client,
            consume_type=consume_type,
            message_model=model,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            subscriptions=[
                subscription(topic) if isinstance(topic, str) else topic for topic in topics
            ],
            notify_enabled=notify_enabled,
        )

    def ids(self, group: str) -> list[str] | None:
        info = self.manager.find(group)
        return None if info is None else info.client_ids()

    def topics(self, group: str) -> set[str]:
        info = self.manager.find(group)
        assert info is not None
        return set(info.subscriptions)


def subscription(topic: str, *, version: int = 1, expression: str = "*") -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=expression, sub_version=version)


@pytest.fixture
def consumers() -> Consumers:
    return Consumers()


# ------------------------------------------------------------------------------ clients


def test_all_clients_are_notified_of_every_change(consumers: Consumers) -> None:
    first, second = channel("a"), channel("b")
    assert consumers.register("g", first, "T")
    assert consumers.register("g", second, "T")
    assert not consumers.register("g", first, "T")
    assert consumers.told == [("g", ["a"]), ("g", ["a", "b"])]
    assert consumers.ids("g") == ["a", "b"]
    consumers.manager.unregister("g", first, notify_enabled=True)
    assert consumers.told[2:] == [("g", ["b"])]
    consumers.manager.unregister("g", first, notify_enabled=True)
    consumers.manager.unregister("unknown", first, notify_enabled=True)
    assert len(consumers.told) == 3
    consumers.manager.unregister("g", second, notify_enabled=True)
    assert consumers.ids("g") is None
    assert len(consumers.told) == 3, "no client is left to be notified"
    assert consumers.calls.count == 4


def test_settings_of_a_group_are_those_of_the_last_heartbeat(consumers: Consumers) -> None:
    client = channel("a")
    consumers.register("g", client, "T")
    info = consumers.manager.find("g")
    assert info is not None
    assert (info.consume_type, info.message_model, info.consume_from_where) == (
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    )
    assert consumers.calls.count == 1
    assert not consumers.register("g", client, "T", consume_type=ConsumeType.CONSUME_ACTIVELY)
    assert info.consume_type is ConsumeType.CONSUME_ACTIVELY
    assert consumers.calls.count == 2, "caches of the settings are notified"
    assert len(consumers.told) == 1, "but no queue is reassigned"


def test_a_group_without_notifications_gets_none(consumers: Consumers) -> None:
    first, second = channel("a"), channel("b")
    assert consumers.register("g", first, "T", notify_enabled=False)
    assert consumers.register("g", second, "T", notify_enabled=False)
    consumers.manager.unregister("g", first, notify_enabled=False)
    assert consumers.told == []
    assert consumers.calls.count == 3


def test_broadcast_clients_are_not_notified(consumers: Consumers) -> None:
    first, second = channel("a"), channel("b")
    for client in (first, second):
        assert consumers.register("g", client, "T", model=MessageModel.BROADCASTING)
    consumers.manager.connection_closed(second.connection)
    consumers.manager.unregister("g", first, notify_enabled=True)
    assert consumers.told == []


def test_notifications_can_be_turned_off() -> None:
    consumers = Consumers(BrokerConfig(notify_consumer_ids_changed=False))
    consumers.register("g", channel("a"), "T")
    assert consumers.told == []


def test_notifications_can_be_batched() -> None:
    consumers = Consumers(BrokerConfig(real_time_notify_consumer_change=False))
    gone = channel("gone")
    consumers.register("g", channel("a"), "T")
    consumers.register("g", channel("b"), "T")
    consumers.register("h", gone, "T")
    consumers.manager.unregister("h", gone, notify_enabled=True)
    assert consumers.told == []
    consumers.manager.notify_deferred()
    consumers.manager.notify_deferred()
    assert consumers.told == [("g", ["a", "b"])]


def test_a_closed_connection_removes_its_clients(consumers: Consumers) -> None:
    shared, stays = connection(), channel("stays")
    consumers.register("g", channel("a", shared), "T")
    consumers.register("h", channel("a", shared), "T")
    consumers.register("g", stays, "T")
    consumers.told.clear()
    calls = consumers.calls.count
    consumers.manager.connection_closed(shared)
    assert consumers.told == [("g", ["stays"])]
    assert (consumers.ids("g"), consumers.ids("h")) == (["stays"], None)
    assert consumers.calls.count == calls + 1
    consumers.manager.connection_closed(shared)
    consumers.manager.connection_closed(connection())
    assert consumers.calls.count == calls + 1
    consumers.register("h", channel("a", shared), "T")
    assert consumers.ids("h") == ["a"]


def test_a_silent_client_is_removed_closed_and_announced(consumers: Consumers) -> None:
    silent, busy, alone = channel("silent"), channel("busy"), channel("alone")
    consumers.register("g", silent, "T")
    consumers.register("g", busy, "T")
    consumers.register("h", alone, "T")
    consumers.told.clear()
    consumers.clock.advance(60_000)
    consumers.register("g", busy, "T")
    consumers.clock.advance(60_000)
    calls = consumers.calls.count
    list(consumers.manager.scan())
    assert consumers.ids("g") == ["silent", "busy"]
    assert consumers.calls.count == calls
    consumers.clock.advance(1)
    list(consumers.manager.scan())
    assert (consumers.ids("g"), consumers.ids("h")) == (["busy"], None)
    assert consumers.told == [("g", ["busy"])]
    assert [each.connection.is_closed for each in (silent, busy, alone)] == [True, False, True]
    assert consumers.calls.count == calls + 1
    consumers.manager.connection_closed(silent.connection)
    assert consumers.calls.count == calls + 1


def test_the_time_allowed_is_a_setting() -> None:
    consumers = Consumers(BrokerConfig(channel_expired_timeout_ms=10))
    consumers.register("g", channel(), "T")
    consumers.clock.advance(10)
    list(consumers.manager.scan())
    assert consumers.ids("g") == ["c1"]
    consumers.clock.advance(1)
    list(consumers.manager.scan())
    assert consumers.ids("g") is None


def test_groups_of_one_heartbeat_expire_one_by_one(consumers: Consumers) -> None:
    shared = channel("a")
    consumers.register("g", shared, "T")
    consumers.register("h", shared, "T")
    consumers.clock.advance(100_000)
    consumers.register("h", shared, "T")
    consumers.clock.advance(100_000)
    list(consumers.manager.scan())
    assert (consumers.ids("g"), consumers.ids("h")) == (None, ["a"])


def test_another_client_on_the_same_connection_replaces_it(consumers: Consumers) -> None:
    shared = connection()
    consumers.register("g", channel("a", shared), "T")
    consumers.clock.advance(60_000)
    assert not consumers.register("g", channel("b", shared), "T")
    assert consumers.ids("g") == ["b"]
    assert len(consumers.told) == 1, "as upstream"
    assert consumers.calls.count == 2
    consumers.clock.advance(100_000)
    list(consumers.manager.scan())
    assert consumers.ids("g") == ["b"]


def test_a_client_is_found_by_its_id(consumers: Consumers) -> None:
    client = channel("a")
    consumers.register("g", channel("b"), "T")
    consumers.register("g", client, "T")
    found = consumers.manager.find_channel("g", "a")
    assert found is not None
    assert found.connection is client.connection
    assert consumers.manager.find_channel("g", "c") is None
    assert consumers.manager.find_channel("h", "a") is None


# -------------------------------------------------------------------------- subscriptions


def test_heartbeats_add_and_remove_topics(consumers: Consumers) -> None:
    client = channel("a")
    consumers.register("g", client, "T", "%RETRY%g")
    assert consumers.topics("g") == {"T", "%RETRY%g"}
    consumers.told.clear()
    assert not consumers.register("g", client, "T", "%RETRY%g")
    assert consumers.told == []
    assert consumers.register("g", client, "T", "U", "%RETRY%g")
    assert consumers.topics("g") == {"T", "U", "%RETRY%g"}
    assert consumers.register("g", client, "U", "%RETRY%g")
    assert consumers.topics("g") == {"U", "%RETRY%g"}
    assert consumers.told == [("g", ["a"]), ("g", ["a"])]
    assert consumers.register("g", client)
    assert consumers.topics("g") == set()


def test_of_two_subscriptions_the_newer_wins(consumers: Consumers) -> None:
    client = channel("a")
    consumers.register("g", client, subscription("T", version=5, expression="a"))
    consumers.told.clear()
    calls = consumers.calls.count
    for version, expression in ((4, "older"), (5, "same")):
        assert not consumers.register(
            "g", client, subscription("T", version=version, expression=expression)
        )
    assert consumers.calls.count == calls
    assert consumers.manager.find_subscription("g", "T") == subscription(
        "T", version=5, expression="a"
    )
    newer = subscription("T", version=6, expression="b")
    assert not consumers.register("g", client, newer)
    assert consumers.manager.find_subscription("g", "T") == newer
    assert consumers.told == [], "no queue has to be reassigned"
    assert consumers.calls.count == calls + 1, "but caches of the old one are notified"


def test_a_heartbeat_without_subscriptions_leaves_them(consumers: Consumers) -> None:
    consumers.register("g", channel("a"), "T")
    assert consumers.manager.register(
        "g",
        channel("b"),
        consume_type=None,
        message_model=None,
        consume_from_where=None,
        subscriptions=[],
        notify_enabled=True,
        update_subscriptions=False,
    )
    assert consumers.topics("g") == {"T"}


def test_subscriptions_without_a_topic_are_ignored(consumers: Consumers) -> None:
    consumers.register("g", channel("a"), SubscriptionData(topic=None), "", "T")
    assert consumers.topics("g") == {"T"}


def test_subscriptions_of_a_group_are_bounded(
    consumers: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SUBSCRIPTIONS_MAX", 2)
    client = channel("a")
    assert consumers.register("g", client, "A", "B", "C")
    assert consumers.topics("g") == {"A", "B"}
    assert consumers.register("g", client, "C", "B", "A")
    assert consumers.topics("g") == {"B", "C"}


def test_groups_of_a_topic(consumers: Consumers) -> None:
    client = channel("a")
    consumers.register("g", client, "T", "U")
    consumers.register("h", client, "T")
    assert consumers.manager.groups_of_topic("T") == {"g", "h"}
    consumers.register("g", client, "U")
    assert consumers.manager.groups_of_topic("T") == {"h"}
    consumers.manager.connection_closed(client.connection)
    assert consumers.manager.groups_of_topic("T") == set()
    assert consumers.manager._groups_of == {}


def test_subscriptions_of_pulls_stand_in_for_heartbeats(consumers: Consumers) -> None:
    manager, carried = consumers.manager, subscription("T", expression="carried")
    assert manager.find_subscription("g", "T") is None
    manager.compensate_subscription("g", "T", carried)
    assert manager.find_subscription("g", "T") is carried
    assert manager.find_subscription("g", "U") is None
    assert manager.find("g") is None
    consumers.register("g", channel("a"), "T", "V")
    assert manager.find_subscription("g", "T") == subscription("T")
    assert manager.find_subscription("g", "V") == subscription("V")


def test_subscriptions_of_pulls_are_forgotten(consumers: Consumers) -> None:
    manager = consumers.manager
    # The version is the client's; a time far in the future keeps nothing alive.
    manager.compensate_subscription("g", "T", subscription("T", version=1 << 62))
    manager.compensate_subscription("g", "U", subscription("U"))
    consumers.clock.advance(600_000)
    manager.compensate_subscription("g", "U", subscription("U"))
    list(manager.scan())
    assert manager.find_subscription("g", "T") is not None
    consumers.clock.advance(1)
    list(manager.scan())
    assert manager.find_subscription("g", "T") is None
    assert manager.find_subscription("g", "U") is not None
    assert consumers.calls.count == 1
    consumers.clock.advance(600_000)
    list(manager.scan())
    assert manager.find_subscription("g", "U") is None
    assert manager._compensations == {}


def test_listeners_are_notified_of_heartbeats_and_removed_groups() -> None:
    made = Consumers()
    heard: list[tuple[str, list[str | None]]] = []
    gone: list[str] = []
    made.manager.registered.append(
        lambda group, subscriptions: heard.append((group, [each.topic for each in subscriptions]))
    )
    made.manager.group_gone.append(gone.append)
    one, two = channel("c1"), channel("c2")
    made.register("G", one, "T", "U")
    made.register("G", two, "T")
    made.register("G", two, "T")
    assert heard == [("G", ["T", "U"]), ("G", ["T"]), ("G", ["T"])]
    made.manager.register(
        "G",
        two,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscriptions=(),
        notify_enabled=False,
        update_subscriptions=False,
    )
    assert len(heard) == 3, "a heartbeat without subscriptions says nothing of them"
    made.manager.unregister("G", one, notify_enabled=False)
    assert gone == []
    made.manager.connection_closed(two.connection)
    assert gone == ["G"]
    made.register("H", one, "T")
    made.clock.advance(120_001)
    list(made.manager.scan())
    assert gone == ["G", "H"]
