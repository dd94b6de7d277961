"""A send with all its attempts.

Owns the loop of Apache RocketMQ's client: choose a queue, send, and after a failure that is
specific to a broker, try a queue of another broker, until the attempts or the time are used up.
``attempts.py`` has the rules.

A message for a queue that the caller chose gets one attempt, as upstream: another queue would break
the order. Only if nothing could be sent, for lack of a connection, the send waits for that broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from roquet.client.attempts import Attempts
from roquet.client.back_pressure import InFlight
from roquet.client.deadline import Deadline
from roquet.client.fault import LatencyFaults
from roquet.client.hooks import SendContext, SendHook, run_hooks
from roquet.client.instance import ClientInstance
from roquet.client.lifetime import end_tasks, finish
from roquet.client.message import SendResult, SendStatus
from roquet.client.outgoing_message import OutgoingMessage
from roquet.client.producer_options import ProducerOptions
from roquet.client.queue_choice import RoundRobinQueues
from roquet.client.response_errors import refused
from roquet.client.route import PublishRoute, vip_address
from roquet.client.send_header import send_header
from roquet.errors import (
    BrokerRefused,
    ClientError,
    ConnectFailed,
    NoRoute,
    RequestTimeout,
    RoquetError,
    SendFailed,
)
from roquet.model import properties as prop
from roquet.model.message_queue import MessageQueue
from roquet.remoting.codes import ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.endpoint import LogLimiter
from roquet.remoting.headers.base import decode_header
from roquet.remoting.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader

__all__ = ["Sender", "StartedAttempt"]

log = logging.getLogger(__name__)

DEFAULT_REGION = "DefaultRegion"
LAST_ATTEMPT_MS = 50
"""The time reserved for the last attempt after a wait."""
_NS_PER_MS = 1_000_000

_STATUS = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}


class StartedAttempt(NamedTuple):
    """An attempt that was already made.

    Attributes:
        queue: The target queue, on the wire.
        address: The broker.
        outcome: The response, or why there is none.
    """

    queue: MessageQueue
    address: str
    outcome: RemotingCommand | ClientError


class Sender:
    """Sends prepared messages.

    Args:
        client: The connections and routes.
        group: The producer's group on the wire.
        options: The settings.
        hooks: Hooks that run around every attempt.

    Attributes:
        in_flight: The sends in flight.
        round: Chooses queues.
        is_plain: Whether attempts need no hooks and no fault tracking.
    """

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        options: ProducerOptions,
        hooks: Sequence[SendHook] = (),
    ) -> None:
        self._client = client
        self._group = group
        self._options = options
        self._hooks = hooks
        self._faults = LatencyFaults(client.clock) if options.send_latency_fault else None
        self.round = RoundRobinQueues(client.randomness, self._faults)
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        self._log_limiter = LogLimiter(client.clock)
        self.is_plain = not hooks and self._faults is None
        self.in_flight = InFlight(options.max_in_flight, options.max_in_flight_bytes)

    # ------------------------------------------------------------------------------ sending

    async def send(
        self, outgoing: OutgoingMessage, deadline: Deadline, queue: MessageQueue | None = None
    ) -> SendResult:
        """Send a message, and wait until a broker has stored it.

        Args:
            outgoing: The message.
            deadline: The deadline.
            queue: The target queue, on the wire; ``None`` for any.

        Raises:
            NoRoute: No broker has the topic.
            RequestTimeout: No broker responded in time.
            ConnectFailed: No broker could be reached in time.
            SendFailed: The message could not be sent, or, as AnswerLost, the connection was lost
                before the response came.
            BrokerRefused: A broker refused the message.
        """
        size_bytes = len(outgoing.body)
        if not self.in_flight.try_enter(size_bytes):
            await self._enter(size_bytes, deadline)
        try:
            if queue is not None:
                return await self._send_to(outgoing, queue, deadline)
            return await self.send_to_any_broker(outgoing, deadline)
        finally:
            self.in_flight.leave(size_bytes)

    async def send_oneway(
        self, outgoing: OutgoingMessage, deadline: Deadline, queue: MessageQueue | None = None
    ) -> None:
        """Send without waiting for a response; blocks while the broker does not read.

        Raises:
            NoRoute: No broker has the topic.
            RequestTimeout: It could not be sent in time.
            ConnectFailed: The broker could not be reached.
            SendFailed: The connection was lost.
        """
        size_bytes = len(outgoing.body)
        await self._enter(size_bytes, deadline)
        try:
            if queue is None:
                route = await self.route(outgoing.topic, deadline)
                queue = self.round.choose(outgoing.topic, route.queues)
            await self._tell(outgoing, queue, deadline.left_ms())
        finally:
            self.in_flight.leave(size_bytes)

    async def route(self, topic: str, deadline: Deadline) -> PublishRoute:
        """Return the route for writing to a topic.

        Raises:
            NoRoute: No broker has the topic.
            ConnectFailed: No name server responds.
            RequestTimeout: There was no time left.
        """
        known = self._client.routes.known_publish(topic)
        if known is not None and known.queues:
            return known
        try:
            async with asyncio.timeout(deadline.left_ms() / 1000):
                return await self._client.routes.publish(topic, refresh=known is not None)
        except TimeoutError:
            raise deadline.passed(f"fetching the route of {topic}") from None

    async def close(self) -> None:
        """Wait for the sends in flight, then stop refreshing routes."""
        await finish(self.in_flight.wait_idle, lambda: end_tasks(list(self._refreshing.values())))

    async def _enter(self, size_bytes: int, deadline: Deadline) -> None:
        if self.in_flight.try_enter(size_bytes):
            return
        try:
            async with asyncio.timeout(deadline.left_ms() / 1000):
                await self.in_flight.enter(size_bytes)
        except TimeoutError:
            raise deadline.passed("waiting for responses to other sends") from None

    async def send_to_any_broker(
        self, outgoing: OutgoingMessage, deadline: Deadline, started: StartedAttempt | None = None
    ) -> SendResult:
        """As :meth:`send` for any queue, for a caller that has already entered ``in_flight``.

        Args:
            outgoing: The message.
            deadline: The deadline.
            started: An attempt that was already made.

        Raises:
            ClientError: As :meth:`send`.
        """
        topic = outgoing.topic
        attempts = Attempts(self._options.retry_times, self._client.randomness)
        while True:
            if started is not None:
                queue, attempt = started.queue, self._conclude(outgoing, started)
                started = None
            else:
                chosen = await self._next_queue(topic, deadline, attempts)
                if chosen is None:
                    break
                queue, left_ms = chosen, deadline.left_ms()
                if not attempts.is_last:
                    left_ms = self.attempt_timeout_ms(left_ms)
                attempt = self._attempt(outgoing, queue, left_ms)
            try:
                result = await attempt
            except (BrokerRefused, ConnectFailed, SendFailed, RequestTimeout, NoRoute) as error:
                is_over = not attempts.failed(queue.broker_name, error)
                self._warn(topic, error)
                self._refresh(topic)
            else:
                if result.status is SendStatus.SEND_OK or not self._options.retry_another_broker:
                    return result
                is_over = not attempts.stored(queue.broker_name, result)
            if is_over:
                break
        if attempts.result is not None:
            return attempts.result
        raise attempts.error()

    async def _next_queue(
        self, topic: str, deadline: Deadline, attempts: Attempts
    ) -> MessageQueue | None:
        """Return the next attempt's queue, after a wait if needed; ``None`` if there is none."""
        while True:
            route = self._client.routes.known_publish(topic)
            if route is None or not route.queues:
                try:
                    route = await self.route(topic, deadline)
                except ClientError as error:
                    if not attempts.is_waiting:
                        attempts.failure = attempts.failure or error  # an attempt says more
                        return None
                    route = None
            if route is not None:
                queue = self.round.choose(topic, route.queues, after_broker=attempts.last_broker)
                if not attempts.has_to_wait(queue.broker_name):
                    break
            if not await self._wait(attempts, deadline):
                return None
        if deadline.left_ms() < 1:
            attempts.failure = attempts.failure or deadline.passed("choosing a queue")
            return None
        return queue

    async def _send_to(
        self, outgoing: OutgoingMessage, queue: MessageQueue, deadline: Deadline
    ) -> SendResult:
        """Send to one queue: once, not counting attempts that sent or stored nothing."""
        attempts = Attempts(self._options.retry_times, self._client.randomness)
        may_move = self._options.retry_times > 0
        while True:
            try:
                return await self._attempt(outgoing, queue, deadline.left_ms())
            except ConnectFailed as error:
                is_over = not attempts.failed(queue.broker_name, error)
                self._warn(outgoing.topic, error)
                self._refresh(outgoing.topic)
            except BrokerRefused as error:
                if error.response_code != ResponseCode.NOT_LEADER_FOR_QUEUE or not may_move:
                    raise
                # The queue of a static topic has moved to another leader.
                may_move = False
                try:
                    async with asyncio.timeout(deadline.left_ms() / 1000):
                        await self._client.routes.refresh([outgoing.topic])
                except TimeoutError:
                    raise error from None
                continue
            if is_over or not await self._wait(attempts, deadline):
                raise attempts.error()

    async def _wait(self, attempts: Attempts, deadline: Deadline) -> bool:
        """Wait until brokers may be reachable again; returns whether there is time for it."""
        left_ms = deadline.left_ms() - LAST_ATTEMPT_MS
        if left_ms < 1:
            return False
        await asyncio.sleep(min(attempts.next_wait_ms(), left_ms) / 1000)
        return True

    def _warn(self, topic: str, error: ClientError) -> None:
        more = self._log_limiter.allow("attempt")
        if more is not None:
            log.warning("%s: an attempt failed: %s%s", topic, error.message, more)

    def attempt_timeout_ms(self, left_ms: int) -> int:
        """Return how long an attempt may take if others may follow."""
        limit_ms = self._options.attempt_timeout_ms
        return left_ms if limit_ms is None else min(left_ms, limit_ms)

    async def _conclude(self, outgoing: OutgoingMessage, started: StartedAttempt) -> SendResult:
        """Return the result of an attempt that was already made."""
        if isinstance(started.outcome, ClientError):
            raise started.outcome
        return self._result(started.outcome, outgoing, started.queue, started.address)

    async def _attempt(
        self, outgoing: OutgoingMessage, queue: MessageQueue, timeout_ms: int
    ) -> SendResult:
        clock = self._client.clock
        name, address = self.known_broker_of(queue)
        if address is None:
            name, address = await self._broker_of(queue, timeout_ms)
        context = self._before(outgoing, queue, address) if self._hooks else None
        started_ns = clock.monotonic_ns()
        try:
            answer = await self._client.ask(
                address,
                outgoing.code,
                self._header(outgoing, queue, name, context),
                body=outgoing.body,
                timeout_ms=max(timeout_ms, 1),
                accept=_STATUS,
            )
            result = self._result(answer, outgoing, queue, address)
        except BaseException as error:
            if isinstance(error, RoquetError) and self._faults is not None:
                is_reachable = not isinstance(error, BrokerRefused)
                self._faults.failed(queue.broker_name, is_reachable=is_reachable)
            if context is not None:
                context.error = error
                run_hooks(self._hooks, SendHook.after_send, context)
            raise
        if self._faults is not None:
            latency_ms = (clock.monotonic_ns() - started_ns) / _NS_PER_MS
            self._faults.succeeded(queue.broker_name, latency_ms)
        if context is not None:
            context.result = result
            run_hooks(self._hooks, SendHook.after_send, context)
        return result

    async def _tell(self, outgoing: OutgoingMessage, queue: MessageQueue, timeout_ms: int) -> None:
        name, address = await self._broker_of(queue, timeout_ms)
        context = self._before(outgoing, queue, address, oneway=True) if self._hooks else None
        header = self._header(outgoing, queue, name, context)
        try:
            await self._client.remoting.invoke_oneway(
                address, outgoing.code, header, body=outgoing.body, timeout_ms=max(timeout_ms, 1)
            )
        except BaseException as error:
            if context is not None:
                context.error = error
            raise
        finally:
            if context is not None:
                run_hooks(self._hooks, SendHook.after_send, context)

    # -------------------------------------------------------------------------------- parts

    def known_broker_of(self, queue: MessageQueue) -> tuple[str, str | None]:
        """Return the name and address of a queue's master, as far as they are known."""
        routes = self._client.routes
        name = routes.broker_name_of(queue)
        address = routes.broker_address(name, master_only=True)
        if address is not None and self._client.options.vip_channel:
            address = vip_address(address)
        return name, address

    async def _broker_of(self, queue: MessageQueue, timeout_ms: int) -> tuple[str, str]:
        """Return the name and address of a queue's master."""
        name, address = self.known_broker_of(queue)
        if address is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._client.routes.publish(queue.topic, refresh=True)
            name, address = self.known_broker_of(queue)
        if address is None:
            raise NoRoute(
                f"The broker {name} is not known",
                detail=f"queue {queue.queue_id} of {queue.topic}",
                hint="It may be down, or have no master; or the queue belongs to another cluster.",
            )
        return name, address

    def _header(
        self,
        outgoing: OutgoingMessage,
        queue: MessageQueue,
        broker_name: str,
        context: SendContext | None,
    ) -> SendMessageRequestHeaderV2:
        text = outgoing.properties_text
        if context is not None and context.properties != outgoing.properties:
            text = _changed_text(context.properties) or text
        client = self._client
        return send_header(
            outgoing,
            queue,
            group=self._group,
            broker_name=broker_name,
            default_topic_queues=client.options.default_topic_queues,
            born_ms=client.clock.now_ms(),
            properties=text,
        )

    def _result(
        self, answer: RemotingCommand, outgoing: OutgoingMessage, queue: MessageQueue, address: str
    ) -> SendResult:
        status = _STATUS.get(answer.code)
        if status is None:
            raise refused(answer, outgoing.code, address)
        fields = answer.ext_fields or {}
        header = decode_header(SendMessageResponseHeader, fields)
        is_inner_batch = header.batch_unique_id is not None
        unique_id = (
            outgoing.properties[prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX]
            if is_inner_batch
            else ",".join(outgoing.unique_ids)
        )
        if queue.topic != outgoing.user_topic or queue.queue_id != header.queue_id:
            queue = MessageQueue(outgoing.user_topic, queue.broker_name, header.queue_id)
        return SendResult(
            status=status,
            message_id=unique_id,
            offset_message_id=header.msg_id,
            queue=queue,
            queue_offset=header.queue_offset,
            transaction_id=header.transaction_id,
            region_id=fields.get(prop.MSG_REGION) or DEFAULT_REGION,
            trace_on=fields.get(prop.TRACE_SWITCH) != "false",
            recall_handle=header.recall_handle,
        )

    def _before(
        self,
        outgoing: OutgoingMessage,
        queue: MessageQueue,
        address: str,
        *,
        oneway: bool = False,
    ) -> SendContext:
        context = SendContext(
            group=self._client.unwrap(self._group),
            messages=outgoing.messages,
            queue=MessageQueue(outgoing.user_topic, queue.broker_name, queue.queue_id),
            broker_address=address,
            properties=dict(outgoing.properties),
            kind=outgoing.kind,
            oneway=oneway,
            started_ms=self._client.clock.now_ms(),
            body_bytes=len(outgoing.body),
        )
        run_hooks(self._hooks, SendHook.before_send, context)
        return context

    def _refresh(self, topic: str) -> None:
        """Refresh the route concurrently: the next attempt must not wait for name servers."""
        if topic not in self._refreshing:
            task = asyncio.get_running_loop().create_task(self._client.routes.refresh([topic]))
            self._refreshing[topic] = task
            task.add_done_callback(lambda _: self._refreshing.pop(topic, None))


def _changed_text(properties: Mapping[str, str]) -> str | None:
    """Encode the properties that hooks changed; ``None`` if they are invalid."""
    text = prop.properties_text(properties)
    count = len(properties)
    is_whole = text.count("\x01") == count and text.count("\x02") == count
    if is_whole and len(text.encode("utf-8", "replace")) <= prop.PROPERTIES_BYTES_MAX:
        return text
    log.error("A hook set properties that cannot be sent; its changes are discarded")
    return None
