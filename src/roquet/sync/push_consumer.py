"""The push consumer without asyncio.

Owns the blocking :class:`PushConsumer`. Handlers that are ordinary functions run in threads, and
may use all of ``roquet.sync``; a handler that is a coroutine function runs on the thread of
the event loop, where blocking calls are refused. Hooks run there as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from roquet import client as aio
from roquet.client.handler import BatchHandler, Handler
from roquet.client.hooks import ConsumeHook
from roquet.client.options import ClientOptions
from roquet.client.push_options import PushOptions, PushSettings
from roquet.model.message_queue import MessageQueue
from roquet.sync.blocking_proxy import LifetimeProxy, on_loop

__all__ = ["PushConsumer"]


class PushConsumer(LifetimeProxy[aio.PushConsumer]):
    """Consumes messages with a handler, in the background.

    A handler gets one message, a batch handler a list. If it returns nothing or
    ``ConsumeResult.SUCCESS``, the messages are consumed; if it raises, or returns another
    :class:`~roquet.client.ConsumeResult`, they are redelivered.

    Args:
        client: The name servers, as ``host:port``, separated by semicolons or as a sequence; or
            all settings of the client.
        group: The group. Its clients share the messages, and all have the same subscriptions.
        handler: Consumes a message; several calls run at once, each in a thread.
        batch_handler: Consumes several messages; give exactly one of the two.
        hooks: Hooks that run around every call of the handler, on the thread of the event loop.
        settings: The fields of :class:`~roquet.client.PushOptions`.

    Raises:
        BadName: The group cannot have this name.
        ConfigError: A setting cannot be used, or there is not exactly one handler.

    Example:
        from queue import SimpleQueue

        bodies = SimpleQueue()

        def handle(message: ReceivedMessage) -> None:
            bodies.put(message.body)

        started = PushConsumer(
            namesrv,
            group="printers",
            handler=handle,
            consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        started.subscribe("Orders", "paid || sent")
        with started:
            print(bodies.get())
    """

    def __init__(
        self,
        client: str | Sequence[str] | ClientOptions,
        *,
        group: str,
        handler: Handler | None = None,
        batch_handler: BatchHandler | None = None,
        hooks: Sequence[ConsumeHook] = (),
        **settings: Unpack[PushSettings],
    ) -> None:
        super().__init__(
            aio.PushConsumer(
                client,
                group=group,
                handler=handler,
                batch_handler=batch_handler,
                hooks=hooks,
                **settings,
            ),
            pooled=True,
        )

    @property
    def group(self) -> str:
        """The group.

        Example:
            assert push_consumer.group == "pushed"
        """
        return self._inner.group

    @property
    def options(self) -> PushOptions:
        """The settings.

        Example:
            assert push_consumer.options.concurrency > 0
        """
        return self._inner.options

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues assigned to this consumer, sorted, without those of its retry topic.

        Raises:
            ClientClosed: The consumer is not started, or closed.

        Example:
            print(push_consumer.assignment)
        """
        return _assignment(self)

    subscribe = on_loop(aio.PushConsumer.subscribe)
    unsubscribe = on_loop(aio.PushConsumer.unsubscribe)
    pause = on_loop(aio.PushConsumer.pause)
    resume = on_loop(aio.PushConsumer.resume)


@on_loop
def _assignment(consumer: aio.PushConsumer) -> list[MessageQueue]:
    return consumer.assignment
