from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from roquet.broker.admin.half_message import HalfMessageAdmin
from roquet.broker.service.op_queue import EndedTransactions
from roquet.broker.service.transaction_check import BATCH_MESSAGES, SKIPS_A_TURN
from roquet.model.message import BrokerMessage, StoredMessage
from roquet.model.topic import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand, create_request
from roquet.remoting.connection import Connection
from roquet.remoting.headers.admin import ResumeCheckHalfMessageRequestHeader
from roquet.remoting.processor import PUBLIC, RequestContext
from roquet.store.config import replace
from roquet.store.results import GetMessageResult, PutMessageResult, PutMessageStatus
from tests.unit.broker.processor.send_kit import SMALL, broker
from tests.unit.broker.service.transaction_kit import (
    COMMIT,
    ROLLBACK,
    ROUND_MS,
    ProducerConnection,
    Transactions,
    transactions,
)

BIG = replace(SMALL, commit_log_file_bytes=1 << 22, consume_queue_file_bytes=60_000)


def keys(producer: ProducerConnection) -> list[str | None]:
    return [header.msg_id for header, _ in producer.asked]


def test_a_producer_is_checked_about_the_copy_of_its_message(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        producer = made.producer()
        half = made.half()
        made.timers.advance(ROUND_MS - 1)
        assert producer.asked == []
        made.timers.advance(2_000)
        ((header, message),) = producer.asked
        copy = made.made.stored(TRANS_HALF_TOPIC, 0, 1)
        assert made.kept_offsets() == (1, -1)
        assert made.metrics.table == {}
    assert copy.properties == {**half.properties, "TRANSACTION_CHECK_TIMES": "1"}
    assert (copy.body, copy.flag, copy.sys_flag) == (half.body, half.flag, half.sys_flag)
    assert (copy.born_timestamp_ms, copy.born_host) == (half.born_timestamp_ms, half.born_host)
    assert header.topic == TRANS_HALF_TOPIC
    assert (header.half_queue_offset, header.physical_offset) == (1, copy.physical_offset)
    assert header.offset_msg_id == copy.offset_message_id
    assert header.msg_id == header.transaction_id == "K"
    assert header.broker_name == made.made.config.broker_name
    assert (message.topic, message.queue_id, message.queue_offset) == ("T", 1, 1)
    assert message.physical_offset == copy.physical_offset
    assert message.properties == {**copy.properties, "WAIT": "false"}
    assert message.store_timestamp_ms == half.store_timestamp_ms


@pytest.mark.parametrize("verdict", [COMMIT, ROLLBACK])
def test_the_response_to_a_check_ends_it(verdict: int, tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        producer = made.producer()
        made.half()
        made.timers.advance(ROUND_MS + 2_000)
        copy = made.made.stored(TRANS_HALF_TOPIC, 0, 1)
        assert made.end(copy, verdict, from_transaction_check=True) == (0, None)
        made.timers.advance(3 * ROUND_MS)
        assert len(producer.asked) == 1
        assert made.halves() == 2
        assert made.made.count("T", 1) == (verdict == COMMIT)
        assert made.kept_offsets() == (2, 1)
        assert len(made.ops.copies) == 0


def test_an_ended_transaction_is_not_checked(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        producer = made.producer()
        halves = [made.half(f"K{at}") for at in range(5)]
        for at in (0, 1, 3):
            made.end(halves[at], COMMIT)
        made.timers.advance(ROUND_MS + 2_000)
        assert keys(producer) == ["K2", "K4"]
        # The op message names offsets up to 3, all of which are passed.
        assert made.kept_offsets() == (5, 1)


def test_an_end_that_is_not_written_yet_counts(tmp_path: Path) -> None:
    with transactions(tmp_path, transaction_op_batch_interval_ms=10 * ROUND_MS) as made:
        producer = made.producer()
        made.end(made.half(), COMMIT)
        made.timers.advance(ROUND_MS + 2_000)
        assert producer.asked == []
        assert made.kept_offsets()[0] == 1
        made.timers.advance(11 * ROUND_MS)
        assert made.op_bodies() == [b"0,"]
        assert made.kept_offsets() == (1, 1)


def test_a_late_end_of_the_original_counts_for_the_copy(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        producer = made.producer()
        half = made.half()
        made.timers.advance(2 * ROUND_MS + 4_000)
        assert len(producer.asked) == 2
        assert made.end(half, COMMIT) == (0, None)
        made.timers.advance(4 * ROUND_MS)
        assert len(producer.asked) == 2
        assert made.made.count("T", 1) == 1
        assert made.op_bodies() == [b"0,2,"]


def test_young_transactions_are_not_checked(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        producer = made.producer()
        made.timers.advance(ROUND_MS - 6_000)
        made.half()
        made.timers.advance(6_000 + 100)
        assert producer.asked == []
        made.timers.advance(ROUND_MS)
        assert keys(producer) == ["K"]


def test_a_transaction_checked_too_often_is_put_aside(tmp_path: Path) -> None:
    with transactions(tmp_path, transaction_check_max=2) as made:
        producer = made.producer()
        made.metrics.add("T", 1)
        half = made.half()
        made.timers.advance(4 * ROUND_MS)
        assert len(producer.asked) == 2
        aside = made.made.stored(TRANS_CHECK_MAX_TIME_TOPIC)
        topic = made.made.topics.select(TRANS_CHECK_MAX_TIME_TOPIC)
        made.timers.advance(4 * ROUND_MS)
        assert made.made.count(TRANS_CHECK_MAX_TIME_TOPIC) == 1
        assert made.metrics.count("T") == 0
        assert made.service.discarded == 1
    assert aside.properties == {**half.properties, "TRANSACTION_CHECK_TIMES": "2"}
    assert topic is not None
    assert (topic.perm, topic.write_queue_nums) == (6, 1)


def test_a_transaction_older_than_the_retention_is_put_aside(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        made.half()
        made.clock.set(made.clock.now_ms() + 73 * 3_600_000)
        made.timers.advance(ROUND_MS)
        assert made.made.count(TRANS_CHECK_MAX_TIME_TOPIC) == 1


def test_an_immune_message_moves_to_the_end(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        producer = made.producer()
        immune = made.half("immune", "CHECK_IMMUNITY_TIME_IN_SECONDS\x0170\x02")
        made.half("other")
        made.timers.advance(ROUND_MS + 2_000)
        assert keys(producer) == ["other"]
        copy = made.made.stored(TRANS_HALF_TOPIC, 0, 2 if made.halves() > 2 else 1)
        assert copy.properties == {**immune.properties, "TRAN_PREPARED_QUEUE_OFFSET": "0"}
        made.timers.advance(ROUND_MS)
        assert "immune" not in keys(producer)
        made.timers.advance(ROUND_MS)
        assert "immune" in keys(producer)


def test_an_immune_message_that_its_producer_ends_is_not_checked(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        producer = made.producer()
        immune = made.half("immune", "CHECK_IMMUNITY_TIME_IN_SECONDS\x01100\x02")
        made.timers.advance(2 * ROUND_MS + 4_000)
        assert made.end(immune, COMMIT) == (0, None)
        made.timers.advance(6 * ROUND_MS)
        assert producer.asked == []
        assert made.made.count("T", 1) == 1
        halves = made.halves()
        made.timers.advance(6 * ROUND_MS)
        assert made.halves() == halves


@pytest.mark.parametrize("gone", ["is_closed", "is_stuck"])
def test_another_producer_is_checked_when_one_is_gone(gone: str, tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        first, second = made.producer(), made.producer()
        setattr(first, gone, True)
        for at in range(4):
            made.half(f"K{at}")
        made.timers.advance(ROUND_MS + 2_000)
    assert first.asked == []
    assert keys(second) == ["K0", "K1", "K2", "K3"]


def test_without_a_producer_the_next_round_checks(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        made.half()
        made.timers.advance(ROUND_MS + 2_000)
        producer = made.producer()
        made.timers.advance(ROUND_MS + 2_000)
        ((header, message),) = producer.asked
    assert header.half_queue_offset == 2
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "2"


def test_a_restart_continues_with_open_transactions(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        made.producer()
        made.end(made.half("ended"), COMMIT)
        made.half("open")
        made.timers.advance(ROUND_MS + 2_000)
        made.service.stop()
        made.ops.stop()
        assert made.timers.pending == 0
        made.offsets.persist()
        now_ms = made.clock.now_ms()
    with broker(tmp_path) as again:
        again.clock.set(now_ms)
        made = Transactions(again)
        producer = made.producer()
        made.timers.advance(ROUND_MS + 2_000)
        assert keys(producer) == ["open"]
        assert made.made.count("T", 1) == 1


def test_a_crash_before_the_first_save_loses_no_half_message(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        made.end(made.half("ended"), COMMIT)
        made.half("open")
        made.timers.advance(ROUND_MS + 2_000)
        now_ms = made.clock.now_ms()
    with broker(tmp_path) as again:
        again.clock.set(now_ms)
        made = Transactions(again)
        producer = made.producer()
        made.timers.advance(ROUND_MS + 2_000)
        assert set(keys(producer)) == {"open"}


def test_offsets_are_saved_only_up_to_what_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with transactions(tmp_path) as made:
        made.half()
        with monkeypatch.context() as patched:
            patched.setattr(made.made.store, "flush", lambda: 0)
            made.timers.advance(ROUND_MS + 2_000)
        assert made.halves() == 2
        assert made.kept_offsets() == (-1, -1)
        made.timers.advance(ROUND_MS + 2_000)
        assert made.kept_offsets() == (2, -1)


def test_a_copy_that_is_refused_is_retried(tmp_path: Path) -> None:
    refused = PutMessageResult(PutMessageStatus.OS_PAGE_CACHE_BUSY)
    with transactions(tmp_path) as made:
        producer = made.producer()
        made.half()
        made.made.store.put_hooks.append(lambda _: refused)
        made.timers.advance(ROUND_MS + 2_000)
        assert producer.asked == []
        made.made.store.put_hooks.clear()
        made.timers.advance(100)
        assert keys(producer) == ["K"]
        assert made.halves() == 2


def test_a_turn_checks_a_bounded_number(tmp_path: Path) -> None:
    total = 5 * BATCH_MESSAGES
    with transactions(tmp_path, store_config=BIG) as made:
        producer = made.producer()
        for at in range(total):
            made.half(f"K{at}")
        made.clock.advance(ROUND_MS)
        steps, before = [], 0
        while len(producer.asked) < total:
            if not made.timers.step():
                made.timers.advance(100)
            steps.append(made.service.checked - before)
            before = made.service.checked
        made.timers.run()
        assert keys(producer) == [f"K{at}" for at in range(total)]
    assert max(steps) <= BATCH_MESSAGES
    assert SKIPS_A_TURN > BATCH_MESSAGES


def test_ends_that_are_written_during_a_round_are_seen(tmp_path: Path) -> None:
    total = 4 * BATCH_MESSAGES
    with transactions(tmp_path, store_config=BIG) as made:
        producer = made.producer()
        halves = [made.half(f"K{at}") for at in range(total)]
        made.clock.advance(ROUND_MS)
        while not producer.asked:
            made.timers.step()
        seen = len(producer.asked)
        for half in halves[seen::2]:
            made.end(half, ROLLBACK)
        assert made.ops.flush()
        made.timers.advance(ROUND_MS // 2)
        assert keys(producer) == [f"K{at}" for at in (*range(seen), *range(seen + 1, total, 2))]
    assert seen == BATCH_MESSAGES


def test_a_round_rests_for_longer_than_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with transactions(tmp_path, store_config=BIG) as made:
        producer = made.producer()
        for at in range(10 * BATCH_MESSAGES):
            made.half(f"K{at}")
        clock, submit = made.clock, made.made.store.submit
        work_ms = 0

        def slow(*arguments: object) -> None:
            nonlocal work_ms
            work_ms += 1
            clock.advance(1)
            submit(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(made.made.store, "submit", slow)
        made.timers.advance(ROUND_MS)
        began_ms = clock.now_ms()
        while len(producer.asked) < 10 * BATCH_MESSAGES:
            made.timers.advance(1)
        took_ms = clock.now_ms() - began_ms
    assert work_ms >= 10 * BATCH_MESSAGES
    assert took_ms >= 2 * work_ms


def test_messages_not_in_memory_are_read_by_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cold(*_: object, **__: object) -> GetMessageResult | None:
        return None

    with transactions(tmp_path) as made:
        producer = made.producer()
        made.half("a")
        made.end(made.half("b"), ROLLBACK)
        made.timers.advance(3_000)
        monkeypatch.setattr(made.made.store, "get_message_in_memory", cold)
        made.timers.advance(ROUND_MS)
        assert keys(producer) == ["a"]
        assert made.timers.threads >= 3


def test_a_round_that_fails_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> GetMessageResult | None:
        raise OSError(5, "bad disk")

    with transactions(tmp_path) as made:
        producer = made.producer()
        made.half()
        with monkeypatch.context() as patched:
            patched.setattr(made.made.store, "get_message_in_memory", broken)
            made.timers.advance(ROUND_MS + 2_000)
        assert "failed" in caplog.text
        made.timers.advance(ROUND_MS)
        assert keys(producer) == ["K"]


def test_offsets_beyond_the_queues_are_corrected(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        producer = made.producer()
        made.half()
        made.end(made.half("b"), ROLLBACK)
        made.timers.advance(3_000)
        for topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC):
            made.offsets.commit("CID_RMQ_SYS_TRANS", topic, 0, 500)
        made.timers.advance(ROUND_MS)
        assert made.kept_offsets() == (2, 1)
        made.half("new")
        made.timers.advance(2 * ROUND_MS)
        assert set(keys(producer)) == {"new"}


def op(offset: int, body: bytes, tag: str = "d") -> StoredMessage:
    message = BrokerMessage(TRANS_OP_HALF_TOPIC, 0, body, f"TAGS\x01{tag}\x02".encode())
    return StoredMessage(
        topic=message.topic,
        queue_id=0,
        queue_offset=offset,
        physical_offset=0,
        store_size=0,
        body=body,
        properties_data=message.properties,
        flag=0,
        sys_flag=0,
        body_crc=0,
        born_timestamp_ms=offset,
        born_host=message.born_host,
        store_timestamp_ms=0,
        store_host=message.store_host,
        reconsume_times=0,
        prepared_transaction_offset=0,
    )


def test_op_messages_are_done_when_all_their_offsets_are_passed() -> None:
    ended = EndedTransactions(3, 10)
    assert ended.add([op(3, b"9,10,"), op(4, b"12,11,"), op(5, b"1,2,"), op(6, b"11,")], 7)
    assert ended.done_offset() == 3
    assert ended.take(10)
    assert not ended.take(10)
    assert ended.done_offset() == 4
    assert ended.take(11)
    assert ended.done_offset() == 4
    assert ended.take(12)
    assert ended.done_offset() == 7
    assert not ended.take(9)
    assert not ended.add([], 7)
    assert ended.last_born_ms is None


def test_missing_or_bad_op_messages_hold_nothing_up() -> None:
    ended = EndedTransactions(0, 0)
    ended.add([op(2, b"1,x,,-3,"), op(4, b"5,", "other")], 6)
    assert ended.take(1)
    assert not ended.take(5)
    assert ended.done_offset() == 5
    shorter = EndedTransactions(90, 0)
    assert not shorter.add([], 4)
    assert shorter.done_offset() == 4


def resume(made: Transactions, msg_id: str | None) -> RemotingCommand:
    admin = HalfMessageAdmin(made.made.parts)
    header = ResumeCheckHalfMessageRequestHeader(topic="T", msg_id=msg_id)
    request = create_request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header, opaque=1)
    context = RequestContext(cast("Connection", made.made.connection), request, PUBLIC)
    return asyncio.run(admin.resume(context, header))


def test_a_message_that_was_put_aside_is_checked_again(tmp_path: Path) -> None:
    with transactions(tmp_path, transaction_check_max=1) as made:
        producer = made.producer()
        made.metrics.add("T", 1)
        made.half()
        made.timers.advance(3 * ROUND_MS)
        assert made.metrics.count("T") == 0
        aside = made.made.stored(TRANS_CHECK_MAX_TIME_TOPIC)
        at = made.halves()
        answer = resume(made, aside.offset_message_id)
        resumed = made.made.stored(TRANS_HALF_TOPIC, 0, at)
        assert len(producer.asked) == 1
        assert made.metrics.count("T") == 1
        made.timers.advance(2 * ROUND_MS)
        assert len(producer.asked) == 2
    assert (answer.code, answer.remark) == (0, None)
    assert resumed.properties == {**aside.properties, "TRANSACTION_CHECK_TIMES": "0"}


def test_messages_that_cannot_be_resumed_are_refused(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        made.made.send()
        plain = made.made.stored()
        half = made.half()
        end = made.made.store.max_physical_offset
        wrong = half.offset_message_id[:-1] + "0"
        answers = [resume(made, each) for each in (None, "xyz", wrong, plain.offset_message_id)]
        made.made.store.put_hooks.append(
            lambda _: PutMessageResult(PutMessageStatus.OS_PAGE_CACHE_BUSY)
        )
        answers.append(resume(made, half.offset_message_id))
        assert made.made.store.max_physical_offset == end
    read = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
    put = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."
    assert [(answer.code, answer.remark) for answer in answers] == [
        (1, read),
        (1, read),
        (1, read),
        (1, put),
        (1, put),
    ]
