"""Message hooks, which run before and after a send or a pull.

Owns the contexts and the protocols, upstream's SendMessageHook and ConsumeMessageHook. Hooks run on
the event loop and never wait. If ``before`` raises :class:`~roquet.remoting.hooks.RequestRefused`,
the request ends with that code and remark; any other exception is logged and changes nothing,
because a hook must not lose a message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeVar

from roquet.model import properties as prop
from roquet.model.topic import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    is_system_topic,
)
from roquet.model.topic_config import TopicConfig
from roquet.remoting.hooks import RequestRefused

__all__ = [
    "ConsumeMessageContext",
    "ConsumeMessageHook",
    "MessageType",
    "SendMessageContext",
    "SendMessageHook",
    "StatsType",
    "message_type",
    "namespace_of",
    "run_after",
    "run_before",
]

log = logging.getLogger(__name__)

_DELAYING = frozenset({"DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"})


class MessageType(Enum):
    """Kinds of messages, by upstream's short names."""

    NORMAL = "Normal"
    TRANSACTION_HALF = "Trans"
    TRANSACTION_COMMIT = "TransCommit"
    DELAY = "Delay"
    ORDER = "Order"


class StatsType(Enum):
    """The outcome of a request, in upstream's accounting terms."""

    SEND_SUCCESS = "SEND_SUCCESS"
    SEND_FAILURE = "SEND_FAILURE"
    RCV_SUCCESS = "RCV_SUCCESS"
    RCV_EPOLLS = "RCV_EPOLLS"
    SEND_BACK = "SEND_BACK"
    SEND_BACK_TO_DLQ = "SEND_BACK_TO_DLQ"


@dataclass(slots=True, kw_only=True)
class SendMessageContext:
    """A send, as hooks see it; the fields after ``ext_fields`` are set afterwards.

    Attributes:
        namespace: The namespace of the topic, empty for none.
        queue_id: The requested queue, afterwards the one in the response.
        born_host: The producer, as ``host:port``.
        properties: The message's properties in one string, as the producer sent them.
        unique_key: The producer's id of the message, empty for none.
        ext_fields: All fields of the request, such as those of accounts.
        msg_id: The offset message id; several are separated by commas.
        wrote_bytes: Bytes in the log; the body's if nothing was stored.
        trace: Free for use by hooks.
    """

    namespace: str
    producer_group: str
    topic: str
    queue_id: int
    body_bytes: int
    properties: str
    born_host: str
    broker_address: str
    broker_region_id: str
    born_timestamp_ms: int
    request_timestamp_ms: int
    unique_key: str
    message_type: MessageType
    ext_fields: Mapping[str, str]
    msg_id: str | None = None
    queue_offset: int | None = None
    code: int = 0
    error_message: str | None = None
    is_success: bool = False
    message_count: int = 0
    wrote_bytes: int = 0
    stats_type: StatsType | None = None
    trace: object = None


@dataclass(slots=True, kw_only=True)
class ConsumeMessageContext:
    """A pull, or a message that a consumer sends back, as hooks see it.

    Attributes:
        namespace: The namespace of the group, empty for none.
        message_ids: Offset message ids with their queue offsets.
        status: The consumer's status, if it sent one.
        filtered_count: How many messages a filter skipped.
        trace: Free for use by hooks.
    """

    namespace: str = ""
    consumer_group: str
    topic: str
    queue_id: int = 0
    client_host: str = ""
    store_host: str = ""
    topic_config: TopicConfig | None = None
    ext_fields: Mapping[str, str] = field(default_factory=dict)
    message_ids: Mapping[str, int] = field(default_factory=dict)
    message_count: int = 0
    message_bytes: int = 0
    filtered_count: int = 0
    is_success: bool = False
    status: str | None = None
    stats_type: StatsType | None = None
    trace: object = None


class SendMessageHook(Protocol):
    """A hook around sends."""

    def before(self, context: SendMessageContext) -> None:
        """Called before a message is checked; may refuse it."""
        ...

    def after(self, context: SendMessageContext) -> None:
        """Called when the response is known; not for a message that the checks refused."""
        ...


class ConsumeMessageHook(Protocol):
    """A hook around pulls."""

    def before(self, context: ConsumeMessageContext) -> None:
        """Called before messages are returned; may refuse that."""
        ...

    def after(self, context: ConsumeMessageContext) -> None:
        """Called afterwards."""
        ...


_C_contra = TypeVar("_C_contra", contravariant=True)


class _Hook(Protocol[_C_contra]):
    def before(self, context: _C_contra) -> None: ...

    def after(self, context: _C_contra) -> None: ...


_C = TypeVar("_C")


def run_before(hooks: Iterable[_Hook[_C]], context: _C) -> None:
    """Call every hook's ``before``.

    Raises:
        RequestRefused: A hook refuses the request; later hooks are not called.
    """
    for hook in hooks:
        _run(hook.before, context)


def run_after(hooks: Iterable[_Hook[_C]], context: _C) -> None:
    """Call every hook's ``after``; exceptions are logged."""
    for hook in hooks:
        try:
            _run(hook.after, context)
        except RequestRefused as error:
            log.warning("%s refused a completed request: %s", hook, error.message)


def _run(call: Callable[[_C], None], context: _C) -> None:
    try:
        call(context)
    except RequestRefused:
        raise
    except Exception:
        log.exception("%s fails", call)


def message_type(properties: Mapping[str, str]) -> MessageType:
    """Return the type of a message, by its properties.

    Example:
        >>> message_type({"DELAY": "3"})
        <MessageType.DELAY: 'Delay'>
    """
    if prop.SHARDING_KEY in properties:
        return MessageType.ORDER
    if not _DELAYING.isdisjoint(properties):
        return MessageType.DELAY
    if properties.get(prop.TRANSACTION_PREPARED, "").lower() == "true":
        return MessageType.TRANSACTION_HALF
    return MessageType.NORMAL


def namespace_of(resource: str) -> str:
    """Return the namespace in the name of a topic or group, empty for none.

    Example:
        >>> namespace_of("%RETRY%team%group")
        'team'
    """
    if is_system_topic(resource):
        return ""
    name = resource.removeprefix(RETRY_GROUP_TOPIC_PREFIX).removeprefix(DLQ_GROUP_TOPIC_PREFIX)
    namespace, separator, _ = name.partition("%")
    return namespace if separator else ""
