"""What services and connections do shows in the counters where upstream counts it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from roquet.broker.message_services import MessageServices
from roquet.broker.processor.send_back import SentBackMessage
from roquet.broker.stats.broker_stats import STATS_NAMES, BrokerStats
from roquet.broker.stats.feeds import ChannelActivity, ServiceFeed
from roquet.model.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from roquet.remoting.endpoint import RemotingStatistics
from roquet.runtime.clock import ManualClock
from roquet.store.config import replace
from tests.unit.broker.processor.send_kit import SMALL, SendBroker, broker
from tests.unit.broker.service.manual_timers import ManualTimers
from tests.unit.broker.services_kit import services

CLUSTER = "DefaultCluster"
DELAYED = "DELAY\x011\x02UNIQ_KEY\x01u\x02"


class Scene(NamedTuple):
    made: SendBroker
    timers: ManualTimers
    service: MessageServices


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    small = replace(SMALL, commit_log_file_bytes=1 << 12, max_message_bytes=1_000)
    with broker(tmp_path, store_config=small) as made:
        timers = ManualTimers(made.clock)
        service = services(made, timers)
        ServiceFeed(made.stats, service, made.clock)
        yield Scene(made, timers, service)
        service.stop()


def figures(stats: BrokerStats, *, without: str = "") -> dict[tuple[str, str], tuple[int, int]]:
    """Sum and times of every counter that changed, except those of some keys."""
    return {
        (name, key): (item.value, item.times)
        for name in sorted(STATS_NAMES)
        for key, item in stats._items[name].items()
        if key != without
    }


def sizes(made: SendBroker, topic: str, queue_id: int = 0) -> int:
    """How many bytes the records of a queue have."""
    count = made.count(topic, queue_id)
    return sum(made.stored(topic, queue_id, number).store_size for number in range(count))


def test_delayed_messages(scene: Scene) -> None:
    made, timers, service = scene
    count = 40
    for number in range(count):
        made.send(DELAYED, body=b"x" * (50 + 7 * number))
    waiting_bytes = sizes(made, SCHEDULE_TOPIC)
    system_key = CLUSTER
    assert figures(made.stats) == {
        ("BROKER_PUT_NUMS", system_key): (count, 0),
        ("QUEUE_PUT_NUMS", f"{SCHEDULE_TOPIC}@0"): (count, count),
        ("QUEUE_PUT_SIZE", f"{SCHEDULE_TOPIC}@0"): (waiting_bytes, count),
        ("TOPIC_PUT_LATENCY", f"0@{SCHEDULE_TOPIC}"): (0, count),
        ("TOPIC_PUT_NUMS", SCHEDULE_TOPIC): (count, count),
        ("TOPIC_PUT_SIZE", SCHEDULE_TOPIC): (waiting_bytes, count),
    }
    service.start()
    timers.advance(5_000)
    assert made.count("T") == count
    # Their segments are so small that several of them end among these.
    assert made.store.max_physical_offset > 4 * (1 << 12)
    delivered_bytes = sizes(made, "T")
    group_key = f"{SCHEDULE_TOPIC}@SCHEDULE_CONSUMER"
    queue_key = f"{SCHEDULE_TOPIC}@0@SCHEDULE_CONSUMER"
    found = figures(made.stats)
    assert found["QUEUE_GET_NUMS", queue_key] == (count, count)
    assert found["QUEUE_GET_SIZE", queue_key] == (delivered_bytes, count)
    assert found["GROUP_GET_NUMS", group_key] == (count, count)
    assert found["GROUP_GET_SIZE", group_key] == (delivered_bytes, count)
    assert found["TOPIC_PUT_NUMS", "T"] == (count, count)
    assert found["TOPIC_PUT_SIZE", "T"] == (delivered_bytes, count)
    assert found["BROKER_PUT_NUMS", CLUSTER] == (2 * count, 0)
    assert found["BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER] == (count, 0)
    assert ("BROKER_GET_NUMS", CLUSTER) not in found


def test_half_messages_are_read_and_stored_again(scene: Scene) -> None:
    made, timers, service = scene
    made.send("TRAN_MSG\x01true\x02PGROUP\x01P\x02", queue_id=2)
    before = figures(made.stats)
    assert before["TOPIC_PUT_NUMS", TRANS_HALF_TOPIC] == (1, 1)
    assert before["TOPIC_PUT_LATENCY", f"2@{TRANS_HALF_TOPIC}"] == (0, 1)
    service.start()
    timers.advance(32_000)
    assert made.count(TRANS_HALF_TOPIC) == 2
    found = figures(made.stats)
    assert found["TOPIC_PUT_NUMS", TRANS_HALF_TOPIC] == (2, 2)
    assert found["TOPIC_PUT_SIZE", TRANS_HALF_TOPIC] == (sizes(made, TRANS_HALF_TOPIC), 2)
    key = f"{TRANS_HALF_TOPIC}@CID_RMQ_SYS_TRANS"
    messages, times = found["GROUP_GET_NUMS", key]
    assert messages >= times >= 1
    assert found["GROUP_GET_SIZE", key][0] >= made.stored(TRANS_HALF_TOPIC).store_size
    assert found["BROKER_GET_NUMS", CLUSTER] == (messages, 0)
    assert ("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER) not in found
    assert f"0@{TRANS_HALF_TOPIC}@CID_RMQ_SYS_TRANS" in made.stats.fall_time_ms


def test_committed_messages(scene: Scene) -> None:
    for listener in scene.service.end_transaction.committed:
        listener("T", 123)
    assert figures(scene.made.stats, without=CLUSTER) == {
        ("TOPIC_PUT_NUMS", "T"): (1, 1),
        ("TOPIC_PUT_SIZE", "T"): (123, 1),
    }


RETRY = SentBackMessage(
    group="G",
    origin_topic="T",
    named_topic="T",
    stored_topic=SCHEDULE_TOPIC,
    stored_queue_id=2,
    is_dead_letter=False,
    wrote_bytes=321,
    ext_fields={},
)
DEAD_LETTER = RETRY._replace(is_dead_letter=True, stored_topic="%DLQ%G")


def tell(scene: Scene, news: SentBackMessage) -> None:
    for listener in scene.service.send_back.listeners:
        listener(news)


def test_a_message_that_is_given_back(scene: Scene) -> None:
    tell(scene, RETRY)
    # The broker as a whole does not count it: it is already included.
    assert figures(scene.made.stats) == {
        ("SNDBCK_PUT_NUMS", "T@G"): (1, 1),
        ("TOPIC_PUT_NUMS", SCHEDULE_TOPIC): (1, 1),
        ("TOPIC_PUT_SIZE", SCHEDULE_TOPIC): (321, 1),
        ("QUEUE_PUT_NUMS", f"{SCHEDULE_TOPIC}@2"): (1, 1),
        ("QUEUE_PUT_SIZE", f"{SCHEDULE_TOPIC}@2"): (321, 1),
    }


@pytest.mark.parametrize(
    ("news", "key"),
    [
        (DEAD_LETTER._replace(ext_fields={"Owner": "o"}), "o@T@G@SEND_BACK_TO_DLQ"),
        (DEAD_LETTER._replace(named_topic=None), "null@null@G@SEND_BACK_TO_DLQ"),
    ],
)
def test_a_dead_letter(scene: Scene, news: SentBackMessage, key: str) -> None:
    tell(scene, news)
    assert figures(scene.made.stats) == {
        ("SNDBCK_PUT_NUMS", "T@G"): (1, 1),
        ("SNDBCK2DLQ_TIMES", key): (1, 1),
    }


def test_connections() -> None:
    stats = BrokerStats(CLUSTER, ManualClock())
    account = RemotingStatistics()
    ChannelActivity(stats, account)
    assert stats.view("CHANNEL_ACTIVITY", "CONNECT") is None
    account.connections_opened, account.connections_closed = 5, 2
    account.idle_closed, account.bad_frames, account.overload_closed = 1, 1, 1
    list(stats.sampling())
    account.connections_opened += 1
    totals = {
        kind: stats.total("CHANNEL_ACTIVITY", kind)
        for kind in ("CONNECT", "CLOSE", "IDLE", "EXCEPTION")
    }
    assert totals == {"CONNECT": 6, "CLOSE": 2, "IDLE": 1, "EXCEPTION": 2}
