"""What floods of clients, groups and heartbeats may take up."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.manager import consumer as consumer_module
from roquet.broker.manager import producer as producer_module
from roquet.broker.manager.client_channel import ClientChannel
from roquet.broker.manager.consumer import ConsumerManager
from roquet.broker.manager.producer import ProducerManager
from roquet.model.subscription import SubscriptionData
from roquet.runtime.clock import ManualClock
from tests.unit.broker.manager.kit import channel, connection, warnings_of


def consumers_at(root: Path, clock: ManualClock) -> ConsumerManager:
    return ConsumerManager(BrokerConfig(store_root=str(root)), clock, notify=lambda *_: None)


def register(consumers: ConsumerManager, group: str, client: ClientChannel, *topics: str) -> bool:
    return consumers.register(
        group,
        client,
        consume_type=None,
        message_model=None,
        consume_from_where=None,
        subscriptions=[SubscriptionData(topic=topic, sub_version=1) for topic in topics],
        notify_enabled=True,
    )


def test_consumers_of_one_connection_and_in_all_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(consumer_module, "GROUPS_PER_CONNECTION_MAX", 3)
    monkeypatch.setattr(consumer_module, "CHANNELS_MAX", 5)
    consumers = consumers_at(tmp_path, ManualClock())
    first, second = channel("c1"), channel("c2")
    for client in (first, second):
        for number in range(5):
            register(consumers, f"{client.client_id}-{number}", client)
    assert list(consumers.table) == ["c1-0", "c1-1", "c1-2", "c2-0", "c2-1"]
    assert warnings_of(caplog) == [
        "A consumer of group c1-3 was refused: its connection is in too many groups",
        "A consumer of group c1-4 was refused: its connection is in too many groups",
        "A consumer of group c2-2 was refused: there are too many consumers",
        "A consumer of group c2-3 was refused: there are too many consumers",
        "A consumer of group c2-4 was refused: there are too many consumers",
    ]
    assert not register(consumers, "c1-0", first), "it exists already"
    assert consumers.connection_closed(first.connection) == 3
    assert register(consumers, "c2-2", second)


def test_subscriptions_are_bounded_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_module, "SUBSCRIPTIONS_MAX", 4)
    consumers = consumers_at(tmp_path, ManualClock())
    client = channel()
    register(consumers, "g", client, "A", "B", "C")
    register(consumers, "h", client, "A", "B")
    assert consumers.table["h"].subscriptions == {}
    register(consumers, "h", client, "A")
    assert set(consumers.table["h"].subscriptions) == {"A"}
    register(consumers, "g", client, "A", "B")
    register(consumers, "h", client, "A", "B")
    assert set(consumers.table["h"].subscriptions) == {"A", "B"}
    consumers.unregister("g", client, notify_enabled=False)
    register(consumers, "h", client, "A", "B", "C", "D")
    assert len(consumers.table["h"].subscriptions) == 4


def test_compensations_are_bounded_and_expire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "COMPENSATIONS_MAX", 2)
    clock = ManualClock()
    consumers = consumers_at(tmp_path, clock)
    for topic in ("A", "B", "C"):
        consumers.compensate_subscription("g", topic, SubscriptionData(topic=topic))
    assert consumers.find_subscription("g", "B") is not None
    assert consumers.find_subscription("g", "C") is None
    clock.advance(24 * 3_600_000)
    list(consumers.scan())
    consumers.compensate_subscription("g", "C", SubscriptionData(topic="C"))
    assert consumers.find_subscription("g", "C") is not None


def test_producers_are_bounded_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_module, "CHANNELS_MAX", 2)
    producers = ProducerManager(BrokerConfig(store_root=str(tmp_path)), ManualClock())
    gone = channel("c1")
    for number in range(3):
        producers.register(f"p{number}", gone)
    assert list(producers.groups) == ["p0", "p1"]
    assert producers.connection_closed(gone.connection, 1) == 1
    assert producers.connection_closed(gone.connection, 5) == 1
    assert producers.connection_closed(gone.connection, 5) == 0
    producers.register("p2", channel("c2"))
    assert list(producers.groups) == ["p2"]


def test_scans_look_at_some_clients_in_each_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "CHANNELS_A_TURN", 10)
    monkeypatch.setattr(producer_module, "CHANNELS_A_TURN", 10)
    clock = ManualClock()
    consumers = consumers_at(tmp_path, clock)
    producers = ProducerManager(BrokerConfig(store_root=str(tmp_path)), clock)
    for number in range(20):
        register(consumers, f"g{number}", channel())
        producers.register(f"p{number}", channel())
    clock.advance(120_001)
    for scanning, table in (
        (consumers.scan(), consumers.table),
        (producers.scan(), producers.groups),
    ):
        left = [len(table) for _ in scanning]
        assert left == [15, 10, 5, 0]


def test_one_connection_with_many_groups_writes_few_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    clock = ManualClock()
    consumers = consumers_at(tmp_path, clock)
    producers = ProducerManager(BrokerConfig(store_root=str(tmp_path)), clock)
    client = channel(on=connection())
    for number in range(1_000):
        register(consumers, f"g{number}", client, "T")
        producers.register(f"p{number}", client)
    assert len(caplog.records) == 100
    clock.advance(1_000)
    consumers.connection_closed(client.connection)
    assert "(1950 lines dropped)" in caplog.records[100].getMessage()
