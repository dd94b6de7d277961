"""Headers of sends that are all alike: written once for each queue, with places to fill in.

Owns :class:`SendTemplates`. A template is made from the header that the usual way writes, so that
both ways give the same bytes. Only plain sends have one: JSON headers, and messages that no
consumer brings back.
"""

from __future__ import annotations

import msgspec

from roquet.client.outgoing_message import OutgoingMessage
from roquet.model.message_queue import MessageQueue
from roquet.model.topic import AUTO_CREATE_TOPIC_KEY_TOPIC
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import create_request
from roquet.remoting.frame import SerializeType
from roquet.remoting.headers.send import SendMessageRequestHeaderV2
from roquet.remoting.json_header import encode_json_header

__all__ = ["SendTemplates", "send_header"]

TEMPLATES_MAX = 4_096
"""One for each queue that is sent to; more of them are made anew now and then."""

# What no field has by itself; a header in which one of them is found twice has no template.
_SYS_FLAG, _BORN_MS, _FLAG, _OPAQUE = -1_903_271, -1_903_272, -1_903_273, -1_903_274
_PROPERTIES = "-1903275"

_encoder = msgspec.json.Encoder()


def send_header(
    outgoing: OutgoingMessage,
    queue: MessageQueue,
    *,
    group: str,
    broker_name: str,
    default_topic_queues: int,
    born_ms: int,
    properties: str,
) -> SendMessageRequestHeaderV2:
    """The header of a send.

    Args:
        outgoing: What is sent.
        queue: Where to, on the wire.
        group: The producer's group on the wire.
        broker_name: The broker that has the queue.
        default_topic_queues: How many queues a topic gets that the broker makes for it.
        born_ms: The time.
        properties: The properties as one string.
    """
    return SendMessageRequestHeaderV2(
        producer_group=group,
        topic=outgoing.topic,
        default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
        default_topic_queue_nums=default_topic_queues,
        queue_id=queue.queue_id,
        sys_flag=outgoing.sys_flag,
        born_timestamp_ms=born_ms,
        flag=outgoing.flag,
        properties=properties,
        reconsume_times=outgoing.reconsume_times,
        unit_mode=False,
        max_reconsume_times=outgoing.max_reconsume_times,
        batch=outgoing.is_batch,
        broker_name=broker_name,
    )


class SendTemplates:
    """The headers of one producer's sends.

    Args:
        group: The producer's group on the wire.
        default_topic_queues: How many queues a topic gets that the broker makes for it.
    """

    def __init__(self, group: str, *, default_topic_queues: int) -> None:
        self._group = group
        self._default_topic_queues = default_topic_queues
        self._known: dict[tuple[RequestCode, MessageQueue, str], bytes | None] = {}

    def fill(
        self, outgoing: OutgoingMessage, queue: MessageQueue, broker_name: str, *, born_ms: int
    ) -> tuple[bytes, tuple[object, ...]] | None:
        """The header's template and its values but for the opaque, which is the last.

        ``None`` if this send has none.
        """
        if outgoing.reconsume_times or outgoing.max_reconsume_times is not None:
            return None
        key = (outgoing.code, queue, broker_name)
        try:
            template = self._known[key]
        except KeyError:
            if len(self._known) >= TEMPLATES_MAX:
                self._known.clear()
            template = self._known[key] = self._make(outgoing, queue, broker_name)
        if template is None:
            return None
        try:
            text = _encoder.encode(outgoing.properties_text)
        except UnicodeEncodeError:
            return None
        return template, (outgoing.sys_flag, born_ms, outgoing.flag, text)

    def literals(
        self, outgoing: OutgoingMessage, queue: MessageQueue, broker_name: str
    ) -> list[bytes] | None:
        """What such headers have in common: the parts before, between and after the values.

        The values are: system flag, time, flag, properties and opaque, with the quotes that they
        need. ``None`` if the parts cannot be told from them.
        """
        like = msgspec.structs.replace(outgoing, sys_flag=_SYS_FLAG, flag=_FLAG)
        header = send_header(
            like,
            queue,
            group=self._group,
            broker_name=broker_name,
            default_topic_queues=self._default_topic_queues,
            born_ms=_BORN_MS,
            properties=_PROPERTIES,
        )
        request = create_request(
            outgoing.code, header, opaque=_OPAQUE, serialize_type=SerializeType.JSON
        )
        rest = encode_json_header(request)
        parts: list[bytes] = []
        for mark in (
            b'"%d"' % _SYS_FLAG,
            b'"%d"' % _BORN_MS,
            b'"%d"' % _FLAG,
            b'"%b"' % _PROPERTIES.encode(),
            b":%d," % _OPAQUE,
        ):
            before, found, rest = rest.partition(mark)
            if not found or mark in rest:
                return None
            parts.append(before)
        return [*parts, rest]

    def _make(
        self, outgoing: OutgoingMessage, queue: MessageQueue, broker_name: str
    ) -> bytes | None:
        parts = self.literals(outgoing, queue, broker_name)
        if parts is None:
            return None
        places = (b'"%d"', b'"%d"', b'"%d"', b"%b", b":%d,", b"")
        return b"".join(
            part.replace(b"%", b"%%") + place for part, place in zip(parts, places, strict=True)
        )
