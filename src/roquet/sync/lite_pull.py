"""The consumer that is polled for messages, without asyncio.

Owns the blocking :class:`LitePullConsumer`. One thread at a time polls; any thread may close it,
commit or seek.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, Unpack

from roquet import client as aio
from roquet.client.hooks import ConsumeHook
from roquet.client.lite_options import LitePullOptions, LitePullSettings
from roquet.client.message import ReceivedMessage
from roquet.client.options import ClientOptions
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.client import MessageModel
from roquet.sync.blocking_proxy import LifetimeProxy, blocking, on_loop

__all__ = ["LitePullConsumer"]


class LitePullConsumer(LifetimeProxy[aio.LitePullConsumer]):
    """Returns messages when it is polled.

    Either :meth:`subscribe` to topics, whose queues the clients of the group share, or
    :meth:`assign` queues; both before or after the start.

    Messages from :meth:`poll` or the iteration count as consumed when the caller asks for more,
    commits them, or leaves the ``with`` without an error.

    Args:
        client: The name servers, as ``host:port``, separated by semicolons or as a sequence; or
            all settings of the client.
        group: The group.
        hooks: Hooks that run when a poll has messages, on the thread of the event loop.
        settings: The fields of :class:`~roquet.client.LitePullOptions`.

    Raises:
        BadName: The group cannot have this name.
        ConfigError: A setting cannot be used.

    Example:
        with LitePullConsumer(
            namesrv, group="readers", consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        ) as reader:
            reader.subscribe("Orders", "paid || sent")
            for message in reader:
                print(message.body)
                break
    """

    def __init__(
        self,
        client: str | Sequence[str] | ClientOptions,
        *,
        group: str,
        hooks: Sequence[ConsumeHook] = (),
        **settings: Unpack[LitePullSettings],
    ) -> None:
        inner = aio.LitePullConsumer(client, group=group, hooks=hooks, **settings)
        # A broadcasting consumer keeps its offsets in a file, which a pool reads and writes.
        pooled = inner.options.message_model is MessageModel.BROADCASTING
        super().__init__(inner, pooled=pooled)
        self._unseen: list[ReceivedMessage] = []

    @property
    def group(self) -> str:
        """The group.

        Example:
            assert consumer.group == "examples"
        """
        return self._inner.group

    @property
    def options(self) -> LitePullOptions:
        """The settings.

        Example:
            assert consumer.options.auto_commit
        """
        return self._inner.options

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer reads now.

        Raises:
            ClientClosed: The consumer is not started, or closed.

        Example:
            assert queue in consumer.assignment
        """
        return _assignment(self)

    subscribe = blocking(aio.LitePullConsumer.subscribe)
    unsubscribe = blocking(aio.LitePullConsumer.unsubscribe)
    assign = blocking(aio.LitePullConsumer.assign)
    queues = blocking(aio.LitePullConsumer.queues)
    commit = blocking(aio.LitePullConsumer.commit)
    commit_soon = on_loop(aio.LitePullConsumer.commit_soon)
    committed = blocking(aio.LitePullConsumer.committed)
    seek = blocking(aio.LitePullConsumer.seek)
    seek_to_begin = blocking(aio.LitePullConsumer.seek_to_begin)
    seek_to_end = blocking(aio.LitePullConsumer.seek_to_end)
    seek_to_time = blocking(aio.LitePullConsumer.seek_to_time)
    pause = on_loop(aio.LitePullConsumer.pause)
    resume = on_loop(aio.LitePullConsumer.resume)

    def poll(self, timeout_ms: int = 5_000) -> list[ReceivedMessage]:
        """The next messages, all of one queue; an empty list if none come in time.

        Messages that arrived while the thread was interrupted, for instance by Ctrl-C, are returned
        by the next call.

        Raises:
            ClientClosed: The consumer is not started, or closed.
            NoRoute: A subscribed topic has no broker.
            BrokerRefused: A broker refuses the pull.
            ProtocolError: A broker's response cannot be decoded.

        Example:
            for message in consumer.poll(timeout_ms=1_000):
                print(message.queue_offset, message.body)
        """

        async def polled() -> None:
            self._unseen = await self._inner.poll(timeout_ms)

        if not self._unseen:
            self._runner.run(polled)
        messages, self._unseen = self._unseen, []
        return messages

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        """Return the next message; the one before it counts as consumed. Ends on close."""

        async def one() -> None:
            message = await anext(self._inner, None)
            if message is not None:
                self._unseen = [message]

        if not self._unseen:
            self._runner.run(one)
        if not self._unseen:
            raise StopIteration
        return self._unseen.pop(0)


@on_loop
def _assignment(consumer: aio.LitePullConsumer) -> list[MessageQueue]:
    return consumer.assignment
