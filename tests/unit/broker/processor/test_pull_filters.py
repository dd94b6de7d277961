"""Pulls by SQL92: what they get, how they wait, and what bit maps save them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from roquet.broker import expression_filter as subject
from roquet.broker.config import BrokerConfig, replace
from roquet.filter.bloom import BitsArray
from roquet.format.commit_log import record_properties
from roquet.format.consume_queue_ext import CqExtUnit
from roquet.model.message import BrokerMessage
from roquet.model.subscription import SubscriptionData
from roquet.model.topic_config import TopicConfig
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.store.config import MessageStoreConfig
from roquet.store.consume_queue_ext import ConsumeQueueExt
from tests.table_changes import put_topics
from tests.unit.broker.processor.pull_kit import (
    GROUP,
    OWN,
    TOPIC,
    WAIT,
    PullBroker,
    bodies,
    pull,
    pull_broker,
)
from tests.unit.store import kit
from tests.unit.store.kit import NOW_MS, message

ON = BrokerConfig(property_filter=True)
MATCHED = BrokerConfig(property_filter=True, calculate_filter_bitmap=True)
WITH_EXT = kit.config(consume_queue_ext=True)
LONG_QUEUES = kit.config(consume_queue_file_bytes=20 * 1_000)
RETRY = f"%RETRY%{GROUP}"


def by_sql(
    broker: PullBroker, expression: str = "a > 5", *, topic: str = TOPIC, version: int = 1
) -> None:
    """Let the group send a heartbeat."""
    subscription = SubscriptionData(topic=topic, sub_string=expression, expression_type="SQL92")
    broker.subscribe(subscription=subscription, version=version)


def with_a(*values: object, topic: str = TOPIC) -> list[BrokerMessage]:
    return [message(str(value).encode(), topic=topic, a=str(value)) for value in values]


def answered(answer: RemotingCommand | None) -> tuple[int, list[bytes], str]:
    """Code, bodies, and the next offset."""
    assert answer is not None
    return answer.code, bodies(answer), (answer.ext_fields or {})["nextBeginOffset"]


# -- filters ------------------------------------------------------------------------------------


def test_messages_are_filtered_by_their_properties(tmp_path: Path) -> None:
    with pull_broker(tmp_path, ON) as broker:
        by_sql(broker, "a > 5 AND region IS NOT NULL")
        broker.put(
            *with_a(9),
            message(b"x", topic=TOPIC, a="6", region="hz"),
            message(b"y", topic=TOPIC, a="5", region="hz"),
            message(b"z", topic=TOPIC, a="7", region="sh", TAGS="t"),
            message(b"none", topic=TOPIC),
        )
        assert answered(broker.ask(pull())) == (ResponseCode.SUCCESS, [b"x", b"z"], "5")


def test_no_matching_message(tmp_path: Path) -> None:
    with pull_broker(tmp_path, ON) as broker:
        by_sql(broker)
        broker.put(*with_a(1, 2, 3))
        answer = broker.ask(pull())
        assert answered(answer) == (ResponseCode.PULL_RETRY_IMMEDIATELY, [], "3")
        assert answer is not None
        assert answer.remark == "NO_MATCHED_MESSAGE"


def test_a_value_that_cannot_be_compared_does_not_match(tmp_path: Path) -> None:
    with pull_broker(tmp_path, ON) as broker:
        by_sql(broker)
        broker.put(*with_a("x", 6))
        assert answered(broker.ask(pull())) == (ResponseCode.SUCCESS, [b"6"], "2")


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
def test_a_pull_may_carry_its_expression(tmp_path: Path, code: int) -> None:
    with pull_broker(tmp_path, ON) as broker:
        broker.put(*with_a(1, 6, 7))
        header = pull(flags=OWN, subscription="a = 7", expression_type="SQL92", sub_version=99)
        assert answered(broker.ask(header, code=code)) == (ResponseCode.SUCCESS, [b"7"], "3")
        assert broker.filters.table == {}, "only heartbeats leave a filter"


def test_filtering_may_be_switched_while_the_broker_runs(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        by_sql(broker)
        broker.put(*with_a(6))
        refused = broker.ask(pull())
        assert refused is not None
        assert refused.code == ResponseCode.SYSTEM_ERROR
        is_on = True
        structs.force_setattr(broker.config, "property_filter", is_on)
        assert answered(broker.ask(pull())) == (ResponseCode.SUCCESS, [b"6"], "1")


def test_old_class_filters_pass_everything(tmp_path: Path) -> None:
    with pull_broker(tmp_path, ON) as broker:
        broker.subscribe(
            subscription=SubscriptionData(
                topic=TOPIC, sub_string="a > 5", expression_type="SQL92", class_filter_mode=True
            )
        )
        broker.put(*with_a(1))
        assert answered(broker.ask(pull())) == (ResponseCode.SUCCESS, [b"1"], "1")


@pytest.mark.parametrize(
    ("characters", "entries"), [(5, 256), (512, 256), (1024, 128), (65_536, 2)]
)
def test_the_work_of_one_pull_is_bounded(tmp_path: Path, characters: int, entries: int) -> None:
    with pull_broker(tmp_path, ON, store_config=LONG_QUEUES) as broker:
        by_sql(broker, "a > 5".ljust(characters))
        broker.put(*with_a(*[1] * 300))
        answer = broker.ask(pull())
        assert answered(answer) == (ResponseCode.PULL_RETRY_IMMEDIATELY, [], str(entries))


def test_long_properties_count_more(tmp_path: Path) -> None:
    with pull_broker(tmp_path, ON, store_config=LONG_QUEUES) as broker:
        by_sql(broker, "a > 5".ljust(4096))
        broker.put(*(message(b"x", topic=TOPIC, a="1", b="y" * 4_000) for _ in range(40)))
        answer = broker.ask(pull())
        assert answered(answer) == (ResponseCode.PULL_RETRY_IMMEDIATELY, [], "4")


def test_the_limit_of_the_store_applies_too(tmp_path: Path) -> None:
    store_config = structs.replace(LONG_QUEUES, filter_message_bytes_max=100 * 20)
    with pull_broker(tmp_path, ON, store_config=store_config) as broker:
        by_sql(broker)
        broker.put(*with_a(*[1] * 300))
        assert answered(broker.ask(pull())) == (ResponseCode.PULL_RETRY_IMMEDIATELY, [], "100")


async def test_what_is_read_in_a_thread_is_filtered_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pull_broker(tmp_path, ON) as broker:
        by_sql(broker)
        broker.put(*with_a(1, 6))
        monkeypatch.setattr(broker.store, "get_message_in_memory", lambda *_, **__: None)
        answer = await broker.ask_in_thread(RequestCode.PULL_MESSAGE, pull())
        assert answered(answer) == (ResponseCode.SUCCESS, [b"6"], "2")


# -- waiting ------------------------------------------------------------------------------------


def test_a_pull_waits_for_a_matching_message(tmp_path: Path) -> None:
    with pull_broker(tmp_path, ON) as broker:
        by_sql(broker)
        assert broker.ask(pull(flags=WAIT)) is None
        broker.put(*with_a(1))
        assert broker.connection.answers == []
        broker.put(*with_a(2, 7, 3))
        (answer,) = broker.connection.answers
        assert answered(answer) == (ResponseCode.SUCCESS, [b"7"], "4")


def test_the_sweep_moves_it_past_messages_that_do_not_match(tmp_path: Path) -> None:
    with pull_broker(tmp_path, ON) as broker:
        by_sql(broker)
        broker.ask(pull(flags=WAIT))
        broker.put(*with_a(1, 2))
        broker.hold.check_hold_requests()
        (answer,) = broker.connection.answers
        assert answered(answer) == (ResponseCode.PULL_RETRY_IMMEDIATELY, [], "2")


def test_a_held_pull_is_refused_when_its_filter_is_gone(tmp_path: Path) -> None:
    with pull_broker(tmp_path, ON) as broker:
        by_sql(broker, version=1)
        broker.ask(pull(flags=WAIT))
        by_sql(broker, "a >", version=2)
        broker.put(*with_a(6))
        (answer,) = broker.connection.answers
        assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST


# -- messages delivered again -------------------------------------------------------------------


def retried(a: int, topic: str) -> BrokerMessage:
    return message(str(a).encode(), topic=RETRY, a=str(a), RETRY_TOPIC=topic)


def made_retry_topic(broker: PullBroker) -> None:
    put_topics(broker.topics, TopicConfig(topic_name=RETRY, read_queue_nums=1, write_queue_nums=1))
    put_topics(broker.topics, TopicConfig(topic_name="U", read_queue_nums=1, write_queue_nums=1))
    broker.subscribe(subscription=SubscriptionData(topic=RETRY, sub_string="*"))
    subscriptions = [
        SubscriptionData(topic=topic, sub_string=text, expression_type="SQL92", sub_version=1)
        for topic, text in ((TOPIC, "a > 5"), ("U", "a < 5"), (RETRY, "a = 1"))
    ]
    info = broker.consumers.table[GROUP]
    info.update_subscriptions(subscriptions)
    broker.filters.register(GROUP, subscriptions)
    broker.put(retried(1, TOPIC), retried(6, TOPIC), retried(2, "U"), retried(7, "U"))
    broker.put(retried(9, "V"), message(b"8", topic=RETRY, a="8"))


def test_retry_topics_may_be_filtered_by_the_rule_of_the_original(tmp_path: Path) -> None:
    with pull_broker(tmp_path, replace(ON, filter_support_retry=True)) as broker:
        made_retry_topic(broker)
        code, found, _ = answered(broker.ask(pull(topic=RETRY)))
        assert (code, found) == (ResponseCode.SUCCESS, [b"6", b"2", b"9", b"8"])
        assert answered(broker.ask(pull(topic=TOPIC)))[1] == []


def test_otherwise_retry_topics_use_their_own_rule(tmp_path: Path) -> None:
    with pull_broker(tmp_path, ON) as broker:
        made_retry_topic(broker)
        assert answered(broker.ask(pull(topic=RETRY)))[:2] == (ResponseCode.SUCCESS, [b"1"])


def test_a_retry_topic_by_tags_is_not_filtered(tmp_path: Path) -> None:
    """As Java's clients do: a delivered message is redelivered."""
    with pull_broker(tmp_path, replace(ON, filter_support_retry=True)) as broker:
        made_retry_topic(broker)
        broker.consumers.table[GROUP].update_subscriptions(
            [SubscriptionData(topic=RETRY, sub_string="*", sub_version=2)]
        )
        assert len(answered(broker.ask(pull(topic=RETRY)))[1]) == 6


# -- bit maps -----------------------------------------------------------------------------------


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The values of ``a`` in the records that were judged."""
    seen: list[str] = []

    def note(record: memoryview) -> dict[str, str]:
        properties = record_properties(record)
        seen.append(properties["a"])
        return properties

    monkeypatch.setattr(subject, "record_properties", note)
    return seen


def test_bit_maps_save_reading_the_message(tmp_path: Path, looked_at: list[str]) -> None:
    with pull_broker(tmp_path, MATCHED, store_config=WITH_EXT) as broker:
        by_sql(broker)
        broker.clock.advance(1)
        broker.put(*with_a(1, 6, 2, 7))
        assert answered(broker.ask(pull())) == (ResponseCode.SUCCESS, [b"6", b"7"], "4")
        assert looked_at == ["6", "7"]


def test_messages_older_than_the_filter_are_read(tmp_path: Path, looked_at: list[str]) -> None:
    with pull_broker(tmp_path, MATCHED, store_config=WITH_EXT) as broker:
        broker.put(*with_a(6, 1))
        by_sql(broker)
        broker.put(*with_a(7, 2))
        assert answered(broker.ask(pull())) == (ResponseCode.SUCCESS, [b"6", b"7"], "4")
        assert looked_at == ["6", "1", "7", "2"], "all in one millisecond"


def test_bit_maps_of_an_older_expression_are_ignored(tmp_path: Path, looked_at: list[str]) -> None:
    with pull_broker(tmp_path, MATCHED, store_config=WITH_EXT) as broker:
        by_sql(broker, "a > 5", version=1)
        broker.clock.advance(1)
        broker.put(*with_a(1, 6))
        broker.clock.advance(1)
        by_sql(broker, "a < 5", version=2)
        broker.clock.advance(1)
        broker.put(*with_a(2, 7))
        assert answered(broker.ask(pull())) == (ResponseCode.SUCCESS, [b"1", b"2"], "4")
        assert looked_at == ["1", "6", "2"]


def test_messages_that_arrive_while_the_group_is_offline_are_judged(
    tmp_path: Path, looked_at: list[str]
) -> None:
    with pull_broker(tmp_path, MATCHED, store_config=WITH_EXT) as broker:
        by_sql(broker)
        broker.clock.advance(1)
        broker.connection.close()
        broker.consumers.connection_closed(broker.connection)  # type: ignore[arg-type]
        broker.put(*with_a(1, 6))
        by_sql(broker)
        assert answered(broker.ask(pull())) == (ResponseCode.SUCCESS, [b"6"], "2")
        assert looked_at == ["6"]


def test_held_pulls_use_bit_maps_too(tmp_path: Path, looked_at: list[str]) -> None:
    with pull_broker(tmp_path, MATCHED, store_config=WITH_EXT) as broker:
        by_sql(broker)
        broker.clock.advance(1)
        broker.ask(pull(flags=WAIT))
        broker.put(*with_a(1, 2))
        assert (broker.connection.answers, looked_at) == ([], [])
        broker.put(*with_a(3, 6))
        assert answered(broker.connection.answers[0]) == (ResponseCode.SUCCESS, [b"6"], "4")


def test_a_pull_with_its_own_expression_reads_the_messages(
    tmp_path: Path, looked_at: list[str]
) -> None:
    with pull_broker(tmp_path, MATCHED, store_config=WITH_EXT) as broker:
        by_sql(broker, "a > 5")
        broker.clock.advance(1)
        broker.put(*with_a(1, 6))
        header = pull(flags=OWN, subscription="a < 5", expression_type="SQL92")
        assert answered(broker.ask(header)) == (ResponseCode.SUCCESS, [b"1"], "2")
        assert looked_at == ["1", "6"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _unit: None,
        lambda unit: unit._replace(filter_bitmap=b""),
        lambda unit: unit._replace(filter_bitmap=bytes(13)),
        lambda unit: unit._replace(store_timestamp_ms=NOW_MS),
    ],
)
def test_an_invalid_bit_map_passes_everything(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[CqExtUnit], CqExtUnit | None],
) -> None:
    with pull_broker(tmp_path, MATCHED, store_config=WITH_EXT) as broker:
        by_sql(broker, "a > 5")
        broker.clock.advance(1)
        broker.put(*with_a(1))
        by_sql(broker, "a < 5", version=2)
        assert answered(broker.ask(pull()))[1] == [b"1"]
        get = ConsumeQueueExt.get
        found = broker.filters.table[TOPIC][GROUP]
        broker.filters.table[TOPIC][GROUP] = found._replace(judged_from_ms=NOW_MS)
        assert answered(broker.ask(pull()))[1] == []

        def spoiled(ext: ConsumeQueueExt, address: int) -> CqExtUnit | None:
            unit = get(ext, address)
            return None if unit is None else spoil(unit)

        monkeypatch.setattr(ConsumeQueueExt, "get", spoiled)
        assert answered(broker.ask(pull()))[1] == [b"1"]


def test_a_topic_without_filters_has_no_bit_maps(tmp_path: Path) -> None:
    with pull_broker(tmp_path, MATCHED, store_config=WITH_EXT) as broker:
        by_sql(broker)
        broker.put(message(topic="Other", a="6"), *with_a(6))
        for topic, size in (("Other", 20), (TOPIC, 34)):
            queue = broker.store.find_consume_queue(topic, 0)
            assert queue is not None
            assert queue.ext is not None
            unit = queue.ext.get(-(1 << 63))
            assert unit is not None
            assert unit.size_bytes == size


def test_very_long_expressions_have_no_bit_maps(tmp_path: Path, looked_at: list[str]) -> None:
    with pull_broker(tmp_path, MATCHED, store_config=WITH_EXT) as broker:
        by_sql(broker, "a > 5".ljust((16 << 10) + 1))
        broker.clock.advance(1)
        broker.put(*with_a(1, 6))
        assert answered(broker.ask(pull())) == (ResponseCode.SUCCESS, [b"6"], "2")
        assert looked_at == ["1", "6"]


def test_a_filter_that_fails_costs_the_bit_map_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> bool:
        raise ZeroDivisionError

    with pull_broker(tmp_path, MATCHED, store_config=WITH_EXT) as broker:
        by_sql(broker)
        broker.clock.advance(1)
        with monkeypatch.context() as patched:
            patched.setattr(BitsArray, "add", broken)
            broker.put(*with_a(6))
        assert "no bit map for the message at 0" in caplog.text
        assert answered(broker.ask(pull()))[1] == [b"6"]


@pytest.mark.parametrize(
    ("config", "store_config"), [(ON, WITH_EXT), (MATCHED, kit.CONFIG), (ON, kit.CONFIG)]
)
def test_nothing_is_calculated_unless_both_switches_are_on(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    config: BrokerConfig,
    store_config: MessageStoreConfig,
) -> None:
    with pull_broker(tmp_path, config, store_config=store_config) as broker:
        assert broker.store.dispatcher.bitmap is None
        assert broker.store.dispatcher.is_plain
    assert ("enableCalcFilterBitMap has no effect" in caplog.text) is (config is MATCHED)
