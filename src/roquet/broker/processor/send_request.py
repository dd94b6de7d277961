"""Steps that sends and replies share.

Owns the steps before anything is stored, the address of a producer, and the data passed to hooks.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from roquet.broker.config import BrokerConfig
from roquet.broker.hooks import (
    SendMessageContext,
    SendMessageHook,
    StatsType,
    message_type,
    namespace_of,
    run_before,
)
from roquet.broker.processor.inner_message import read_properties
from roquet.broker.processor.send_check import Refusal, TopicPlan, describe_topic
from roquet.model.host import Host
from roquet.model.properties import PROPERTIES_BYTES_MAX, UNIQ_CLIENT_MESSAGE_ID_KEYIDX
from roquet.remoting.codes import ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.connection import Connection
from roquet.remoting.headers.send import SendMessageRequestHeader
from roquet.remoting.processor import RequestContext
from roquet.runtime.clock import Clock, stamp_of
from roquet.runtime.randomness import Randomness
from roquet.store.results import AppendResult

__all__ = [
    "before_send",
    "born_host_of",
    "chosen_queue_id",
    "not_open_yet",
    "note_answer",
    "note_append",
]

_BORN_HOST = "born_host"
_UNKNOWN_HOST = Host(bytes(4), 0)


def not_open_yet(starts_ms: int) -> Refusal:
    """The refusal before the broker starts to accept messages."""
    return Refusal(
        ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {_human(starts_ms)}"
    )


def chosen_queue_id(
    context: RequestContext,
    header: SendMessageRequestHeader,
    plan: TopicPlan,
    random: Randomness,
) -> int | Refusal:
    """Return the requested queue, or a random one if the producer leaves that to the broker."""
    queue_id = header.queue_id
    if queue_id >= plan.queue_id_limit:
        return Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{queue_id}] is illegal, {describe_topic(plan.config)} "
            f"Producer: {context.connection.remote_address}",
        )
    if queue_id >= 0:
        return queue_id
    if plan.write_queue_nums <= 0:
        return Refusal(ResponseCode.SYSTEM_ERROR, f"topic[{header.topic}] has no queue to write to")
    return random.randrange(plan.write_queue_nums)


def born_host_of(connection: Connection) -> Host:
    """Return the producer's address, parsed once per connection."""
    known = connection.attributes.get(_BORN_HOST)
    if isinstance(known, Host):
        return known
    try:
        host = Host.parse(connection.remote_address)
    except ValueError:
        host = _UNKNOWN_HOST
    address = ipaddress.ip_address(host.ip)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        host = Host(address.ipv4_mapped.packed, host.port)
    connection.attributes[_BORN_HOST] = host
    return host


# ------------------------------------------------------------------------------------ hooks


def before_send(
    hooks: Sequence[SendMessageHook],
    context: RequestContext,
    header: SendMessageRequestHeader,
    config: BrokerConfig,
    *,
    store_host: Host,
    clock: Clock,
) -> SendMessageContext | None:
    """Run the hooks before a request is checked; return their context, if there are any.

    Raises:
        RequestRefused: A hook refuses the request; nothing more is to be done.
    """
    if not hooks:
        return None
    properties = read_properties((header.properties or "")[: PROPERTIES_BYTES_MAX + 1])
    hooked = SendMessageContext(
        namespace=namespace_of(header.topic),
        producer_group=header.producer_group,
        topic=header.topic,
        queue_id=header.queue_id,
        body_bytes=len(context.request.body),
        properties=header.properties or "",
        born_host=context.connection.remote_address,
        broker_address=str(store_host),
        broker_region_id=config.region_id,
        born_timestamp_ms=header.born_timestamp_ms,
        request_timestamp_ms=clock.now_ms(),
        unique_key=properties.get(UNIQ_CLIENT_MESSAGE_ID_KEYIDX, ""),
        message_type=message_type(properties),
        ext_fields=context.request.ext_fields or {},
    )
    run_before(hooks, hooked)
    return hooked


def note_answer(hooked: SendMessageContext, answer: RemotingCommand) -> None:
    """Pass the response to a request on to the hooks."""
    fields = answer.ext_fields or {}
    hooked.code = answer.code
    hooked.error_message = answer.remark
    hooked.msg_id = fields.get("msgId")
    hooked.queue_id = int(fields.get("queueId", hooked.queue_id))


def note_append(hooked: SendMessageContext, appended: AppendResult | None) -> None:
    """Pass the result of the append, or its absence, on to the hooks."""
    if appended is None:
        hooked.message_count = 1
        hooked.wrote_bytes = hooked.body_bytes
        hooked.stats_type = StatsType.SEND_FAILURE
        return
    hooked.queue_offset = appended.queue_offset
    hooked.is_success = True
    hooked.message_count = appended.message_count
    hooked.wrote_bytes = appended.wrote_bytes
    hooked.stats_type = StatsType.SEND_SUCCESS


def _human(timestamp_ms: int) -> str:
    """Format a time as upstream does for people.

    Example:
        >>> len(_human(0))
        23
    """
    stamp = stamp_of(timestamp_ms)
    date = f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}"
    return f"{date} {stamp[8:10]}:{stamp[10:12]}:{stamp[12:14]},{stamp[14:]}"
