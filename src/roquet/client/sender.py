"""One send with all its attempts.

Owns the loop of Apache RocketMQ's client: choose a queue, send, and after a failure that another
broker may not have, choose a queue of another broker and send again, until the attempts or the time
are used up.

=========================================== ====================================================
what happened                               what follows
=========================================== ====================================================
no connection, connection lost, no answer   the next attempt; whether the message is stored is
                                            not known in the latter two cases
an answer of ``RETRY_RESPONSE_CODES``       the next attempt
any other answer that says no               the error, at once
stored, less safely than configured         the result, or with ``retry_another_broker`` the next
                                            attempt
=========================================== ====================================================

A message for a queue that the caller chose is tried once, as upstream does: elsewhere it would
break the order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from roquet.client.answers import RETRY_RESPONSE_CODES, refused
from roquet.client.back_pressure import InFlight
from roquet.client.fault import LatencyFaults
from roquet.client.hooks import SendContext, SendHook, run_hooks
from roquet.client.instance import ClientInstance
from roquet.client.lifetime import end_tasks, finish
from roquet.client.message import SendResult, SendStatus
from roquet.client.outgoing_message import OutgoingMessage
from roquet.client.producer_options import ProducerOptions
from roquet.client.queue_choice import QueueRound
from roquet.client.route import PublishRoute, vip_address
from roquet.client.send_template import SendTemplates, send_header
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
from roquet.remoting.frame import SerializeType
from roquet.remoting.headers.base import decode_header
from roquet.remoting.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader

__all__ = ["Begun", "Deadline", "Sender"]

log = logging.getLogger(__name__)

DEFAULT_REGION = "DefaultRegion"
_NS_PER_MS = 1_000_000

_STATUS = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}


class Begun(NamedTuple):
    """An attempt that was made already.

    Attributes:
        queue: Where to, on the wire.
        address: The broker.
        outcome: Its answer, or why there is none.
    """

    queue: MessageQueue
    address: str
    outcome: RemotingCommand | ClientError


class Deadline:
    """When a send must be done.

    Args:
        client: Whose clock it is.
        timeout_ms: How long it may take.
        began_ns: Since when, on the monotonic clock; by default from now.
    """

    __slots__ = ("_clock", "_end_ns", "timeout_ms")

    def __init__(
        self, client: ClientInstance, timeout_ms: int, *, began_ns: int | None = None
    ) -> None:
        self._clock = client.clock
        self.timeout_ms = timeout_ms
        if began_ns is None:
            began_ns = self._clock.monotonic_ns()
        self._end_ns = began_ns + timeout_ms * _NS_PER_MS

    def left_ms(self) -> int:
        """How much time is left; less than 1 when there is none."""
        return (self._end_ns - self._clock.monotonic_ns()) // _NS_PER_MS

    def passed(self, doing: str) -> RequestTimeout:
        """The error of a send that was not even tried in time."""
        return RequestTimeout(
            f"There was no time left while {doing}",
            detail=f"the send could take {self.timeout_ms} ms",
            hint="Nothing was sent. Allow more time, or send less at once.",
        )


class Sender:
    """Sends what is ready to be sent.

    Args:
        client: The connections and routes.
        group: The producer's group on the wire.
        options: How to send.
        hooks: What runs around every attempt.

    Attributes:
        in_flight: The sends that are not done.
        round: Chooses queues.
        is_plain: Whether nothing has to be done around an attempt.
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
        self._templates: SendTemplates | None = None
        if client.options.serialize is SerializeType.JSON:
            self._templates = SendTemplates(
                group, default_topic_queues=client.options.default_topic_queues
            )
        self.round = QueueRound(client.randomness, self._faults)
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        self.is_plain = not hooks and self._faults is None
        self.in_flight = InFlight(options.max_in_flight, options.max_in_flight_bytes)

    # ------------------------------------------------------------------------------ sending

    async def send(
        self, outgoing: OutgoingMessage, deadline: Deadline, queue: MessageQueue | None = None
    ) -> SendResult:
        """Send, and wait until a broker has stored it.

        Args:
            outgoing: What.
            deadline: Until when.
            queue: Where to, on the wire; ``None`` chooses.

        Raises:
            NoRoute: No broker has the topic.
            RequestTimeout: No broker answered in time.
            ConnectFailed: No broker could be reached.
            SendFailed: The connection was lost before the answer came.
            BrokerRefused: A broker said no.
        """
        size_bytes = len(outgoing.body)
        if not self.in_flight.try_enter(size_bytes):
            await self._enter(size_bytes, deadline)
        try:
            if queue is not None:
                return await self._attempt(outgoing, queue, deadline.left_ms())
            return await self.send_somewhere(outgoing, deadline)
        finally:
            self.in_flight.leave(size_bytes)

    async def send_oneway(
        self, outgoing: OutgoingMessage, deadline: Deadline, queue: MessageQueue | None = None
    ) -> None:
        """Send, and do not ask what became of it; waits while the broker does not read.

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
        """Where a topic can be written to.

        Raises:
            NoRoute: No broker has the topic.
            ConnectFailed: No name server answers.
            RequestTimeout: There was no time left.
        """
        known = self._client.routes.known_publish(topic)
        if known is not None and known.queues:
            return known
        try:
            async with asyncio.timeout(deadline.left_ms() / 1000):
                return await self._client.routes.publish(topic)
        except TimeoutError:
            raise deadline.passed(f"asking for the route of {topic}") from None

    async def close(self) -> None:
        """Wait for the sends that are not done, then refresh no more routes."""
        await finish(self.in_flight.wait_idle, lambda: end_tasks(list(self._refreshing.values())))

    async def _enter(self, size_bytes: int, deadline: Deadline) -> None:
        if self.in_flight.try_enter(size_bytes):
            return
        try:
            async with asyncio.timeout(deadline.left_ms() / 1000):
                await self.in_flight.enter(size_bytes)
        except TimeoutError:
            raise deadline.passed("waiting for answers to other sends") from None

    async def send_somewhere(
        self, outgoing: OutgoingMessage, deadline: Deadline, begun: Begun | None = None
    ) -> SendResult:
        """As :meth:`send` for any queue, by a caller who has entered ``in_flight`` already.

        Args:
            outgoing: What.
            deadline: Until when.
            begun: An attempt that was made already.

        Raises:
            ClientError: As :meth:`send`.
        """
        topic = outgoing.topic
        options = self._options
        attempts_left = 1 + options.retry_times
        result: SendResult | None = None
        failure: ClientError | None = None
        brokers: list[str] = []
        while attempts_left > 0:
            attempts_left -= 1
            if begun is not None:
                queue, attempt = begun.queue, self._conclude(outgoing, begun)
                begun = None
            else:
                route = self._client.routes.known_publish(topic)
                if route is None or not route.queues:
                    try:
                        route = await self.route(topic, deadline)
                    except ClientError as error:
                        failure = failure or error  # an attempt that failed says more
                        break
                after = brokers[-1] if brokers else None
                queue = self.round.choose(topic, route.queues, after_broker=after)
                left_ms = deadline.left_ms()
                if left_ms < 1:
                    failure = failure or deadline.passed("choosing a queue")
                    break
                if attempts_left:
                    left_ms = self.attempt_timeout_ms(left_ms)
                attempt = self._attempt(outgoing, queue, left_ms)
            brokers.append(queue.broker_name)
            try:
                result = await attempt
            except BrokerRefused as error:
                failure = error
                if error.response_code not in RETRY_RESPONSE_CODES:
                    break
            except (ConnectFailed, SendFailed, RequestTimeout, NoRoute) as error:
                failure = error
            else:
                if result.status is SendStatus.SEND_OK or not options.retry_another_broker:
                    return result
                continue
            log.warning("%s: an attempt failed: %s", topic, failure.message)
            self._refresh(topic)
        if result is not None:
            return result
        assert failure is not None
        _say_attempts(failure, brokers)
        raise failure

    def attempt_timeout_ms(self, left_ms: int) -> int:
        """How long an attempt may take after which others may follow."""
        limit_ms = self._options.attempt_timeout_ms
        return left_ms if limit_ms is None else min(left_ms, limit_ms)

    async def _conclude(self, outgoing: OutgoingMessage, begun: Begun) -> SendResult:
        """What came of an attempt that was made already."""
        if isinstance(begun.outcome, ClientError):
            raise begun.outcome
        return self._result(begun.outcome, outgoing, begun.queue, begun.address)

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
            answer = None
            filled = None
            if context is None and self._templates is not None and not self._client.is_closed:
                filled = self._templates.fill(outgoing, queue, name, born_ms=clock.now_ms())
            if filled is not None:
                answer = await self._client.remoting.invoke_template(
                    address,
                    outgoing.code,
                    *filled,
                    body=outgoing.body,
                    timeout_ms=max(timeout_ms, 1),
                )
            if answer is None:
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
        """Name and address of the master that has a queue, as far as they are known."""
        routes = self._client.routes
        name = routes.broker_name_of(queue)
        address = routes.broker_address(name, master_only=True)
        if address is not None and self._client.options.vip_channel:
            address = vip_address(address)
        return name, address

    async def _broker_of(self, queue: MessageQueue, timeout_ms: int) -> tuple[str, str]:
        """Name and address of the master that has a queue."""
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
                hint="It may be down, or have no master; or the queue is not one of this cluster.",
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
        header = _read_quickly(fields) or decode_header(SendMessageResponseHeader, fields)
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
        """Ask for the route again, beside the next attempt: it must not wait for name servers."""
        if topic not in self._refreshing:
            task = asyncio.get_running_loop().create_task(self._client.routes.refresh([topic]))
            self._refreshing[topic] = task
            task.add_done_callback(lambda _: self._refreshing.pop(topic, None))


def _changed_text(properties: Mapping[str, str]) -> str | None:
    """Properties that hooks changed, as one string; ``None`` if they cannot be sent like that."""
    text = prop.properties_text(properties)
    count = len(properties)
    is_whole = text.count("\x01") == count and text.count("\x02") == count
    if is_whole and len(text.encode("utf-8", "replace")) <= prop.PROPERTIES_BYTES_MAX:
        return text
    log.error("A hook made properties that cannot be sent; the message goes without its changes")
    return None


_PLAIN_ANSWER = frozenset(
    {"msgId", "queueId", "queueOffset", "transactionId", prop.MSG_REGION, prop.TRACE_SWITCH}
)


def _read_quickly(fields: Mapping[str, str]) -> SendMessageResponseHeader | None:
    """What most answers say; ``None`` for an answer that says more, less or something odd."""
    if not fields.keys() <= _PLAIN_ANSWER:
        return None
    message_id, queue_id, offset = map(fields.get, ("msgId", "queueId", "queueOffset"))
    if message_id is None or queue_id is None or offset is None:
        return None
    if not (
        queue_id.isdecimal() and offset.isdecimal() and len(queue_id) < 10 and len(offset) < 19
    ):
        return None
    return SendMessageResponseHeader(
        msg_id=message_id,
        queue_id=int(queue_id),
        queue_offset=int(offset),
        transaction_id=fields.get("transactionId"),
    )


def _say_attempts(error: ClientError, brokers: Sequence[str]) -> None:
    if len(brokers) > 1:
        attempts = f"{len(brokers)} attempts: {', '.join(brokers)}"
        error.detail = f"{error.detail}; {attempts}" if error.detail else attempts
