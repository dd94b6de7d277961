"""What is checked before a queue is read, in upstream's order and with its remarks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.broker.config import BrokerConfig
from roquet.model.subscription import SubscriptionData, SubscriptionGroupConfig
from roquet.model.topic_config import TopicConfig
from roquet.remoting.bodies.client import ConsumeType, MessageModel
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.pull import PullMessageRequestHeader
from roquet.store.config import BrokerRole
from tests.table_changes import forbid, put_groups, put_topics
from tests.unit.broker.processor.pull_kit import (
    OWN,
    TOPIC,
    FakeConnection,
    PullBroker,
    pull,
    pull_broker,
    tagged,
)
from tests.unit.store import kit
from tests.unit.store.kit import message

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


def refusal(
    broker: PullBroker,
    header: PullMessageRequestHeader,
    code: int = RequestCode.PULL_MESSAGE,
) -> tuple[int, str | None, dict[str, str] | None]:
    answer = broker.ask(header, code=code)
    assert answer is not None
    assert answer.body == b""
    return answer.code, answer.remark, answer.ext_fields


def found(answer: RemotingCommand | None) -> bool:
    return answer is not None and answer.code == ResponseCode.SUCCESS


def test_a_broker_without_read_permission(tmp_path: Path) -> None:
    with pull_broker(tmp_path, BrokerConfig(broker_permission=2, broker_ip1="10.0.0.1")) as broker:
        assert refusal(broker, pull(topic="unknown", group="a/b")) == (
            16,
            "the broker[10.0.0.1] pulling message is forbidden",
            {"forbiddenType": "1"},
        )


def test_lite_pulls_may_be_disabled(tmp_path: Path) -> None:
    config = BrokerConfig(lite_pull_message=False, broker_ip1="10.0.0.1")
    with pull_broker(tmp_path, config) as broker:
        broker.put(tagged("a"))
        assert refusal(broker, pull(flags=OWN), RequestCode.LITE_PULL_MESSAGE) == (
            16,
            "the broker[10.0.0.1] for lite pull consumer is forbidden",
            {"forbiddenType": "1"},
        )
        assert found(broker.ask(pull(flags=OWN)))


def test_a_broker_without_a_public_address_names_the_one_it_has(tmp_path: Path) -> None:
    with pull_broker(tmp_path, BrokerConfig(broker_permission=2)) as broker:
        assert refusal(broker, pull())[1] == "the broker[127.0.0.1] pulling message is forbidden"


def test_an_unknown_group(tmp_path: Path) -> None:
    with pull_broker(tmp_path, BrokerConfig(auto_create_subscription_group=False)) as broker:
        assert refusal(broker, pull(topic="unknown")) == (
            26,
            f"subscription group [G] does not exist, {FAQ}",
            None,
        )


def test_a_group_that_may_not_consume(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        put_groups(broker.groups, SubscriptionGroupConfig(group_name="G", consume_enable=False))
        assert refusal(broker, pull(topic="unknown")) == (
            16,
            "subscription group no permission, G",
            {"forbiddenType": "2"},
        )


def test_an_unknown_topic(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        assert refusal(broker, pull(topic="unknown")) == (
            17,
            f"topic[unknown] not exist, apply first please! {FAQ}",
            None,
        )


def test_a_topic_without_read_permission(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        put_topics(broker.topics, TopicConfig(topic_name=TOPIC, perm=2))
        assert refusal(broker, pull(queue_id=99)) == (
            16,
            "the topic[T] pulling message is forbidden",
            {"forbiddenType": "3"},
        )


@pytest.mark.parametrize("queue_id", [-1, 4])
def test_a_queue_that_does_not_exist(tmp_path: Path, queue_id: int) -> None:
    with pull_broker(tmp_path) as broker:
        assert refusal(broker, pull(queue_id=queue_id)) == (
            29,
            f"queueId[{queue_id}] is illegal, topic:[T] topicConfig.readQueueNums:[4] "
            "consumer:[/127.0.0.1:5000]",
            None,
        )


def test_a_group_without_heartbeats(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        assert refusal(broker, pull()) == (24, f"the consumer's group info not exist{FAQ}", None)


def test_broadcasting_may_be_disabled(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.put(tagged("a"))
        put_groups(
            broker.groups, SubscriptionGroupConfig(group_name="G", consume_broadcast_enable=False)
        )
        broker.subscribe(message_model=MessageModel.BROADCASTING)
        assert refusal(broker, pull()) == (
            16,
            "the consumer group[G] can not consume by broadcast way",
            {"forbiddenType": "4"},
        )
        broker.subscribe(message_model=MessageModel.CLUSTERING)
        assert found(broker.ask(pull()))


def test_a_topic_may_be_forbidden_for_a_group(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.put(tagged("a"))
        broker.subscribe()
        forbid(broker.groups, "G", TOPIC, 1, forbidden=True)
        assert found(broker.ask(pull())), "that is writing"
        forbid(broker.groups, "G", TOPIC, 2, forbidden=True)
        assert refusal(broker, pull()) == (
            16,
            "the consumer group[G] is forbidden for topic[T]",
            {"forbiddenType": "5"},
        )
        broker.subscribe(group="H")
        assert found(broker.ask(pull(group="H")))


def test_a_topic_that_the_group_does_not_subscribe_to(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe(topic="other")
        assert refusal(broker, pull()) == (24, f"the consumer's subscription not exist{FAQ}", None)


def test_a_subscription_that_is_not_the_latest(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.put(tagged("a"))
        broker.subscribe(version=5)
        assert refusal(broker, pull(sub_version=6)) == (
            25,
            "the consumer's subscription not latest",
            None,
        )
        assert found(broker.ask(pull(sub_version=5)))


@pytest.mark.parametrize(
    ("expression", "kind"), [("||", None), ("||", "TAG"), (None, "SQL92"), ("", "SQL92")]
)
def test_an_expression_that_cannot_be_parsed(
    tmp_path: Path, expression: str | None, kind: str | None
) -> None:
    with pull_broker(tmp_path) as broker:
        header = pull(flags=OWN, subscription=expression, expression_type=kind)
        assert refusal(broker, header) == (23, "parse the consumer's subscription failed", None)


@pytest.mark.parametrize("kind", ["SQL92", "XPATH"])
def test_missing_filters(tmp_path: Path, kind: str) -> None:
    with pull_broker(tmp_path) as broker:
        assert refusal(broker, pull(flags=OWN, subscription="a > 5", expression_type=kind)) == (
            1,
            f"The broker does not support consumer to filter message by {kind}",
            None,
        )


NO_FILTER = "The broker's consumer filter data is not exist!Your expression may be wrong!"
NOT_SUPPORTED = "The broker does not support consumer to filter message by SQL92"


def by_sql(broker: PullBroker, expression: str, *, version: int = 0, group: str = "G") -> None:
    subscription = SubscriptionData(topic=TOPIC, sub_string=expression, expression_type="SQL92")
    broker.subscribe(subscription=subscription, version=version, group=group)


def test_missing_filters_of_heartbeats(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        by_sql(broker, "a > 5")
        assert refusal(broker, pull()) == (1, NOT_SUPPORTED, None)
        by_sql(broker, "a >", group="bad")
        assert refusal(broker, pull(group="bad")) == (27, NO_FILTER, None)
        subscription = SubscriptionData(topic=TOPIC, sub_string="a", expression_type="XPATH")
        broker.subscribe(group="X", subscription=subscription)
        assert refusal(broker, pull(group="X")) == (27, NO_FILTER, None)


def test_a_bad_expression_replaces_a_good_one(tmp_path: Path) -> None:
    with pull_broker(tmp_path, BrokerConfig(property_filter=True)) as broker:
        broker.put(message(topic=TOPIC, a="6"))
        by_sql(broker, "a > 5", version=1)
        assert found(broker.ask(pull(sub_version=1)))
        by_sql(broker, "a >", version=2)
        assert refusal(broker, pull(sub_version=2)) == (27, NO_FILTER, None)
        assert refusal(broker, pull(sub_version=1)) == (27, NO_FILTER, None)


def test_a_filter_that_is_not_the_latest(tmp_path: Path) -> None:
    with pull_broker(tmp_path, BrokerConfig(property_filter=True)) as broker:
        broker.put(message(topic=TOPIC, a="6"))
        by_sql(broker, "a > 5", version=5)
        broker.consumers.table["G"].subscriptions[TOPIC].sub_version = 7
        remark = "the consumer's consumer filter data not latest"
        assert refusal(broker, pull(sub_version=6)) == (28, remark, None)
        assert found(broker.ask(pull(sub_version=5)))


@pytest.mark.parametrize(("expression", "kind"), [("a >", "SQL92"), ("a > 5", "XPATH")])
def test_a_pull_with_a_bad_expression(tmp_path: Path, expression: str, kind: str) -> None:
    with pull_broker(tmp_path, BrokerConfig(property_filter=True)) as broker:
        broker.put(message(topic=TOPIC, a="6"))
        header = pull(flags=OWN, subscription=expression, expression_type=kind)
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            assert refusal(broker, header, code) == (
                23,
                "parse the consumer's subscription failed",
                None,
            )


def heartbeat(broker: PullBroker) -> None:
    broker.subscribe(consume_type=ConsumeType.CONSUME_ACTIVELY)


def heartbeat_elsewhere(broker: PullBroker) -> None:
    broker.subscribe(
        consume_type=ConsumeType.CONSUME_ACTIVELY, connection=FakeConnection("127.0.0.1:6000")
    )


def heartbeat_of_push(broker: PullBroker) -> None:
    broker.subscribe(connection=FakeConnection("127.0.0.1:6000"))


@pytest.mark.parametrize(
    ("group", "prepare", "is_refused"),
    [
        ("G", None, True),
        ("G", heartbeat, False),
        ("G", heartbeat_elsewhere, True),
        ("G", heartbeat_of_push, False),
        ("TOOLS_CONSUMER", None, False),
        ("CID_RMQ_SYS_X", None, False),
    ],
)
def test_pull_consumers_may_be_rejected(
    tmp_path: Path, *, group: str, prepare: Callable[[PullBroker], None] | None, is_refused: bool
) -> None:
    with pull_broker(tmp_path, BrokerConfig(reject_pull_consumer=True)) as broker:
        broker.put(tagged("a"))
        if prepare is not None:
            prepare(broker)
        if not is_refused:
            assert found(broker.ask(pull(group=group, flags=OWN)))
            return
        remark = (
            "the consumer's group info not exist, or the pull consumer is rejected by server." + FAQ
        )
        assert refusal(broker, pull(group=group, flags=OWN)) == (24, remark, None)


def test_the_subscription_of_a_pull_is_recorded(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.ask(pull(flags=OWN, subscription="a||b"))
        noted = broker.consumers.find_subscription("G", TOPIC)
        assert noted is not None
        assert noted.tags_set == ["a", "b"]


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_slave_is_read_only_if_that_is_allowed(tmp_path: Path, *, is_readable: bool) -> None:
    config = BrokerConfig(broker_id=1, slave_read=is_readable)
    store_config = kit.config(broker_role=BrokerRole.SLAVE)
    with pull_broker(tmp_path, config, store_config=store_config) as broker:
        answer = broker.ask(pull(flags=OWN))
        assert answer is not None
        if is_readable:
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        else:
            assert (answer.code, answer.remark) == (
                2,
                "[REJECTREQUEST]system busy, start flow control for a while",
            )
