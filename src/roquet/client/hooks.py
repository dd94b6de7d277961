"""Hooks that users run around sends, consumption and the end of transactions.

Owns the hooks and their contexts. An exception of a hook is logged and changes nothing: the message
is processed anyway, as in Apache RocketMQ's client. Hooks run on the event loop and must not wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Protocol, TypeVar, runtime_checkable

from msgspec import Struct, field

from roquet.client.message import Message, ReceivedMessage, SendResult
from roquet.model.message_queue import MessageQueue

__all__ = [
    "ConsumeContext",
    "ConsumeHook",
    "ConsumeReturn",
    "EndTransactionContext",
    "EndTransactionHook",
    "MessageKind",
    "SendContext",
    "SendHook",
    "batched",
    "run_hooks",
]

log = logging.getLogger(__name__)

_Hook = TypeVar("_Hook")
_Context = TypeVar("_Context")


class MessageKind(IntEnum):
    """The kind of a message; the numbers are upstream's.

    Example:
        assert MessageKind.HALF == 1
    """

    NORMAL = 0
    HALF = 1
    TRANSACTION_END = 2
    DELAYED = 3


class SendContext(Struct, kw_only=True, eq=False):
    """One attempt to send.

    Attributes:
        group: The producer's group.
        messages: The message, or those of a batch.
        queue: The target queue.
        broker_address: The broker.
        properties: The properties sent to the broker; a hook may add some before the send. For a
            batch, these are not the messages' own.
        kind: The kind of message.
        oneway: Whether no response is expected.
        started_ms: When the attempt began.
        body_bytes: The length of the body on the wire.
        result: The result, after the send.
        error: The error, after a failed send.
        notes: Data that hooks keep between before and after, by keys of their own.

    Example:
        class Print(SendHook):
            def after_send(self, context: SendContext) -> None:
                print(context.queue, context.body_bytes, context.result or context.error)

        async with Producer(namesrv, group="printing", hooks=[Print()]) as printing:
            await printing.send(Message("Orders", b"paid"))
    """

    group: str
    messages: Sequence[Message]
    queue: MessageQueue
    broker_address: str
    properties: dict[str, str]
    kind: MessageKind = MessageKind.NORMAL
    oneway: bool = False
    started_ms: int = 0
    body_bytes: int = 0
    result: SendResult | None = None
    error: BaseException | None = None
    notes: dict[str, object] = field(default_factory=dict)


class SendHook:
    """Runs around every attempt to send; a subclass overrides what it needs.

    Example:
        >>> class Count(SendHook):
        ...     sent = 0
        ...     def after_send(self, context: SendContext) -> None:
        ...         self.sent += context.error is None
    """

    def into_batch(self, message: Message) -> Message:
        """Inspect a message that will be part of a batch; returns the message to use.

        Properties that :meth:`before_send` adds to a batch reach no message: the messages are
        already encoded, each with its own properties.

        Example:
            class Stamp(SendHook):
                def into_batch(self, message: Message) -> Message:
                    message.properties["sent-by"] = "billing"
                    return message

            async with Producer(namesrv, group="stamping", hooks=[Stamp()]) as stamping:
                await stamping.send_batch([Message("Orders", b"paid"), Message("Orders", b"sent")])
        """
        return message

    def before_send(self, context: SendContext) -> None:
        """Inspect a message, and optionally add properties.

        Example:
            class Stamp(SendHook):
                def before_send(self, context: SendContext) -> None:
                    context.properties["sent-by"] = context.group

            async with Producer(namesrv, group="stamping", hooks=[Stamp()]) as stamping:
                await stamping.send(Message("Orders", b"paid"))
        """

    def after_send(self, context: SendContext) -> None:
        """Inspect the outcome.

        Example:
            class Count(SendHook):
                failed = 0

                def after_send(self, context: SendContext) -> None:
                    self.failed += context.error is not None

            counted = Producer(namesrv, group="counting", hooks=[Count()])
        """


class ConsumeReturn(IntEnum):
    """The outcome of a handler call; the numbers are upstream's.

    Example:
        assert ConsumeReturn.EXCEPTION == 2
    """

    SUCCESS = 0
    TIMEOUT = 1
    EXCEPTION = 2
    RETURNED_NOTHING = 3
    FAILED = 4


class ConsumeContext(Struct, kw_only=True, eq=False):
    """One call of a consumer's handler.

    Attributes:
        group: The consumer's group.
        messages: The messages for the handler.
        queue: Their queue.
        started_ms: When the call began.
        is_polled: Whether a poll returns the messages, and no handler is called.
        is_success: Whether they were consumed, after the call.
        returned: The outcome, after the call.
        notes: Data that hooks keep between before and after, by keys of their own.

    Example:
        class Slow(ConsumeHook):
            def after_consume(self, context: ConsumeContext) -> None:
                if context.returned is ConsumeReturn.TIMEOUT:
                    print(context.queue, [each.message_id for each in context.messages])

        consumer = PushConsumer(namesrv, group="billing", handler=print, hooks=[Slow()])
    """

    group: str
    messages: Sequence[ReceivedMessage]
    queue: MessageQueue
    started_ms: int = 0
    is_polled: bool = False
    is_success: bool = False
    returned: ConsumeReturn = ConsumeReturn.SUCCESS
    notes: dict[str, object] = field(default_factory=dict)


class ConsumeHook:
    """Runs around every call of a handler; a subclass overrides what it needs.

    For a polled consumer, both methods run when a poll has messages: what the caller does with them
    is not known.

    Example:
        class Count(ConsumeHook):
            consumed = 0

            def after_consume(self, context: ConsumeContext) -> None:
                self.consumed += len(context.messages) if context.is_success else 0

        consumer = PushConsumer(namesrv, group="billing", handler=print, hooks=[Count()])
    """

    def before_consume(self, context: ConsumeContext) -> None:
        """Inspect messages before the handler gets them.

        Example:
            class Announce(ConsumeHook):
                def before_consume(self, context: ConsumeContext) -> None:
                    context.notes["announced"] = len(context.messages)

            consumer = PushConsumer(namesrv, group="billing", handler=print, hooks=[Announce()])
        """

    def after_consume(self, context: ConsumeContext) -> None:
        """Inspect the outcome.

        Example:
            class Failures(ConsumeHook):
                def after_consume(self, context: ConsumeContext) -> None:
                    if not context.is_success:
                        print(context.group, context.queue)

            consumer = PushConsumer(namesrv, group="billing", handler=print, hooks=[Failures()])
        """


class EndTransactionContext(Struct, kw_only=True, eq=False):
    """The end of a transaction.

    Attributes:
        group: The producer's group.
        topic: The topic of the half message.
        tags: Its tag.
        keys: Its keys, separated by spaces.
        message_id: Its unique id.
        transaction_id: The id of the transaction.
        broker_address: The broker that has it.
        region_id: The region of the broker.
        state: The reported state: ``COMMIT_MESSAGE``, ``ROLLBACK_MESSAGE`` or ``UNKNOW``.
        from_check: Whether this responds to a check by the broker.

    Example:
        class Ends(SendHook):
            def end_transaction(self, context: EndTransactionContext) -> None:
                print(context.transaction_id, context.state)

        hook: EndTransactionHook = Ends()
    """

    group: str
    topic: str
    tags: str | None
    keys: str
    message_id: str
    transaction_id: str | None
    broker_address: str
    region_id: str
    state: str
    from_check: bool


@runtime_checkable
class EndTransactionHook(Protocol):
    """A hook that also sees the end of transactions.

    Example:
        class Ends(SendHook):
            def end_transaction(self, context: EndTransactionContext) -> None:
                print(context.transaction_id, context.state)

        assert isinstance(Ends(), EndTransactionHook)
        producer = Producer(namesrv, group="payments", hooks=[Ends()])
    """

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Inspect the end of a transaction, before it is sent.

        Example:
            class RolledBack(SendHook):
                count = 0

                def end_transaction(self, context: EndTransactionContext) -> None:
                    self.count += context.state == "ROLLBACK_MESSAGE"
        """
        ...


def run_hooks(
    hooks: Iterable[_Hook], method: Callable[[_Hook, _Context], None], context: _Context
) -> None:
    """Run one method of all hooks; exceptions are logged.

    Example:
        >>> class Shout(SendHook):
        ...     def before_send(self, context: SendContext) -> None:
        ...         print(context.queue.topic.upper())
        >>> queue = MessageQueue("Orders", "broker-a", 0)
        >>> context = SendContext(
        ...     group="g", messages=[], queue=queue, broker_address="h:1", properties={}
        ... )
        >>> run_hooks([Shout()], SendHook.before_send, context)
        ORDERS
    """
    for hook in hooks:
        try:
            getattr(hook, method.__name__)(context)
        except Exception:
            log.exception("The hook %s failed", type(hook).__name__)


def batched(hooks: Iterable[SendHook], message: Message) -> Message:
    """Run the hooks of a message in a batch; returns the message to use. Exceptions are logged."""
    for hook in hooks:
        try:
            message = hook.into_batch(message)
        except Exception:
            log.exception("The hook %s failed", type(hook).__name__)
    return message
