"""Pulls that wait: for a message, or for a thread that reads from the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.service.pull_request_hold import UNPACKED_MAX
from roquet.errors import StoreClosed
from roquet.model.topic_config import TopicConfig
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import ONEWAY_FLAG, RemotingCommand, create_request
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import SlicedResponse
from roquet.store.results import GetMessageResult, GetMessageStatus
from tests.table_changes import put_topics
from tests.unit.broker.processor.pull_kit import (
    TOPIC,
    WAIT,
    FakeConnection,
    bodies,
    outcome,
    pull,
    pull_broker,
    tagged,
)

# -- waiting --------------------------------------------------------------------------------


def test_a_pull_waits_for_the_first_message_and_gets_it_in_the_same_burst(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        assert broker.ask(pull(flags=WAIT)) is None
        assert len(broker.hold) == 1
        broker.put(tagged("a", b"one"), tagged("a", b"two"))
        (answer,) = broker.connection.answers
        assert bodies(answer) == [b"one", b"two"]
        assert answer.opaque == 1
        assert len(broker.hold) == 0


def test_without_the_flag_a_pull_does_not_wait(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        assert outcome(broker.ask(pull())) == (19, "NO_MESSAGE_IN_QUEUE", 0)
        assert len(broker.hold) == 0


def test_oneway_pulls_do_not_wait(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        request = create_request(RequestCode.PULL_MESSAGE, pull(flags=WAIT), opaque=1)
        request.flag |= ONEWAY_FLAG
        assert isinstance(broker.handle(request), RemotingCommand)
        assert len(broker.hold) == 0


def test_a_pull_that_skipped_messages_does_not_wait(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe("a")
        broker.put(tagged("b"))
        assert outcome(broker.ask(pull(flags=WAIT))) == (20, "NO_MATCHED_MESSAGE", 1)


def test_the_tags_of_new_messages_decide_which_pulls_wake(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        first, second = FakeConnection(), FakeConnection()
        broker.subscribe("a", group="A")
        broker.subscribe("b", group="B")
        assert broker.ask(pull(flags=WAIT, group="A"), connection=first) is None
        assert broker.ask(pull(flags=WAIT, group="B"), connection=second) is None
        broker.put(tagged("x"), tagged("b", b"for b"))
        assert first.answers == []
        assert bodies(second.answers[0]) == [b"for b"]
        assert len(broker.hold) == 1
        broker.put(tagged("a", b"for a"))
        assert bodies(first.answers[0]) == [b"for a"]


def test_the_sweep_completes_expired_pulls(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        broker.put(tagged("a"))
        broker.ask(pull(1, flags=WAIT, suspend_timeout_ms=15_000))
        for _ in range(2):
            broker.clock.advance(5_000)
            broker.hold.check_hold_requests()
        assert broker.connection.answers == []
        broker.clock.advance(5_000)
        broker.hold.check_hold_requests()
        (answer,) = broker.connection.answers
        assert outcome(answer) == (19, "OFFSET_OVERFLOW_ONE", 1)


def test_short_polling(tmp_path: Path) -> None:
    config = BrokerConfig(long_polling=False, short_polling_ms=1_000)
    with pull_broker(tmp_path, config) as broker:
        broker.subscribe()
        broker.ask(pull(flags=WAIT, suspend_timeout_ms=15_000))
        broker.clock.advance(999)
        broker.hold.check_hold_requests()
        assert broker.connection.answers == []
        broker.clock.advance(1)
        broker.hold.check_hold_requests()
        assert [outcome(each) for each in broker.connection.answers] == [
            (19, "NO_MESSAGE_IN_QUEUE", 0)
        ]


def test_a_held_pull_is_checked_again(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        broker.ask(pull(flags=WAIT))
        put_topics(broker.topics, TopicConfig(topic_name=TOPIC, perm=2))
        broker.put(tagged("a"))
        (answer,) = broker.connection.answers
        assert (answer.code, answer.ext_fields) == (16, {"forbiddenType": "3"})


def test_beyond_the_limit_the_oldest_pull_of_the_greediest_peer_completes_empty(
    tmp_path: Path,
) -> None:
    with pull_broker(tmp_path, held_per_connection_max=2, held_max=3) as broker:
        broker.subscribe()
        other = FakeConnection("127.0.0.1:6000")
        for connection in (None, None, None, other, other):
            assert broker.ask(pull(flags=WAIT), connection=connection) is None
        assert [answer.code for answer in broker.connection.answers] == [19, 19]
        assert other.answers == []
        assert len(broker.hold) == 3


def test_every_pull_of_a_crowd_completes(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        opaques = range(UNPACKED_MAX + 10)
        for opaque in opaques:
            request = create_request(RequestCode.PULL_MESSAGE, pull(flags=WAIT), opaque=opaque)
            assert broker.handle(request) is None
        broker.put(tagged("a", b"one"))
        while broker.turn():
            pass
        assert [answer.opaque for answer in broker.connection.answers] == list(opaques)
        assert [bodies(answer) for answer in broker.connection.answers] == [[b"one"]] * len(opaques)


def test_no_pull_is_held_forever(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        assert broker.ask(pull(flags=WAIT, suspend_timeout_ms=1 << 62)) is None
        broker.clock.advance(299_999)
        broker.hold.check_hold_requests()
        assert len(broker.hold) == 1
        broker.clock.advance(1)
        broker.hold.check_hold_requests()
        assert [answer.code for answer in broker.connection.answers] == [19]


def test_a_failure_after_the_wait_gets_a_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        broker.ask(pull(flags=WAIT))

        def fail(*_: object, **__: object) -> GetMessageResult:
            raise ZeroDivisionError("a secret")

        monkeypatch.setattr(broker.store, "get_message_in_memory", fail)
        broker.put(tagged("a"))
        (answer,) = broker.connection.answers
        assert (answer.code, answer.remark) == (
            1,
            "ZeroDivisionError while handling PULL_MESSAGE",
        )
        assert "a secret" in caplog.text


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RequestRefused("busy", response_code=ResponseCode.SYSTEM_BUSY), (2, "busy")),
        (StoreClosed("it is closed", detail="a path"), (1, "it is closed")),
    ],
)
def test_a_refusal_after_the_wait_keeps_its_remark(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    expected: tuple[int, str],
) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        broker.ask(pull(flags=WAIT))

        def fail(*_: object, **__: object) -> GetMessageResult:
            raise error

        monkeypatch.setattr(broker.store, "get_message_in_memory", fail)
        broker.put(tagged("a"))
        (answer,) = broker.connection.answers
        assert (answer.code, answer.remark) == expected


async def test_a_held_pull_keeps_waiting_while_its_peer_does_not_read(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        broker.ask(pull(flags=WAIT))
        broker.connection.held_bytes = (4 << 20) + 1
        broker.put(tagged("a", b"one"))
        await asyncio.sleep(0)
        assert broker.connection.answers == []
        broker.put(tagged("a", b"two"))
        broker.connection.writable.set()
        await broker.connection.wait_answered()
        assert bodies(broker.connection.answers[0]) == [b"one", b"two"]


# -- what is not in memory ------------------------------------------------------------------


async def test_cold_messages_are_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe("a")
        broker.put(tagged("a", b"one"), tagged("b"), tagged("a", b"two"))
        monkeypatch.setattr(broker.store, "get_message_in_memory", lambda *_, **__: None)
        answer = await broker.ask_in_thread(RequestCode.PULL_MESSAGE, pull(flags=1))
        assert answer is not None
        assert bodies(answer) == [b"one", b"two"]
        assert outcome(answer) == (0, "FOUND", 3)
        assert broker.offsets.query("G", TOPIC, 0) == 0


async def test_a_cold_response_is_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        broker.put(tagged("a", b"one"), tagged("a", b"else", queue_id=1), tagged("a", b"two"))
        monkeypatch.setattr(broker.store, "get_message_in_memory", lambda *_, **__: None)
        result = broker.handle(create_request(RequestCode.PULL_MESSAGE, pull(), opaque=1))
        assert isinstance(result, Awaitable)
        answer = await result
        assert isinstance(answer, SlicedResponse)
        assert [type(part) for part in answer.body_slices] == [bytes]


async def test_a_woken_pull_may_have_to_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        broker.ask(pull(flags=WAIT))
        monkeypatch.setattr(broker.store, "get_message_in_memory", lambda *_, **__: None)
        broker.put(tagged("a", b"one"))
        assert broker.connection.answers == []
        await broker.connection.wait_answered()
        assert bodies(broker.connection.answers[0]) == [b"one"]
        await asyncio.sleep(0)
        assert broker.processor._late == set()


async def test_what_arrives_during_a_cold_read_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        broker.put(tagged("a", b"one"))
        in_memory = broker.store.get_message_in_memory

        def cold_once(*_: object, **__: object) -> None:
            monkeypatch.setattr(broker.store, "get_message_in_memory", in_memory)

        early = GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, 0, 0, 0)
        monkeypatch.setattr(broker.store, "get_message_in_memory", cold_once)
        monkeypatch.setattr(broker.store, "get_message", lambda *_, **__: early)
        answer = await broker.ask_in_thread(RequestCode.PULL_MESSAGE, pull(flags=WAIT))
        assert answer is None
        assert bodies(broker.connection.answers[0]) == [b"one"]
