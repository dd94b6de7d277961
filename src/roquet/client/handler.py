"""A user's handler of messages: what it may be, what it may answer, how it is called.

Owns :class:`ConsumeResult` and :class:`HandlerCall`. A handler gets one message or a list, and is a
coroutine function, which runs on the event loop, or an ordinary function, which runs in a thread
and may block.

========================== ===================================================================
a handler that             means
========================== ===================================================================
returns nothing            the messages are consumed
returns a ConsumeResult    what that says
returns anything else      a mistake: it is logged, and the messages are retried
raises                     the messages are retried; the exception is logged
========================== ===================================================================
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, cast

from roquet.client.hooks import ConsumeContext, ConsumeHook, ConsumeReturn, run_hooks
from roquet.client.message import ReceivedMessage
from roquet.errors import ConfigError
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.client import CMResult, ConsumeMessageDirectlyResult
from roquet.runtime.clock import Clock

__all__ = ["BatchHandler", "ConsumeResult", "Handler", "HandlerCall"]

log = logging.getLogger(__name__)

_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class ConsumeResult:
    """What became of the messages that a handler got.

    Attributes:
        is_success: Whether they are consumed.
        consumed: When they are: how many of them, from the first; ``None`` for all. The others
            are retried.
        delay_level: When they are not: how long until they come again, as one of the broker's
            levels; 0 leaves it to the broker, which waits longer each time; -1 puts them with the
            dead letters.
        suspend_ms: When they are not, and messages are consumed in order: how long the queue
            waits; ``None`` for what the consumer is set to.

    Example:
        >>> ConsumeResult.SUCCESS.is_success, ConsumeResult.retry(delay_level=3).delay_level
        (True, 3)
    """

    is_success: bool
    consumed: int | None = None
    delay_level: int = 0
    suspend_ms: int | None = None

    SUCCESS: ClassVar[ConsumeResult]
    """All messages are consumed."""

    RETRY: ClassVar[ConsumeResult]
    """All messages are to come again, when the broker thinks it is time."""

    SUSPEND: ClassVar[ConsumeResult]
    """In order: the queue waits for a moment, then the same messages come again."""

    @classmethod
    def retry(cls, *, delay_level: int = 0) -> ConsumeResult:
        """All messages are to come again after the time of this level.

        Example:
            def handle(message: ReceivedMessage) -> ConsumeResult:
                return ConsumeResult.retry(delay_level=3)
        """
        return cls(is_success=False, delay_level=delay_level)

    @classmethod
    def suspend(cls, suspend_ms: int) -> ConsumeResult:
        """In order: the same messages come again after this time.

        Example:
            async def handle(message: ReceivedMessage) -> ConsumeResult:
                return ConsumeResult.suspend(1_000)
        """
        return cls(is_success=False, suspend_ms=suspend_ms)

    @classmethod
    def first(cls, consumed: int, *, delay_level: int = 0) -> ConsumeResult:
        """The first messages of a batch are consumed, the others are to come again.

        Example:
            def handle(messages: list[ReceivedMessage]) -> ConsumeResult:
                return ConsumeResult.first(len(messages) - 1)
        """
        return cls(is_success=True, consumed=max(consumed, 0), delay_level=delay_level)

    def count_of(self, messages: Sequence[ReceivedMessage]) -> int:
        """How many of the messages are consumed, from the first.

        Example:
            assert ConsumeResult.first(1).count_of([received, received]) == 1
        """
        if not self.is_success:
            return 0
        return len(messages) if self.consumed is None else min(self.consumed, len(messages))


ConsumeResult.SUCCESS = ConsumeResult(is_success=True)
ConsumeResult.RETRY = ConsumeResult(is_success=False)
ConsumeResult.SUSPEND = ConsumeResult(is_success=False)

_Answer = ConsumeResult | None
Handler = Callable[[ReceivedMessage], _Answer | Awaitable[_Answer]]
"""What consumes one message.

Example:
    async def handle(message: ReceivedMessage) -> None:
        print(message.body)

    consumer = PushConsumer(namesrv, group="billing", handler=handle)
"""

BatchHandler = Callable[[list[ReceivedMessage]], _Answer | Awaitable[_Answer]]
"""What consumes some messages of one queue, in the order of the queue.

Example:
    def handle(messages: list[ReceivedMessage]) -> ConsumeResult:
        return ConsumeResult.SUCCESS if len(messages) > 1 else ConsumeResult.RETRY

    consumer = PushConsumer(namesrv, group="billing", batch_handler=handle)
"""


class HandlerCall:
    """Calls a handler.

    Args:
        group: The consumer's group, for hooks and logs.
        handler: What consumes one message.
        batch_handler: What consumes several; exactly one of both is given.
        threads: In how many threads ordinary functions run.
        timeout_ms: After how long hooks are told of a time-out.
        clock: The time.
        hooks: What runs around each call.

    Attributes:
        plain: The handler itself, when there is nothing to do around it: a coroutine function of
            one message, without hooks. What it returns goes to :meth:`result_of`, what it raises
            to :meth:`result_of_failure`.

    Raises:
        ConfigError: No handler is given, or two.
    """

    def __init__(
        self,
        group: str,
        handler: Handler | None,
        batch_handler: BatchHandler | None,
        *,
        threads: int,
        timeout_ms: int,
        clock: Clock,
        hooks: Sequence[ConsumeHook] = (),
    ) -> None:
        if (handler is None) == (batch_handler is None):
            raise ConfigError(
                "A push consumer has one handler",
                hint="Give a handler for single messages, or a batch_handler for several at once.",
            )
        self._group = group
        self._handler = handler
        self._batch_handler = batch_handler
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._hooks = hooks
        called = handler if handler is not None else batch_handler
        self._threads: ThreadPoolExecutor | None = None
        self.plain: Callable[[ReceivedMessage], Awaitable[object]] | None = None
        if not _is_coroutine_function(called):
            self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"consume-{group[:100]}")
        elif handler is not None and not hooks:
            self.plain = cast("Callable[[ReceivedMessage], Awaitable[object]]", handler)

    @property
    def takes_batches(self) -> bool:
        """Whether the handler gets several messages at once."""
        return self._batch_handler is not None

    async def call(
        self, messages: list[ReceivedMessage], queue: MessageQueue
    ) -> tuple[ConsumeResult, BaseException | None]:
        """Have the handler consume messages.

        Args:
            messages: The messages; exactly one unless the handler takes batches.
            queue: Where they are from.

        Returns:
            What became of them, and the exception if the handler raised one.
        """
        context: ConsumeContext | None = None
        if self._hooks:
            context = ConsumeContext(
                group=self._group, messages=messages, queue=queue, started_ms=self._clock.now_ms()
            )
            run_hooks(self._hooks, ConsumeHook.before_consume, context)
        started_ns = self._clock.monotonic_ns()
        returned = ConsumeReturn.SUCCESS
        error: Exception | None = None
        try:
            answer = await self._answer(messages)
        except asyncio.CancelledError:
            if context is not None:
                context.returned = ConsumeReturn.EXCEPTION
                run_hooks(self._hooks, ConsumeHook.after_consume, context)
            raise
        except Exception as raised:  # noqa: BLE001 - it is logged, and the messages are retried
            result = self.result_of_failure(messages, queue, raised)
            error, returned = raised, ConsumeReturn.EXCEPTION
        else:
            result = self.result_of(answer)
            if not result.is_success:
                returned = ConsumeReturn.FAILED
        if context is not None:
            spent_ns = self._clock.monotonic_ns() - started_ns
            if error is None and spent_ns >= self._timeout_ms * _NS_PER_MS:
                returned = ConsumeReturn.TIMEOUT
            context.is_success = result.is_success
            context.returned = returned
            run_hooks(self._hooks, ConsumeHook.after_consume, context)
        return result, error

    async def call_directly(
        self, message: ReceivedMessage, queue: MessageQueue, *, in_order: bool
    ) -> ConsumeMessageDirectlyResult:
        """Have the handler consume a message out of turn, and say how that went."""
        started_ns = self._clock.monotonic_ns()
        result, error = await self.call([message], queue)
        if error is not None:
            outcome = CMResult.CR_THROW_EXCEPTION
        else:
            outcome = CMResult.CR_SUCCESS if result.is_success else CMResult.CR_LATER
        return ConsumeMessageDirectlyResult(
            consume_result=outcome,
            order=in_order,
            remark=None if error is None else f"{type(error).__name__}: {error}",
            spent_time_ms=(self._clock.monotonic_ns() - started_ns) // _NS_PER_MS,
        )

    async def _answer(self, messages: list[ReceivedMessage]) -> _Answer:
        if self._threads is not None:
            loop = asyncio.get_running_loop()
            # As asyncio.to_thread does, so that the handler sees what hooks put into the context.
            call = contextvars.copy_context().run
            answer = await loop.run_in_executor(self._threads, call, self._call, messages)
        else:
            answer = self._call(messages)
        if inspect.isawaitable(answer):
            return await answer
        return answer

    def _call(self, messages: list[ReceivedMessage]) -> _Answer | Awaitable[_Answer]:
        if self._batch_handler is not None:
            return self._batch_handler(messages)
        assert self._handler is not None
        return self._handler(messages[0])

    def result_of_failure(
        self, messages: Sequence[ReceivedMessage], queue: MessageQueue, error: Exception
    ) -> ConsumeResult:
        """What an exception of the handler means."""
        log.warning(
            "%s: the handler failed on %s of %s",
            self._group,
            ", ".join(each.message_id for each in messages),
            queue,
            exc_info=error,
        )
        return ConsumeResult.RETRY

    def result_of(self, answer: object) -> ConsumeResult:
        """What the handler's answer means."""
        if answer is None:
            return ConsumeResult.SUCCESS
        if isinstance(answer, ConsumeResult):
            return answer
        log.error(
            "%s: the handler returned %r, which is no ConsumeResult; the messages are retried",
            self._group,
            answer,
        )
        return ConsumeResult.RETRY

    def close(self) -> None:
        """Begin no more calls; those in threads cannot be stopped, nobody waits for them."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _is_coroutine_function(called: object) -> bool:
    return inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(
        getattr(called, "__call__", None)  # noqa: B004 - an object whose call is a coroutine
    )
