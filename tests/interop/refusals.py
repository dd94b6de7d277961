"""Requests of administrators for what does not exist or is not allowed, for both sides.

Each must get the same code and remark of both, and change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from roquet.remoting.codes import RequestCode
from tests.interop.asker import Ask, make_ask

__all__ = ["GROUP", "MESSAGES", "QUEUES", "REFUSALS", "SEND_BACK_BEYOND", "TOPIC"]

TOPIC = "Refusals"
GROUP = "refusals_group"
QUEUES = 2
MESSAGES = 4
"""Two in each queue."""

FAR = str(1 << 40)
FARTHEST = str((1 << 63) - 1)
LONG = "x" * 200


def _topic(note: str, topic: str, **more: object) -> Ask:
    fields: dict[str, object] = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": 2,
        "writeQueueNums": 2,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
        **more,
    }
    return make_ask(RequestCode.UPDATE_AND_CREATE_TOPIC, note, **fields)


def _reset(note: str, *, topic: str = TOPIC, group: str = GROUP, **more: object) -> Ask:
    fields: dict[str, object] = {
        "topic": topic,
        "group": group,
        "timestamp": 0,
        "isForce": "true",
        **more,
    }
    return make_ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, note, **fields)


def _queue(code: RequestCode, note: str, **more: object) -> Ask:
    return make_ask(code, note, **{"topic": TOPIC, "queueId": 0, **more})


def _entries(note: str, **more: object) -> Ask:
    fields = {"topic": TOPIC, "queueId": 0, "index": 0, "count": 2, **more}
    return make_ask(RequestCode.QUERY_CONSUME_QUEUE, note, **fields)


def _differs(ask: Ask, reason: str) -> Ask:
    return replace(ask, differs=reason)


SEND_BACK_BEYOND = make_ask(
    RequestCode.CONSUMER_SEND_MSG_BACK, "beyond", offset=FAR, group=GROUP, delayLevel=1
)
"""Makes the topic of the group's retries at its first time, as upstream does."""

_TOPICS: Sequence[Ask] = (
    _topic("blank-name", " "),
    _topic("no-name", ""),
    _topic("path", "../../etc"),
    _topic("long-name", LONG),
    _topic("system-topic", "SCHEDULE_TOPIC_XXXX"),
    _topic("odd-attribute", TOPIC, attributes="message.type=FIFO"),
    _topic("unknown-attribute", TOPIC, attributes="+no.such=1"),
    _topic("unknown-value", TOPIC, attributes="+message.type=SOMETHING"),
    _topic("dropped-attribute", TOPIC, attributes="-no.such"),
    _topic("twice-an-attribute", TOPIC, attributes="+message.type=FIFO,-message.type"),
    make_ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        "bad-name",
        {"topicConfigList": [{"topicName": "Fine"}, {"topicName": "a/b"}]},
    ),
    make_ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, "nothing", {"topicConfigList": []}),
    make_ask(RequestCode.DELETE_TOPIC_IN_BROKER, "no-name", topic=""),
    make_ask(RequestCode.DELETE_TOPIC_IN_BROKER, "system-topic", topic="SCHEDULE_TOPIC_XXXX"),
    make_ask(RequestCode.DELETE_TOPIC_IN_BROKER, "unknown", topic="Nowhere"),
    make_ask(RequestCode.GET_TOPIC_CONFIG, "unknown", topic="Nowhere", lo="true"),
    make_ask(RequestCode.GET_TOPIC_STATS_INFO, "unknown", topic="Nowhere"),
    make_ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, "unknown", topic="Nowhere"),
    make_ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, "unknown", group="nobody"),
    make_ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, "unknown", group="nobody", topic=TOPIC),
    make_ask(RequestCode.QUERY_CONSUME_TIME_SPAN, "unknown", group="nobody", topic="Nowhere"),
    make_ask(
        RequestCode.QUERY_CORRECTION_OFFSET, "unknown", topic="Nowhere", compareGroup="nobody"
    ),
)

_GROUPS: Sequence[Ask] = (
    make_ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "bad-name", {"groupName": "a/b"}),
    make_ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "long-name", {"groupName": LONG}),
    make_ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "no-name", {"groupName": ""}),
    make_ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "nothing"),
    make_ask(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        "bad-name",
        {"groupConfigList": [{"groupName": "fine"}, {"groupName": "a/b"}]},
    ),
    make_ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, "unknown", groupName="nobody"),
    make_ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, "unknown", consumerGroup="nobody"),
    make_ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, "unknown", producerGroup="nobody"),
    make_ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, "unknown", consumerGroup="nobody"),
    make_ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, "blank", consumerGroup=""),
    make_ask(RequestCode.GET_CONSUME_STATS, "unknown-group", consumerGroup="nobody", topic=TOPIC),
    make_ask(RequestCode.GET_CONSUME_STATS, "unknown-topic", consumerGroup=GROUP, topic="Nowhere"),
    make_ask(RequestCode.GET_CONSUME_STATS, "no-topic", consumerGroup="nobody", topic=""),
    _differs(
        make_ask(
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            "unknown-group",
            group="nobody",
            topic=TOPIC,
            clientAddr="",
        ),
        "upstream fails with a NullPointerException",
    ),
    make_ask(
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        "unknown-client",
        consumerGroup=GROUP,
        clientId="nobody",
        jstackEnable="false",
    ),
    make_ask(
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        "unknown-client",
        consumerGroup=GROUP,
        clientId="nobody",
        topic=TOPIC,
        msgId="0" * 32,
    ),
)

_OFFSETS: Sequence[Ask] = (
    _queue(RequestCode.GET_MAX_OFFSET, "unknown-topic", topic="Nowhere"),
    _queue(RequestCode.GET_MAX_OFFSET, "unknown-queue", queueId=9),
    _queue(RequestCode.GET_MAX_OFFSET, "bad-queue", queueId=-1),
    _queue(RequestCode.GET_MIN_OFFSET, "unknown-topic", topic="Nowhere"),
    _queue(RequestCode.GET_MIN_OFFSET, "unknown-queue", queueId=9),
    _queue(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, "unknown-topic", topic="Nowhere", timestamp=1),
    _queue(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, "future", timestamp=FARTHEST),
    _queue(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, "before-all", timestamp=-1),
    _queue(RequestCode.GET_EARLIEST_MSG_STORETIME, "unknown-topic", topic="Nowhere"),
    _queue(RequestCode.GET_EARLIEST_MSG_STORETIME, "unknown-queue", queueId=9),
    _queue(RequestCode.QUERY_CONSUMER_OFFSET, "unknown-queue", consumerGroup=GROUP, queueId=9),
    _queue(RequestCode.QUERY_CONSUMER_OFFSET, "unknown-topic", consumerGroup=GROUP, topic="No"),
    _queue(
        RequestCode.UPDATE_CONSUMER_OFFSET, "unknown-group", consumerGroup="nobody", commitOffset=1
    ),
    _queue(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        "unknown-topic",
        consumerGroup=GROUP,
        topic="Nowhere",
        commitOffset=1,
    ),
    _reset("unknown-topic", topic="Nowhere"),
    _reset("unknown-group", group="nobody"),
    _reset("unknown-queue", queueId=7, offset=5),
    _reset("offset-beyond", queueId=0, offset=FAR),
    _reset("offset-farthest", queueId=0, offset=FARTHEST),
    make_ask(
        RequestCode.CLONE_GROUP_OFFSET,
        "unknown-group",
        srcGroup="nobody",
        destGroup=GROUP,
        topic=TOPIC,
    ),
    make_ask(
        RequestCode.CLONE_GROUP_OFFSET,
        "unknown-topic",
        srcGroup=GROUP,
        destGroup=GROUP,
        topic="Nowhere",
    ),
    _entries("unknown-topic", topic="Elsewhere"),
    _entries("unknown-queue", queueId=8),
    _entries("index-beyond", index=FAR),
    _entries("negative-index", index=-1),
    _entries("no-entries", count=0),
    _entries("negative-count", count=-1),
    _entries("unknown-group", consumerGroup="nobody"),
)

_OTHERS: Sequence[Ask] = (
    make_ask(RequestCode.UPDATE_BROKER_CONFIG, "black-list", b"brokerConfigPath=x\n"),
    make_ask(
        RequestCode.UPDATE_BROKER_CONFIG, "one-of-two", b"fileReservedTime=1\nrocketmqHome=/etc\n"
    ),
    make_ask(
        RequestCode.VIEW_BROKER_STATS_DATA, "unknown-name", statsName="NO_SUCH", statsKey=TOPIC
    ),
    make_ask(
        RequestCode.VIEW_BROKER_STATS_DATA,
        "unknown-key",
        statsName="TOPIC_PUT_NUMS",
        statsKey="Nowhere",
    ),
    make_ask(RequestCode.VIEW_MESSAGE_BY_ID, "beyond", offset=FAR),
    make_ask(RequestCode.VIEW_MESSAGE_BY_ID, "negative", offset=-1),
    make_ask(
        RequestCode.QUERY_MESSAGE,
        "unknown-topic",
        topic="Nowhere",
        key="k",
        maxNum=32,
        beginTimestamp=0,
        endTimestamp=FARTHEST,
    ),
    _differs(
        make_ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, "no-half", topic=TOPIC, msgId="0" * 32),
        "upstream takes any message of the log for one that waits for its transaction",
    ),
    make_ask(RequestCode.CONSUMER_SEND_MSG_BACK, "bad-group", offset=0, group="a/b", delayLevel=1),
    SEND_BACK_BEYOND,
    make_ask(
        RequestCode.END_TRANSACTION,
        "forged",
        producerGroup="nobody",
        tranStateTableOffset=0,
        commitLogOffset=FAR,
        commitOrRollback=8,
        fromTransactionCheck="false",
        msgId="0" * 32,
        transactionId="0" * 32,
    ),
    make_ask(RequestCode.GET_BROKER_EPOCH_CACHE, "no-controller"),
)

REFUSALS: Sequence[Ask] = (*_TOPICS, *_GROUPS, *_OFFSETS, *_OTHERS)
