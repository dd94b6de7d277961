"""Transactions, against a whole broker and against one that responds as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from roquet.client import (
    ClientOptions,
    EndTransactionContext,
    Message,
    Producer,
    ReceivedMessage,
    SendHook,
    TransactionProducer,
    TransactionState,
)
from roquet.errors import BadMessage, BrokerRefused, ConfigError
from roquet.remoting.codes import ResponseCode
from roquet.testing.broker import RunningBroker, broker
from tests.integration.client.server_kit import stored, stored_soon
from tests.unit.client.client_kit import until
from tests.unit.client.fake_cluster import fake_cluster

TOPIC = "Orders"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
QUICK_CHECKS = {
    "transactionTimeOut": 1,
    "transactionCheckInterval": 20,
    "transactionOpBatchInterval": 10,
}


class Listener:
    """Returns what a test wants, and remembers its checks."""

    def __init__(self, first: TransactionState, later: TransactionState | None = None) -> None:
        self.first = first
        self.later = later
        self.executed: list[tuple[Message, str]] = []
        self.checked: list[ReceivedMessage] = []

    def execute(self, message: Message, transaction_id: str) -> TransactionState:
        self.executed.append((message, transaction_id))
        return self.first

    async def check(self, message: ReceivedMessage) -> TransactionState:
        self.checked.append(message)
        await asyncio.sleep(0)
        if self.later is None:
            raise KeyError("the books are closed")
        return self.later


@pytest.fixture
async def a_broker() -> AsyncIterator[RunningBroker]:
    async with broker(QUICK_CHECKS) as running:
        await running.create_topic(TOPIC, queues=1)
        yield running


def never_checked(message: ReceivedMessage) -> TransactionState:
    raise AssertionError(message)


async def test_a_commit_makes_the_message_visible() -> None:
    async with broker() as running:
        await running.create_topic(TOPIC, queues=1)
        listener = Listener(TransactionState.COMMIT)
        async with TransactionProducer(running.namesrv, group="g", listener=listener) as producer:
            message = Message(TOPIC, b"x" * 5_000, keys="17")
            result = await producer.send_transaction(message)
            (found,) = await stored_soon(running, TOPIC, 1)
        assert (result.state, result.is_told) == (TransactionState.COMMIT, True)
        assert (found.body, found.keys) == (b"x" * 5_000, ["17"])
        assert found.message_id == result.send_result.message_id
        ((executed, transaction_id),) = listener.executed
        assert executed is message
        assert transaction_id == found.transaction_id
        assert listener.checked == []


async def test_a_rollback_makes_nothing_visible() -> None:
    async with (
        broker({"transactionOpBatchInterval": 10}) as running,
        Producer(running.namesrv, group="g", check=never_checked) as producer,
    ):
        await running.create_topic(TOPIC, queues=1)

        async def execute(message: Message, transaction_id: str) -> TransactionState:
            del message, transaction_id
            assert len(stored(running, HALF_TOPIC)) == 1
            return TransactionState.ROLLBACK

        result = await producer.send_in_transaction(Message(TOPIC, b"x"), execute)
        assert result.state is TransactionState.ROLLBACK
        op_topic = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
        await stored_soon(running, op_topic, 1)
        assert stored(running, TOPIC) == []


@pytest.mark.parametrize("namespace", ["", "shop"])
async def test_an_unknown_transaction_is_checked(a_broker: RunningBroker, namespace: str) -> None:
    listener = Listener(TransactionState.UNKNOWN, TransactionState.COMMIT)
    options = ClientOptions(namesrv=a_broker.namesrv, namespace=namespace)
    wire_topic = f"{namespace}%{TOPIC}" if namespace else TOPIC
    await a_broker.create_topic(wire_topic, queues=1)
    async with TransactionProducer(options, group="g", listener=listener) as producer:
        result = await producer.send_transaction(Message(TOPIC, b"slow", tags="t"))
        # A broker without a response before its next round checks, and gets a response, once more.
        found, *_ = await stored_soon(a_broker, wire_topic, 1)
    assert result.state is TransactionState.UNKNOWN
    assert found.body == b"slow"
    asked = listener.checked[0]
    assert (asked.topic, asked.body, asked.tags) == (TOPIC, b"slow", "t")
    assert asked.message_id == result.send_result.message_id


@pytest.mark.parametrize("is_coroutine", [False, True])
async def test_an_exception_reaches_the_caller_after_the_rollback(*, is_coroutine: bool) -> None:
    failure = KeyError("no such account")

    def execute(message: Message, transaction_id: str) -> TransactionState:
        assert (message.body, bool(transaction_id)) == (b"x", True)
        raise failure

    async def execute_later(message: Message, transaction_id: str) -> TransactionState:
        return execute(message, transaction_id)

    async with (
        broker({"transactionOpBatchInterval": 10}) as running,
        Producer(running.namesrv, group="g", check=never_checked) as producer,
    ):
        await running.create_topic(TOPIC, queues=1)
        work = execute_later if is_coroutine else execute
        with pytest.raises(KeyError) as caught:
            await producer.send_in_transaction(Message(TOPIC, b"x"), work)
        assert caught.value is failure
        await stored_soon(running, "RMQ_SYS_TRANS_OP_HALF_TOPIC", 1)
        assert stored(running, TOPIC) == []


async def test_a_check_that_raises_is_repeated(a_broker: RunningBroker) -> None:
    listener = Listener(TransactionState.UNKNOWN, None)
    async with TransactionProducer(a_broker.namesrv, group="g", listener=listener) as producer:
        await producer.send_transaction(Message(TOPIC, b"x"))
        await until(lambda: len(listener.checked) >= 2)
        listener.later = TransactionState.COMMIT
        assert (await stored_soon(a_broker, TOPIC, 1))[0].body == b"x"


async def test_another_producer_of_the_group_may_respond(a_broker: RunningBroker) -> None:
    async with Producer(a_broker.namesrv, group="g") as first:
        half = Message(TOPIC, b"x", system_properties={"TRAN_MSG": "true", "PGROUP": "g"})
        await first.send(half)
    listener = Listener(TransactionState.UNKNOWN, TransactionState.COMMIT)
    async with Producer(a_broker.namesrv, group="g", check=listener.check) as second:
        await second.queues(TOPIC)
        await second.client.heartbeat()
        assert (await stored_soon(a_broker, TOPIC, 1))[0].body == b"x"


async def test_a_half_message_stored_less_safely_is_rolled_back() -> None:
    async with fake_cluster() as cluster:
        cluster[0].code = ResponseCode.FLUSH_DISK_TIMEOUT
        listener = Listener(TransactionState.COMMIT)
        async with TransactionProducer(cluster.namesrv, group="g", listener=listener) as producer:
            result = await producer.send_transaction(Message(TOPIC, b"x"))
            assert result.state is TransactionState.ROLLBACK
            assert listener.executed == []
            await until(lambda: len(cluster[0].ends) == 1)
        assert cluster[0].ends[0].commit_or_rollback == 12


@pytest.mark.parametrize(
    ("state", "bits"),
    [
        (TransactionState.COMMIT, 8),
        (TransactionState.ROLLBACK, 12),
        (TransactionState.UNKNOWN, 0),
    ],
)
async def test_the_result_of_a_transaction(state: TransactionState, bits: int) -> None:
    seen: list[EndTransactionContext] = []

    class Hook(SendHook):
        def end_transaction(self, context: EndTransactionContext) -> None:
            seen.append(context)
            raise KeyError("a hook changes nothing")

    async with fake_cluster() as cluster:
        listener = Listener(state)
        async with TransactionProducer(
            cluster.namesrv, group="g", listener=listener, hooks=[Hook()]
        ) as producer:
            message = Message(TOPIC, b"x", keys=["1", "2"], tags="t")
            result = await producer.send_transaction(message)
            await until(lambda: len(cluster[0].ends) == 1)
        (end,) = cluster[0].ends
        assert end.commit_or_rollback == bits
        assert (end.topic, end.producer_group, end.broker_name) == (TOPIC, "g", "broker-a")
        assert (end.half_queue_offset, end.physical_offset) == (0, 1)
        assert (end.msg_id, end.transaction_id) == (result.send_result.message_id, "transaction-1")
        assert not end.from_transaction_check
        (context,) = seen
        assert (context.state, context.keys, context.tags) == (state.value, "1 2", "t")
        header, request = cluster[0].sends[0]
        assert header.sys_flag & 0xC == 4
        assert "TRAN_MSG\x01true\x02PGROUP\x01g\x02" in (header.properties or "")
        assert request.body == b"x"


async def test_invalid_transactions() -> None:
    async with fake_cluster() as cluster:
        listener = Listener(TransactionState.COMMIT)
        async with TransactionProducer(cluster.namesrv, group="g", listener=listener) as producer:
            for message in (
                Message(TOPIC, b"x", delay_level=1),
                Message(TOPIC, b"x", delay_ms=1),
                Message(TOPIC, b"x", deliver_at_ms=1),
            ):
                with pytest.raises(BadMessage, match="be delayed"):
                    await producer.send_transaction(message)
            cluster[0].code = ResponseCode.MESSAGE_ILLEGAL
            with pytest.raises(BrokerRefused):
                await producer.send_transaction(Message(TOPIC, b"x"))
            assert listener.executed == []
        async with Producer(cluster.namesrv, group="g") as plain:
            with pytest.raises(ConfigError, match="no transaction check"):
                await plain.send_in_transaction(Message(TOPIC, b"x"), listener.execute)


async def test_work_that_returns_something_else_is_unknown() -> None:
    async with (
        fake_cluster() as cluster,
        Producer(cluster.namesrv, group="g", check=never_checked) as producer,
    ):
        with pytest.raises(BadMessage, match="must return a TransactionState"):
            await producer.send_in_transaction(
                Message(TOPIC, b"x"),
                lambda *_: "yes",  # type: ignore[arg-type]
            )
        nothing = await producer.send_in_transaction(
            Message(TOPIC, b"x"),
            lambda *_: None,  # type: ignore[arg-type]
        )
        assert nothing.state is TransactionState.UNKNOWN
        await until(lambda: len(cluster[0].ends) == 2)
        assert {each.commit_or_rollback for each in cluster[0].ends} == {0}
