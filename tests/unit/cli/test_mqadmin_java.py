"""How Java formats values; the orders were observed in Apache RocketMQ's tool."""

from __future__ import annotations

import pytest

from roquet.cli.mqadmin import java
from roquet.cli.mqadmin.failures import JavaFailure, client_failure, refusal_of
from roquet.cli.mqadmin.texts import attributes_wire, parse_attributes, topic_text
from roquet.model.message_queue import MessageQueue
from roquet.model.topic_config import TopicConfig
from roquet.remoting.codes import RequestCode


def test_order_of_a_hash_set() -> None:
    seen = [
        *("Orders", "RMQ_SYS_TRANS_HALF_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT"),
        *("TBW102", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "rmq_sys_REVIVE_LOG_DefaultCluster"),
        *("SELF_TEST_TOPIC", "DefaultCluster", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC"),
        *("DefaultCluster_REPLY_TOPIC", "ListedB", "ListedA"),
        *("rmq_sys_SYNC_BROKER_MEMBER_broker-a", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
        *("RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", "broker-a"),
    ]
    assert java.hash_order(sorted(seen)) == seen


def test_order_of_queues() -> None:
    queues = [MessageQueue("SCHEDULE_TOPIC_XXXX", "broker-a", each) for each in range(18)]
    found = [each.queue_id for each in java.queue_order(queues)]
    assert found == [16, 15, 14, 13, 17, 8, 7, 6, 5, 12, 11, 10, 9, 0, 4, 3, 2, 1]


def test_order_of_a_table_that_was_copied() -> None:
    topics = ["Ordered", "Attributed", "Orders", "ListedA", "ListedB", "Fresh"]
    others = [f"topic-{number}" for number in range(22)]
    found = [each for each in java.copied_order([*topics, *others]) if each in topics]
    assert found == ["Fresh", "Ordered", "ListedB", "ListedA", "Attributed", "Orders"]


def test_properties_of_a_message() -> None:
    names = "colour WAIT TAGS KEYS UNIQ_KEY CLUSTER MSG_REGION TRACE_ON MIN_OFFSET MAX_OFFSET"
    text = java.map_text(dict.fromkeys(names.split(), "1"), size=java.PROPERTIES_TABLE_SIZE)
    assert text == (
        "{MSG_REGION=1, UNIQ_KEY=1, CLUSTER=1, MIN_OFFSET=1, TAGS=1, KEYS=1, WAIT=1, TRACE_ON=1, "
        "colour=1, MAX_OFFSET=1}"
    )


def test_times() -> None:
    moment_ms = java.parse_moment_ms("2026-01-31#12:00:05:250")
    assert java.day_and_time(moment_ms) == "2026-01-31 12:00:05"
    assert java.millis_time(moment_ms) == "2026-01-31 12:00:05,250"
    assert java.packed_time(moment_ms) == "20260131120005250"
    assert java.parse_moment_ms("-1") == -1
    with pytest.raises(java.BadNumber, match='For input string: "soon"'):
        java.parse_moment_ms("soon")


@pytest.mark.parametrize("text", ["", "1_000", "٣", "1.5", " 1"])
def test_malformed_numbers(text: str) -> None:
    with pytest.raises(java.BadNumber):
        java.parse_number(text)


def test_failures() -> None:
    route = refusal_of(RequestCode.GET_ROUTEINFO_BY_TOPIC, 17, "gone\nSee there.", "h:1")
    assert str(route) == (
        "org.apache.rocketmq.client.exception.MQClientException: CODE: 17  DESC: gone\nSee there."
    )
    config = refusal_of(RequestCode.UPDATE_BROKER_CONFIG, 16, None, "h:1")
    assert str(config).splitlines()[0] == (
        "org.apache.rocketmq.client.exception.MQBrokerException: CODE: 16  DESC: null BROKER: h:1"
    )
    epoch = refusal_of(RequestCode.GET_BROKER_EPOCH_CACHE, 1, "no", "h:1")
    assert str(epoch).splitlines()[0].endswith("MQBrokerException: CODE: 1  DESC: no")
    outer = JavaFailure("a.B", "broken", cause=client_failure("why"))
    assert str(outer).splitlines()[:2] == [
        "a.B: broken",
        "Caused by: org.apache.rocketmq.client.exception.MQClientException: why",
    ]


def test_attributes() -> None:
    assert attributes_wire(parse_attributes("+a=b,-c")) == "+a=b,-c"
    for text, words in (("a=b", "add/alter"), ("c", "delete"), ("+a=b,+a=c", "key duplication")):
        with pytest.raises(JavaFailure, match=words):
            parse_attributes(text)


def test_topic_text() -> None:
    assert "perm=R-X," in topic_text(TopicConfig(topic_name="T", perm=5))
