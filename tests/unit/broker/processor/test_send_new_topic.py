"""Sends that create a topic: they wait for its file together, and no other send waits for them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from roquet.broker.processor import new_topics as module
from roquet.errors import StoreError
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand, create_request
from roquet.runtime.config_file import ConfigFile
from tests.unit.broker.processor.send_kit import SendBroker, broker, send_header


def request(topic: str, opaque: int = 1, body: bytes = b"body") -> RemotingCommand:
    header = send_header(topic=topic)
    return create_request(RequestCode.SEND_MESSAGE_V2, header, opaque=opaque, body=body)


async def until(made: SendBroker, answers: int) -> list[RemotingCommand]:
    while len(made.connection.answers) < answers:  # noqa: ASYNC110 - nothing reports responses
        await asyncio.sleep(0)
    return made.connection.answers


async def test_sends_to_a_new_topic_wait_for_it_in_their_order(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        saves: list[None] = []
        save = made.topics._file.save_pieces
        made.topics._file.save_pieces = lambda pieces: (saves.append(None), save(pieces))[1]  # type: ignore[method-assign, func-returns-value]
        bodies = [b"%d" % number for number in range(20)]
        for number, body in enumerate(bodies):
            assert made.handle(request("New", number, body)) is None
            assert made.handle(request(f"Other-{number}", 100 + number)) is None
        assert made.flow.sends_waiting == 40
        assert made.topics.select("New") is None
        ready = made.handle(request("T"))
        assert ready is not None
        assert ready.code == ResponseCode.SUCCESS, "sends to other topics do not wait"
        answers = await until(made, 41)
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        assert [made.stored("New", 0, number).body for number in range(20)] == bodies
        assert made.topics.select("Other-19") is not None
        assert made.flow.sends_waiting == 0
        assert len(saves) == 1


async def test_a_topic_that_cannot_be_written_is_an_error_of_its_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("topics.json was not saved: there is no space.")

    with broker(tmp_path) as made:
        monkeypatch.setattr(ConfigFile, "save_pieces", full)
        assert made.handle(request("New")) is None
        (answer,) = await until(made, 1)
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "topics.json was not saved: there is no space.",
        )
        assert made.topics.select("New") is None
        assert made.flow.sends_waiting == 0
        assert made.count("New") == 0
        monkeypatch.undo()
        assert made.handle(request("New")) is None
        answers = await until(made, 2)
        assert answers[1].code == ResponseCode.SUCCESS


async def test_bodies_that_wait_for_topics_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BODIES_BYTES_MAX", 10)
    with broker(tmp_path) as made:
        assert made.handle(request("A", body=bytes(8))) is None
        refused = made.handle(request("A", body=bytes(3)))
        assert refused is not None
        assert refused.code == ResponseCode.SYSTEM_BUSY
        await until(made, 1)
        answer = made.handle(request("A", body=bytes(3)))
        assert answer is not None
        assert answer.code == ResponseCode.SUCCESS


async def test_sends_that_come_while_others_wait_do_not_overtake_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SENDS_A_TURN", 3)
    with broker(tmp_path) as made:
        approved: list[str] = []
        made.processor.plain_topics.append(lambda topic, _queues: approved.append(topic))
        bodies = [b"%d" % number for number in range(20)]
        for number, body in enumerate(bodies[:10]):
            assert made.handle(request("New", number, body)) is None
        await until(made, 3)
        assert made.topics.select("New") is not None
        for number, body in enumerate(bodies[10:], 10):
            assert made.handle(request("New", number, body)) is None, "the topic exists"
        assert approved == [], "the lane would overtake them"
        before = len(made.connection.answers)
        await asyncio.sleep(0)
        assert len(made.connection.answers) <= before + 6, "twice as many in the second turn"
        answers = await until(made, 20)
        assert [answer.opaque for answer in answers] == list(range(20))
        assert [made.stored("New", 0, number).body for number in range(20)] == bodies
        last = made.handle(request("New"))
        assert last is not None
        assert approved == ["New"]


async def test_a_topic_that_is_deleted_before_its_sends_is_created_again(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        assert made.handle(request("New", 1)) is None
        made.topics.stage_delete(["New"])
        (answer,) = await until(made, 1)
        assert answer.code == ResponseCode.SUCCESS
        assert made.topics.select("New") is not None
        assert made.count("New") == 1


async def test_a_send_that_fails_after_its_wait_gets_a_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with broker(tmp_path) as made:
        assert made.handle(request("New")) is None
        assert made.handle(request("New", 2)) is None

        def fail(*_: object) -> None:
            raise ZeroDivisionError("a secret")

        monkeypatch.setattr(made.processor, "_send_prepared", fail)
        answers = await until(made, 2)
        assert {answer.remark for answer in answers} == {
            "ZeroDivisionError while handling SEND_MESSAGE_V2"
        }
        assert "a secret" in caplog.text
        assert made.flow.sends_waiting == 0


async def test_producers_that_keep_sending_do_not_wait_forever(tmp_path: Path) -> None:
    """Each response triggers the next send; the lane takes the topic once no send waits for it."""
    in_flight = 8 * module.SENDS_A_TURN
    with broker(tmp_path) as made:
        waited = 0
        for opaque in range(in_flight):
            assert made.handle(request("New", opaque)) is None
        while waited < 2 * in_flight:
            before = len(made.connection.answers)
            await asyncio.sleep(0)  # until a thread has written the table, which takes its time
            again = len(made.connection.answers) - before
            if again and made.handle(request("New")) is not None:
                break
            for _ in range(again - 1):
                made.handle(request("New"))
            waited += again
        assert 0 < waited < 2 * in_flight


async def test_a_burst_that_fails_does_not_leave_sends_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SENDS_A_TURN", 2)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    with broker(tmp_path) as made:
        lines = made.processor._new_topics
        ended = lines._burst_ended
        failures = iter([RuntimeError("a burst that fails")])

        def fail_once() -> None:
            for failure in failures:
                raise failure
            ended()

        lines._burst_ended = fail_once
        for opaque in range(6):
            assert made.handle(request("New", opaque)) is None
        answers = await until(made, 6)
        assert [answer.opaque for answer in answers] == list(range(6))
