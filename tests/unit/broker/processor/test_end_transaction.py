from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import cast

import pytest

from roquet.broker.service.transaction_op import HalfCopies
from roquet.model.message import BrokerMessage
from roquet.model.topic import SCHEDULE_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, TRANS_OP_HALF_TOPIC
from roquet.remoting.codes import ResponseCode
from roquet.remoting.connection import Connection
from roquet.remoting.processor import Port, RequestContext
from roquet.store.config import BrokerRole, FlushDiskType, replace
from roquet.store.results import PutMessageResult, PutMessageStatus
from tests.unit.broker.components_kit import STORE_HOST
from tests.unit.broker.processor.send_kit import SMALL, broker
from tests.unit.broker.service.transaction_kit import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    Transactions,
    transactions,
)

NOT_FOUND = (ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")


def test_a_commit_stores_the_message_in_its_own_queue(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        half = made.half()
        assert made.end(half, COMMIT) == (0, None)
        message = made.made.stored("T", 1)
        assert made.made.count("T", 1) == 1
    expected = dict(half.properties)
    del expected["REAL_TOPIC"], expected["REAL_QID"]
    assert message.properties == expected
    assert message.properties["TRAN_MSG"] == "true"
    assert message.sys_flag == 8
    assert message.prepared_transaction_offset == half.physical_offset
    kept = ("body", "flag", "born_timestamp_ms", "born_host", "store_host", "reconsume_times")
    assert [getattr(message, name) for name in kept] == [getattr(half, name) for name in kept]


def test_a_rollback_stores_nothing_but_the_op(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        half = made.half()
        assert made.end(half, ROLLBACK) == (0, None)
        assert made.made.count("T", 1) == 0
        made.timers.advance(3_000)
        assert made.op_bodies() == [b"0,"]


@pytest.mark.parametrize("verdict", [UNKNOWN, 4, 99])
@pytest.mark.parametrize("from_check", [True, False])
def test_an_unknown_end_gets_no_response(verdict: int, *, from_check: bool, tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        half = made.half()
        assert made.end(half, verdict, from_transaction_check=from_check) is None
        assert made.made.connection.answers[1:] == []
        made.timers.advance(3_000)
        assert made.op_bodies() == []


def test_ends_are_collected_for_some_seconds(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        halves = [made.half(f"K{at}") for at in range(4)]
        made.end(halves[0], COMMIT)
        made.timers.advance(2_000)
        made.end(halves[2], ROLLBACK)
        made.timers.advance(999)
        assert made.op_bodies() == []
        assert list(made.ops.pending) == [0, 2]
        made.timers.advance(1)
        assert made.op_bodies() == [b"0,2,"]
        op = made.made.stored(TRANS_OP_HALF_TOPIC)
        made.end(halves[1], COMMIT)
        made.timers.advance(3_000)
        assert made.op_bodies() == [b"0,2,", b"1,"]
        assert not made.ops.pending
    assert op.properties_data == b"WAIT\x01true\x02TAGS\x01d\x02"
    assert (op.born_host, op.store_host) == (STORE_HOST, STORE_HOST)


def test_many_ends_are_written_at_once(tmp_path: Path) -> None:
    with transactions(tmp_path, transaction_op_message_bytes_max=10) as made:
        for at in range(12):
            made.end(made.half(f"K{at}"), ROLLBACK)
        made.timers.run()
        assert made.op_bodies() == [b"0,1,2,3,4,", b"5,6,7,8,9,"]
        made.timers.advance(3_000)
        assert made.op_bodies()[2:] == [b"10,11,"]


def test_an_op_message_that_is_refused_is_written_later(tmp_path: Path) -> None:
    def refuse(message: object) -> PutMessageResult | None:
        is_op = isinstance(message, BrokerMessage) and message.topic == TRANS_OP_HALF_TOPIC
        return PutMessageResult(PutMessageStatus.OS_PAGE_CACHE_BUSY) if is_op else None

    with transactions(tmp_path) as made:
        made.end(made.half(), COMMIT)
        made.made.store.put_hooks.append(refuse)
        made.timers.advance(3_000)
        assert made.op_bodies() == []
        assert list(made.ops.pending) == [0]
        made.made.store.put_hooks.clear()
        made.timers.advance(100)
        assert made.op_bodies() == [b"0,"]
        made.end(made.half("K2"), ROLLBACK)
        made.ops.stop()
        assert made.op_bodies() == [b"0,", b"1,"]


def test_one_way_ends_work_without_a_response(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        half = made.half()
        assert made.made.handle(made.request(half, COMMIT, oneway=True)) is None
        assert made.made.count("T", 1) == 1


def test_the_checks_have_upstreams_words(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        half = made.half()
        other = made.half("other")
        end = other.physical_offset + other.store_size
        said = [
            made.end(half, COMMIT, producer_group="Q"),
            made.end(half, COMMIT, half_queue_offset=1),
            made.end(half, COMMIT, physical_offset=half.physical_offset + 4),
            made.end(half, ROLLBACK, physical_offset=end),
            made.end(half, COMMIT, physical_offset=other.physical_offset),
        ]
        made.timers.advance(10_000)
        assert made.op_bodies() == []
        assert made.made.count("T", 1) == 0
    error = ResponseCode.SYSTEM_ERROR
    assert said == [
        (error, "The producer group wrong"),
        (error, "The transaction state table offset wrong"),
        NOT_FOUND,
        NOT_FOUND,
        (error, "The transaction state table offset wrong"),
    ]


@pytest.mark.parametrize("topic", ["T", TRANS_CHECK_MAX_TIME_TOPIC])
def test_only_half_messages_are_committed(topic: str, tmp_path: Path) -> None:
    properties = b"PGROUP\x01P\x02REAL_TOPIC\x01T\x02REAL_QID\x013\x02"
    with transactions(tmp_path) as made:
        made.made.store.put_message(BrokerMessage(topic, 0, b"x", properties))
        assert made.end(made.made.stored(topic), COMMIT) == NOT_FOUND
        assert made.made.count("T", 3) == 0


def test_a_slave_ends_nothing(tmp_path: Path) -> None:
    config = replace(SMALL, broker_role=BrokerRole.SLAVE)
    with transactions(tmp_path / "a") as made:
        half = made.half()
    with transactions(tmp_path / "b", store_config=config) as made:
        assert made.end(half, COMMIT) == (ResponseCode.SLAVE_NOT_AVAILABLE, None)


@pytest.mark.parametrize(
    ("immunity", "age_ms", "from_check", "is_taken"),
    [
        ("60", 60_000, False, True),
        ("60", 60_001, False, False),
        ("60", 60_001, True, True),
        ("1", 6_000, False, True),
        ("1", 6_001, False, False),
        ("soon", 6_001, False, False),
    ],
)
def test_an_end_after_the_immunity_waits_for_the_check(
    immunity: str, age_ms: int, *, from_check: bool, is_taken: bool, tmp_path: Path
) -> None:
    with transactions(tmp_path) as made:
        half = made.half(properties=f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{immunity}\x02")
        made.clock.advance(age_ms)
        said = made.end(half, COMMIT, from_transaction_check=from_check)
    assert said == ((0, None) if is_taken else (ResponseCode.ILLEGAL_OPERATION, None))


def test_a_committed_message_may_have_to_wait(tmp_path: Path) -> None:
    told: list[str] = []
    with transactions(tmp_path) as made:
        made.processor.committed.append(lambda topic, _: told.append(topic))
        assert made.end(made.half(properties="DELAY\x0199\x02"), COMMIT) == (0, None)
        waiting = made.made.stored(SCHEDULE_TOPIC, 17)
    assert told == [SCHEDULE_TOPIC]
    assert waiting.sys_flag == 8
    wanted = {"DELAY": "18", "REAL_TOPIC": "T", "REAL_QID": "1"}
    assert {name: waiting.properties[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("status", "code", "remark"),
    [
        (PutMessageStatus.CREATE_MAPPED_FILE_FAILED, 1, "Create mapped file failed."),
        (
            PutMessageStatus.MESSAGE_ILLEGAL,
            13,
            "The message is illegal, maybe msg body or properties length not matched. msg body "
            "length limit 4194304B, msg properties length limit 32KB.",
        ),
        (PutMessageStatus.SERVICE_NOT_AVAILABLE, 14, "Service not available now."),
        (PutMessageStatus.OS_PAGE_CACHE_BUSY, 1, "OS page cache busy, please try another machine"),
        (PutMessageStatus.UNKNOWN_ERROR, 1, "UNKNOWN_ERROR"),
    ],
)
def test_a_commit_that_the_store_refuses_is_reported_and_stays_open(
    status: PutMessageStatus, code: int, remark: str, tmp_path: Path
) -> None:
    with transactions(tmp_path) as made:
        half = made.half()
        made.made.store.put_hooks.append(lambda _: PutMessageResult(status))
        assert made.end(half, COMMIT) == (code, remark)
        assert not made.ops.pending


def test_a_commit_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    config = replace(SMALL, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    with transactions(tmp_path, store_config=config) as made:
        made.made.send("TRAN_MSG\x01true\x02PGROUP\x01P\x02WAIT\x01false\x02")
        made.made.flush()
        half = made.made.store.look_message(0)
        assert half is not None
        assert made.end(half, COMMIT) == (0, None)


def test_half_messages_are_counted_down(tmp_path: Path) -> None:
    told: list[tuple[str, int]] = []
    with transactions(tmp_path) as made:
        made.processor.committed.append(lambda topic, size: told.append((topic, size)))
        made.metrics.add("T", 3)
        made.end(made.half("a"), COMMIT)
        made.end(made.half("b"), ROLLBACK)
        size = made.made.stored("T", 1).store_size
        assert made.metrics.count("T") == 1
        made.metrics.persist()
        text = (tmp_path / "config" / "transactionMetrics").read_text()
        now_ms = made.clock.now_ms()
    assert told == [("T", size)]
    assert text == (
        f'{{"dataVersion":{{"counter":3,"stateVersion":0,"timestamp":{now_ms}}},'
        f'"transactionCount":{{"T":{{"count":1,"timeStamp":{now_ms}}}}}}}'
    )
    with broker(tmp_path) as again:
        loaded = Transactions(again).metrics
        assert loaded.count("T") == 1
        assert loaded.data_version.counter == 3
        loaded.forget(["T", "unknown"])
        assert loaded.table == {}


def test_an_old_half_message_is_read_by_a_thread(tmp_path: Path) -> None:
    with transactions(tmp_path) as made:
        half = made.half()
    with broker(tmp_path) as again:
        made = Transactions(again)
        request = made.request(half, COMMIT)
        registration = again.registry.find(request.code, Port.MAIN)
        assert registration is not None
        link = cast("Connection", again.connection)
        context = RequestContext(link, request, registration.permission)

        async def ask() -> object:
            result = registration.handle(context)
            assert inspect.isawaitable(result)
            return await result

        assert asyncio.run(ask()) is None
        assert [answer.code for answer in again.connection.answers] == [0]
        assert again.stored("T", 1).body == b"tx"
        assert list(made.ops.pending) == [0]


def test_copies_are_known_by_first_and_last_offset() -> None:
    copies = HalfCopies()
    copies.moved(1, 11)
    copies.moved(2, 12)
    copies.moved(11, 21)
    assert (copies.last_copy(1), copies.last_copy(2), len(copies)) == (21, 12, 2)
    copies.forget(21)
    copies.forget(2)
    copies.forget(77)
    assert (copies.last_copy(1), copies.last_copy(2), len(copies)) == (None, None, 0)
