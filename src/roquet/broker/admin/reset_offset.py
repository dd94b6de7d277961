"""Resetting the offsets of a group, to a time or an offset.

The part of upstream's AdminBrokerProcessor and Broker2Client that resets groups. There are two ways
to inform the clients:

.. code-block:: text

    useServerSideResetOffset   the broker keeps the offset and sends it with each client's next pull
    otherwise                  the clients of the group, which must be online, are notified (220)

Invariants:

* A reset is all or nothing over the requested queues.
* What the broker keeps is in the file before the administrator gets the response.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from roquet.broker.components import BrokerComponents
from roquet.broker.manager.client_channel import ClientChannel
from roquet.broker.manager.consumer_offset import UNKNOWN_OFFSET
from roquet.broker.service.flow_control import RequestClass
from roquet.errors import SendFailed
from roquet.model.message_queue import MessageQueue
from roquet.model.topic_config import TopicConfig
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.offset import MessageQueueForC, ResetOffsetBody, ResetOffsetBodyForC
from roquet.remoting.codes import (
    LanguageCode,
    RequestCode,
    ResponseCode,
    version_name,
    version_ordinal,
)
from roquet.remoting.command import UNSET_REMARK, RemotingCommand
from roquet.remoting.headers.offset import ResetOffsetRequestHeader
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)
from roquet.store.config import BrokerRole

__all__ = ["ResetOffsetAdmin"]

log = logging.getLogger(__name__)

NO_OFFSET = -1
END_OF_QUEUE_MS = -1

_RESET_SINCE = version_ordinal("V3_0_7_SNAPSHOT")


class ResetOffsetAdmin:
    """Resets groups.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._broker = components

    @processor(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        header=ResetOffsetRequestHeader,
        permission=Permission(Action.UPDATE, Resource.GROUP),
        ports=ALL_PORTS,
        request_class=RequestClass.HEAVY,
    )
    async def reset_offset(
        self, context: RequestContext, header: ResetOffsetRequestHeader
    ) -> RemotingCommand:
        """Reset a group; the response lists the new offsets."""
        remark = None
        if self._broker.config.use_server_side_reset_offset:
            table = await self._reset_here(header)
        else:
            is_cpp = context.request.language == LanguageCode.CPP
            table = await self._reset_at_clients(header, is_cpp=is_cpp)
            remark = UNSET_REMARK
        log.info(
            "%s reset group %s in %s: %s",
            context.connection.remote_address,
            header.group,
            header.topic,
            ", ".join(f"{queue.queue_id} to {offset}" for queue, offset in table.items()),
        )
        body = encode_body(ResetOffsetBody(offset_table=table))
        return context.response(ResponseCode.SUCCESS, remark=remark, body=body)

    # ------------------------------------------------------------------------ by the broker

    async def _reset_here(self, header: ResetOffsetRequestHeader) -> dict[MessageQueue, int]:
        topic, group = header.topic, header.group
        if self._broker.store.config.broker_role is BrokerRole.SLAVE:
            raise RequestRefused("Can not reset offset in slave broker")
        topic_config = self._broker.topics.select(topic)
        if topic_config is None:
            raise RequestRefused(
                f"Topic {topic} does not exist", response_code=ResponseCode.TOPIC_NOT_EXIST
            )
        if group not in self._broker.groups.table:
            raise RequestRefused(
                f"Group {group} does not exist",
                response_code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            )
        search = partial(self._targets, header, topic_config)
        targets = await self._broker.flow.run(RequestClass.ADMIN, search)
        if not targets:
            raise RequestRefused("No queues to reset.")
        for queue_id, queue_offset in targets.items():
            self._broker.offsets.assign_reset_offset(topic, group, queue_id, queue_offset)
        await self._broker.offsets.written()
        return {self._queue(topic, queue_id): offset for queue_id, offset in targets.items()}

    def _targets(self, header: ResetOffsetRequestHeader, topic: TopicConfig) -> dict[int, int]:
        if header.queue_id < 0:
            return {
                queue_id: self._offset_at(header.topic, queue_id, header.timestamp_ms)
                for queue_id in range(topic.read_queue_nums)
            }
        queue_id, queue_offset = header.queue_id, header.queue_offset
        if queue_offset is None or queue_offset == NO_OFFSET:
            return {queue_id: self._offset_at(header.topic, queue_id, header.timestamp_ms)}
        first = max(self._broker.store.min_offset_in_queue(header.topic, queue_id), 0)
        end = self._broker.store.max_offset_in_queue(header.topic, queue_id)
        if queue_offset < first or queue_offset > end + 1:
            raise RequestRefused(
                f"Target offset {queue_offset} not in consume queue range [{first}-{end}]"
            )
        return {queue_id: queue_offset}

    def _offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        if timestamp_ms < 0:
            return self._broker.store.max_offset_in_queue(topic, queue_id)
        return self._broker.store.offset_by_time(topic, queue_id, timestamp_ms)

    # ----------------------------------------------------------------------- by the clients

    async def _reset_at_clients(
        self, header: ResetOffsetRequestHeader, *, is_cpp: bool
    ) -> dict[MessageQueue, int]:
        topic, group = header.topic, header.group
        topic_config = self._broker.topics.select(topic)
        if topic_config is None:
            raise RequestRefused(
                f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}",
                response_code=ResponseCode.TOPIC_NOT_EXIST,
            )
        committed = {
            queue_id: self._broker.offsets.query(group, topic, queue_id)
            for queue_id in range(topic_config.write_queue_nums)
        }
        if UNKNOWN_OFFSET in committed.values():
            raise RequestRefused(f"THe consumer group <{group}> not exist")
        search = partial(self._client_targets, header, committed)
        table = await self._broker.flow.run(RequestClass.ADMIN, search)
        self._tell(self._online(header), header, _reset_body(table, is_cpp=is_cpp))
        return table

    def _client_targets(
        self, header: ResetOffsetRequestHeader, committed: dict[int, int]
    ) -> dict[MessageQueue, int]:
        store = self._broker.store
        targets: dict[MessageQueue, int] = {}
        for queue_id, consumer_offset in committed.items():
            if header.timestamp_ms == END_OF_QUEUE_MS:
                target = store.max_offset_in_queue(header.topic, queue_id)
            else:
                target = store.offset_by_time(header.topic, queue_id, header.timestamp_ms)
            target = max(target, 0)
            if not header.force:
                target = min(target, consumer_offset)
            targets[self._queue(header.topic, queue_id)] = target
        return targets

    def _online(self, header: ResetOffsetRequestHeader) -> list[ClientChannel]:
        info = self._broker.consumers.find(header.group)
        if info is None:
            raise RequestRefused(
                f"Consumer not online, so can not reset offset, Group: {header.group} "
                f"Topic: {header.topic} Timestamp: {header.timestamp_ms}",
                response_code=ResponseCode.CONSUMER_NOT_ONLINE,
            )
        channels = list(info.channels.values())
        old = next((each for each in channels if each.version < _RESET_SINCE), None)
        if old is not None:
            raise RequestRefused(
                f"the client does not support this feature. version={version_name(old.version)}"
            )
        return channels

    def _tell(
        self, channels: Iterable[ClientChannel], header: ResetOffsetRequestHeader, body: bytes
    ) -> None:
        news = ResetOffsetRequestHeader(
            topic=header.topic, group=header.group, timestamp_ms=header.timestamp_ms
        )
        for channel in channels:
            with suppress(SendFailed):  # an unreachable client is about to disconnect
                channel.connection.send_oneway(
                    RequestCode.RESET_CONSUMER_CLIENT_OFFSET, news, body=body
                )

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._broker.config.broker_name, queue_id)


def _reset_body(table: dict[MessageQueue, int], *, is_cpp: bool) -> bytes:
    if not is_cpp:
        return encode_body(ResetOffsetBody(offset_table=table))
    queues = [
        MessageQueueForC(
            broker_name=queue.broker_name,
            offset=queue_offset,
            queue_id=queue.queue_id,
            topic=queue.topic,
        )
        for queue, queue_offset in table.items()
    ]
    return encode_body(ResetOffsetBodyForC(offset_table=queues))
