"""Transactions: a message that consumers see only when the sender's own work is done.

Owns the order of things, which is that of Apache RocketMQ's client:

.. code-block:: text

    half message ──► stored ──► the sender's own work ──► END_TRANSACTION (one-way)
                                                                 │ lost, or unknown
    the sender's listener ◄── CHECK_TRANSACTION_STATE (39) ◄─────┘ the broker asks, later and again
            └──► END_TRANSACTION (one-way)

Invariants:

* What the sender's work says is told; an exception of it means that nothing is known, and the
  broker asks later. A half message that is stored less safely than configured is rolled back, and
  the work is not done.
* At most :data:`CHECKS_MAX` questions of brokers are worked on; more are left to be asked again.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Protocol, TypeAlias

from msgspec import Struct, structs

from roquet.client.hooks import EndTransactionContext, EndTransactionHook, SendHook, run_hooks
from roquet.client.instance import ClientInstance
from roquet.client.lifetime import end_tasks
from roquet.client.message import Message, ReceivedMessage, SendResult, SendStatus
from roquet.client.outgoing_message import is_delayed
from roquet.client.sender import DEFAULT_REGION
from roquet.errors import BadMessage, ConfigError, RoquetError
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.model.message_id import OffsetMessageId
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers.send import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)

__all__ = [
    "CheckTransaction",
    "ExecuteTransaction",
    "TransactionListener",
    "TransactionResult",
    "TransactionState",
    "Transactions",
]

log = logging.getLogger(__name__)

CHECKS_MAX = 2_000
CHECK_END_TIMEOUT_MS = 3_000


class TransactionState(Enum):
    """What became of the sender's own work; the values are upstream's names.

    Example:
        assert TransactionState("COMMIT_MESSAGE") is TransactionState.COMMIT
    """

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"


_BITS = {
    TransactionState.COMMIT: flags.TRANSACTION_COMMIT,
    TransactionState.ROLLBACK: flags.TRANSACTION_ROLLBACK,
    TransactionState.UNKNOWN: flags.TRANSACTION_NOT,
}

ExecuteTransaction: TypeAlias = Callable[
    [Message, str], TransactionState | Awaitable[TransactionState]
]
"""Does the sender's own work: gets the message and the id of the transaction."""

CheckTransaction: TypeAlias = Callable[
    [ReceivedMessage], TransactionState | Awaitable[TransactionState]
]
"""Says what became of the work: gets the half message."""


class TransactionListener(Protocol):
    """The two sides of a transaction; each may be a coroutine function.

    Example:
        class Payments:
            booked: set[str | None] = set()

            def execute(self, message: Message, transaction_id: str) -> TransactionState:
                self.booked.add(transaction_id)
                return TransactionState.COMMIT

            async def check(self, message: ReceivedMessage) -> TransactionState:
                is_booked = message.transaction_id in self.booked
                return TransactionState.COMMIT if is_booked else TransactionState.ROLLBACK

        listener: TransactionListener = Payments()
        producer = TransactionProducer(namesrv, group="payments", listener=listener)
    """

    def execute(
        self, message: Message, transaction_id: str
    ) -> TransactionState | Awaitable[TransactionState]:
        """Do the sender's own work, after the half message is stored.

        Example:
            state = listener.execute(Message("Orders", b"paid"), "7F00000100002A9F0000000000000001")
            assert state is TransactionState.COMMIT
        """
        ...

    def check(self, message: ReceivedMessage) -> TransactionState | Awaitable[TransactionState]:
        """Say what became of the work of a half message, maybe of an earlier process.

        Example:
            assert listener.check(received) is TransactionState.COMMIT
        """
        ...


class TransactionResult(Struct, frozen=True, kw_only=True):
    """What became of a transaction.

    Attributes:
        send_result: Where the half message is stored.
        state: What the broker was told.
        error: What the sender's work raised; then the state is unknown, and the broker will ask.
        is_told: Whether telling the broker went well; if not, it will ask.

    Example:
        result = await transaction_producer.send_transaction(Message("Orders", b"paid"))
        assert result.is_told
        assert result.error is None
    """

    send_result: SendResult
    state: TransactionState
    error: Exception | None = None
    is_told: bool = True


class Transactions:
    """The transactions of one producer.

    Args:
        client: The connections.
        group: The producer's group on the wire.
        check: Says what became of the work; ``None`` if nobody can say.
        hooks: Those that are an :class:`EndTransactionHook` too see the ends.
    """

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        check: CheckTransaction | None,
        hooks: Sequence[SendHook] = (),
    ) -> None:
        self._client = client
        self._group = group
        self._check = check
        self._hooks = [hook for hook in hooks if isinstance(hook, EndTransactionHook)]
        self._checks: set[asyncio.Task[None]] = set()

    def half(self, message: Message) -> Message:
        """The half message of a message.

        Raises:
            BadMessage: It is to be delivered later, which a transaction cannot do.
            ConfigError: The producer has nobody who can say what became of its work.
        """
        if self._check is None:
            raise ConfigError(
                "This producer has no check of transactions",
                detail="a broker asks it after every transaction whose end was lost",
                hint="Give Producer(check=...), or use a TransactionProducer.",
            )
        if is_delayed(message):
            raise BadMessage(
                "A message of a transaction cannot be delivered later",
                hint="Leave out delay_level, delay_ms and deliver_at_ms.",
            )
        system = dict(message.system_properties or {})
        system[prop.TRANSACTION_PREPARED] = "true"
        system[prop.PRODUCER_GROUP] = self._group
        return structs.replace(message, system_properties=system)

    async def run(
        self, message: Message, sent: SendResult, execute: ExecuteTransaction, timeout_ms: int
    ) -> TransactionResult:
        """Do the sender's work for a half message that is stored, and tell the broker."""
        state, error = TransactionState.ROLLBACK, None
        if sent.status is SendStatus.SEND_OK:
            try:
                state = await _state_of(execute(message, sent.transaction_id or sent.message_id))
            except Exception as raised:
                log.exception("The work of the transaction %s failed", sent.message_id)
                state, error = TransactionState.UNKNOWN, raised
        is_told = await self._end_sent(message, sent, state, timeout_ms)
        return TransactionResult(send_result=sent, state=state, error=error, is_told=is_told)

    def answer_check(
        self,
        message: ReceivedMessage,
        header: CheckTransactionStateRequestHeader,
        broker_address: str,
    ) -> None:
        """Have a broker's question answered, soon."""
        if self._check is None:
            log.warning("%s asks after a transaction of %s", broker_address, self._group)
        elif len(self._checks) >= CHECKS_MAX:
            log.warning("%s asks after too many transactions at once", broker_address)
        else:
            work = self._answer_check(self._check, message, header, broker_address)
            task = asyncio.get_running_loop().create_task(work)
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)

    async def close(self) -> None:
        """Answer no more; brokers will ask other producers of the group."""
        await end_tasks(list(self._checks))

    async def _answer_check(
        self,
        check: CheckTransaction,
        message: ReceivedMessage,
        header: CheckTransactionStateRequestHeader,
        broker_address: str,
    ) -> None:
        try:
            state = await _state_of(check(message))
        except Exception:
            log.exception("The check of the transaction %s failed", message.message_id)
            state = TransactionState.UNKNOWN
        address = self._dialled(broker_address, header.broker_name)
        end = EndTransactionRequestHeader(
            topic=header.topic,
            producer_group=self._group,
            half_queue_offset=header.half_queue_offset,
            physical_offset=header.physical_offset,
            commit_or_rollback=_BITS[state],
            from_transaction_check=True,
            msg_id=message.message_id,
            transaction_id=header.transaction_id,
            broker_name=header.broker_name,
        )
        context = EndTransactionContext(
            group=self._client.unwrap(self._group),
            topic=message.topic,
            tags=message.tags,
            keys=" ".join(message.keys),
            message_id=message.message_id,
            transaction_id=header.transaction_id,
            broker_address=address,
            region_id=message.properties.get(prop.MSG_REGION) or DEFAULT_REGION,
            state=state.value,
            from_check=True,
        )
        await self._end(address, end, context, CHECK_END_TIMEOUT_MS)

    async def _end_sent(
        self, message: Message, sent: SendResult, state: TransactionState, timeout_ms: int
    ) -> bool:
        routes = self._client.routes
        queue = structs.replace(sent.queue, topic=self._client.wrap(sent.queue.topic))
        name = routes.broker_name_of(queue)
        address = routes.broker_address(name, master_only=True)
        if address is None:
            log.warning("The end of %s cannot be told: %s is gone", sent.message_id, name)
            return False
        end = EndTransactionRequestHeader(
            topic=queue.topic,
            producer_group=self._group,
            half_queue_offset=sent.queue_offset,
            physical_offset=OffsetMessageId.parse(sent.offset_message_id).physical_offset,
            commit_or_rollback=_BITS[state],
            from_transaction_check=False,
            msg_id=sent.message_id,
            transaction_id=sent.transaction_id,
            broker_name=name,
        )
        wire = message.wire_properties()
        context = EndTransactionContext(
            group=self._client.unwrap(self._group),
            topic=message.topic,
            tags=message.tags,
            keys=wire.get(prop.KEYS, ""),
            message_id=sent.message_id,
            transaction_id=sent.transaction_id,
            broker_address=address,
            region_id=sent.region_id or DEFAULT_REGION,
            state=state.value,
            from_check=False,
        )
        return await self._end(address, end, context, timeout_ms)

    async def _end(
        self,
        address: str,
        header: EndTransactionRequestHeader,
        context: EndTransactionContext,
        timeout_ms: int,
    ) -> bool:
        run_hooks(self._hooks, EndTransactionHook.end_transaction, context)
        try:
            await self._client.remoting.invoke_oneway(
                address, RequestCode.END_TRANSACTION, header, timeout_ms=timeout_ms
            )
        except RoquetError as error:
            log.warning("The end of %s was not told: %s", header.msg_id, error.message)
            return False
        return True

    def _dialled(self, broker_address: str, broker_name: str | None) -> str:
        """The address by which routes know a broker, whose certificate may name only that."""
        routes = self._client.routes
        if broker_name is None:
            return broker_address
        known = routes.brokers.get(broker_name, {}).values()
        if broker_address in known:
            return broker_address
        return routes.broker_address(broker_name, master_only=True) or broker_address


async def _state_of(
    answer: TransactionState | Awaitable[TransactionState],
) -> TransactionState:
    state: object = await answer if inspect.isawaitable(answer) else answer
    if state is None:
        return TransactionState.UNKNOWN
    if not isinstance(state, TransactionState):
        raise BadMessage(
            "The work of a transaction gives a TransactionState", detail=f"found {state!r}"
        )
    return state
