r"""Message traces, sent to a topic of the broker in upstream's text form.

Owns the text format, the hooks that write it, and :class:`TraceDispatcher`, which sends it.

A trace message contains records, with fields separated by ``0x01`` and ``0x02`` at the end; its
keys are the ids and keys of the traced messages:

============== ===================================================================================
first field    the others
============== ===================================================================================
Pub            time, region, group, topic, message id, tags, keys, broker, body length, cost in ms,
               kind, offset message id, success
SubBefore      time, region, group, request id, message id, times consumed before, keys
SubAfter       request id, message id, cost in ms, success, keys, how it returned, time, group
EndTransaction time, region, group, topic, message id, tags, keys, broker, kind, transaction id,
               state, whether the broker asked
============== ===================================================================================

A missing value is written as ``null``.

Invariant: tracing never holds up or fails what it traces; traces that come faster than they can be
sent are dropped, counted and logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from roquet.client.deadline import Deadline
from roquet.client.hooks import (
    ConsumeContext,
    ConsumeHook,
    EndTransactionContext,
    MessageKind,
    SendContext,
    SendHook,
)
from roquet.client.instance import ClientInstance
from roquet.client.message import Message, ReceivedMessage, SendStatus
from roquet.client.outgoing_message import OutgoingMessages
from roquet.client.producer_options import ProducerOptions
from roquet.client.sender import DEFAULT_REGION, Sender
from roquet.errors import RoquetError
from roquet.model import properties as prop
from roquet.model.topic import TRACE_TOPIC

__all__ = ["TraceConsumeHook", "TraceDispatcher", "TraceRecord", "TraceSendHook"]

log = logging.getLogger(__name__)

GROUP_PREFIX = "_INNER_TRACE_PRODUCER"
RECORDS_MAX = 2_048
BATCH_RECORDS = 20
FLUSH_INTERVAL_MS = 5_000
SEND_TIMEOUT_MS = 5_000
MESSAGE_BYTES_MAX = 128_000
_NOTE = "roquet.trace"


class TraceRecord(NamedTuple):
    """One event, or the events of messages that were consumed together.

    Attributes:
        topic: The topic of the messages; records of one topic share a message.
        keys: The keys by which it can be found.
        text: The records.
    """

    topic: str
    keys: tuple[str, ...]
    text: str


class TraceDispatcher:
    """Sends traces.

    Args:
        client: The connections.
        group: The group that is traced.
        kind: ``PRODUCE`` or ``CONSUME``.
        topic: The trace topic.

    Attributes:
        dropped: How many records were dropped.

    Example:
        dispatcher = TraceDispatcher(client, "billing", "PRODUCE")
        async with Producer(
            namesrv, group="traced", hooks=[TraceSendHook(dispatcher)]
        ) as traced:  # or simply Producer(trace=True)
            await traced.send(Message("Orders", b"paid"))
        await dispatcher.close()
    """

    def __init__(
        self, client: ClientInstance, group: str, kind: str, topic: str = TRACE_TOPIC
    ) -> None:
        options = ProducerOptions(
            send_timeout_ms=SEND_TIMEOUT_MS, max_message_bytes=2 * MESSAGE_BYTES_MAX
        )
        self.topic = topic
        self.dropped = 0
        self._client = client
        self._outgoing = OutgoingMessages(options, "", client.unique_ids)
        self._sender = Sender(client, f"{GROUP_PREFIX}-{group}-{kind}", options)
        self._records: deque[TraceRecord] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    @property
    def clock_ms(self) -> int:
        """The current time.

        Example:
            assert dispatcher.clock_ms > 0
        """
        return self._client.clock.now_ms()

    def request_id(self) -> str:
        """Return an id that pairs the records before and after consumption.

        Example:
            assert dispatcher.request_id() != dispatcher.request_id()
        """
        return self._client.unique_ids.make()

    def append(self, record: TraceRecord) -> None:
        """Queue a record for sending.

        Example:
            from roquet.client.trace import TraceRecord

            dispatcher.append(TraceRecord("Orders", ("17",), "Pub..."))
        """
        if len(self._records) >= RECORDS_MAX:
            if not self.dropped % RECORDS_MAX:
                log.warning("Traces to %s are dropped: %d so far", self.topic, self.dropped + 1)
            self.dropped += 1
            return
        self._records.append(record)
        if len(self._records) >= BATCH_RECORDS:
            self._begin()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(FLUSH_INTERVAL_MS / 1000, self._begin)

    async def flush(self) -> None:
        """Send all waiting records, and wait until that is done.

        Example:
            await dispatcher.flush()
        """
        self._begin()
        while self._flushing is not None:
            await asyncio.wait([self._flushing])

    async def close(self) -> None:
        """Send all waiting records, as far as the timeout of one send allows.

        Example:
            await dispatcher.close()
        """
        try:
            async with asyncio.timeout(SEND_TIMEOUT_MS / 1000):
                await self.flush()
        except TimeoutError:
            log.warning("At least %d traces to %s were not sent", len(self._records), self.topic)
            self._records.clear()
            if self._flushing is not None:
                self._flushing.cancel()
                await asyncio.wait([self._flushing])
        await self._sender.close()

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._records and self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())
            self._flushing.add_done_callback(self._flushed)

    def _flushed(self, task: asyncio.Task[None]) -> None:
        self._flushing = None
        if not task.cancelled() and task.exception() is not None:
            log.error("Traces to %s were lost", self.topic, exc_info=task.exception())

    async def _flush(self) -> None:
        while self._records:
            by_topic: dict[str, list[TraceRecord]] = {}
            for _ in range(min(BATCH_RECORDS, len(self._records))):
                record = self._records.popleft()
                by_topic.setdefault(record.topic, []).append(record)
            for records in by_topic.values():
                for message in _messages(self.topic, records):
                    await self._send(message)

    async def _send(self, message: Message) -> None:
        try:
            deadline = Deadline(self._client, SEND_TIMEOUT_MS)
            await self._sender.send(self._outgoing.of_message(message), deadline)
        except RoquetError as error:
            log.warning("A trace was not sent: %s (%s)", error.message, error.detail)


def traced_consumption(
    client: ClientInstance, group: str, hooks: Sequence[ConsumeHook], topic: str | None
) -> tuple[tuple[ConsumeHook, ...], TraceDispatcher | None]:
    """Return the hooks of a consumer plus one that traces, and the dispatcher of the traces.

    Args:
        client: The connections.
        group: The consumer's group, without the namespace.
        hooks: The user's hooks.
        topic: The trace topic; ``None`` turns tracing off.
    """
    if topic is None:
        return tuple(hooks), None
    dispatcher = TraceDispatcher(client, group, "CONSUME", topic)
    return (*hooks, TraceConsumeHook(dispatcher)), dispatcher


class TraceSendHook(SendHook):
    """Traces every sent message, and every end of a transaction.

    Args:
        dispatcher: Sends the traces.

    Example:
        producer = Producer(namesrv, group="traced", hooks=[TraceSendHook(dispatcher)])
    """

    def __init__(self, dispatcher: TraceDispatcher) -> None:
        self._dispatcher = dispatcher

    def after_send(self, context: SendContext) -> None:
        """Trace a stored message."""
        result = context.result
        topic = context.queue.topic
        if result is None or not result.trace_on or topic == self._dispatcher.topic:
            return
        tags = keys = None
        if len(context.messages) == 1:
            tags = context.properties.get(prop.TAGS)
            keys = context.properties.get(prop.KEYS)
        text = _record(
            "Pub",
            context.started_ms,
            result.region_id,
            context.group,
            topic,
            result.message_id,
            tags,
            keys,
            context.broker_address,
            context.body_bytes,
            self._dispatcher.clock_ms - context.started_ms,
            int(context.kind),
            result.offset_message_id,
            result.status is SendStatus.SEND_OK,
        )
        self._dispatcher.append(TraceRecord(topic, _keys_of(result.message_id, keys), text))

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Trace the end of a transaction.

        Example:
            hook = TraceSendHook(dispatcher)
            assert isinstance(hook, EndTransactionHook)
        """
        text = _record(
            "EndTransaction",
            self._dispatcher.clock_ms,
            context.region_id,
            context.group,
            context.topic,
            context.message_id,
            context.tags,
            context.keys or None,
            context.broker_address,
            int(MessageKind.TRANSACTION_END),
            context.transaction_id,
            context.state,
            context.from_check,
        )
        keys = _keys_of(context.message_id, context.keys)
        self._dispatcher.append(TraceRecord(context.topic, keys, text))


class TraceConsumeHook(ConsumeHook):
    """Traces every call of a consumer's handler.

    Args:
        dispatcher: Sends the traces.

    Example:
        hook = TraceConsumeHook(dispatcher)
        consumer = PushConsumer(namesrv, group="traced", handler=print, hooks=[hook])
    """

    def __init__(self, dispatcher: TraceDispatcher) -> None:
        self._dispatcher = dispatcher

    def before_consume(self, context: ConsumeContext) -> None:
        """Trace which messages the handler gets."""
        # Traces of traces would never end.
        traced = [
            each
            for each in context.messages
            if each.topic != self._dispatcher.topic
            and each.properties.get(prop.TRACE_SWITCH) != "false"
        ]
        if not traced:
            return
        request_id = self._dispatcher.request_id()
        context.notes[_NOTE] = (request_id, traced)
        now_ms = self._dispatcher.clock_ms
        text = "".join(
            _record(
                "SubBefore",
                now_ms,
                each.properties.get(prop.MSG_REGION) or DEFAULT_REGION,
                context.group,
                request_id,
                each.message_id,
                each.reconsume_times,
                each.properties.get(prop.KEYS),
            )
            for each in traced
        )
        self._dispatcher.append(TraceRecord(traced[0].topic, _keys_of_all(traced), text))

    def after_consume(self, context: ConsumeContext) -> None:
        """Trace the outcome of the handler."""
        note = context.notes.pop(_NOTE, None)
        if not isinstance(note, tuple):
            return
        request_id, traced = note
        now_ms = self._dispatcher.clock_ms
        cost_ms = (now_ms - context.started_ms) // len(context.messages)
        text = "".join(
            _record(
                "SubAfter",
                request_id,
                each.message_id,
                cost_ms,
                context.is_success,
                each.properties.get(prop.KEYS),
                int(context.returned),
                now_ms,
                context.group,
            )
            for each in traced
        )
        self._dispatcher.append(TraceRecord(traced[0].topic, _keys_of_all(traced), text))


def _record(*fields: str | int | None) -> str:
    return "\x01".join(map(_field, fields)) + "\x02"


def _field(value: str | int | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _keys_of(message_id: str, keys: str | None) -> tuple[str, ...]:
    return (message_id, *(keys or "").split())


def _keys_of_all(messages: Iterable[ReceivedMessage]) -> tuple[str, ...]:
    return tuple(key for each in messages for key in (each.message_id, *each.keys))


def _messages(topic: str, records: Iterable[TraceRecord]) -> Iterable[Message]:
    """Build trace messages with bodies and keys of limited length."""
    keys: dict[str, None] = {}
    text = ""
    for record in records:
        more = dict.fromkeys(record.keys)
        is_full = len(text) + len(record.text) > MESSAGE_BYTES_MAX
        if text and (is_full or len(" ".join(keys | more)) > prop.PROPERTIES_BYTES_MAX // 2):
            yield Message(topic, text.encode(), keys=list(keys))
            keys, text = {}, ""
        keys |= more
        text += record.text
    if text:
        yield Message(topic, text.encode(), keys=list(keys))
