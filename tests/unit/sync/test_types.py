"""Type checkers see the signatures of the blocking methods; `make lint` is what checks this."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_type

import pytest

from roquet.errors import ClientClosed
from roquet.model.topic_config import TopicConfig
from roquet.sync import (
    Admin,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendResult,
    ServerResults,
    SimplePull,
    TopicStats,
)

NAMESRV = "127.0.0.1:1"
QUEUE = MessageQueue("Orders", "dev", 0)


def checked(producer: Producer, consumer: LitePullConsumer, reader: SimplePull) -> None:
    assert_type(producer.send(Message("Orders", b"paid"), timeout_ms=1), SendResult)
    assert_type(producer.send_batch([Message("Orders", b"paid")]), list[SendResult])
    assert_type(producer.queues("Orders"), list[MessageQueue])
    assert_type(producer.request(Message("Orders", b"?")), ReceivedMessage)
    producer.send(Message("Orders", b"paid"), 1)  # type: ignore[call-arg,arg-type]
    producer.send(Message("Orders", b"paid"), queues=QUEUE)  # type: ignore[call-arg]
    assert_type(consumer.committed(QUEUE), int | None)
    assert_type(next(consumer), ReceivedMessage)
    assert_type(reader.read(0, 1, batch=8), Iterator[ReceivedMessage])
    assert_type(reader.max_offset(), int)


def checked_admin(admin: Admin, consumer: PushConsumer) -> None:
    assert_type(admin.topics.names(), list[str])
    assert_type(admin.topics.stats("Orders"), TopicStats)
    assert_type(admin.topics.config("Orders", broker="dev"), ServerResults[TopicConfig])
    consumer.subscribe("Orders", 17)  # type: ignore[arg-type]
    with Admin(NAMESRV) as entered:
        assert_type(entered, Admin)


def test_clients_that_are_not_started_raise() -> None:
    with pytest.raises(ClientClosed):
        checked(
            Producer(NAMESRV, group="g"),
            LitePullConsumer(NAMESRV, group="g"),
            SimplePull(NAMESRV, QUEUE, group="g"),
        )
