"""Transactions: a message becomes visible to consumers only once the sender's local work is done.

Owns the order of the steps, which is that of Apache RocketMQ's client:

.. code-block:: text

    half message ──► stored ──► the sender's own work ──► END_TRANSACTION (one-way)
                                                                 │ lost, or unknown
    the sender's listener ◄── CHECK_TRANSACTION_STATE (39) ◄─────┘ the broker asks, later and again
            └──► END_TRANSACTION (one-way)

Invariants:

* The state that the sender's work returns is sent to the broker. If the work raises, the message is
  rolled back and the caller gets the exception; if its outcome is unknown, it returns ``UNKNOWN``,
  and the broker checks later. A half message that is stored less safely than configured is rolled
  back, and the work is not done.
* At most :data:`CHECKS_MAX` checks run at once; brokers will repeat the others.
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
    """The state of the sender's local work; the values are upstream's names.

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
"""Does the sender's local work, given the message and the transaction id."""

CheckTransaction: TypeAlias = Callable[
    [ReceivedMessage], TransactionState | Awaitable[TransactionState]
]
"""Returns the state of the work, given the half message."""


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
        """Do the sender's local work, after the half message is stored.

        Example:
            state = listener.execute(Message("Orders", b"paid"), "7F00000100002A9F0000000000000001")
            assert state is TransactionState.COMMIT
        """
        ...

    def check(self, message: ReceivedMessage) -> TransactionState | Awaitable[TransactionState]:
        """Return the state of the work for a half message, maybe from an earlier process.

        Example:
            assert listener.check(received) is TransactionState.COMMIT
        """
        ...


class TransactionResult(Struct, frozen=True, kw_only=True):
    """The result of a transaction.

    Attributes:
        send_result: The result of sending the half message.
        state: The state sent to the broker.
        is_told: Whether the state could be sent to the broker; if not, the broker will check.

    Example:
        result = await transaction_producer.send_transaction(Message("Orders", b"paid"))
        assert result.is_told
    """

    send_result: SendResult
    state: TransactionState
    is_told: bool = True


class Transactions:
    """The transactions of one producer.

    Args:
        client: The connections.
        group: The producer's group on the wire.
        check: Returns the state of the work; ``None`` without transactions.
        hooks: Each that is also an :class:`EndTransactionHook` sees the end of transactions.
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
        """Return the half message of a message.

        Raises:
            BadMessage: It is delayed, which a transaction does not support.
            ConfigError: The producer has no check.
        """
        if self._check is None:
            raise ConfigError(
                "This producer has no transaction check",
                detail="a broker calls it for every transaction whose end was lost",
                hint="Pass Producer(check=...), or use a TransactionProducer.",
            )
        if is_delayed(message):
            raise BadMessage(
                "A transactional message cannot be delayed",
                hint="Omit delay_level, delay_ms and deliver_at_ms.",
            )
        system = dict(message.system_properties or {})
        system[prop.TRANSACTION_PREPARED] = "true"
        system[prop.PRODUCER_GROUP] = self._group
        return structs.replace(message, system_properties=system)

    async def run(
        self, message: Message, sent: SendResult, execute: ExecuteTransaction, timeout_ms: int
    ) -> TransactionResult:
        """Do the sender's work for a stored half message, and send the state to the broker.

        Raises:
            Exception: The exception of the work, after the message was rolled back.
            BadMessage: The work returned no state, so the broker will check.
        """
        state = TransactionState.ROLLBACK
        if sent.status is SendStatus.SEND_OK:
            try:
                answer = execute(message, sent.transaction_id or sent.message_id)
                state = _checked_state(await answer if inspect.isawaitable(answer) else answer)
            except _NoState:
                await self._end_sent(message, sent, TransactionState.UNKNOWN, timeout_ms)
                raise
            except Exception:
                await self._end_sent(message, sent, TransactionState.ROLLBACK, timeout_ms)
                raise
        is_told = await self._end_sent(message, sent, state, timeout_ms)
        return TransactionResult(send_result=sent, state=state, is_told=is_told)

    def answer_check(
        self,
        message: ReceivedMessage,
        header: CheckTransactionStateRequestHeader,
        broker_address: str,
    ) -> None:
        """Start a check for a broker, in the background."""
        if self._check is None:
            log.warning("%s asks about a transaction of %s", broker_address, self._group)
        elif len(self._checks) >= CHECKS_MAX:
            log.warning("%s asks about too many transactions at once", broker_address)
        else:
            work = self._answer_check(self._check, message, header, broker_address)
            task = asyncio.get_running_loop().create_task(work)
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)

    async def close(self) -> None:
        """Stop checking; brokers will ask other producers of the group."""
        await end_tasks(list(self._checks))

    async def _answer_check(
        self,
        check: CheckTransaction,
        message: ReceivedMessage,
        header: CheckTransactionStateRequestHeader,
        broker_address: str,
    ) -> None:
        try:
            answer = check(message)
            state = _checked_state(await answer if inspect.isawaitable(answer) else answer)
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
            log.warning("The end of %s cannot be reported: %s is gone", sent.message_id, name)
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
            log.warning("The end of %s was not reported: %s", header.msg_id, error.message)
            return False
        return True

    def _dialled(self, broker_address: str, broker_name: str | None) -> str:
        """Return the broker's address in routes, since its certificate may name only that one."""
        routes = self._client.routes
        if broker_name is None:
            return broker_address
        known = routes.brokers.get(broker_name, {}).values()
        if broker_address in known:
            return broker_address
        return routes.broker_address(broker_name, master_only=True) or broker_address


class _NoState(BadMessage):
    """The work or the check of a transaction returned something other than a state."""


def _checked_state(state: object) -> TransactionState:
    if state is None:
        return TransactionState.UNKNOWN
    if not isinstance(state, TransactionState):
        raise _NoState(
            "The work of a transaction must return a TransactionState", detail=f"found {state!r}"
        )
    return state
