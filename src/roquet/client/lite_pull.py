"""A consumer that is asked for messages, instead of calling a handler.

Owns :class:`LitePullConsumer`, what users call. One task pulls each of its queues into a cache
(``lite_queue.py``); what runs behind it is in ``lite_parts.py``.

Invariants:

* What :meth:`LitePullConsumer.poll` gave counts as consumed when the caller comes back for more,
  commits it, or leaves the ``async with`` without an error: a caller that fails gets it again.
* Messages of a queue come in the order of their offsets.
* A problem that will not pass by itself (no route, no permission, a filter that cannot be read), or
  that has been there since the start (nobody at the address), is raised by the next poll that finds
  no messages; others are logged, and tried again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack

from roquet.client.expression import Expression, subscription_of
from roquet.client.hooks import ConsumeHook
from roquet.client.instance import ClientInstance
from roquet.client.lifetime import Running
from roquet.client.lite_options import LitePullOptions, LitePullSettings
from roquet.client.lite_parts import LiteParts
from roquet.client.lite_queue import LiteBatch, LiteQueue
from roquet.client.message import ReceivedMessage
from roquet.client.names import check_group, check_topic
from roquet.client.options import ClientOptions
from roquet.errors import ConfigError, OffsetOutOfRange
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SUBSCRIBE_ALL

__all__ = ["LitePullConsumer"]


class LitePullConsumer(Running[LiteParts]):
    """Gives messages to whoever asks.

    Either :meth:`subscribe` to topics, whose queues the clients of the group share, or
    :meth:`assign` queues; both before or after the start. One task at a time polls.

    Args:
        client: The name servers, as ``host:port``, several with semicolons or as a sequence; or
            all settings of the client.
        group: The group.
        hooks: What runs when a poll has messages.
        settings: The fields of :class:`~roquet.client.LitePullOptions`.

    Raises:
        BadName: The group cannot have this name.
        ConfigError: A setting cannot be used.

    Example:
        async with LitePullConsumer(
            namesrv, group="readers", consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        ) as reader:
            await reader.subscribe("Orders", "paid || sent")
            async for message in reader:
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
        check_group(group)
        super().__init__(f"The consumer of {group}")
        self.options = LitePullOptions(**settings)
        self.options.check()
        self._client_options = ClientOptions.of(client).for_model(self.options.message_model)
        self.group = group
        self._hooks = tuple(hooks)
        self._expressions: dict[str, Expression] = {}
        self._assigned: list[MessageQueue] | None = None
        self._rest: LiteBatch | None = None

    # ----------------------------------------------------------------------- life and death

    async def start(self) -> None:
        """Begin to read what is subscribed or assigned.

        Raises:
            BadExpression: A broker cannot read an expression.
            ConfigError: The client has another consumer of the group, or other settings.
            ClientClosed: The consumer was closed.

        Example:
            later = LitePullConsumer(namesrv, group="later")
            await later.start()
            await later.close()
        """
        await super().start()

    async def _open(self) -> LiteParts:
        client = await ClientInstance.open(self._client_options)
        try:
            running = LiteParts(client, self.group, self.options, self._hooks)
            for topic, expression in self._expressions.items():
                await running.check(topic, expression)
                running.subscribe(topic, expression)
            await running.start(self._assigned)
        except BaseException:
            await client.close()
            raise
        return running

    async def close(self) -> None:
        """Store what counts as consumed, and leave; what is cached goes to others.

        Example:
            await consumer.close()
        """
        await super().close()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self._settle()
        await self.close()

    # -------------------------------------------------------------------------- what to read

    async def subscribe(self, topic: str, expression: Expression = SUBSCRIBE_ALL) -> None:
        """Read a topic together with the other clients of the group; again, to alter the filter.

        Args:
            topic: The topic.
            expression: Which of its messages.

        Raises:
            BadName: The topic cannot have this name.
            BadExpression: The expression cannot be read.
            ConfigError: Queues are assigned.

        Example:
            await consumer.subscribe("Orders", "paid || sent")
            await consumer.subscribe("Parcels", Sql("weight_kg BETWEEN 1 AND 5"))
        """
        check_topic(topic)
        subscription_of(topic, expression, version_ms=0)
        async with self._starting:
            if self._assigned is not None:
                raise _either_or()
            if self._running is not None:
                await self._running.check(topic, expression)
                self._running.subscribe(topic, expression)
            self._expressions[topic] = expression
        if self._running is not None:
            await self._running.join()

    async def unsubscribe(self, topic: str) -> None:
        """Read a topic no more.

        Example:
            await consumer.unsubscribe("Orders")
        """
        async with self._starting:
            self._expressions.pop(topic, None)
        if self._running is not None:
            await self._running.unsubscribe(topic)

    async def assign(
        self, queues: Collection[MessageQueue], expression: Expression = SUBSCRIBE_ALL
    ) -> None:
        """Read these queues and no others, whoever else reads them.

        Args:
            queues: The queues.
            expression: Which of their messages.

        Raises:
            BadExpression: The expression cannot be read.
            ConfigError: Topics are subscribed, or there are no queues.

        Example:
            async with LitePullConsumer(namesrv, group="assigned") as reader:
                queues = await reader.queues("Orders")
                await reader.assign(queues[:1])
                assert reader.assignment == queues[:1]
        """
        if self._expressions and self._assigned is None:
            raise _either_or()
        if not queues:
            raise ConfigError("No queues are given", hint="Give the queues to read.")
        topics = {queue.topic for queue in queues}
        for topic in topics:
            check_topic(topic)
            subscription_of(topic, expression, version_ms=0)
        async with self._starting:
            if self._running is not None:
                for topic in topics:
                    await self._running.check(topic, expression)
                    self._running.subscribe(topic, expression)
            self._expressions = dict.fromkeys(topics, expression)
            self._assigned = list(queues)
        if self._running is not None:
            await self._running.assign(self._assigned)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that can be read.

        Raises:
            NoRoute: No broker has the topic.

        Example:
            queues = await consumer.queues("Orders")
            assert queue in queues
        """
        parts = self._parts
        found = await parts.client.routes.subscribe_queues(parts.client.wrap(topic))
        return [parts.user_queue(each) for each in found]

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer reads now.

        Example:
            assert queue in consumer.assignment
        """
        return sorted(self._parts.user_queue(each) for each in self._parts.queues)

    # ------------------------------------------------------------------------------ messages

    async def poll(self, timeout_ms: int = 5_000) -> list[ReceivedMessage]:
        """The next messages, all of one queue; an empty list if none come in time.

        Raises:
            ClientClosed: The consumer is not started, or closed.
            NoRoute: A subscribed topic has no broker, or no queue that can be read.
            ConnectFailed: No name server has answered yet.
            BrokerRefused: A broker refuses to give messages.
            ProtocolError: A broker gives bytes that are no messages.

        Example:
            for message in await consumer.poll(timeout_ms=1_000):
                print(message.queue_offset, message.body)
        """
        batch = await self._next(timeout_ms)
        if batch is None:
            return []
        self._parts.hand(batch.queue, batch.next_offset)
        return batch.messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """The next message; the one before it counts as consumed."""
        if self._is_closing:
            raise StopAsyncIteration
        while (batch := await self._next(None)) is None:
            if self._running is None:
                raise StopAsyncIteration
        message, rest = batch.messages[0], batch.messages[1:]
        if rest:
            self._rest = batch._replace(messages=rest)
        next_offset = message.queue_offset + 1 if rest else batch.next_offset
        self._parts.hand(batch.queue, next_offset)
        return message

    async def _next(self, timeout_ms: int | None) -> LiteBatch | None:
        parts = self._parts
        self._settle()
        rest, self._rest = self._rest, None
        if rest is not None and not rest.is_stale:
            return rest
        batch = await parts.cache.take(timeout_ms)
        if batch is not None:
            batch.queue.polled_ms = parts.client.clock.now_ms()
            for message in batch.messages:
                message.topic = parts.client.unwrap(message.topic)
            parts.run_hooks(batch)
        return batch

    def _settle(self) -> None:
        if self.options.auto_commit and self._running is not None:
            self._running.settle()

    # ------------------------------------------------------------------------------ commits

    def commit_soon(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Count messages as consumed; they are stored with the next round (``persist_offsets_ms``).

        Args:
            offsets: By queue: the next offset to consume. By default, all that polls gave.

        Example:
            await consumer.poll(timeout_ms=1_000)
            consumer.commit_soon()
        """
        parts = self._parts
        if offsets is None:
            for queue in parts.queues.values():
                parts.note(queue)
            return
        for given, queue_offset in offsets.items():
            parts.offsets.update(self._own(given).queue, queue_offset, increase_only=False)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Count messages as consumed, and wait until that is stored.

        Args:
            offsets: By queue: the next offset to consume. By default, all that polls gave.

        Raises:
            ConfigError: A queue is not read by this consumer.
            ClientError: A broker did not answer, or refused; it is tried again with the next round.

        Example:
            for message in await consumer.poll(timeout_ms=1_000):
                await consumer.commit({message.queue: message.queue_offset + 1})
        """
        self.commit_soon(offsets)
        await self._parts.persist_offsets()

    async def committed(self, queue: MessageQueue) -> int | None:
        """How far the group is in a queue: the next offset to consume; ``None`` if not known.

        Example:
            await consumer.commit({queue: 1})
            assert await consumer.committed(queue) == 1
        """
        return await self._parts.offsets.read(self._parts.wire_queue(queue))

    # ------------------------------------------------------------------------- moving about

    async def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Go on from an offset.

        Raises:
            ConfigError: The queue is not read by this consumer.
            OffsetOutOfRange: The queue has no such offset.
            ClientError: The broker did not answer, or refused.

        Example:
            await consumer.seek(queue, 0)
        """
        parts, own = self._parts, self._own(queue)
        first = await parts.api.min_offset(own.queue)
        end = await parts.api.max_offset(own.queue)
        if not first <= queue_offset <= end:
            raise OffsetOutOfRange(
                f"Queue {queue.queue_id} of {queue.topic} has no offset {queue_offset}",
                detail=f"it has {first} to {end}",
            )
        parts.move(self._own(queue), queue_offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on from the first message that is still there.

        Example:
            for each in consumer.assignment:
                await consumer.seek_to_begin(each)
        """
        at = await self._parts.api.min_offset(self._own(queue).queue)
        self._parts.move(self._own(queue), at)

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on from the next message that comes.

        Example:
            for each in consumer.assignment:
                await consumer.seek_to_end(each)
        """
        at = await self._parts.api.max_offset(self._own(queue).queue)
        self._parts.move(self._own(queue), at)

    async def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Go on from the first message stored at a time or after it.

        Example:
            midnight_ms = 1_767_222_000_000
            await consumer.seek_to_time(queue, midnight_ms)
        """
        at = await self._parts.api.search_offset(self._own(queue).queue, timestamp_ms)
        self._parts.move(self._own(queue), at)

    def pause(self, queues: Collection[MessageQueue]) -> None:
        """Pull no more of these queues; what is cached is still given.

        Example:
            consumer.pause([queue])
            consumer.resume([queue])
        """
        for queue in queues:
            self._own(queue).resumed.clear()

    def resume(self, queues: Collection[MessageQueue]) -> None:
        """Pull these queues again.

        Example:
            consumer.resume(consumer.assignment)
        """
        for queue in queues:
            self._own(queue).resumed.set()

    def _own(self, queue: MessageQueue) -> LiteQueue:
        own = self._parts.queues.get(self._parts.wire_queue(queue))
        if own is None:
            raise ConfigError(
                f"The consumer does not read queue {queue.queue_id} of {queue.topic} "
                f"on {queue.broker_name}",
                hint="It may be another client's now; see assignment.",
            )
        return own


def _either_or() -> ConfigError:
    return ConfigError(
        "A consumer either subscribes to topics or has queues assigned",
        hint="Use two consumers, of two groups.",
    )
