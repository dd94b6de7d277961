"""Administrators' queries that a client serves: the broker relays the request and the response.

The part of upstream's AdminBrokerProcessor and Broker2Client behind ``mqadmin consumerStatus`` and
the dashboard's "consume again": the state of a consumer (307), consuming one message now (309), and
the offsets that clients have in memory (223, sent to each client as 221).

Invariants:

* At most :data:`RELAYS_MAX` requests wait for clients at a time, each for a bounded time, so that
  unresponsive clients cannot exhaust memory. Further ones are refused as busy.
* A response is passed on unchanged; only that of 221 is decoded, within a limit, and in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import msgspec

from roquet.broker.components import BrokerComponents
from roquet.broker.manager.client_channel import ClientChannel
from roquet.broker.request_body import CLIENT_BODY_BYTES_MAX
from roquet.broker.service.flow_control import RequestClass
from roquet.errors import ProtocolError, RequestTimeout, RoquetError
from roquet.model.message_id import OffsetMessageId
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.bodies.offset import GetConsumerStatusBody
from roquet.remoting.codes import RequestCode, ResponseCode, version_name, version_ordinal
from roquet.remoting.command import UNSET_REMARK, RemotingCommand
from roquet.remoting.headers.base import Header
from roquet.remoting.headers.client import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from roquet.remoting.headers.offset import GetConsumerStatusRequestHeader
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)

__all__ = ["RELAYS_MAX", "ClientRelayAdmin"]

RELAYS_MAX = 64
"""Requests that may wait for clients at a time."""

CALL_TIMEOUT_MS = 10_000
STATUS_TIMEOUT_MS = 5_000

_RELAY_SINCE = version_ordinal("V3_1_8_SNAPSHOT")
_STATUS_SINCE = version_ordinal("V3_0_7_SNAPSHOT")
_GROUP = Permission(Action.GET, Resource.GROUP)


class ClientRelayAdmin:
    """Relays requests to clients.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._broker = components
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """How many requests wait for clients."""
        return self._waiting

    # --------------------------------------------------------------------------- one client

    @processor(
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        header=GetConsumerRunningInfoRequestHeader,
        permission=_GROUP,
        ports=ALL_PORTS,
        request_class=RequestClass.CLIENT,
    )
    async def running_info(
        self, context: RequestContext, header: GetConsumerRunningInfoRequestHeader
    ) -> RemotingCommand:
        """Return the state of a consumer, as it reports it."""
        return await self._call(
            context, header, group=header.consumer_group, client_id=header.client_id
        )

    @processor(
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        header=ConsumeMessageDirectlyRequestHeader,
        permission=Permission(Action.SUB, Resource.GROUP),
        ports=ALL_PORTS,
        request_class=RequestClass.CLIENT,
    )
    async def consume_directly(
        self, context: RequestContext, header: ConsumeMessageDirectlyRequestHeader
    ) -> RemotingCommand:
        """Make a client consume a message now, whatever its offsets are."""
        message_id = OffsetMessageId.parse(header.msg_id or "")
        topic = self._broker.topics.select(header.topic or "")
        group = self._broker.groups.find(header.consumer_group) if header.consumer_group else None
        header = msgspec.structs.replace(
            header,
            stored_broker_name=self._broker.config.broker_name,
            topic_sys_flag=header.topic_sys_flag if topic is None else topic.topic_sys_flag,
            group_sys_flag=header.group_sys_flag if group is None else group.group_sys_flag,
        )
        read = partial(self._record, message_id.physical_offset)
        record = await self._broker.flow.run(RequestClass.ADMIN, read)
        if record is None:
            raise RequestRefused(f"can not find message by offset: {message_id.physical_offset}")
        return await self._call(
            context,
            header,
            group=header.consumer_group,
            client_id=header.client_id or "",
            body=record,
        )

    def _record(self, physical_offset: int) -> bytes | None:
        found = self._broker.store.select_one(physical_offset)
        return None if found is None else bytes(found)

    async def _call(
        self,
        context: RequestContext,
        header: Header,
        *,
        group: str,
        client_id: str,
        body: bytes = b"",
    ) -> RemotingCommand:
        channel = self._broker.consumers.find_channel(group, client_id)
        if channel is None:
            raise RequestRefused(f"The Consumer <{group}> <{client_id}> not online")
        if channel.version < _RELAY_SINCE:
            raise RequestRefused(
                f"The Consumer <{client_id}> Version <{version_name(channel.version)}> too low to "
                "finish, please upgrade it to V3_1_8_SNAPSHOT"
            )
        try:
            with self._relay():
                answer = await channel.connection.send_request(
                    context.request.code, header, body=body, timeout_ms=CALL_TIMEOUT_MS
                )
        except RequestTimeout as error:
            remark = f"consumer <{group}> <{client_id}> Timeout: {error.message}"
            return context.response(ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark)
        except RequestRefused:
            raise
        except RoquetError as error:
            raise RequestRefused(
                f"invoke consumer <{group}> <{client_id}> Exception: {error.message}"
            ) from error
        handed_on = context.response(answer.code, remark=answer.remark, body=answer.body)
        handed_on.ext_fields = answer.ext_fields
        return handed_on

    @contextmanager
    def _relay(self) -> Iterator[None]:
        if self._waiting >= RELAYS_MAX:
            raise RequestRefused(
                f"{RELAYS_MAX} requests wait for clients already, try again later",
                response_code=ResponseCode.SYSTEM_BUSY,
            )
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    # -------------------------------------------------------------------------- all clients

    @processor(
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        header=GetConsumerStatusRequestHeader,
        permission=_GROUP,
        ports=ALL_PORTS,
        request_class=RequestClass.CLIENT,
    )
    async def consumer_status(
        self, context: RequestContext, header: GetConsumerStatusRequestHeader
    ) -> RemotingCommand:
        """Return a topic's offsets in the memory of a group's clients; skip unresponsive ones."""
        info = self._broker.consumers.find(header.group)
        if info is None:
            raise RequestRefused(f"No Any Consumer online in the consumer group: [{header.group}]")
        channels = list(info.channels.values())
        old = next((each for each in channels if each.version < _STATUS_SINCE), None)
        if old is not None:
            raise RequestRefused(
                f"the client does not support this feature. version={version_name(old.version)}"
            )
        wanted = (header.client_address or "").strip()
        if wanted:
            channels = [each for each in channels if each.client_id == wanted]
        question = GetConsumerStatusRequestHeader(topic=header.topic, group=header.group)
        with self._relay():
            found = await self._ask_all(channels, question)
        encode = partial(encode_body, GetConsumerStatusBody(consumer_table=found))
        body = await self._broker.flow.run(RequestClass.ADMIN, encode)
        return context.response(ResponseCode.SUCCESS, remark=UNSET_REMARK, body=body)

    async def _ask_all(
        self, channels: list[ClientChannel], question: GetConsumerStatusRequestHeader
    ) -> dict[str, dict[MessageQueue, int]]:
        # One after the other, as upstream does, but within twice the timeout in all: unresponsive
        # clients of a large group would keep the administrator waiting for minutes.
        found: dict[str, dict[MessageQueue, int]] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * STATUS_TIMEOUT_MS / 1000):
                for channel in channels:
                    with suppress(RoquetError):  # it is unreachable: others may respond
                        table = await self._status_of(channel, question)
                        if table is not None:
                            found[channel.client_id] = table
        return found

    async def _status_of(
        self, channel: ClientChannel, question: GetConsumerStatusRequestHeader
    ) -> dict[MessageQueue, int] | None:
        answer = await channel.connection.send_request(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, question, timeout_ms=STATUS_TIMEOUT_MS
        )
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return None
        if len(answer.body) > CLIENT_BODY_BYTES_MAX:
            raise ProtocolError(
                "The offsets of a client are too long",
                detail=f"{len(answer.body)} bytes of {channel.client_id}",
            )
        decode = partial(decode_body, GetConsumerStatusBody, answer.body)
        return (await self._broker.flow.run(RequestClass.ADMIN, decode)).message_queue_table
