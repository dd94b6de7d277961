"""OpenTelemetry spans around sends and consumption, with their context in the messages.

Owns two hooks, for producers and for consumers. They need ``roquet[otel]``, which is only the
OpenTelemetry API: without an SDK no span is recorded, but the caller's context is still propagated.
Names and attributes follow OpenTelemetry's conventions for messaging:

======================= ======== =================================================================
span                    kind     when
======================= ======== =================================================================
``send Orders``         PRODUCER an attempt to send one message; its context goes with the message
``create Orders``       PRODUCER a message goes into a batch; its context goes with the message
``send Orders``         CLIENT   an attempt to send messages that have a context; links to theirs
``process Orders``      CONSUMER a call of a handler; the message's context is its parent, or when
                                 the handler gets several it links to theirs
``receive Orders``      CLIENT   a poll that returned messages; links to theirs
======================= ======== =================================================================

The configured propagator writes the context, by default W3C's: the properties
``traceparent``, ``tracestate`` and ``baggage``.

Invariant: an existing context of a message is not overwritten, so that a forwarded message keeps
its original trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from msgspec import structs

from roquet.client.hooks import (
    ConsumeContext,
    ConsumeHook,
    ConsumeReturn,
    MessageKind,
    SendContext,
    SendHook,
)
from roquet.client.message import Message, ReceivedMessage
from roquet.errors import ConfigError, RoquetError
from roquet.model import properties as prop
from roquet.remoting.client import split_address

try:
    from opentelemetry import context as otel_context
    from opentelemetry import propagate, trace
    from opentelemetry.propagators.textmap import TextMapPropagator
except ImportError:
    _is_installed = False
else:
    _is_installed = True

__all__ = ["OpenTelemetryConsumeHook", "OpenTelemetrySendHook"]

_NAME = "roquet.client"
_NOTE = "roquet.otel"

_Attributes: TypeAlias = dict[str, str | int | list[str]]

_KINDS = {
    MessageKind.NORMAL: "normal",
    MessageKind.HALF: "transaction",
    MessageKind.DELAYED: "delay",
}


class _Spans:
    """The common part of both hooks.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """

    def __init__(
        self, provider: trace.TracerProvider | None, propagator: TextMapPropagator | None
    ) -> None:
        if not _is_installed:
            raise ConfigError(
                "OpenTelemetry is not installed",
                code="otel_missing",
                detail="the package opentelemetry-api cannot be imported",
                hint="Install roquet[otel].",
            )
        self.tracer = trace.get_tracer(_NAME, tracer_provider=provider)
        self.propagator = propagator or propagate.get_global_textmap()

    def context_of(self, properties: Mapping[str, str]) -> otel_context.Context:
        """Return the context of a message, on top of the current one."""
        return self.propagator.extract(properties)

    def link_to(self, properties: Mapping[str, str]) -> list[trace.Link]:
        """Return a link to the span in a message; empty if it has none."""
        found = self.propagator.extract(properties, otel_context.Context())
        span_context = trace.get_current_span(found).get_span_context()
        return [trace.Link(span_context)] if span_context.is_valid else []

    def inject(self, properties: dict[str, str], span: trace.Span) -> None:
        """Write the context of a span into properties."""
        context = trace.set_span_in_context(span)
        # Only the default of an argument that we do not pass has the wrong type.
        self.propagator.inject(properties, context)  # pyright: ignore[reportArgumentType]


class OpenTelemetrySendHook(SendHook):
    """Creates a span for every attempt to send, and sends its context with the message.

    Args:
        tracer_provider: Creates the spans; by default the global one.
        propagator: Writes the context; by default the global one.

    Raises:
        ConfigError: OpenTelemetry is not installed.

    Example:
        .. code-block:: python

            hook = OpenTelemetrySendHook()
            async with Producer("127.0.0.1:9876", group="shop", hooks=[hook]) as producer:
                await producer.send(Message("Orders", b"paid"))  # a span "send Orders"
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        self._spans = _Spans(tracer_provider, propagator)

    def into_batch(self, message: Message) -> Message:
        """Give a message of a batch its own context."""
        if self._spans.link_to(message.properties):
            return message
        attributes = _attributes("create", message.topic)
        if message.tags:
            attributes["messaging.rocketmq.message.tag"] = message.tags
        attributes["messaging.message.body.size"] = len(message.body)
        properties = dict(message.properties)
        with self._spans.tracer.start_as_current_span(
            f"create {message.topic}", kind=trace.SpanKind.PRODUCER, attributes=attributes
        ) as span:
            self._spans.inject(properties, span)
        return structs.replace(message, properties=properties)

    def before_send(self, context: SendContext) -> None:
        """Start the span of an attempt."""
        messages = context.messages
        topic = context.queue.topic
        links = [link for each in messages for link in self._spans.link_to(each.properties)]
        is_batch = len(messages) > 1
        attributes = _attributes("send", topic)
        attributes["messaging.destination.partition.id"] = str(context.queue.queue_id)
        host, port = split_address(context.broker_address)
        attributes["server.address"] = host
        attributes["server.port"] = port
        if is_batch:
            attributes["messaging.batch.message_count"] = len(messages)
        else:
            attributes |= _message_attributes(context.properties)
            attributes["messaging.message.body.size"] = len(messages[0].body)
            kind = _KINDS.get(context.kind, "normal")
            if kind == "normal" and prop.SHARDING_KEY in context.properties:
                kind = "fifo"
            attributes["messaging.rocketmq.message.type"] = kind
        span = self._spans.tracer.start_span(
            f"send {topic}",
            kind=trace.SpanKind.CLIENT if links or is_batch else trace.SpanKind.PRODUCER,
            links=links,
            attributes=attributes,
        )
        context.notes[_NOTE] = span
        if not links and not is_batch:
            self._spans.inject(context.properties, span)

    def after_send(self, context: SendContext) -> None:
        """End the span of an attempt."""
        span = context.notes.pop(_NOTE, None)
        if not isinstance(span, trace.Span):
            return
        if context.result is not None:
            queue_id = context.result.queue.queue_id
            span.set_attribute("messaging.destination.partition.id", str(queue_id))
        if context.error is not None:
            _set_error(span, context.error)
        span.end()


class OpenTelemetryConsumeHook(ConsumeHook):
    """Creates a span for every handler call, and for every poll that returns messages.

    A handler runs inside its span: its work is part of the message's trace.

    Args:
        tracer_provider: Creates the spans; by default the global one.
        propagator: Reads the context; by default the global one.

    Raises:
        ConfigError: OpenTelemetry is not installed.

    Example:
        .. code-block:: python

            hook = OpenTelemetryConsumeHook()
            consumer = PushConsumer("127.0.0.1:9876", group="billing", handler=bill, hooks=[hook])
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        self._spans = _Spans(tracer_provider, propagator)

    def before_consume(self, context: ConsumeContext) -> None:
        """Start the span of a call or a poll."""
        if context.is_polled:
            span = self._start("receive", trace.SpanKind.CLIENT, context)
            context.notes[_NOTE] = (span, None)
            return
        span = self._start("process", trace.SpanKind.CONSUMER, context)
        token = otel_context.attach(trace.set_span_in_context(span, self._inherited(context)))
        context.notes[_NOTE] = (span, token)

    def after_consume(self, context: ConsumeContext) -> None:
        """End the span of a call or a poll."""
        note = context.notes.pop(_NOTE, None)
        if not isinstance(note, tuple):
            return
        span, token = note
        if token is not None:
            otel_context.detach(token)
        if not context.is_success:
            outcome = context.returned
            name = "failed" if outcome is ConsumeReturn.SUCCESS else outcome.name.lower()
            _set_error(span, name)
        span.end()

    @contextmanager
    def processing(self, message: ReceivedMessage) -> Iterator[trace.Span]:
        """Create a span around the work on a polled message.

        Example:
            .. code-block:: python

                async for message in consumer:
                    with hook.processing(message):
                        await bill(message)
        """
        attributes = _attributes("process", message.topic)
        attributes |= _received_attributes([message])
        parent = self._spans.context_of(message.properties)
        token = otel_context.attach(parent)
        try:
            with self._spans.tracer.start_as_current_span(
                f"process {message.topic}", kind=trace.SpanKind.CONSUMER, attributes=attributes
            ) as span:
                yield span
        finally:
            otel_context.detach(token)

    def _start(self, operation: str, kind: trace.SpanKind, context: ConsumeContext) -> trace.Span:
        messages = context.messages
        topic = messages[0].topic  # of a retried message, not the queue's
        attributes = _attributes(operation, topic)
        attributes["messaging.consumer.group.name"] = context.group
        attributes |= _received_attributes(messages)
        links: list[trace.Link] = []
        if context.is_polled or len(messages) > 1:
            links = [link for each in messages for link in self._spans.link_to(each.properties)]
        return self._spans.tracer.start_span(
            f"{operation} {topic}",
            context=self._inherited(context),
            kind=kind,
            links=links,
            attributes=attributes,
        )

    def _inherited(self, context: ConsumeContext) -> otel_context.Context | None:
        if context.is_polled or len(context.messages) > 1:
            return None
        return self._spans.context_of(context.messages[0].properties)


def _attributes(operation: str, topic: str) -> _Attributes:
    return {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }


def _message_attributes(properties: Mapping[str, str]) -> _Attributes:
    found: _Attributes = {}
    for name, attribute in (
        (prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX, "messaging.message.id"),
        (prop.TAGS, "messaging.rocketmq.message.tag"),
        (prop.SHARDING_KEY, "messaging.rocketmq.message.group"),
    ):
        if name in properties:
            found[attribute] = properties[name]
    if prop.KEYS in properties:
        found["messaging.rocketmq.message.keys"] = properties[prop.KEYS].split()
    level = properties.get(prop.DELAY_TIME_LEVEL, "")
    if level.isdecimal():
        found["messaging.rocketmq.message.delay_time_level"] = int(level)
    return found


def _received_attributes(messages: Iterable[ReceivedMessage]) -> _Attributes:
    found = list(messages)
    first = found[0]
    attributes: _Attributes = {
        "messaging.destination.partition.id": str(first.queue_id),
    }
    if len(found) > 1:
        attributes["messaging.batch.message_count"] = len(found)
        return attributes
    attributes |= _message_attributes(first.properties)
    attributes["messaging.message.id"] = first.message_id
    attributes["messaging.message.body.size"] = len(first.raw_body)
    return attributes


def _set_error(span: trace.Span, error: BaseException | str) -> None:
    if isinstance(error, str):
        name, words = error, None
    else:
        name = error.code if isinstance(error, RoquetError) else type(error).__qualname__
        words = error.message if isinstance(error, RoquetError) else str(error)
    span.set_attribute("error.type", name)
    span.set_status(trace.StatusCode.ERROR, words)
