"""How a broker changes a message before it is stored: properties, delays, halves, retries."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.broker.processor import inner_message as inner
from roquet.errors import ProtocolError
from roquet.model.message_id import UniqueId
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SubscriptionGroupConfig
from roquet.model.topic_config import TopicConfig
from roquet.remoting.codes import ResponseCode
from roquet.store.running_flags import RunningFlag
from tests.table_changes import put_groups, put_topics
from tests.unit.broker.processor.send_kit import (
    HALF,
    ILLEGAL,
    KEY,
    PLAIN,
    SCHEDULE,
    SUFFIX,
    UNIQUE_KEY,
    SendBroker,
    broker,
    refused,
)

TIMER_OFF = "accurate timer message is not enabled, timerWheelEnable is false"


# ----------------------------------------------------------------------------------- properties


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("A\x011\x02", "A\x011\x02"),
        ("A\x011", "A\x011\x02"),
        ("A\x011\x02A\x012\x02", "A\x012\x02"),
        ("A\x011\x02\x02=\x02\x01v\x02n\x01\x02B\x012\x02", "A\x011\x02B\x012\x02"),
        ("A\x01x\x01y\x02", "A\x01x\x01y\x02"),
        ("A\x011\x02POP_CK\x01x\x02B\x012\x02", "A\x011\x02B\x012\x02"),
        ("POP_CKS\x011\x02", "POP_CKS\x011\x02"),
        ("CLUSTER\x01other\x02MSG_REGION\x01x\x02TRACE_ON\x01false\x02A\x011\x02", "A\x011\x02"),
        ("REAL_TOPIC\x01X\x02", "REAL_TOPIC\x01X\x02"),
    ],
)
def test_properties_are_stored_as_upstream_reads_them(
    text: str, stored: str, tmp_path: Path
) -> None:
    with broker(tmp_path) as made:
        made.send()
        assert made.send(KEY + text).code == 0
        assert made.stored(queue_offset=1).properties_data == (KEY + stored + SUFFIX).encode()


def test_a_lone_surrogate_becomes_a_question_mark(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        for at, text in enumerate((f"{KEY}A\x01\ud800\x02", f"{KEY}A\x01\ud800\x02DELAY\x010\x02")):
            assert made.send(text).code == 0
            assert made.stored(queue_offset=at).properties["A"] == "?"


def test_a_message_without_a_unique_key_gets_one(tmp_path: Path) -> None:
    keys = []
    with broker(tmp_path) as made:
        for at, text in enumerate(("", "TAGS\x01A\x02", "UNIQ_KEY\x01\x02")):
            answer = made.send(text)
            assert answer.code == 0
            record = made.stored(queue_offset=at)
            key = record.properties["UNIQ_KEY"]
            assert (answer.ext_fields or {})["transactionId"] == key
            tags = "TAGS\x01A\x02" if at == 1 else ""
            assert record.properties_data.decode() == f"{tags}UNIQ_KEY\x01{key}\x02{SUFFIX}"
            keys.append(UniqueId.parse(key))
    assert [key.ip for key in keys] == [b"\x7f\0\0\1"] * 3
    assert len({key.counter for key in keys}) == 3
    day_ms = 24 * 3600 * 1000
    assert 13 * day_ms <= keys[0].millis_of_month <= 15 * day_ms


def test_the_random_source_makes_the_keys_of_brokers_differ(tmp_path: Path) -> None:
    keys: list[UniqueId] = []
    for seed in (1, 1, 2):
        with broker(tmp_path / str(len(keys)), seed=seed) as made:
            keys.append(UniqueId.parse((made.send("").ext_fields or {})["transactionId"]))
    assert keys[0] == keys[1]
    assert keys[0].loader_hash != keys[2].loader_hash
    assert keys[0].process_id != keys[2].process_id


@pytest.mark.parametrize("length", [32767 - len(KEY + "k\x01\x02" + SUFFIX), 40_000])
def test_properties_have_a_limit(length: int, tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        made.send()
        if length < 32767:
            assert made.send(f"{KEY}k\x01{'v' * length}\x02").code == 0
            length += 1
        text = f"{KEY}k\x01{'v' * length}\x02"
        assert refused(made, text) == (ResponseCode.MESSAGE_ILLEGAL, ILLEGAL)


def test_a_body_has_a_limit(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        made.send()
        assert refused(made, body=bytes((4 << 20) + 1)) == (ResponseCode.MESSAGE_ILLEGAL, ILLEGAL)


# ------------------------------------------------------------------------------- delays, timers


@pytest.mark.parametrize(
    ("level", "queue_id", "stored_level"), [("1", 0, "1"), ("18", 17, "18"), ("99", 17, "18")]
)
def test_a_delayed_message_waits_in_the_queue_of_its_level(
    level: str, queue_id: int, stored_level: str, tmp_path: Path
) -> None:
    with broker(tmp_path) as made:
        made.send()
        answer = made.send(f"DELAY\x01{level}\x02TIMER_DELAY_MS\x015\x02{KEY}", queue_id=3)
        record = made.stored(SCHEDULE, queue_id)
        assert made.count(queue_id=3) == 0
    assert answer.code == 0
    assert (answer.ext_fields or {})["queueId"] == "3"
    assert (answer.ext_fields or {})["queueOffset"] == "0"
    assert record.properties_data.decode() == (
        f"DELAY\x01{stored_level}\x02{KEY}{SUFFIX}REAL_TOPIC\x01T\x02REAL_QID\x013\x02"
    )


def test_a_delayed_message_cannot_choose_its_queue(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        made.send(f"REAL_TOPIC\x01X\x02REAL_QID\x0199\x02DELAY\x011\x02{KEY}")
        properties = made.stored(SCHEDULE).properties
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "0")


@pytest.mark.parametrize("level", ["0", "-1"])
def test_an_invalid_level_does_not_delay(level: str, tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        assert made.send(f"DELAY\x01{level}\x02{KEY}").code == 0
        assert made.stored().properties["DELAY"] == level


@pytest.mark.parametrize("level", ["soon", "1.5", "99999999999", " 1", "1_0", "+"])
def test_a_level_that_is_not_a_number_is_refused(level: str, tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        answer = made.send(f"DELAY\x01{level}\x02{KEY}")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == (f'the property <DELAY> is no number. For input string: "{level}"')
        assert made.store.max_physical_offset == 0


@pytest.mark.parametrize("name", ["TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"])
@pytest.mark.parametrize("more", ["", "TRAN_MSG\x01true\x02", "DELAY\x010\x02"])
def test_timer_messages_are_refused(name: str, more: str, tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        text = f"{name}\x012500\x02{more}{KEY}"
        assert refused(made, text) == (ResponseCode.SYSTEM_ERROR, TIMER_OFF)


def test_the_log_reports_that_timed_messages_are_unsupported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with broker(tmp_path) as made:
        for _ in range(5):
            refused(made, f"TIMER_DELAY_MS\x012500\x02{KEY}")
    told = [each.getMessage() for each in caplog.records if "timed" in each.getMessage()]
    assert told == ["Refused a message for T: there are no timed messages"]


@pytest.mark.parametrize(
    ("more", "fields"),
    [
        ("TIMER_OUT_MS\x011\x02", {}),
        ("", {"sys_flag": 4}),
        ("", {"sys_flag": 12}),
        ("", {"topic": "rmq_sys_wheel_timer"}),
    ],
)
def test_what_only_looks_like_a_timer_message(
    more: str, fields: dict[str, object], tmp_path: Path
) -> None:
    with broker(tmp_path) as made:
        answer = made.send(f"TIMER_DELAY_MS\x015\x02{more}{KEY}", **fields)  # type: ignore[arg-type]
        assert answer.code == 0


# --------------------------------------------------------------------------------- transactions


def test_a_half_message_waits_in_the_half_topic(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        made.send()
        answer = made.send(f"TRAN_MSG\x01true\x02PGROUP\x01P\x02{KEY}", queue_id=2, sys_flag=0x5)
        record = made.stored(HALF)
        assert made.count(queue_id=2) == 0
    assert answer.code == 0
    assert (answer.ext_fields or {})["queueId"] == "2"
    assert (answer.ext_fields or {})["transactionId"] == UNIQUE_KEY
    assert record.sys_flag == 0x1
    assert record.properties_data.decode() == (
        f"TRAN_MSG\x01true\x02PGROUP\x01P\x02{KEY}{SUFFIX}"
        f"__transactionId__\x01{UNIQUE_KEY}\x02REAL_TOPIC\x01T\x02REAL_QID\x012\x02"
    )


def test_transactions_can_be_forbidden(tmp_path: Path) -> None:
    with broker(tmp_path, reject_transaction_message=True, broker_ip1="10.9.9.9") as made:
        assert refused(made, f"TRAN_MSG\x01TRUE\x02{KEY}", sys_flag=4) == (
            ResponseCode.NO_PERMISSION,
            "the broker[10.9.9.9] sending transaction message is forbidden",
        )
        assert made.send(f"TRAN_MSG\x01false\x02{KEY}").code == 0


def test_a_retried_transaction_message_is_an_ordinary_one(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        made.send(f"TRAN_MSG\x01true\x02DELAY\x012\x02{KEY}", reconsume_times=1)
        assert made.count(HALF) == 0
        assert made.stored(SCHEDULE, 1).properties["REAL_TOPIC"] == "T"


def test_a_retried_transaction_message_without_a_delay_is_half(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        made.send(f"TRAN_MSG\x01true\x02{KEY}", reconsume_times=1)
        assert made.stored(HALF).reconsume_times == 1


def test_a_half_message_keeps_its_delay_and_its_topic(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        made.send(f"TRAN_MSG\x01true\x02DELAY\x012\x02TIMER_DELAY_MS\x011\x02{KEY}", sys_flag=4)
        properties = made.stored(HALF).properties
        assert made.count(SCHEDULE, 1) == 0
    assert (properties["REAL_TOPIC"], properties["DELAY"]) == ("T", "2")
    assert "TIMER_DELAY_MS" not in properties


def test_a_prepared_flag_alone_leaves_a_message_without_a_queue_offset(tmp_path: Path) -> None:
    """The old scheme, which upstream still accepts: in the log, not in the queue."""
    with broker(tmp_path) as made:
        made.send()
        assert made.send(sys_flag=4).code == 0
        assert made.send(f"DELAY\x011\x02{KEY}", sys_flag=4).code == 0
        assert (made.count(), made.count(SCHEDULE)) == (1, 0)
        first = made.stored()
        second = made.store.look_message(first.store_size)
        assert second is not None
        assert (second.topic, second.sys_flag, second.queue_offset) == ("T", 4, 0)
        third = made.store.look_message(first.store_size + second.store_size)
        assert third is not None
        assert third.topic == "T"


# -------------------------------------------------------------------------- retries, dead letters


def test_a_retry_is_an_ordinary_message_of_its_topic(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        answer = made.send(f"DELAY\x011\x02{KEY}", topic="%RETRY%g", reconsume_times=16)
        assert answer.code == 0
        assert made.stored(SCHEDULE).properties["REAL_TOPIC"] == "%RETRY%g"
        assert made.stored(SCHEDULE).reconsume_times == 16


def dead_letter(made: SendBroker, text: str = f"DELAY\x013\x02{KEY}", **fields: object) -> bool:
    before = made.count("%DLQ%g")
    answer = made.send(text, topic="%RETRY%g", **fields)  # type: ignore[arg-type]
    assert answer.code == 0
    if made.count("%DLQ%g") == before:
        return False
    record = made.stored("%DLQ%g", 0, before)
    assert record.properties["DELAY"] == "-1"
    assert record.topic == "%DLQ%g"
    return True


def test_a_retry_repeated_too_often_becomes_a_dead_letter(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        assert not dead_letter(made, reconsume_times=16)
        assert dead_letter(made, reconsume_times=17)
        assert dead_letter(made, KEY, reconsume_times=17)
        assert dead_letter(made, reconsume_times=3, max_reconsume_times=2)
        assert not dead_letter(made, reconsume_times=2, max_reconsume_times=2)
        assert not dead_letter(made, reconsume_times=3, max_reconsume_times=2, version=100)
        new = made.topics.select("%DLQ%g")
        assert new is not None
        assert (new.write_queue_nums, new.perm) == (1, 6)


def test_a_group_sets_its_number_of_retries(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        put_groups(made.groups, SubscriptionGroupConfig(group_name="g", retry_max_times=1))
        assert not dead_letter(made, reconsume_times=1)
        assert dead_letter(made, reconsume_times=2)


def test_a_retry_of_a_group_that_consumes_in_order_is_a_dead_letter(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        queue = MessageQueue(topic="T", broker_name="b", queue_id=0)
        made.locks.try_lock_batch("g", [queue], "client")
        assert dead_letter(made)
        made.clock.advance(60_001)
        assert not dead_letter(made)


def test_a_retry_of_an_unknown_group_is_refused(tmp_path: Path) -> None:
    with broker(tmp_path, auto_create_subscription_group=False) as made:
        assert refused(made, topic="%RETRY%g") == (
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            "subscription group not exist, g \nSee "
            "https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
        )


def test_a_dead_letter_topic_that_cannot_be_created(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        assert made.send(topic="%RETRY%g").code == 0
        made.topics.create_in_send_back = lambda *_, **__: None  # type: ignore[method-assign]
        assert refused(made, topic="%RETRY%g", reconsume_times=99) == (
            ResponseCode.SYSTEM_ERROR,
            "topic[%DLQ%g] not exist",
        )


@pytest.mark.parametrize(("length", "code"), [(120, 0), (123, 13)])
def test_dead_letter_topics_may_not_be_longer_than_others(
    length: int, code: int, tmp_path: Path
) -> None:
    with broker(tmp_path) as made:
        topic = "%DLQ%" + "g" * length
        assert made.send(topic=topic).code == code
        assert made.send(topic=topic).code == code


def test_retry_topics_may_be_longer(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        topic = "%RETRY%" + "g" * 120
        put_groups(made.groups, SubscriptionGroupConfig(group_name="g" * 120))
        made.topics.create_in_send_back(topic, queue_nums=1, perm=6, sys_flag=0)
        assert made.send(topic=topic).code == 0
        assert made.stored(topic).topic == topic


def test_a_dead_letter_goes_where_dead_letters_are_read(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        text = f"_SYS_MSG_PRIORITY_\x012\x02{KEY}"
        assert dead_letter(made, text, reconsume_times=17, queue_id=3)
        assert "_SYS_MSG_PRIORITY_" not in made.stored("%DLQ%g").properties


def test_a_dead_letter_has_the_flags_of_its_topic(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        put_topics(made.topics, TopicConfig(topic_name="%RETRY%g", topic_filter_type="MULTI_TAG"))
        assert dead_letter(made, KEY, reconsume_times=17, sys_flag=1)
        assert made.stored("%DLQ%g").sys_flag == 1
        assert not dead_letter(made, KEY, sys_flag=1)
        assert made.stored("%RETRY%g").sys_flag == 3


def test_a_store_that_refuses_writes_is_reported_first(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        made.send()
        made.store.flags.set(RunningFlag.NOT_WRITEABLE)
        for text in (PLAIN, f"TIMER_DELAY_MS\x011\x02{KEY}", f"INNER_NUM\x012\x02{KEY}"):
            code, remark = refused(made, text)
            assert code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert (remark or "").startswith("service not available now. It may be caused by one")


# -------------------------------------------------------------------------------- single functions


def test_numbers_are_read_as_java_reads_them() -> None:
    assert inner.delay_level({"DELAY": "+3"}) == 3
    assert inner.delay_level({"DELAY": "-2147483648"}) == -(2**31)
    with pytest.raises(ProtocolError):
        inner.delay_level({"DELAY": "2147483648"})
    assert inner.priority({}) == -1
    assert inner.priority({"_SYS_MSG_PRIORITY_": "4294967296"}) == -1
