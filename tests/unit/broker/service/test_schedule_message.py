from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from roquet.broker.manager.delay_offset import DelayOffsetManager
from roquet.broker.service.schedule_message import (
    BATCH_MESSAGES,
    TURN_BATCHES,
)
from roquet.errors import StoreError
from roquet.model.message import BatchMessage, BrokerMessage
from roquet.model.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from roquet.runtime.files import Files
from roquet.store.config import replace
from roquet.store.results import BurstResult, GetMessageResult, PutMessageResult, PutMessageStatus
from tests.unit.broker.processor.send_kit import SMALL, broker
from tests.unit.broker.service.delay_kit import Delays, delays


class Refusing:
    """A put hook that refuses messages of a topic."""

    def __init__(self, topic: str, status: PutMessageStatus) -> None:
        self.topic = topic
        self.status = status
        self.allowed = 0

    def __call__(self, message: BrokerMessage | BatchMessage) -> PutMessageResult | None:
        if message.topic != self.topic:
            return None
        self.allowed -= 1
        return None if self.allowed >= 0 else PutMessageResult(self.status)


def test_a_message_is_delivered_when_it_is_due_and_not_before(tmp_path: Path) -> None:
    with delays(tmp_path) as made:
        made.send(1)
        made.timers.advance(999)
        assert made.bodies() == []
        made.timers.advance(1)
        assert made.bodies() == [b"later"]
        waiting = made.made.stored(SCHEDULE_TOPIC, 0)
        delivered = made.made.stored("T", 1)
        assert made.made.store.find_consume_queue("T", 1) is not None
        assert made.timers.pending == 0
    assert delivered.properties_data == waiting.properties_data
    assert delivered.properties["REAL_TOPIC"] == "T"
    assert delivered.store_timestamp_ms == waiting.store_timestamp_ms + 1_000
    kept = ("flag", "sys_flag", "born_timestamp_ms", "born_host", "store_host", "reconsume_times")
    assert [getattr(delivered, name) for name in kept] == [getattr(waiting, name) for name in kept]
    assert made.offsets.table == {1: 1}


def test_levels_wait_independently(tmp_path: Path) -> None:
    with delays(tmp_path) as made:
        for level in (3, 1, 2):
            made.send(level, str(level).encode())
        for millis, bodies in ((1_000, b"1"), (4_000, b"12"), (4_999, b"12"), (1, b"123")):
            made.timers.advance(millis)
            assert b"".join(made.bodies()) == bodies
    assert made.offsets.table == {1: 1, 2: 1, 3: 1}


def test_a_waiting_level_polls_the_clock_and_an_idle_one_does_nothing(tmp_path: Path) -> None:
    with delays(tmp_path) as made:
        assert made.timers.pending == 0
        made.send(5)
        made.timers.advance(1)
        turns = made.timers.turns
        made.timers.advance(30_000)
        assert made.timers.turns - turns <= 2 * 31
        assert made.timers.pending == 1
        made.timers.advance(30_000)
        assert made.bodies() == [b"later"]
        assert made.timers.pending == 0


def fill_two_levels(made: Delays, total: int) -> None:
    """Messages of two levels, all due and none delivered."""
    for at in range(2 * total):
        made.send(1 + at % 2, b"%d %d" % (at % 2, at // 2))
    made.timers.run()
    made.clock.advance(60_000)


LONG = replace(SMALL, consume_queue_file_bytes=6_000)


def test_levels_are_delivered_by_the_batch_in_turn(tmp_path: Path) -> None:
    total = 3 * BATCH_MESSAGES + 5
    with delays(tmp_path, LONG) as made:
        fill_two_levels(made, total)
        made.timers.run()
        bodies = made.bodies()
    for level in (0, 1):
        ours = [body for body in bodies if body.startswith(b"%d " % level)]
        assert ours == [b"%d %d" % (level, at) for at in range(total)]
    # Neither level waits until the other is done.
    assert {body[:1] for body in bodies[: 2 * BATCH_MESSAGES]} == {b"0", b"1"}


def test_a_turn_of_the_loop_ends_after_some_batches(tmp_path: Path) -> None:
    total = (TURN_BATCHES + 3) * BATCH_MESSAGES
    with delays(tmp_path, replace(LONG, consume_queue_file_bytes=60_000)) as made:
        fill_two_levels(made, total // 2)
        before, steps = 0, []
        while made.timers.step():
            steps.append(made.service.delivered - before)
            before = made.service.delivered
    assert max(steps) == TURN_BATCHES * BATCH_MESSAGES
    assert before == total


@pytest.mark.parametrize(("others_ms", "batches"), [(0, 1), (9, 3), (1_000, 5)])
def test_a_turn_of_the_loop_is_limited_in_time(
    others_ms: int, batches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with delays(tmp_path, replace(LONG, consume_queue_file_bytes=60_000)) as made:
        fill_two_levels(made, 6 * BATCH_MESSAGES)
        put_burst = made.made.store.put_burst

        def slow(messages: Sequence[BrokerMessage]) -> BurstResult:
            made.clock.advance(1)
            return put_burst(messages)

        monkeypatch.setattr(made.made.store, "put_burst", slow)
        while not made.service.delivered:
            assert made.timers.step()
        before = made.service.delivered
        made.clock.advance(others_ms)
        assert made.timers.step()
        assert made.service.delivered - before == batches * BATCH_MESSAGES


def test_refused_messages_are_delivered_later_once_and_in_order(tmp_path: Path) -> None:
    with delays(tmp_path) as made:
        for at in range(5):
            made.send(1, b"%d" % at)
        hook = Refusing("T", PutMessageStatus.OS_PAGE_CACHE_BUSY)
        hook.allowed = 2
        made.made.store.put_hooks.append(hook)
        made.timers.advance(1_000)
        assert made.bodies() == [b"0", b"1"]
        assert made.offsets.table == {1: 2}
        made.timers.advance(99)
        assert len(made.bodies()) == 2
        hook.allowed = 100
        made.timers.advance(1)
        assert made.bodies() == [b"0", b"1", b"2", b"3", b"4"]


def test_messages_after_a_refused_one_are_not_delivered_twice(tmp_path: Path) -> None:
    def refuse(message: BrokerMessage | BatchMessage) -> PutMessageResult | None:
        is_meant = message.topic == "T" and message.body in {b"1", b"3"}
        return PutMessageResult(PutMessageStatus.OS_PAGE_CACHE_BUSY) if is_meant else None

    with delays(tmp_path) as made:
        for at in range(6):
            made.send(1, b"%d" % at)
        made.made.store.put_hooks.append(refuse)
        made.timers.advance(1_500)
        assert made.bodies() == [b"0", b"2", b"4", b"5"]
        assert made.offsets.table == {1: 1}
        made.made.store.put_hooks.clear()
        made.timers.advance(100)
        assert sorted(made.bodies()) == [b"%d" % at for at in range(6)]
        assert made.offsets.table == {1: 6}
        made.send(1, b"6")
        made.timers.advance(1_000)
        assert made.bodies()[-1] == b"6"
    assert made.service.delivered == 7


@pytest.mark.parametrize(
    "status", [PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED]
)
def test_a_message_that_can_never_be_stored_blocks_nothing(
    status: PutMessageStatus, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with delays(tmp_path) as made:
        made.send(1, topic="T")
        made.made.topics.create_in_send_back("U", queue_nums=4, perm=6, sys_flag=0)
        made.send(1, topic="U")
        made.made.store.put_hooks.append(Refusing("T", status))
        made.timers.advance(1_000)
        assert made.bodies() == []
        assert made.bodies("U") == [b"later"]
    assert made.service.dropped == 1
    assert "dropped message" in caplog.text


@pytest.mark.parametrize(
    "properties",
    [
        b"DELAY\x011\x02",
        b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x01x\x02",
        b"DELAY\x011\x02REAL_TOPIC\x01" + TRANS_HALF_TOPIC.encode() + b"\x02REAL_QID\x010\x02",
    ],
)
def test_a_message_without_a_queue_is_dropped(properties: bytes, tmp_path: Path) -> None:
    with delays(tmp_path) as made:
        made.made.store.put_message(BrokerMessage(SCHEDULE_TOPIC, 0, b"lost", properties))
        made.send(1)
        made.timers.advance(1_000)
        assert made.bodies() == [b"later"]
    assert made.service.dropped == 1
    assert made.offsets.table == {1: 2}


def test_a_restart_continues_where_the_last_run_ended(tmp_path: Path) -> None:
    with delays(tmp_path) as made:
        made.send(1, b"first")
        made.send(2, b"second")
        made.timers.advance(1_000)
        made.service.stop()
        assert made.timers.pending == 0
        made.offsets.persist()
        now_ms = made.clock.now_ms()
    with broker(tmp_path) as again:
        again.clock.set(now_ms)
        made = Delays(again)
        made.timers.advance(3_999)
        assert made.bodies() == [b"first"]
        made.timers.advance(1)
        assert made.bodies() == [b"first", b"second"]


def test_a_crash_delivers_twice_and_loses_nothing(tmp_path: Path) -> None:
    with delays(tmp_path) as made:
        made.send(1, b"first")
        made.timers.advance(1_000)
        assert made.bodies() == [b"first"]
        now_ms = made.clock.now_ms()
    with broker(tmp_path) as again:
        again.clock.set(now_ms)
        made = Delays(again)
        made.timers.advance(0)
        assert made.bodies() == [b"first", b"first"]


def test_offsets_are_not_written_before_the_messages_are_on_disk(tmp_path: Path) -> None:
    with delays(tmp_path) as made:
        made.send(1)
        made.timers.advance(1_000)
        manager = DelayOffsetManager.at(
            made.made.config, Files(), made.clock, flush=lambda: made.made.store.flushed_offset
        )
        end = made.made.store.max_physical_offset
        manager.update(1, 1, delivered_offset=end)
        with pytest.raises(StoreError, match="the log is not on disk"):
            manager.persist()
        made.made.store.flush()
        manager.persist()
        text = (tmp_path / "config" / "delayOffset.json").read_text()
    assert '"offsetTable":{\n\t\t1:1\n\t}' in text


def test_a_clock_that_is_set_forward_is_seen_within_a_second(tmp_path: Path) -> None:
    with delays(tmp_path) as made:
        made.send(18)
        made.timers.advance(10)
        made.clock.set(made.clock.now_ms() + 2 * 3_600_000)
        made.timers.advance(1_000)
        assert made.bodies() == [b"later"]


def test_a_shorter_delay_of_a_level_applies_to_pending_messages(tmp_path: Path) -> None:
    with delays(tmp_path, replace(SMALL, message_delay_levels="1h")) as made:
        made.send(1)
        now_ms = made.clock.now_ms()
    with broker(tmp_path, store_config=replace(SMALL, message_delay_levels="5s")) as again:
        again.clock.set(now_ms)
        made = Delays(again)
        made.timers.advance(0)
        assert made.bodies() == [b"later"]


def test_a_removed_level_still_delivers(tmp_path: Path) -> None:
    with delays(tmp_path) as made:
        made.send(5)
        now_ms = made.clock.now_ms()
    with broker(tmp_path, store_config=replace(SMALL, message_delay_levels="1s 2s")) as again:
        again.clock.set(now_ms)
        made = Delays(again)
        made.timers.advance(59_999)
        assert made.bodies() == []
        made.timers.advance(1)
        assert made.bodies() == [b"later"]


@pytest.mark.parametrize("offset", [7, 400])
def test_an_offset_outside_the_queue_is_corrected(offset: int, tmp_path: Path) -> None:
    with delays(tmp_path) as made:
        made.send(1)
        made.service.stop()
        made.offsets.update(1, offset)
        made.service.start()
        made.timers.advance(5_000)
        made.send(1, b"new")
        made.timers.advance(1_000)
        assert made.bodies() == [b"new"]
        assert made.offsets.table == {1: 2}


def test_messages_not_in_memory_are_read_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cold(*_: object, **__: object) -> GetMessageResult | None:
        return None

    with delays(tmp_path) as made:
        monkeypatch.setattr(made.made.store, "get_message_in_memory", cold)
        for at in range(40):
            made.send(1, b"%d" % at)
        made.timers.advance(1_000)
        assert made.bodies() == [b"%d" % at for at in range(40)]
        assert made.timers.threads >= 2


def test_a_read_that_ends_after_the_stop_delivers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cold(*_: object, **__: object) -> GetMessageResult | None:
        return None

    with delays(tmp_path) as made:
        monkeypatch.setattr(made.made.store, "get_message_in_memory", cold)
        made.send(1)
        made.timers.run()
        made.clock.advance(1_000)
        while not made.timers.threads:
            assert made.timers.step()
        made.service.stop()
        made.timers.advance(10_000)
        assert made.bodies() == []
    assert made.service.delivered == 0


def test_a_failure_is_logged_and_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> GetMessageResult | None:
        raise StoreError("the disk is gone")

    with delays(tmp_path) as made:
        with monkeypatch.context() as patched:
            patched.setattr(made.made.store, "get_message_in_memory", broken)
            made.send(1)
            made.timers.advance(1_000)
        assert "failed and is retried" in caplog.text
        made.timers.advance(9_999)
        assert made.bodies() == []
        made.timers.advance(1)
        assert made.bodies() == [b"later"]


def test_with_ext_files_the_due_time_is_found_too(tmp_path: Path) -> None:
    config = replace(SMALL, consume_queue_ext=True, consume_queue_ext_file_bytes=4096)
    with delays(tmp_path, config) as made:
        made.send(1)
        made.timers.advance(999)
        assert made.bodies() == []
        made.timers.advance(1)
        assert made.bodies() == [b"later"]


def test_the_version_counts_steps_of_deliveries(tmp_path: Path) -> None:
    with delays(tmp_path) as made:
        version = made.offsets.data_version
        made.offsets.update(1, 199, messages=199)
        assert version.counter == 0
        made.offsets.update(1, 200)
        assert version.counter == 1
        made.offsets.update(1, 900, messages=700)
        assert version.counter == 2
