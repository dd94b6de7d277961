"""A consumer that is polled for messages, instead of calling a handler.

Owns :class:`LitePullConsumer`, the public class. One task pulls each of its queues into a cache
(``lite_queue.py``); the implementation is in ``running_lite_pull.py``.

Invariants:

* Messages from :meth:`LitePullConsumer.poll` count as consumed when the caller asks for more,
  commits them, or leaves the ``async with`` without an error: a caller that fails gets them again.
* Messages of a queue come in the order of their offsets.
* A permanent error (no route, no permission, a filter that cannot be parsed), or one that has
  lasted since the start (nobody at the address), is raised by the next poll that finds no messages;
  other errors are logged, and the operation is retried.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Self, Unpack

from roquet.client.expression import Expression, subscription_of
from roquet.client.hooks import ConsumeHook
from roquet.client.instance import ClientInstance
from roquet.client.lifetime import Running
from roquet.client.lite_options import LitePullOptions, LitePullSettings
from roquet.client.lite_queue import LiteBatch, LiteQueue
from roquet.client.message import ReceivedMessage
from roquet.client.names import check_group, check_topic
from roquet.client.options import ClientOptions
from roquet.client.running_lite_pull import RunningLitePull
from roquet.client.unpacking import unpack
from roquet.errors import ConfigError, OffsetOutOfRange
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SUBSCRIBE_ALL

__all__ = ["LitePullConsumer"]


class LitePullConsumer(Running[RunningLitePull]):
    """Returns messages when it is polled.

    Either :meth:`subscribe` to topics, whose queues the clients of the group share, or
    :meth:`assign` queues; both before or after the start. One task at a time polls.

    Args:
        client: The name servers, as ``host:port``, separated by semicolons or as a sequence; or
            all settings of the client.
        group: The group.
        hooks: Hooks that run when a poll has messages.
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

    # ---------------------------------------------------------------------- start and close

    async def start(self) -> None:
        """Start reading the subscribed topics or assigned queues.

        Raises:
            BadExpression: A broker cannot parse an expression.
            ConfigError: The client has another consumer of the group, or other settings.
            ClientClosed: The consumer was closed.

        Example:
            later = LitePullConsumer(namesrv, group="later")
            await later.start()
            await later.close()
        """
        await super().start()

    async def _open(self) -> RunningLitePull:
        client = await ClientInstance.open(self._client_options)
        try:
            running = RunningLitePull(client, self.group, self.options, self._hooks)
            for topic, expression in self._expressions.items():
                await running.check(topic, expression)
                running.subscribe(topic, expression)
            await running.start(self._assigned)
        except BaseException:
            await client.close()
            raise
        return running

    async def close(self) -> None:
        """Store the consumed offsets, and leave the group; cached messages go to other clients.

        Example:
            await consumer.close()
        """
        await super().close()

    async def __aexit__(self, *error: object) -> None:
        if error[0] is None:
            self._settle()
        await self.close()

    # ------------------------------------------------------------------------- subscriptions

    async def subscribe(self, topic: str, expression: Expression = SUBSCRIBE_ALL) -> None:
        """Read a topic, shared with the group's other clients; call again to change the filter.

        Args:
            topic: The topic.
            expression: Which of its messages.

        Raises:
            BadName: The topic cannot have this name.
            BadExpression: The expression cannot be parsed.
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
        """Stop reading a topic.

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
            BadExpression: The expression cannot be parsed.
            ConfigError: Topics are subscribed, or no queues are given.

        Example:
            async with LitePullConsumer(namesrv, group="assigned") as reader:
                queues = await reader.queues("Orders")
                await reader.assign(queues[:1])
                assert reader.assignment == queues[:1]
        """
        if self._expressions and self._assigned is None:
            raise _either_or()
        if not queues:
            raise ConfigError("No queues are given", hint="Pass the queues to read.")
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
        """Return all readable queues of a topic.

        Raises:
            NoRoute: No broker has the topic.

        Example:
            queues = await consumer.queues("Orders")
            assert queue in queues
        """
        running = self._started
        found = await running.client.routes.subscribe_queues(running.client.wrap(topic))
        return [running.user_queue(each) for each in found]

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer reads now.

        Example:
            assert queue in consumer.assignment
        """
        return sorted(self._started.user_queue(each) for each in self._started.queues)

    # ------------------------------------------------------------------------------ messages

    async def poll(self, timeout_ms: int = 5_000) -> list[ReceivedMessage]:
        """Return the next messages, all of one queue; an empty list if none come in time.

        Raises:
            ClientClosed: The consumer is not started, or closed.
            NoRoute: A subscribed topic has no broker, or no readable queue.
            ConnectFailed: No name server has responded yet.
            BrokerRefused: A broker refuses the pull.
            ProtocolError: A broker's response cannot be decoded.

        Example:
            for message in await consumer.poll(timeout_ms=1_000):
                print(message.queue_offset, message.body)
        """
        batch = await self._next(timeout_ms)
        if batch is None:
            return []
        await self._unpack(batch, batch.messages)
        self._started.hand(batch.queue, batch.next_offset)
        return batch.messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message; the one before it counts as consumed."""
        if self._is_closing:
            raise StopAsyncIteration
        while (batch := await self._next(None)) is None:
            if self._running is None:
                raise StopAsyncIteration
        message, rest = batch.messages[0], batch.messages[1:]
        await self._unpack(batch, [message])
        if rest:
            self._rest = batch._replace(messages=rest)
        next_offset = message.queue_offset + 1 if rest else batch.next_offset
        self._started.hand(batch.queue, next_offset)
        return message

    async def _next(self, timeout_ms: int | None) -> LiteBatch | None:
        running = self._started
        self._settle()
        rest, self._rest = self._rest, None
        if rest is not None and not rest.is_stale:
            return rest
        batch = await running.cache.take(timeout_ms)
        if batch is not None:
            batch.queue.polled_ms = running.client.clock.now_ms()
            for message in batch.messages:
                message.topic = running.client.unwrap(message.topic)
            running.run_hooks(batch)
        return batch

    async def _unpack(self, batch: LiteBatch, messages: list[ReceivedMessage]) -> None:
        try:
            await unpack(messages)
        except BaseException:
            self._rest = batch  # a caller cancelled here has not got them
            raise

    def _settle(self) -> None:
        if self.options.auto_commit and self._running is not None:
            self._running.settle()

    # ------------------------------------------------------------------------------ commits

    def commit_soon(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Mark messages as consumed; the offsets are stored periodically (``persist_offsets_ms``).

        Args:
            offsets: The next offset to consume by queue; by default, after all polled messages.

        Example:
            await consumer.poll(timeout_ms=1_000)
            consumer.commit_soon()
        """
        running = self._started
        if offsets is None:
            for queue in running.queues.values():
                running.note(queue)
            return
        for given, queue_offset in offsets.items():
            running.offsets.update(self._own(given).queue, queue_offset, increase_only=False)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Mark messages as consumed, and wait until the offsets are stored.

        Args:
            offsets: The next offset to consume by queue; by default, after all polled messages.

        Raises:
            ConfigError: This consumer does not read one of the queues.
            ClientError: A broker did not respond, or refused; the next round retries.

        Example:
            for message in await consumer.poll(timeout_ms=1_000):
                await consumer.commit({message.queue: message.queue_offset + 1})
        """
        self.commit_soon(offsets)
        await self._started.persist_offsets()

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's next offset to consume in a queue; ``None`` if not known.

        Example:
            await consumer.commit({queue: 1})
            assert await consumer.committed(queue) == 1
        """
        return await self._started.offsets.read(self._started.wire_queue(queue))

    # -------------------------------------------------------------------------------- seeks

    async def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Continue from an offset.

        Raises:
            ConfigError: This consumer does not read the queue.
            OffsetOutOfRange: The queue has no such offset.
            ClientError: The broker did not respond, or refused.

        Example:
            await consumer.seek(queue, 0)
        """
        running, own = self._started, self._own(queue)
        first = await running.api.min_offset(own.queue)
        end = await running.api.max_offset(own.queue)
        if not first <= queue_offset <= end:
            raise OffsetOutOfRange(
                f"Queue {queue.queue_id} of {queue.topic} has no offset {queue_offset}",
                detail=f"it has {first} to {end}",
            )
        running.move(self._own(queue), queue_offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue from the first message that still exists.

        Example:
            for each in consumer.assignment:
                await consumer.seek_to_begin(each)
        """
        at = await self._started.api.min_offset(self._own(queue).queue)
        self._started.move(self._own(queue), at)

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue from the next message that arrives.

        Example:
            for each in consumer.assignment:
                await consumer.seek_to_end(each)
        """
        at = await self._started.api.max_offset(self._own(queue).queue)
        self._started.move(self._own(queue), at)

    async def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Continue from the first message stored at or after a time.

        Example:
            midnight_ms = 1_767_222_000_000
            await consumer.seek_to_time(queue, midnight_ms)
        """
        at = await self._started.api.search_offset(self._own(queue).queue, timestamp_ms)
        self._started.move(self._own(queue), at)

    def pause(self, queues: Collection[MessageQueue]) -> None:
        """Stop pulling these queues; cached messages are still returned.

        Example:
            consumer.pause([queue])
            consumer.resume([queue])
        """
        for queue in queues:
            self._own(queue).resumed.clear()

    def resume(self, queues: Collection[MessageQueue]) -> None:
        """Resume pulling these queues.

        Example:
            consumer.resume(consumer.assignment)
        """
        for queue in queues:
            self._own(queue).resumed.set()

    def _own(self, queue: MessageQueue) -> LiteQueue:
        own = self._started.queues.get(self._started.wire_queue(queue))
        if own is None:
            raise ConfigError(
                f"The consumer does not read queue {queue.queue_id} of {queue.topic} "
                f"on {queue.broker_name}",
                hint="Another client may have it now; see assignment.",
            )
        return own


def _either_or() -> ConfigError:
    return ConfigError(
        "A consumer either subscribes to topics or is assigned queues, not both",
        hint="Use two consumers with different groups.",
    )
