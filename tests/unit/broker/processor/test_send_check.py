from __future__ import annotations

from pathlib import Path

import pytest

from roquet.broker.processor.send_check import describe_topic
from roquet.model.topic_config import TopicConfig
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from tests.table_changes import commit, put_topics
from tests.unit.broker.processor.send_kit import broker

SEE = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
FIELDS = {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": " "}, 29, "The specified topic is blank."),
        (
            {"topic": "../../etc"},
            29,
            "The specified topic: ../../etc, contains illegal characters, "
            "allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        (
            {"topic": "t" * 128},
            29,
            f"The specified topic: {'t' * 128}, is longer than topic max length: 127",
        ),
        (
            {"topic": "%RETRY%" + "t" * 249},
            29,
            f"The specified topic is DLQ or Retry topic: %RETRY%{'t' * 249}, "
            "and it's longer than topic max length: 255",
        ),
        *(
            ({"topic": topic}, 16, f"Sending message to topic[{topic}] is forbidden.")
            for topic in (
                "SCHEDULE_TOPIC_XXXX",
                "RMQ_SYS_TRANS_HALF_TOPIC",
                "RMQ_SYS_TRANS_OP_HALF_TOPIC",
                "TRANS_CHECK_MAX_TIME_TOPIC",
                "SELF_TEST_TOPIC",
                "OFFSET_MOVED_EVENT",
            )
        ),
        (
            {"topic": "New", "default_topic": "nobody"},
            17,
            f"topic[New] not exist, apply first please!{SEE}",
        ),
        (
            {"queue_id": 4},
            29,
            "request queueId[4] is illegal, TopicConfig [topicName=T, readQueueNums=4, "
            "writeQueueNums=4, perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false, "
            "attributes={}] Producer: 10.1.2.3:4567",
        ),
    ],
)
@pytest.mark.parametrize("batch", [False, True])
def test_what_a_topic_refuses(
    fields: dict[str, object], code: int, remark: str, *, batch: bool, tmp_path: Path
) -> None:
    with broker(tmp_path) as made:
        for _ in range(2):
            answer = made.send(batch=batch, **fields)  # type: ignore[arg-type]
            assert (answer.code, answer.remark, answer.ext_fields) == (code, remark, FIELDS)
        assert made.store.max_physical_offset == 0


def test_a_topic_is_created_by_the_first_send_to_it(tmp_path: Path) -> None:
    with broker(tmp_path, with_topic=False) as made:
        answer = made.send(topic="New", default_topic_queue_nums=2, queue_id=1)
        assert answer.code == ResponseCode.SUCCESS
        new = made.topics.select("New")
        assert new is not None
        assert (new.write_queue_nums, new.perm, new.topic_sys_flag) == (2, 6, 0)
        assert made.send(topic="New", queue_id=2).code == ResponseCode.INVALID_PARAMETER


def test_no_topic_is_created_where_that_is_forbidden(tmp_path: Path) -> None:
    with broker(tmp_path, auto_create_topic=False) as made:
        assert made.send(topic="New").code == ResponseCode.TOPIC_NOT_EXIST
        assert made.topics.select("New") is None


@pytest.mark.parametrize(("topic", "sys_flag"), [("New", 1), ("%RETRY%g", 2)])
def test_units_mark_their_topics(topic: str, sys_flag: int, tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        assert made.send(topic=topic, unit_mode=True).code == 0
        new = made.topics.select(topic)
        assert new is not None
        assert new.topic_sys_flag == sys_flag


def test_a_retry_topic_is_created_even_so(tmp_path: Path) -> None:
    with broker(tmp_path, auto_create_topic=False) as made:
        assert made.send(topic="%RETRY%g").code == 0
        new = made.topics.select("%RETRY%g")
        assert new is not None
        assert (new.write_queue_nums, new.perm) == (1, 6)


def test_a_broker_without_write_permission_refuses_ordered_topics_only(tmp_path: Path) -> None:
    with broker(tmp_path, broker_permission=4, broker_ip1="10.9.9.9") as made:
        put_topics(made.topics, TopicConfig(topic_name="O", order=True))
        approved: list[str] = []
        made.processor.plain_topics.append(lambda topic, _: approved.append(topic))
        for _ in range(2):
            answer = made.send(topic="O")
            assert (answer.code, answer.remark, answer.ext_fields) == (
                ResponseCode.NO_PERMISSION,
                "the broker[10.9.9.9] sending message is forbidden",
                FIELDS,
            )
            assert made.send().code == 0
        made.topics.stage_order_config({"T": "broker-a:4"})
        commit(made.topics)
        assert made.send().code == ResponseCode.NO_PERMISSION
        assert approved == []


def test_a_broker_without_a_public_address_names_the_one_it_has(tmp_path: Path) -> None:
    with broker(tmp_path, broker_permission=0) as made:
        put_topics(made.topics, TopicConfig(topic_name="O", order=True))
        remark = made.send(topic="O").remark
    assert remark == "the broker[127.0.0.1] sending message is forbidden"


def test_a_topic_is_described_as_java_does() -> None:
    config = TopicConfig(
        topic_name="T",
        perm=9,
        order=True,
        topic_sys_flag=3,
        topic_filter_type="MULTI_TAG",
        attributes={"a": "1", "b": "2"},
    )
    assert describe_topic(config) == (
        "TopicConfig [topicName=T, readQueueNums=16, writeQueueNums=16, perm=--X, "
        "topicFilterType=MULTI_TAG, topicSysFlag=3, order=true, attributes={a=1, b=2}]"
    )


@pytest.mark.parametrize(
    ("missing", "remark"),
    [("b", "the custom field <b> is null"), ("g", "the custom field <g> is null")],
)
def test_a_header_without_a_field_is_refused(missing: str, remark: str, tmp_path: Path) -> None:
    fields = dict.fromkeys("abcdefgh", "1")
    del fields[missing]
    request = RemotingCommand(code=RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=b"x")
    with broker(tmp_path) as made:
        answer = made.handle(request)
    assert answer is not None
    assert (answer.code, answer.remark, answer.ext_fields) == (1, remark, None)


def test_a_message_without_a_body_is_refused_before_its_topic_is_checked(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        made.send()
        for topic in ("T", "bad topic!"):
            answer = made.send(topic=topic, body=b"")
            assert (answer.code, answer.remark, answer.ext_fields) == (
                ResponseCode.SYSTEM_ERROR,
                "the message body is null",
                None,
            )
        assert made.count() == 1
