"""The push consumer: messages come to a handler as soon as they are there.

Owns :class:`PushConsumer`, what users call. The parts are beside it: which queues in
``rebalance.py``, pulling in ``pulling.py``, what is unfinished in ``process_queue.py``, calls of
the handler in ``concurrent.py``, ``orderly.py`` and ``handler.py``, what failed in
``send_back.py``, and all of it together in ``push_parts.py``.

Invariants:

* Every message reaches a handler at least once, and is committed only after the handler was done
  with it, or after the broker took it back to deliver it again.
* What is unfinished is bounded for each queue; a full queue is not pulled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from roquet.client.expression import Expression, subscription_of
from roquet.client.handler import BatchHandler, Handler, HandlerCall
from roquet.client.hooks import ConsumeHook
from roquet.client.instance import ClientInstance
from roquet.client.lifetime import Running
from roquet.client.names import check_group, check_topic, wrap
from roquet.client.options import ClientOptions
from roquet.client.push_options import PushOptions, PushSettings
from roquet.client.push_parts import PushParts
from roquet.client.trace import traced_consumption
from roquet.errors import ConfigError
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SUBSCRIBE_ALL, SubscriptionData
from roquet.model.topic import retry_topic
from roquet.runtime.clock import SystemClock

__all__ = ["PushConsumer"]


class PushConsumer(Running[PushParts]):
    """Consumes messages with a handler.

    A handler gets one message, a batch handler a list. It is a coroutine function, or an ordinary
    function that may block and runs in a thread. When it returns nothing or
    ``ConsumeResult.SUCCESS`` the messages are consumed; when it raises, or returns another
    :class:`~roquet.client.ConsumeResult`, they come again.

    Args:
        client: The name servers, as ``host:port``, several with semicolons or as a sequence; or
            all settings of the client.
        group: The group. Its clients share the messages, and all have the same subscriptions.
        handler: What consumes a message.
        batch_handler: What consumes several; exactly one of both is given.
        hooks: What runs around every call of the handler.
        settings: The fields of :class:`~roquet.client.PushOptions`.

    Raises:
        BadName: The group cannot have this name.
        ConfigError: A setting cannot be used, or there is not exactly one handler.

    Example:
        paid = asyncio.Event()

        async def bill(message: ReceivedMessage) -> None:
            print(message.body)
            paid.set()

        billing = PushConsumer(
            namesrv,
            group="printers",
            handler=bill,
            consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        billing.subscribe("Orders", "paid || sent")
        async with billing:
            await paid.wait()
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
        check_group(group)
        super().__init__(f"The consumer of {group}")
        client = ClientOptions.of(client)
        if (handler is None) == (batch_handler is None):
            raise ConfigError(
                "A push consumer has one handler",
                hint="Give a handler for single messages, or a batch_handler for several at once.",
            )
        self.group = group
        self.options = PushOptions(**settings)
        self.options.check()
        self._client_options = client.for_model(self.options.message_model)
        self._handler = handler
        self._batch_handler = batch_handler
        self._hooks = tuple(hooks)
        self._clock = SystemClock()
        self._subscriptions: dict[str, SubscriptionData] = {}

    # ------------------------------------------------------------------------- subscriptions

    def subscribe(self, topic: str, expression: Expression = SUBSCRIBE_ALL) -> None:
        """Consume a topic, from the start or, when the consumer runs, soon.

        Args:
            topic: The topic.
            expression: Which of its messages: ``*``, tags with ``||`` between, or
                :class:`~roquet.client.Sql`. A condition that a broker cannot read is an error of
                :meth:`start`, or is logged when the consumer runs.

        Raises:
            BadName: The topic cannot have this name.
            BadExpression: The expression cannot be read.

        Example:
            push_consumer.subscribe("Parcels", "fragile || heavy")
            push_consumer.subscribe("Letters", Sql("price > 10"))
        """
        check_topic(topic)
        wire_topic = wrap(self._client_options.namespace, topic)
        subscription = subscription_of(wire_topic, expression, version_ms=self._clock.now_ms())
        self._subscriptions[wire_topic] = subscription
        if self._running is not None:
            self._running.subscriptions_changed(subscription)

    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no more.

        Example:
            push_consumer.unsubscribe("Orders")
        """
        wire_topic = wrap(self._client_options.namespace, topic)
        if self._subscriptions.pop(wire_topic, None) is not None and self._running is not None:
            self._running.subscriptions_changed()

    # ------------------------------------------------------------------------ life and death

    async def start(self) -> None:
        """Begin to consume. Name servers and brokers that are down are waited for.

        Raises:
            BadExpression: A broker cannot read an expression.
            ConfigError: Nothing is subscribed to, or the client has another consumer of the group
                or other settings.
            ClientClosed: The consumer was closed.

        Example:
            started = PushConsumer(namesrv, group="started", handler=print)
            started.subscribe("Orders")
            await started.start()
            await started.close()
        """
        await super().start()

    async def _open(self) -> PushParts:
        if not self._subscriptions:
            raise ConfigError(
                f"The consumer of {self.group} subscribes to nothing",
                hint="Call subscribe before start.",
            )
        client = await ClientInstance.open(self._client_options)
        call: HandlerCall | None = None
        try:
            group = client.wrap(self.group)
            hooks, trace = traced_consumption(
                client,
                self.group,
                self._hooks,
                self.options.trace_topic if self.options.trace else None,
            )
            call = self._handler_call(client, hooks)
            self._subscribe_retries(group)
            running = PushParts(client, group, self.options, call, self._subscriptions, trace=trace)
            client.register_consumer(group, running)
        except BaseException:
            if call is not None:
                call.close()
            await client.close()
            raise
        try:
            await running.start()
        except BaseException:
            await running.close()
            raise
        return running

    def _handler_call(self, client: ClientInstance, hooks: Sequence[ConsumeHook]) -> HandlerCall:
        return HandlerCall(
            self.group,
            self._handler,
            self._batch_handler,
            threads=self.options.concurrency,
            timeout_ms=self.options.consume_timeout_ms,
            clock=client.clock,
            hooks=hooks,
        )

    def _subscribe_retries(self, group: str) -> None:
        if not self.options.is_broadcasting:
            topic = retry_topic(group)
            self._subscriptions[topic] = subscription_of(
                topic, SUBSCRIBE_ALL, version_ms=self._clock.now_ms()
            )

    async def close(self) -> None:
        """Wait for the handlers that run, store the offsets, and leave.

        Example:
            await push_consumer.close()
        """
        await super().close()

    # ------------------------------------------------------------------------------- running

    def pause(self) -> None:
        """Pull nothing for now; what was pulled is consumed.

        Raises:
            ClientClosed: The consumer is not started, or closed.

        Example:
            push_consumer.pause()
            push_consumer.resume()
        """
        self._parts.pulling.is_paused = True

    def resume(self) -> None:
        """Pull again.

        Raises:
            ClientClosed: The consumer is not started, or closed.

        Example:
            push_consumer.resume()
        """
        self._parts.pulling.is_paused = False

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that the consumer has now, sorted, without those of its retries.

        Raises:
            ClientClosed: The consumer is not started, or closed.

        Example:
            print([queue.queue_id for queue in push_consumer.assignment])
        """
        parts = self._parts
        retries = retry_topic(parts.group)
        return sorted(
            MessageQueue(parts.client.unwrap(queue.topic), queue.broker_name, queue.queue_id)
            for queue, process_queue in parts.rebalancer.queues.items()
            if queue.topic != retries and not process_queue.is_dropped
        )

    @property
    def client(self) -> ClientInstance:
        """The client that the consumer is part of.

        Raises:
            ClientClosed: The consumer is not started, or closed.

        Example:
            print(push_consumer.client.client_id)
        """
        return self._parts.client
