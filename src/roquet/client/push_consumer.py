"""The push consumer: calls a handler with messages as soon as they arrive.

Owns :class:`PushConsumer`, the public class. Its parts are other modules: assignment of queues in
``rebalance.py``, pulling in ``pulling.py``, unfinished messages in ``process_queue.py``, handler
calls in ``concurrent.py``, ``orderly.py`` and ``handler.py``, failed messages in ``send_back.py``,
and ``running_push_consumer.py`` combines them.

Invariants:

* Every message reaches a handler at least once, and is committed only after the handler has
  finished, or after the broker has accepted it for redelivery.
* The number of unfinished messages is bounded per queue; a full queue is not pulled.
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
from roquet.client.running_push_consumer import RunningPushConsumer
from roquet.client.trace import traced_consumption
from roquet.errors import ConfigError
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SUBSCRIBE_ALL, SubscriptionData
from roquet.model.topic import retry_topic
from roquet.runtime.clock import SystemClock

__all__ = ["PushConsumer"]


class PushConsumer(Running[RunningPushConsumer]):
    """Consumes messages with a handler.

    A handler gets one message, a batch handler a list. It is a coroutine function, or an ordinary
    function that may block and runs in a thread. If it returns nothing or
    ``ConsumeResult.SUCCESS``, the messages are consumed; if it raises, or returns another
    :class:`~roquet.client.ConsumeResult`, they are redelivered.

    Args:
        client: The name servers, as ``host:port``, separated by semicolons or as a sequence; or
            all settings of the client.
        group: The group. Its clients share the messages, and all have the same subscriptions.
        handler: Consumes a message.
        batch_handler: Consumes several messages; give exactly one of the two.
        hooks: Hooks that run around every call of the handler.
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
                "A push consumer needs exactly one handler",
                hint="Pass a handler for single messages, or a batch_handler for several at once.",
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
        """Subscribe to a topic, before the start or while the consumer runs.

        Args:
            topic: The topic.
            expression: Which of its messages: ``*``, tags separated by ``||``, or
                :class:`~roquet.client.Sql`. For a condition that a broker cannot parse,
                :meth:`start` raises; while the consumer runs, the error is logged.

        Raises:
            BadName: The topic cannot have this name.
            BadExpression: The expression cannot be parsed.

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
        """Stop consuming a topic.

        Example:
            push_consumer.unsubscribe("Orders")
        """
        wire_topic = wrap(self._client_options.namespace, topic)
        if self._subscriptions.pop(wire_topic, None) is not None and self._running is not None:
            self._running.subscriptions_changed()

    # ----------------------------------------------------------------------- start and close

    async def start(self) -> None:
        """Start consuming. The consumer waits for name servers and brokers that are down.

        Raises:
            BadExpression: A broker cannot parse an expression.
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

    async def _open(self) -> RunningPushConsumer:
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
            running = RunningPushConsumer(
                client, group, self.options, call, self._subscriptions, trace=trace
            )
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
        """Wait for the running handlers, store the offsets, and leave the group.

        Example:
            await push_consumer.close()
        """
        await super().close()

    # ------------------------------------------------------------------------------- running

    def pause(self) -> None:
        """Pause pulling; messages already pulled are consumed.

        Raises:
            ClientClosed: The consumer is not started, or closed.

        Example:
            push_consumer.pause()
            push_consumer.resume()
        """
        self._started.pulling.is_paused = True

    def resume(self) -> None:
        """Resume pulling.

        Raises:
            ClientClosed: The consumer is not started, or closed.

        Example:
            push_consumer.resume()
        """
        self._started.pulling.is_paused = False

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues assigned to this consumer, sorted, without those of its retry topic.

        Raises:
            ClientClosed: The consumer is not started, or closed.

        Example:
            print([queue.queue_id for queue in push_consumer.assignment])
        """
        running = self._started
        retries = retry_topic(running.group)
        return sorted(
            MessageQueue(running.client.unwrap(queue.topic), queue.broker_name, queue.queue_id)
            for queue, process_queue in running.rebalancer.queues.items()
            if queue.topic != retries and not process_queue.is_dropped
        )

    @property
    def client(self) -> ClientInstance:
        """The client instance of the consumer.

        Raises:
            ClientClosed: The consumer is not started, or closed.

        Example:
            print(push_consumer.client.client_id)
        """
        return self._started.client
