"""Topics: making, altering, dropping and showing them.

The part of upstream's AdminBrokerProcessor that is about topics. Owns the checks of what an
administrator asks for; the table is the topic manager's. A topic that was made or altered is known
to the name servers that are there before the answer goes out, so that a client that sends next
finds its route.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import msgspec

from roquet.broker.admin.pages import encode_page, page_of
from roquet.broker.config import BrokerConfig
from roquet.broker.manager.consumer_offset import ConsumerOffsetManager
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.request_body import ADMIN_BODY_BYTES_MAX, read_body
from roquet.broker.service.flow_control import FlowControl, RequestClass
from roquet.model.data_version import DataVersion
from roquet.model.message_queue import MessageQueue
from roquet.model.topic import RETRY_GROUP_TOPIC_PREFIX, topic_fault
from roquet.model.topic_config import PERM_PRIORITY, TopicConfig
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.topic import (
    CreateTopicListRequestBody,
    TopicConfigAndMappingSerializeWrapper,
    TopicOffset,
    TopicStatsTable,
)
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import UNSET_REMARK, RemotingCommand
from roquet.remoting.headers import admin as headers
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)
from roquet.store.message_store import MessageStore

__all__ = ["QUEUES_MAX", "TopicAdmin"]

log = logging.getLogger(__name__)

QUEUES_MAX = 65_536
"""More queues than this make no sense in one topic, and would take seconds to show."""

MESSAGE_TYPE_ADDED = "+message.type"
MIXED = "MIXED"
FILTER_TYPES = frozenset({"SINGLE_TAG", "MULTI_TAG"})

_GET = Permission(Action.GET, Resource.TOPIC)
_CREATE = Permission(Action.CREATE, Resource.TOPIC)


async def _nobody_to_tell() -> None:
    """There are no name servers."""


class TopicAdmin:
    """Answers what administrators ask about topics.

    Args:
        config: The broker's settings.
        store: The messages.
        topics: The table.
        offsets: What groups have committed.
        flow: Threads for what may be on disk only.
        registered: Returns when the name servers know the topics, or after a while.
        put_tps: Messages a second that a topic takes, where somebody counts.
        dropped: Called with the name of every topic that was dropped.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        store: MessageStore,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        flow: FlowControl,
        registered: Callable[[], Awaitable[None]] = _nobody_to_tell,
        put_tps: Callable[[str], float] | None = None,
        dropped: Callable[[str], None] | None = None,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._flow = flow
        self._registered = registered
        self._put_tps = put_tps
        self._dropped = dropped
        self._mapping_version = DataVersion(timestamp_ms=store.now_ms())

    # Making and altering

    @processor(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        header=headers.CreateTopicRequestHeader,
        permission=_CREATE,
        ports=ALL_PORTS,
    )
    async def update_topic(
        self, context: RequestContext, header: headers.CreateTopicRequestHeader
    ) -> RemotingCommand:
        """Make or alter a topic."""
        self._check_name(header.topic)
        topic = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            attributes=_parsed_attributes(header.attributes),
        )
        self._check_settings(topic)
        await self._update([topic], context)
        return context.response(ResponseCode.SUCCESS, remark=UNSET_REMARK)

    @processor(
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        header=headers.CreateTopicListRequestHeader,
        permission=_CREATE,
        ports=ALL_PORTS,
    )
    async def update_topic_list(
        self, context: RequestContext, header: headers.CreateTopicListRequestHeader
    ) -> RemotingCommand:
        """Make or alter topics: all of them, or none."""
        del header
        body = read_body(context, CreateTopicListRequestBody, max_bytes=ADMIN_BODY_BYTES_MAX)
        topics = body.topic_config_list or []
        for topic in topics:
            self._check_name(topic.topic_name or "")
            self._check_settings(topic)
        await self._update(topics, context)
        return context.response(ResponseCode.SUCCESS, remark=UNSET_REMARK)

    async def _update(self, topics: Iterable[TopicConfig], context: RequestContext) -> None:
        table = self._topics.table
        altered = [each for each in topics if table.get(each.topic_name or "") != each]
        if not altered:
            return
        self._topics.update_all(altered)
        log.info(
            "%s made or altered topics: %s",
            context.connection.remote_address,
            ", ".join(each.topic_name or "" for each in altered[:10]),
        )
        await self._registered()

    def _check_name(self, topic: str) -> None:
        fault = topic_fault(topic)
        if fault is None:
            fault = self._system_topic_fault(topic)
        if fault is not None:
            raise RequestRefused(fault, response_code=ResponseCode.INVALID_PARAMETER)

    def _system_topic_fault(self, topic: str) -> str | None:
        if self._config.validate_system_topic_when_update_topic and self._topics.is_system(topic):
            return f"The topic[{topic}] is conflict with system topic."
        return None

    def _check_settings(self, topic: TopicConfig) -> None:
        fault = None
        if topic.topic_filter_type not in FILTER_TYPES:
            fault = f"topicFilterType = [{topic.topic_filter_type}] value invalid"
        elif not 0 <= topic.perm < PERM_PRIORITY:
            fault = f"perm = [{topic.perm}] value invalid"
        elif not (
            0 <= topic.read_queue_nums <= QUEUES_MAX and 0 <= topic.write_queue_nums <= QUEUES_MAX
        ):
            fault = (
                f"readQueueNums = [{topic.read_queue_nums}], writeQueueNums = "
                f"[{topic.write_queue_nums}]: a topic has 0 to {QUEUES_MAX} queues"
            )
        elif (
            not self._config.mixed_message_type
            and topic.attributes.get(MESSAGE_TYPE_ADDED) == MIXED
        ):
            fault = "MIXED message type is not supported."
        if fault is not None:
            raise RequestRefused(fault, response_code=ResponseCode.INVALID_PARAMETER)

    # Dropping

    @processor(
        RequestCode.DELETE_TOPIC_IN_BROKER,
        header=headers.DeleteTopicRequestHeader,
        permission=Permission(Action.DELETE, Resource.TOPIC),
        ports=ALL_PORTS,
    )
    async def delete_topic(
        self, context: RequestContext, header: headers.DeleteTopicRequestHeader
    ) -> RemotingCommand:
        """Drop a topic with its queues, its offsets and the retry topics that POP made for it."""
        topic = header.topic
        fault = "The specified topic is blank." if not topic.strip() else None
        if fault is None:
            fault = self._system_topic_fault(topic)
        if fault is not None:
            return context.response(ResponseCode.INVALID_PARAMETER, remark=fault)
        dropped = [topic, *self._pop_retry_topics(topic)]
        for each in dropped:
            self._topics.delete(each)
            self._offsets.remove_topic(each)
            if self._dropped is not None:
                self._dropped(each)
        self._store.delete_topics(dropped)
        # A topic that is made again starts at 0, where old offsets would be ahead of its messages.
        save_offsets = self._offsets.begin_persist()
        if save_offsets is not None:
            await self._flow.run(RequestClass.ADMIN, save_offsets)
        log.info("%s dropped %s", context.connection.remote_address, ", ".join(dropped))
        return context.response(ResponseCode.SUCCESS)

    def _pop_retry_topics(self, topic: str) -> list[str]:
        names = (
            f"{RETRY_GROUP_TOPIC_PREFIX}{group}{sign}{topic}"
            for group in sorted(self._offsets.groups_of_topic(topic))
            for sign in ("+", "_")
        )
        return [name for name in names if name in self._topics.table]

    # Showing

    @processor(
        RequestCode.GET_ALL_TOPIC_CONFIG,
        header=headers.GetAllTopicConfigRequestHeader,
        permission=Permission(Action.LIST, Resource.TOPIC),
        ports=ALL_PORTS,
    )
    async def all_topics(
        self, context: RequestContext, header: headers.GetAllTopicConfigRequestHeader
    ) -> RemotingCommand:
        """All topics, or one page of them."""
        table = self._topics.table
        page = page_of(
            table,
            self._topics.data_version,
            start=header.topic_seq,
            known_version=header.data_version,
            max_entries=header.max_topic_num,
        )
        body = TopicConfigAndMappingSerializeWrapper(
            data_version=msgspec.structs.replace(self._topics.data_version),
            mapping_data_version=self._mapping_version,
            topic_config_table=page,
        )
        answer = headers.GetAllTopicConfigResponseHeader(total_topic_num=len(table))
        data = await encode_page(self._flow, body, entries=len(page))
        return context.response(ResponseCode.SUCCESS, answer, body=data)

    @processor(
        RequestCode.GET_TOPIC_CONFIG,
        header=headers.TopicRequestHeader,
        permission=_GET,
        ports=ALL_PORTS,
    )
    def topic_config(
        self, context: RequestContext, header: headers.TopicRequestHeader
    ) -> RemotingCommand:
        """The settings of a topic."""
        topic = self._topics.select(header.topic)
        if topic is None:
            remark = f"No topic in this broker. topic: {header.topic}"
            return context.response(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        return context.response(ResponseCode.SUCCESS, body=encode_body(topic))

    @processor(
        RequestCode.GET_TOPIC_STATS_INFO,
        header=headers.TopicRequestHeader,
        permission=_GET,
        ports=ALL_PORTS,
    )
    async def topic_stats(
        self, context: RequestContext, header: headers.TopicRequestHeader
    ) -> RemotingCommand:
        """First and next offset of each queue, and when its last message was stored."""
        topic = self._topics.select(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist"
            return context.response(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        show = partial(self._stats, header.topic, topic)
        body = await self._flow.run(RequestClass.ADMIN, show)
        return context.response(ResponseCode.SUCCESS, body=body)

    def _stats(self, name: str, topic: TopicConfig) -> bytes:
        queues = max(topic.read_queue_nums, topic.write_queue_nums)
        table = TopicStatsTable(
            offset_table={
                MessageQueue(name, self._config.broker_name, queue_id): self._queue_stats(
                    name, queue_id
                )
                for queue_id in range(queues)
            },
            topic_put_tps=0.0 if self._put_tps is None else self._put_tps(name),
        )
        return encode_body(table)

    def _queue_stats(self, topic: str, queue_id: int) -> TopicOffset:
        next_offset = self._store.max_offset_in_queue(topic, queue_id)
        stored_ms = 0
        if next_offset > 0:
            stored_ms = self._store.message_store_time_ms(topic, queue_id, next_offset - 1)
        return TopicOffset(
            last_update_timestamp_ms=stored_ms,
            max_offset=next_offset,
            min_offset=max(self._store.min_offset_in_queue(topic, queue_id), 0),
        )


def _parsed_attributes(text: str | None) -> dict[str, str]:
    """Changes of attributes by name with sign, of ``+name=value,-name``."""
    attributes: dict[str, str] = {}
    for word in text.split(",") if text else ():
        key, equals, value = word.partition("=")
        if equals and ("+" not in key or not value):
            raise RequestRefused(f"add/alter attribute format is wrong: {key}")
        if not equals and "-" not in key:
            raise RequestRefused(f"delete attribute format is wrong: {key}")
        if key in attributes:
            raise RequestRefused(f"key duplication: {key}")
        attributes[key] = value
    return attributes
