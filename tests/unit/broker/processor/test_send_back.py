from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from roquet.broker.hooks import ConsumeMessageContext, StatsType
from roquet.broker.processor.send_back import SendBackProcessor, SentBackMessage
from roquet.format.batch import encode_batch
from roquet.model.message import StoredMessage
from roquet.model.subscription import SubscriptionGroupConfig
from roquet.model.topic import SCHEDULE_TOPIC
from roquet.model.topic_config import PERM_READ, TopicConfig
from roquet.remoting.codes import RequestCode, ResponseCode, version_ordinal
from roquet.remoting.command import RemotingCommand, create_request
from roquet.remoting.connection import Connection
from roquet.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from roquet.remoting.processor import Port, RequestContext
from roquet.store.config import BrokerRole, FlushDiskType, MessageStoreConfig, replace
from roquet.store.results import PutMessageResult, PutMessageStatus
from tests.table_changes import put_groups, put_topics
from tests.unit.broker.components_kit import STORE_HOST
from tests.unit.broker.processor.send_kit import (
    PLAIN,
    SMALL,
    UNIQUE_KEY,
    SendBroker,
    broker,
)

OLD_CLIENT = version_ordinal("V3_4_9") - 1


class Returns:
    """A broker with one message of topic T, to be sent back."""

    def __init__(self, made: SendBroker) -> None:
        self.made = made
        self.news: list[SentBackMessage] = []
        self.processor = SendBackProcessor(made.parts)
        self.processor.listeners.append(self.news.append)
        made.registry.add(self.processor)

    def send(self, properties: str = PLAIN, *, reconsume_times: int = 0) -> StoredMessage:
        at = self.made.count()
        assert self.made.send(properties, reconsume_times=reconsume_times).code == 0
        return self.made.stored(queue_offset=at)

    def request(self, message: StoredMessage | int, **fields: object) -> RemotingCommand:
        offset = message if isinstance(message, int) else message.physical_offset
        values: dict[str, object] = {
            "physical_offset": offset,
            "group": "G",
            "delay_level": 0,
            "origin_msg_id": UNIQUE_KEY,
            "origin_topic": "T",
            **fields,
        }
        header = ConsumerSendMsgBackRequestHeader(**values)  # type: ignore[arg-type]
        return create_request(RequestCode.CONSUMER_SEND_MSG_BACK, header, opaque=9)

    def back(
        self, message: StoredMessage | int, *, version: int = 493, **fields: object
    ) -> RemotingCommand:
        request = self.request(message, **fields)
        request.version = version
        answer = self.made.handle(request)
        assert answer is not None
        return answer


@contextmanager
def returns(
    root: Path, *, store_config: MessageStoreConfig = SMALL, **settings: object
) -> Iterator[Returns]:
    with broker(root, store_config=store_config, **settings) as made:  # type: ignore[arg-type]
        yield Returns(made)


def said(answer: RemotingCommand) -> tuple[int, str | None]:
    return answer.code, answer.remark


def test_a_message_waits_for_its_first_retry_on_level_three(tmp_path: Path) -> None:
    with returns(tmp_path) as made:
        message = made.send()
        answer = made.back(message)
        again = made.made.stored(SCHEDULE_TOPIC, 2)
        topic = made.made.topics.select("%RETRY%G")
    assert said(answer) == (0, None)
    assert answer.ext_fields is None
    assert again.properties == {
        **message.properties,
        "RETRY_TOPIC": "T",
        "WAIT": "false",
        "ORIGIN_MESSAGE_ID": message.offset_message_id,
        "DELAY": "3",
        "REAL_TOPIC": "%RETRY%G",
        "REAL_QID": "0",
    }
    assert again.reconsume_times == 1
    assert again.store_host == STORE_HOST
    kept = ("body", "flag", "sys_flag", "born_timestamp_ms", "born_host")
    assert [getattr(again, name) for name in kept] == [getattr(message, name) for name in kept]
    assert topic is not None
    assert (topic.perm, topic.write_queue_nums, topic.topic_sys_flag) == (6, 1, 0)
    (news,) = made.news
    assert news._replace(ext_fields={}, wrote_bytes=0) == SentBackMessage(
        "G", "T", "T", SCHEDULE_TOPIC, 2, is_dead_letter=False, wrote_bytes=0, ext_fields={}
    )


def test_a_batch_is_not_taken_back(tmp_path: Path) -> None:
    """As upstream: the retry topic has simple queues; the client sends the message itself."""
    with returns(tmp_path) as made:
        sent = made.made
        sent.store.queues.is_batch_topic = sent.topics.has_batch_queues
        put_topics(sent.topics, TopicConfig(topic_name="B", attributes={"+queue.type": "BatchCQ"}))
        body = encode_batch([(0, b"one", b""), (0, b"two", b"")])
        assert sent.send(topic="B", batch=True, body=body).code == 0
        answer = made.back(0, origin_topic="B")
        assert said(answer) == (ResponseCode.SYSTEM_ERROR, "MESSAGE_ILLEGAL")
        assert sent.count(SCHEDULE_TOPIC, 2) == 0


@pytest.mark.parametrize(
    ("delay_level", "reconsume_times", "level"),
    [(0, 0, 3), (0, 5, 8), (0, 30, 18), (2, 9, 2), (99, 0, 18)],
)
def test_the_delay_grows_or_is_set_by_the_consumer(
    delay_level: int, reconsume_times: int, level: int, tmp_path: Path
) -> None:
    with returns(tmp_path) as made:
        message = made.send(reconsume_times=reconsume_times)
        made.back(message, delay_level=delay_level, max_reconsume_times=100)
        again = made.made.stored(SCHEDULE_TOPIC, level - 1)
    assert again.properties["DELAY"] == str(level)
    assert again.reconsume_times == reconsume_times + 1


def test_a_retry_remembers_the_first_topic_and_id(tmp_path: Path) -> None:
    first = "RETRY_TOPIC\x01First\x02ORIGIN_MESSAGE_ID\x01ABC\x02"
    with returns(tmp_path) as made:
        made.back(made.send(PLAIN + first))
        properties = made.made.stored(SCHEDULE_TOPIC, 2).properties
    assert properties["RETRY_TOPIC"] == "First"
    assert properties["ORIGIN_MESSAGE_ID"] == "ABC"
    assert made.news[0].origin_topic == "First"


@pytest.mark.parametrize(
    ("reconsume_times", "fields", "version", "is_dead"),
    [
        (15, {}, 493, False),
        (16, {}, 493, True),
        (0, {"delay_level": -1}, 493, True),
        (3, {"max_reconsume_times": 3}, 493, True),
        (3, {"max_reconsume_times": 4}, 493, False),
        (30, {"max_reconsume_times": 31}, 493, False),
        (3, {"max_reconsume_times": 3}, OLD_CLIENT, False),
        (16, {"max_reconsume_times": 31}, OLD_CLIENT, True),
        (0, {"max_reconsume_times": 0}, OLD_CLIENT + 1, True),
    ],
)
def test_a_message_retried_too_often_becomes_a_dead_letter(
    reconsume_times: int,
    fields: dict[str, object],
    version: int,
    *,
    is_dead: bool,
    tmp_path: Path,
) -> None:
    with returns(tmp_path) as made:
        message = made.send(reconsume_times=reconsume_times)
        assert said(made.back(message, version=version, **fields)) == (0, None)
        assert made.made.count("%DLQ%G") == is_dead
        assert made.news[0].is_dead_letter == is_dead
        if is_dead:
            letter = made.made.stored("%DLQ%G")
            assert letter.properties["DELAY"] == "0"
            assert letter.properties["WAIT"] == "false"
            assert "REAL_TOPIC" not in letter.properties
            assert letter.reconsume_times == reconsume_times + 1
            topic = made.made.topics.select("%DLQ%G")
            assert topic is not None
            assert (topic.perm, topic.write_queue_nums) == (6, 1)


def test_the_groups_own_limit_and_queues_are_used(tmp_path: Path) -> None:
    with returns(tmp_path) as made:
        put_groups(
            made.made.groups,
            SubscriptionGroupConfig(group_name="G", retry_max_times=1, retry_queue_nums=4),
        )
        for _ in range(40):
            made.back(made.send())
        chosen = {
            made.made.stored(SCHEDULE_TOPIC, 2, at).properties["REAL_QID"] for at in range(40)
        }
        made.back(made.send(reconsume_times=1))
        assert made.made.count("%DLQ%G") == 1
    assert chosen == {"0", "1", "2", "3"}


def test_a_group_without_retries_drops_its_message(tmp_path: Path) -> None:
    with returns(tmp_path) as made:
        put_groups(made.made.groups, SubscriptionGroupConfig(group_name="G", retry_queue_nums=0))
        end = made.send().physical_offset
        assert said(made.back(end)) == (0, None)
        assert made.made.topics.select("%RETRY%G") is None
        assert made.made.count(SCHEDULE_TOPIC, 2) == 0


def test_a_unit_marks_the_topic_of_retries(tmp_path: Path) -> None:
    with returns(tmp_path) as made:
        made.back(made.send(), unit_mode=True)
        topic = made.made.topics.select("%RETRY%G")
    assert topic is not None
    assert topic.topic_sys_flag == 2


def test_an_unknown_group_is_refused_and_nothing_is_created(tmp_path: Path) -> None:
    with returns(tmp_path, auto_create_subscription_group=False) as made:
        answer = made.back(made.send())
        end = made.made.store.max_physical_offset
        assert made.made.stored().store_size == end
        assert made.made.topics.select("%RETRY%G") is None
    assert said(answer) == (
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        "subscription group not exist, G "
        "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
    )


def test_a_read_only_broker_takes_nothing_back(tmp_path: Path) -> None:
    with returns(tmp_path, broker_permission=PERM_READ) as made:
        answer = made.back(0)
    assert said(answer) == (
        ResponseCode.NO_PERMISSION,
        "the broker[127.0.0.1] sending message is forbidden",
    )


def test_a_retry_topic_without_write_permission_takes_nothing(tmp_path: Path) -> None:
    with returns(tmp_path) as made:
        put_topics(made.made.topics, TopicConfig(topic_name="%RETRY%G", perm=PERM_READ))
        answer = made.back(made.send())
    assert said(answer) == (
        ResponseCode.NO_PERMISSION,
        "the topic[%RETRY%G] sending message is forbidden",
    )


def test_a_slave_takes_nothing_back(tmp_path: Path) -> None:
    with returns(tmp_path, store_config=replace(SMALL, broker_role=BrokerRole.SLAVE)) as made:
        answer = made.back(0)
    assert said(answer) == (
        ResponseCode.SYSTEM_ERROR,
        "no master available along with 127.0.0.1",
    )


@pytest.mark.parametrize("shift", [1, 100_000])
def test_an_offset_without_a_message_is_refused(shift: int, tmp_path: Path) -> None:
    with returns(tmp_path) as made:
        offset = made.send().physical_offset + shift
        answer = made.back(offset)
        assert made.made.count(SCHEDULE_TOPIC, 2) == 0
    assert said(answer) == (
        ResponseCode.SYSTEM_ERROR,
        f"look message by offset failed, {offset}",
    )


def test_a_refusal_of_the_store_is_named(tmp_path: Path) -> None:
    refused = PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
    with returns(tmp_path) as made:
        message = made.send()
        made.made.store.put_hooks.append(lambda _: refused)
        answer = made.back(message)
    assert said(answer) == (ResponseCode.SYSTEM_ERROR, "SERVICE_NOT_AVAILABLE")
    assert made.news == []


def test_a_busy_broker_takes_nothing_back(tmp_path: Path) -> None:
    with returns(tmp_path) as made:
        message = made.send()
        made.made.busy = True
        answer = made.back(message)
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert (answer.remark or "").startswith("[REJECTREQUEST]")


def test_the_response_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    config = replace(SMALL, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    with returns(tmp_path, store_config=config) as made:
        made.made.send("WAIT\x01false\x02")
        made.made.flush()
        assert said(made.back(made.made.stored())) == (0, None)


def test_a_one_way_request_gets_no_response(tmp_path: Path) -> None:
    with returns(tmp_path) as made:
        request = made.request(made.send())
        request.flag = 2
        assert made.made.handle(request) is None
        assert made.made.count(SCHEDULE_TOPIC, 2) == 1


def test_hooks_are_called_if_the_id_is_named(tmp_path: Path) -> None:
    heard: list[ConsumeMessageContext] = []

    class Hook:
        def before(self, context: ConsumeMessageContext) -> None:
            raise AssertionError(f"nothing is asked before {context}")

        def after(self, context: ConsumeMessageContext) -> None:
            heard.append(context)
            raise ValueError("a hook loses no message")

    with returns(tmp_path) as made:
        made.processor.consume_hooks.append(Hook())
        message = made.send()
        made.back(message, group="ns%G")
        made.back(message, delay_level=-1)
        made.back(message, origin_msg_id=" ")
        refused = PutMessageResult(PutMessageStatus.OS_PAGE_CACHE_BUSY)
        made.made.store.put_hooks.append(lambda _: refused)
        made.back(message)
    seen = [(each.namespace, each.topic, each.stats_type, each.is_success) for each in heard]
    assert seen == [
        ("ns", "T", StatsType.SEND_BACK, True),
        ("", "T", StatsType.SEND_BACK_TO_DLQ, True),
        ("", "T", StatsType.SEND_BACK, False),
    ]
    assert [each.message_count for each in heard] == [1, 1, 1]


def test_an_old_message_is_read_by_a_thread(tmp_path: Path) -> None:
    with returns(tmp_path) as made:
        made.send()
    with broker(tmp_path) as again:
        made = Returns(again)
        request = made.request(0)
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
        assert again.stored(SCHEDULE_TOPIC, 2).reconsume_times == 1
