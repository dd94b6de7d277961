"""What clients and administrators do to pending messages: forged ends, deleted topics."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace as replace_topic

from roquet.model.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from roquet.model.topic_config import PERM_READ
from roquet.remoting.codes import ResponseCode
from roquet.store.config import replace
from tests.table_changes import drop_topics, put_topics
from tests.unit.broker.processor.send_kit import SMALL, broker
from tests.unit.broker.service.delay_kit import Delays, delays
from tests.unit.broker.service.transaction_kit import COMMIT, ROLLBACK, transactions

OK = (ResponseCode.SUCCESS, None)


def test_a_deleted_topic_still_gets_its_delayed_messages(tmp_path: Path) -> None:
    """Upstream stores it as well; the queue starts over."""
    with delays(tmp_path) as made:
        made.made.send()
        made.send(1, b"before")
        drop_topics(made.made.topics, "T")
        made.made.store.delete_topics(["T"])
        assert made.made.count("T", 1) == 0
        made.timers.advance(1_000)
        assert made.bodies() == [b"before"]
        assert made.made.topics.select("T") is None
        assert made.service.dropped == 0


def test_a_read_only_topic_still_gets_its_delayed_messages(tmp_path: Path) -> None:
    """Upstream does not check the permission of a topic when it stores."""
    with delays(tmp_path) as made:
        made.send(1, b"before")
        topic = made.made.topics.select("T")
        assert topic is not None
        put_topics(made.made.topics, replace_topic(topic, perm=PERM_READ))
        made.timers.advance(1_000)
        assert made.bodies() == [b"before"]


def test_setting_the_clock_back_delays_nothing_beyond_its_level(tmp_path: Path) -> None:
    with delays(tmp_path) as made:
        made.send(3)
        made.timers.advance(10)
        made.service.stop()  # timers of the loop do not follow the clock, those of the test do
        made.clock.set(made.clock.now_ms() - 3_600_000)
        made.service.start()
        made.timers.advance(0)
        assert made.bodies() == [b"later"]
        made.send(1, b"new")
        made.timers.advance(1_000)
        assert made.bodies() == [b"later", b"new"]


def test_a_longer_delay_of_a_level_applies_to_new_messages(tmp_path: Path) -> None:
    with delays(tmp_path, replace(SMALL, message_delay_levels="5s")) as made:
        made.send(1, b"old")
        now_ms = made.clock.now_ms()
    longer = replace(SMALL, message_delay_levels="1h 2h")
    with broker(tmp_path, store_config=longer) as again:
        again.clock.set(now_ms)
        made = Delays(again)
        made.send(1, b"new")
        made.send(9, b"last level")
        assert made.made.count(SCHEDULE_TOPIC, 1) == 1
        made.timers.advance(5_000)
        assert made.bodies() == [b"old"]
        made.timers.advance(3_600_000 - 5_000)
        assert made.bodies() == [b"old", b"new"]
        made.timers.advance(3_600_000)
        assert made.bodies() == [b"old", b"new", b"last level"]


@pytest.mark.parametrize(
    ("first", "second", "stored"),
    [(COMMIT, COMMIT, 2), (COMMIT, ROLLBACK, 1), (ROLLBACK, COMMIT, 1)],
)
def test_a_repeated_end_is_carried_out_again(
    first: int, second: int, stored: int, tmp_path: Path
) -> None:
    """A half message stays in its queue, so upstream commits it as often as it is requested."""
    with transactions(tmp_path) as made:
        producer = made.producer()
        half = made.half()
        assert [made.end(half, first), made.end(half, second)] == [OK, OK]
        assert made.made.count("T", 1) == stored
        made.timers.advance(3_000)
        assert made.op_bodies() == [b"0,"]
        made.timers.advance(60_000)
        assert producer.asked == []


def test_the_id_of_another_message_decides_nothing(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        half, other = made.half("K1"), made.half("K2")
        assert made.end(half, COMMIT, msg_id=other.unique_key, transaction_id="K2") == OK
        assert made.made.stored("T", 1).unique_key == "K1"
        assert list(made.ops.pending) == [0]


def test_an_end_of_another_topic_uses_the_half_messages_topic(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        half = made.half()
        assert made.end(half, COMMIT, topic="Elsewhere") == OK
        assert made.made.count("T", 1) == 1
        assert made.made.store.find_consume_queue("Elsewhere", 1) is None


@pytest.mark.parametrize("verdict", [COMMIT, ROLLBACK])
@pytest.mark.parametrize(
    ("name", "offset"),
    [("physical_offset", 2**62), ("half_queue_offset", 2**62), ("half_queue_offset", -1)],
)
def test_offsets_far_outside_are_refused(
    name: str, offset: int, verdict: int, tmp_path: Path
) -> None:
    with transactions(tmp_path) as made:
        answer = made.end(made.half(), verdict, **{name: offset})
        assert answer is not None
        assert answer[0] == ResponseCode.SYSTEM_ERROR
        assert (made.made.count("T", 1), dict(made.ops.pending)) == (0, {})


def test_a_half_message_of_a_deleted_topic_can_be_ended(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        half = made.half()
        drop_topics(made.made.topics, "T")
        made.made.store.delete_topics(["T"])
        assert made.end(half, COMMIT) == OK
        assert made.made.count("T", 1) == 1
        assert made.made.count(TRANS_HALF_TOPIC) == 1
