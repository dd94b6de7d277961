"""The headers of sends.

Compiled code fills the values of a plain send into the literals of a header that was encoded in the
usual way, so both paths write the same bytes.
"""

from __future__ import annotations

from msgspec import structs

from roquet.client.outgoing_message import OutgoingMessage
from roquet.model.message_queue import MessageQueue
from roquet.model.topic import AUTO_CREATE_TOPIC_KEY_TOPIC
from roquet.remoting.command import create_request
from roquet.remoting.frame import SerializeType
from roquet.remoting.headers.send import SendMessageRequestHeaderV2
from roquet.remoting.json_header import encode_json_header

__all__ = ["header_literals", "send_header"]

# Placeholders that occur in no field; a header that contains one of them twice has no literals.
_BORN_MS, _FLAG, _OPAQUE, _PROPERTIES = -1_903_272, -1_903_273, -1_903_274, -1_903_275


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
    """Return the header of a send.

    Args:
        outgoing: The message.
        queue: The target queue, on the wire.
        group: The producer's group on the wire.
        broker_name: The broker that has the queue.
        default_topic_queues: How many queues a topic gets if the broker creates it.
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


def header_literals(
    outgoing: OutgoingMessage,
    queue: MessageQueue,
    *,
    group: str,
    broker_name: str,
    default_topic_queues: int,
) -> list[bytes] | None:
    """Return the parts of a JSON header before, between and after the values of a single send.

    The values are: time, flag, properties with their quotes, and opaque. ``None`` if the parts
    cannot be told apart from them. The arguments are those of :func:`send_header`.
    """
    header = send_header(
        structs.replace(outgoing, flag=_FLAG),
        queue,
        group=group,
        broker_name=broker_name,
        default_topic_queues=default_topic_queues,
        born_ms=_BORN_MS,
        properties=str(_PROPERTIES),
    )
    request = create_request(
        outgoing.code, header, opaque=_OPAQUE, serialize_type=SerializeType.JSON
    )
    rest = encode_json_header(request)
    parts: list[bytes] = []
    for mark in (b"%d" % _BORN_MS, b"%d" % _FLAG, b'"%d"' % _PROPERTIES, b"%d" % _OPAQUE):
        before, found, rest = rest.partition(mark)
        if not found or mark in rest:
            return None
        parts.append(before)
    return [*parts, rest]
