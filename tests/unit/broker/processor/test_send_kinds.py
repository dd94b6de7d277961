"""Priorities, compaction and inner batches: how a broker handles them, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.format.batch import encode_batch
from roquet.model import sys_flag as flags
from roquet.model.topic_config import TopicConfig
from roquet.remoting.codes import ResponseCode
from tests.table_changes import put_topics
from tests.unit.broker.processor.send_kit import (
    HALF,
    ILLEGAL,
    KEY,
    SCHEDULE,
    SendBroker,
    broker,
    fields_of,
    refused,
)


@pytest.mark.parametrize(
    ("text", "queue_id", "is_kept"),
    [
        ("_SYS_MSG_PRIORITY_\x010\x02", 0, True),
        ("_SYS_MSG_PRIORITY_\x012\x02", 2, True),
        ("_SYS_MSG_PRIORITY_\x019\x02", 3, True),
        ("_SYS_MSG_PRIORITY_\x01-2\x02", 1, True),
        ("_SYS_MSG_PRIORITY_\x01high\x02", 1, True),
        ("_SYS_MSG_PRIORITY_\x012\x02__SHARDINGKEY\x01k\x02", 1, False),
    ],
)
def test_a_priority_is_a_queue(text: str, queue_id: int, *, is_kept: bool, tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        made.send()
        answer = made.send(text + KEY, queue_id=1)
        assert (answer.ext_fields or {})["queueId"] == str(queue_id)
        record = made.stored(queue_id=queue_id, queue_offset=1 if queue_id == 0 else 0)
        assert ("_SYS_MSG_PRIORITY_" in record.properties) == is_kept


@pytest.mark.parametrize("more", ["DELAY\x011\x02", "TRAN_MSG\x01true\x02"])
def test_other_kinds_of_messages_have_no_priority(more: str, tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        made.send(f"_SYS_MSG_PRIORITY_\x012\x02{more}{KEY}", queue_id=1)
        record = made.stored(HALF if "TRAN" in more else SCHEDULE)
    assert record.properties["REAL_QID"] == "1"
    assert "_SYS_MSG_PRIORITY_" not in record.properties


def test_a_priority_is_a_queue_that_is_written(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        put_topics(made.topics, TopicConfig(topic_name="R", read_queue_nums=8, write_queue_nums=2))
        answer = made.send(f"_SYS_MSG_PRIORITY_\x015\x02{KEY}", topic="R")
    assert (answer.ext_fields or {})["queueId"] == "1"


def test_compaction_needs_a_key(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        put_topics(
            made.topics, TopicConfig(topic_name="C", attributes={"+cleanup.policy": "COMPACTION"})
        )
        for text in (KEY, f"KEYS\x01 \x02{KEY}"):
            assert refused(made, text, topic="C") == (
                ResponseCode.MESSAGE_ILLEGAL,
                "Required message key is missing",
            )
        assert made.send(f"KEYS\x01k\x02{KEY}", topic="C").code == 0


def test_inner_batches_do_not_pass_for_messages(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        made.send()
        assert refused(made, f"INNER_NUM\x012\x02{KEY}") == (13, ILLEGAL)
        assert refused(made, sys_flag=0x80) == (13, ILLEGAL)
        assert refused(made, f"INNER_NUM\x012\x02{KEY}", sys_flag=0x80) == (13, ILLEGAL)


@pytest.fixture
def batches(tmp_path: Path) -> Iterator[SendBroker]:
    """A broker with a topic B that has batch consume queues."""
    with broker(tmp_path) as made:
        made.store.queues.is_batch_topic = made.topics.has_batch_queues
        put_topics(made.topics, TopicConfig(topic_name="B", attributes={"+queue.type": "BatchCQ"}))
        yield made


BATCH_OF_TWO = encode_batch([(0, b"one", b""), (0, b"two", b"")])


def test_a_batch_becomes_one_message_in_a_queue_of_batches(batches: SendBroker) -> None:
    answers = [batches.send(KEY, topic="B", batch=True, body=BATCH_OF_TWO) for _ in range(2)]
    assert [fields_of(answer)["queueOffset"] for answer in answers] == ["0", "2"]
    assert fields_of(answers[0])["batchUniqId"] == fields_of(answers[0])["transactionId"]
    stored = batches.store.look_message(0)
    assert stored is not None
    assert stored.sys_flag == flags.INNER_BATCH | flags.NEED_UNWRAP
    assert stored.body == BATCH_OF_TWO
    assert (stored.properties["INNER_NUM"], stored.properties["INNER_BASE"]) == ("2", "0")


def test_a_batch_without_an_id_stays_many_messages(batches: SendBroker) -> None:
    answer = batches.send("", topic="B", batch=True, body=BATCH_OF_TWO)
    assert "batchUniqId" not in fields_of(answer)
    assert len(fields_of(answer)["msgId"].split(",")) == 2
    assert batches.store.max_offset_in_queue("B", 0) == 2


@pytest.mark.parametrize(
    ("properties", "body", "sys_flag"),
    [
        (KEY, BATCH_OF_TWO[:-1], 0),
        (f"DELAY\x011\x02{KEY}", BATCH_OF_TWO, 0),
        (KEY, BATCH_OF_TWO, flags.TRANSACTION_PREPARED),
        (KEY, encode_batch([(0, b"", b"")]) * 32_768, 0),
    ],
    ids=["cut short", "delayed", "prepared", "too many"],
)
def test_a_refused_inner_batch_is_named(
    batches: SendBroker, properties: str, body: bytes, sys_flag: int
) -> None:
    answer = batches.send(properties, topic="B", batch=True, body=body, sys_flag=sys_flag)
    assert (answer.code, answer.remark) == (13, ILLEGAL)
    assert list(fields_of(answer)) == ["batchUniqId", "TRACE_ON", "MSG_REGION"]
    assert batches.store.max_physical_offset == 0
