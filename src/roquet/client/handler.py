"""The user's message handler: its allowed forms and results, and how it is called.

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
from roquet.client.unpacking import unpack
from roquet.errors import ConfigError
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.client import CMResult, ConsumeMessageDirectlyResult
from roquet.runtime.clock import Clock

__all__ = ["BatchHandler", "ConsumeResult", "Handler", "HandlerCall"]

log = logging.getLogger(__name__)

_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class ConsumeResult:
    """The outcome of a handler call.

    Attributes:
        is_success: Whether the messages are consumed.
        consumed: On success: how many of them, from the first; ``None`` for all. The others are
            retried.
        delay_level: On failure: the delay before redelivery, as one of the broker's levels; 0
            leaves it to the broker, which waits longer each time; -1 makes them dead letters.
        suspend_ms: On failure, when messages are consumed in order: how long the queue waits;
            ``None`` for the consumer's setting.

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
    """All messages are redelivered, after a delay that the broker chooses."""

    SUSPEND: ClassVar[ConsumeResult]
    """In order: the queue waits for a moment, then the same messages are retried."""

    @classmethod
    def retry(cls, *, delay_level: int = 0) -> ConsumeResult:
        """Redeliver all messages after the delay of this level.

        Example:
            def handle(message: ReceivedMessage) -> ConsumeResult:
                return ConsumeResult.retry(delay_level=3)
        """
        return cls(is_success=False, delay_level=delay_level)

    @classmethod
    def suspend(cls, suspend_ms: int) -> ConsumeResult:
        """In order: retry the same messages after this time.

        Example:
            async def handle(message: ReceivedMessage) -> ConsumeResult:
                return ConsumeResult.suspend(1_000)
        """
        return cls(is_success=False, suspend_ms=suspend_ms)

    @classmethod
    def first(cls, consumed: int, *, delay_level: int = 0) -> ConsumeResult:
        """Mark the first messages of a batch as consumed, and redeliver the others.

        Example:
            def handle(messages: list[ReceivedMessage]) -> ConsumeResult:
                return ConsumeResult.first(len(messages) - 1)
        """
        return cls(is_success=True, consumed=max(consumed, 0), delay_level=delay_level)

    def count_of(self, messages: Sequence[ReceivedMessage]) -> int:
        """Return how many of the messages are consumed, from the first.

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
"""A handler of single messages.

Example:
    async def handle(message: ReceivedMessage) -> None:
        print(message.body)

    consumer = PushConsumer(namesrv, group="billing", handler=handle)
"""

BatchHandler = Callable[[list[ReceivedMessage]], _Answer | Awaitable[_Answer]]
"""A handler of batches: messages of one queue, in queue order.

Example:
    def handle(messages: list[ReceivedMessage]) -> ConsumeResult:
        return ConsumeResult.SUCCESS if len(messages) > 1 else ConsumeResult.RETRY

    consumer = PushConsumer(namesrv, group="billing", batch_handler=handle)
"""


class HandlerCall:
    """Calls a handler.

    Args:
        group: The consumer's group, for hooks and logs.
        handler: Consumes one message.
        batch_handler: Consumes several messages; give exactly one of the two.
        threads: The number of threads for ordinary functions.
        timeout_ms: The duration after which hooks see a timeout.
        clock: The clock.
        hooks: Hooks that run around each call.

    Attributes:
        plain: The handler itself, if it is a coroutine function of one message, without hooks. Its
            return value goes to :meth:`result_of`, its exception to :meth:`result_of_failure`.

    Raises:
        ConfigError: There is not exactly one handler.
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
                "A push consumer needs exactly one handler",
                hint="Pass a handler for single messages, or a batch_handler for several at once.",
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
            queue: Their queue.

        Returns:
            The outcome, and the exception if the handler raised one.
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
        """Have the handler consume a message out of turn, and return the outcome."""
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
            # As asyncio.to_thread does, so that the handler sees the context that hooks set.
            context = contextvars.copy_context()
            answer = await loop.run_in_executor(
                self._threads, lambda: context.run(self._call, messages)
            )
        else:
            await unpack(messages)
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
        """Return the outcome for an exception of the handler."""
        log.warning(
            "%s: the handler failed on %s of %s",
            self._group,
            ", ".join(each.message_id for each in messages),
            queue,
            exc_info=error,
        )
        return ConsumeResult.RETRY

    def result_of(self, answer: object) -> ConsumeResult:
        """Return the outcome for a return value of the handler."""
        if answer is None:
            return ConsumeResult.SUCCESS
        if isinstance(answer, ConsumeResult):
            return answer
        log.error(
            "%s: the handler returned %r, not a ConsumeResult; the messages are retried",
            self._group,
            answer,
        )
        return ConsumeResult.RETRY

    def close(self) -> None:
        """Start no more calls; running threads cannot be stopped, and are not awaited."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _is_coroutine_function(called: object) -> bool:
    return inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(
        getattr(called, "__call__", None)  # noqa: B004 - an object whose call is a coroutine
    )
