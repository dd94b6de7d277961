"""Messages that topics take, read off the growth of their queues."""

from __future__ import annotations

from pathlib import Path

from roquet.broker.stats.broker_stats import BrokerStats
from roquet.broker.stats.queue_growth import QueueGrowth
from roquet.runtime.clock import ManualClock
from roquet.store.default_message_store import DefaultMessageStore
from tests.unit.store.kit import message, open_store, put


def growing(store: DefaultMessageStore) -> tuple[BrokerStats, QueueGrowth]:
    stats = BrokerStats("c", ManualClock())
    queues = [queue for each in store.queues.table.values() for queue in each.values()]
    growth = QueueGrowth(stats, queues)
    store.add_arriving_listener(growth.notify_arriving)
    return stats, growth


def puts(stats: BrokerStats, topic: str) -> int:
    return stats.total("TOPIC_PUT_NUMS", topic)


def test_what_is_appended_is_counted(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    stats, _ = growing(store)
    put(store, *(message(topic="T", queue_id=number % 2) for number in range(5)))
    put(store, message(topic="U"), message(topic="SCHEDULE_TOPIC_XXXX"))
    assert (puts(stats, "T"), puts(stats, "U")) == (5, 1)
    assert stats.total("BROKER_PUT_NUMS", "c") == 7
    assert stats.total("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "c") == 6
    store.shutdown()


def test_what_was_there_before_is_not_counted(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, *(message(topic="T") for _ in range(5)))
    store.shutdown()
    store = open_store(tmp_path)
    stats, _ = growing(store)
    put(store, message(topic="T"))
    assert puts(stats, "T") == 1
    store.shutdown()


def test_a_topic_that_is_made_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    stats, growth = growing(store)
    put(store, *(message(topic="T") for _ in range(5)))
    store.delete_topics(["T"])
    growth.topic_deleted("T")
    put(store, *(message(topic="T") for _ in range(7)))
    assert puts(stats, "T") == 12
    store.shutdown()
