"""The blocking client against a broker in this process."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest

from roquet.errors import ClientClosed, ConfigError, NoRoute, OffsetOutOfRange, WrongThread
from roquet.sync import (
    Admin,
    ConsumeFromWhere,
    ConsumeResult,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendStatus,
    SimplePull,
    TransactionProducer,
    TransactionState,
    reply,
)
from roquet.testing.background import BackgroundBroker, background_broker

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
TOPIC = "Orders"


@pytest.fixture
def server() -> Iterator[BackgroundBroker]:
    with background_broker() as running:
        yield running


@pytest.fixture
def namesrv(server: BackgroundBroker) -> str:
    server.create_topic(TOPIC, queues=1)
    return server.namesrv


@pytest.fixture
def producer(namesrv: str) -> Iterator[Producer]:
    with Producer(namesrv, group="senders") as running:
        yield running


def queue_of(producer: Producer) -> MessageQueue:
    (queue,) = producer.queues(TOPIC)
    return queue


def test_everything_runs_on_one_thread(namesrv: str) -> None:
    with Producer(namesrv, group="a") as one, Producer(namesrv, group="b") as two, Admin(namesrv):
        one.send(Message(TOPIC, b"1"))
        two.send(Message(TOPIC, b"2"))
        names = [each.name for each in threading.enumerate()]
    assert names.count("roquet-sync") == 1


def test_sending(producer: Producer, server: BackgroundBroker) -> None:
    assert producer.send(Message(TOPIC, b"one")).status is SendStatus.SEND_OK
    assert len(producer.send_batch([Message(TOPIC, b"two"), Message(TOPIC, b"three")])) == 2
    producer.send_oneway(Message(TOPIC, b"four"))
    producer.flush()
    with Producer(server.namesrv, group="last") as last:
        last.send(Message(TOPIC, b"five"))
    bodies = {message.body for message in server.messages(TOPIC)}
    assert {b"one", b"two", b"three", b"five"} <= bodies
    with pytest.raises(ClientClosed):
        last.send(Message(TOPIC, b"six"))


def test_many_threads_share_a_producer(producer: Producer, server: BackgroundBroker) -> None:
    def send(number: int) -> None:
        for index in range(20):
            producer.send(Message(TOPIC, f"{number}-{index}".encode()))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({message.body for message in server.messages(TOPIC)}) == 160


def test_errors_are_those_of_the_client(namesrv: str) -> None:
    with pytest.raises(ConfigError):
        PushConsumer(namesrv, group="g")
    nowhere = MessageQueue("Nowhere", "none", 0)
    with SimplePull(namesrv, nowhere, group="g") as reader, pytest.raises(NoRoute):
        reader.max_offset()


def test_a_handler_in_a_thread_may_send(producer: Producer, namesrv: str) -> None:
    seen: SimpleQueue[tuple[bytes, str]] = SimpleQueue()

    def handle(message: ReceivedMessage) -> ConsumeResult:
        producer.send(Message("Invoices", message.body))
        seen.put((message.body, threading.current_thread().name))
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(namesrv, group="billing", handler=handle, consume_from=FIRST)
    consumer.subscribe(TOPIC)
    producer.send(Message(TOPIC, b"paid"))
    with consumer:
        body, thread = seen.get()
        assert consumer.assignment == [queue_of(producer)]
        consumer.pause()
        consumer.resume()
        consumer.unsubscribe(TOPIC)
    assert (body, thread.startswith("consume-billing")) == (b"paid", True)
    with LitePullConsumer(namesrv, group="reader", consume_from=FIRST) as reader:
        reader.subscribe("Invoices")
        assert next(reader).body == b"paid"


def test_a_coroutine_that_blocks_is_refused(producer: Producer, namesrv: str) -> None:
    errors: SimpleQueue[WrongThread] = SimpleQueue()

    async def handle(message: ReceivedMessage) -> None:
        with pytest.raises(WrongThread) as caught:
            producer.send(Message("Invoices", message.body))
        errors.put(caught.value)

    consumer = PushConsumer(namesrv, group="billing", handler=handle, consume_from=FIRST)
    consumer.subscribe(TOPIC)
    producer.send(Message(TOPIC, b"paid"))
    with consumer:
        error = errors.get()
    assert "ordinary function" in str(error)


def test_transactions_run_in_the_thread_that_sends(namesrv: str) -> None:
    database = sqlite3.connect(":memory:")  # refuses every other thread
    database.execute("create table booked (id text)")

    class Payments:
        def execute(self, message: Message, transaction_id: str) -> TransactionState:
            if message.body == b"broken":
                raise ValueError(message.body)
            with database:
                database.execute("insert into booked values (?)", (transaction_id,))
            return TransactionState.COMMIT

        def check(self, message: ReceivedMessage) -> TransactionState:
            raise AssertionError(message)

    with TransactionProducer(namesrv, group="payments", listener=Payments()) as producer:
        result = producer.send_transaction(Message(TOPIC, b"paid"))
        with pytest.raises(ValueError, match="broken"):
            producer.send_transaction(Message(TOPIC, b"broken"))
    assert result.state is TransactionState.COMMIT
    assert database.execute("select count(*) from booked").fetchone() == (1,)
    database.close()
    with LitePullConsumer(namesrv, group="reader", consume_from=FIRST) as reader:
        reader.subscribe(TOPIC)
        assert next(reader).body == b"paid"


def test_checks_run_in_a_thread_and_may_send() -> None:
    threads: SimpleQueue[str] = SimpleQueue()
    with (
        background_broker({"transactionTimeOut": 1, "transactionCheckInterval": 50}) as server,
        Producer(server.namesrv, group="helper") as helper,
    ):

        def check(message: ReceivedMessage) -> TransactionState:
            helper.send(Message("Invoices", message.body))
            threads.put(threading.current_thread().name)
            return TransactionState.COMMIT

        with Producer(server.namesrv, group="payments", check=check) as producer:
            producer.send_in_transaction(
                Message(TOPIC, b"paid"), lambda *_: TransactionState.UNKNOWN
            )
            assert threads.get() != "roquet-sync"
            with LitePullConsumer(server.namesrv, group="reader", consume_from=FIRST) as reader:
                reader.subscribe(TOPIC)
                assert next(reader).body == b"paid"


def test_request_and_reply(producer: Producer, namesrv: str) -> None:
    def answer(message: ReceivedMessage) -> None:
        producer.send(reply(message, message.body.upper()))

    consumer = PushConsumer(namesrv, group="answers", handler=answer, consume_from=FIRST)
    consumer.subscribe(TOPIC)
    with consumer:
        assert producer.request(Message(TOPIC, b"ping"), timeout_ms=20_000).body == b"PING"


def test_lite_pull(producer: Producer, namesrv: str) -> None:
    for number in range(3):
        producer.send(Message(TOPIC, b"%d" % number))
    with LitePullConsumer(namesrv, group="reader", consume_from=FIRST) as consumer:
        queue = queue_of(producer)
        consumer.subscribe(TOPIC)
        bodies = []
        for message in consumer:
            bodies.append(message.body)
            if len(bodies) == 3:
                break
        consumer.commit()
        assert (bodies, consumer.committed(queue)) == ([b"0", b"1", b"2"], 3)
        consumer.seek(queue, 1)
        assert [message.body for message in consumer.poll()] == [b"1", b"2"]
        consumer.seek_to_begin(queue)
        consumer.pause([queue])
        consumer.resume([queue])
        assert consumer.poll()[0].body == b"0"
    with pytest.raises(StopIteration):
        next(consumer)


def test_messages_of_a_failed_block_are_redelivered(producer: Producer, namesrv: str) -> None:
    producer.send(Message(TOPIC, b"paid"))

    def failing() -> None:
        with LitePullConsumer(namesrv, group="reader", consume_from=FIRST) as consumer:
            consumer.subscribe(TOPIC)
            raise ZeroDivisionError(next(consumer).body)

    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="paid"):
            failing()


def test_reading_one_queue(producer: Producer, namesrv: str) -> None:
    for number in range(5):
        producer.send(Message(TOPIC, b"%d" % number))
    with SimplePull(namesrv, queue_of(producer), group="audit") as reader:
        assert (reader.min_offset(), reader.max_offset()) == (0, 5)
        for batch in (1, 2, 5, 32):
            bodies = [message.body for message in reader.read(1, 5, batch=batch)]
            assert bodies == [b"1", b"2", b"3", b"4"]
        reader.commit(3)
        assert reader.committed() == 3
        assert len(reader.pull(4).messages) == 1
        given: list[bytes] = []
        with pytest.raises(OffsetOutOfRange):
            given.extend(message.body for message in reader.read(3, 9))
        assert given == [b"3", b"4"]


def test_admin(producer: Producer, namesrv: str) -> None:
    with Admin(namesrv) as admin:
        assert admin.topics.create("Parcels", queues=2) == ["dev"]
        assert "Parcels" in admin.topics.names()
        sent = producer.send(Message(TOPIC, b"paid", keys="17"))
        assert admin.messages.by_id(TOPIC, sent.message_id).body == b"paid"
        admin.kv.set("colours", "sky", "blue")
        assert admin.kv.items("colours") == {"sky": "blue"}


def test_an_interrupted_poll_loses_nothing(
    producer: Producer, namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer.send(Message(TOPIC, b"paid"))
    with LitePullConsumer(namesrv, group="reader", consume_from=FIRST) as consumer:
        consumer.subscribe(TOPIC)
        run: Callable[..., object] = consumer._runner.run

        def interrupted(*args: object) -> None:
            run(*args)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(consumer._runner, "run", interrupted)
            with pytest.raises(KeyboardInterrupt):
                consumer.poll()
        assert [message.body for message in consumer.poll(timeout_ms=1)] == [b"paid"]
