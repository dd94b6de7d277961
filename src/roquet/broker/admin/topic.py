"""Topics: creating, changing, deleting and showing them.

The topic part of upstream's AdminBrokerProcessor. Owns the checks of administrators' requests; the
topic manager owns the table. A topic that was created or changed is registered with the reachable
name servers before the response, so that a client that sends next finds its route. A change is
acknowledged once it is in the file; waiting requests share one write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial

import msgspec

from roquet.broker.admin.master_only import check_is_master
from roquet.broker.admin.pages import SortedNames, encode_table, page_of
from roquet.broker.components import BrokerComponents
from roquet.broker.manager.topic_texts import TopicTexts
from roquet.broker.request_body import ADMIN_BODY_BYTES_MAX, read_body
from roquet.broker.service.flow_control import RequestClass
from roquet.model.message_queue import MessageQueue
from roquet.model.topic import RETRY_GROUP_TOPIC_PREFIX, topic_fault
from roquet.model.topic_config import PERM_PRIORITY, TopicConfig
from roquet.model.topic_queue_mapping import TopicQueueMappingDetail
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.topic import (
    CreateTopicListRequestBody,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigAndQueueMapping,
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

__all__ = ["QUEUES_MAX", "TopicAdmin"]

log = logging.getLogger(__name__)

QUEUES_MAX = 65_536
"""More queues than this make no sense in one topic, and would take seconds to list."""

CHECKED_A_TURN = 500
"""Topics of a list that are checked before other work may run."""

MESSAGE_TYPE_ADDED = "+message.type"
MIXED = "MIXED"
FILTER_TYPES = frozenset({"SINGLE_TAG", "MULTI_TAG"})

_GET = Permission(Action.GET, Resource.TOPIC)
_CREATE = Permission(Action.CREATE, Resource.TOPIC)


class TopicAdmin:
    """Serves administrators' requests about topics.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._broker = components
        self._names = SortedNames(components.topics.table, components.topics.changes)
        self._texts = TopicTexts(lambda topic: encode_body(topic).decode())

    # Creating and changing

    @processor(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        header=headers.CreateTopicRequestHeader,
        permission=_CREATE,
        ports=ALL_PORTS,
    )
    async def update_topic(
        self, context: RequestContext, header: headers.CreateTopicRequestHeader
    ) -> RemotingCommand:
        """Create or change a topic."""
        self._check_name(header.topic)
        topic = msgspec.structs.replace(
            _topic_of(header), order=header.order, attributes=_parsed_attributes(header.attributes)
        )
        self._check_settings(topic)
        await self._update([topic], context)
        return context.response(ResponseCode.SUCCESS, remark=UNSET_REMARK)

    @processor(
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        header=headers.CreateTopicListRequestHeader,
        permission=_CREATE,
        ports=ALL_PORTS,
        request_class=RequestClass.HEAVY,
    )
    async def update_topic_list(
        self, context: RequestContext, header: headers.CreateTopicListRequestHeader
    ) -> RemotingCommand:
        """Create or change topics: all of them, or none."""
        del header
        body = read_body(context, CreateTopicListRequestBody, max_bytes=ADMIN_BODY_BYTES_MAX)
        topics = body.topic_config_list or []
        for number, topic in enumerate(topics, 1):
            self._check_name(topic.topic_name or "")
            self._check_settings(topic)
            if number % CHECKED_A_TURN == 0:
                await asyncio.sleep(0)
        await self._update(topics, context)
        return context.response(ResponseCode.SUCCESS, remark=UNSET_REMARK)

    @processor(
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        header=headers.CreateTopicRequestHeader,
        permission=_CREATE,
        ports=ALL_PORTS,
        request_class=RequestClass.HEAVY,
    )
    async def update_static_topic(
        self, context: RequestContext, header: headers.CreateTopicRequestHeader
    ) -> RemotingCommand:
        """Make a topic static, or change its queue mapping, which is the body."""
        check_is_master(self._broker)
        self._check_name(header.topic)
        detail = read_body(
            context, TopicQueueMappingDetail, max_bytes=ADMIN_BODY_BYTES_MAX, has_bare_keys=True
        )
        if detail.topic != header.topic:
            raise RequestRefused(f"The mapping is of topic {detail.topic}, not {header.topic}")
        topic = _topic_of(header)
        self._check_settings(topic)
        self._broker.mappings.stage(detail, force=header.force)
        await self._broker.mappings.committed()
        # After the mapping: name servers accept it with a new version of the topics.
        self._broker.topics.stage_all([topic])
        await self._broker.topics.committed()
        log.info(
            "%s mapped the queues of %s, epoch %d",
            context.connection.remote_address,
            header.topic,
            detail.epoch,
        )
        await self._broker.registration.wait_registered()
        return context.response(ResponseCode.SUCCESS, remark=UNSET_REMARK)

    async def _update(self, topics: Iterable[TopicConfig], context: RequestContext) -> None:
        check_is_master(self._broker)
        table = self._broker.topics.table
        altered = [each for each in topics if table.get(each.topic_name or "") != each]
        if not altered:
            return
        self._broker.topics.stage_all(altered)
        await self._broker.topics.committed()
        log.info(
            "%s created or changed topics: %s",
            context.connection.remote_address,
            ", ".join(each.topic_name or "" for each in altered[:10]),
        )
        await self._broker.registration.wait_registered()

    def _check_name(self, topic: str) -> None:
        fault = topic_fault(topic)
        if fault is None:
            fault = self._system_topic_fault(topic)
        if fault is not None:
            raise RequestRefused(fault, response_code=ResponseCode.INVALID_PARAMETER)

    def _system_topic_fault(self, topic: str) -> str | None:
        if (
            self._broker.config.validate_system_topic_when_update_topic
            and self._broker.topics.is_system(topic)
        ):
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
            not self._broker.config.mixed_message_type
            and topic.attributes.get(MESSAGE_TYPE_ADDED) == MIXED
        ):
            fault = "MIXED message type is not supported."
        if fault is not None:
            raise RequestRefused(fault, response_code=ResponseCode.INVALID_PARAMETER)

    # Deleting

    @processor(
        RequestCode.DELETE_TOPIC_IN_BROKER,
        header=headers.DeleteTopicRequestHeader,
        permission=Permission(Action.DELETE, Resource.TOPIC),
        ports=ALL_PORTS,
        request_class=RequestClass.HEAVY,
    )
    async def delete_topic(
        self, context: RequestContext, header: headers.DeleteTopicRequestHeader
    ) -> RemotingCommand:
        """Delete a topic with its queues, its offsets and the retry topics that POP made for it."""
        check_is_master(self._broker)
        topic = header.topic
        fault = "The specified topic is blank." if not topic.strip() else None
        if fault is None:
            fault = self._system_topic_fault(topic)
        if fault is not None:
            return context.response(ResponseCode.INVALID_PARAMETER, remark=fault)
        dropped = [topic, *self._pop_retry_topics(topic)]
        self._broker.mappings.stage_delete(dropped)
        await self._broker.mappings.committed()
        # Queues are deleted in the same turn as the topics: a recreated topic keeps its own.
        self._broker.topics.stage_delete(dropped)
        await self._broker.topics.committed(partial(self._drop, dropped))
        # A recreated topic starts at 0, where old offsets would be ahead of its messages.
        await self._broker.offsets.written()
        log.info("%s deleted %s", context.connection.remote_address, ", ".join(dropped))
        return context.response(ResponseCode.SUCCESS)

    def _drop(self, topics: list[str]) -> None:
        for topic in topics:
            self._broker.offsets.remove_topic(topic)
            self._broker.stats.topic_deleted(topic)
            self._broker.transaction_metrics.forget((topic,))
        self._broker.store.delete_topics(topics)

    def _pop_retry_topics(self, topic: str) -> list[str]:
        names = (
            f"{RETRY_GROUP_TOPIC_PREFIX}{group}{sign}{topic}"
            for group in sorted(self._broker.offsets.groups_of_topic(topic))
            for sign in ("+", "_")
        )
        return [name for name in names if name in self._broker.topics.table]

    # Showing

    @processor(
        RequestCode.GET_ALL_TOPIC_CONFIG,
        header=headers.GetAllTopicConfigRequestHeader,
        permission=Permission(Action.LIST, Resource.TOPIC),
        ports=ALL_PORTS,
        request_class=RequestClass.HEAVY,
    )
    async def all_topics(
        self, context: RequestContext, header: headers.GetAllTopicConfigRequestHeader
    ) -> RemotingCommand:
        """Return all topics, or one page of them."""
        table = self._broker.topics.table
        page = page_of(
            table,
            self._names.get,
            self._broker.topics.data_version,
            start=header.topic_seq,
            known_version=header.data_version,
            max_entries=header.max_topic_num,
        )
        body = TopicConfigAndMappingSerializeWrapper(
            data_version=msgspec.structs.replace(self._broker.topics.data_version),
            mapping_data_version=msgspec.structs.replace(self._broker.mappings.data_version),
            topic_queue_mapping_detail_map=self._broker.mappings.of_topics(page),
        )
        answer = headers.GetAllTopicConfigResponseHeader(total_topic_num=len(table))
        member = self._texts.member
        data = await encode_table(self._broker.flow, body, "topicConfigTable", page, member)
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
        """Return the settings of a topic."""
        topic = self._broker.topics.select(header.topic)
        if topic is None:
            remark = f"No topic in this broker. topic: {header.topic}"
            return context.response(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        mapping = self._broker.mappings.table.get(header.topic) if header.logical else None
        if mapping is None:
            return context.response(ResponseCode.SUCCESS, body=encode_body(topic))
        shown = TopicConfigAndQueueMapping(**msgspec.structs.asdict(topic), mapping_detail=mapping)
        return context.response(ResponseCode.SUCCESS, body=encode_body(shown))

    @processor(
        RequestCode.GET_TOPIC_STATS_INFO,
        header=headers.TopicRequestHeader,
        permission=_GET,
        ports=ALL_PORTS,
    )
    async def topic_stats(
        self, context: RequestContext, header: headers.TopicRequestHeader
    ) -> RemotingCommand:
        """Return the first and next offset of each queue, and its last message's store time."""
        topic = self._broker.topics.select(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist"
            return context.response(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        show = partial(self._queues_stats, header.topic, topic)
        body = await self._broker.flow.run(RequestClass.ADMIN, show)
        return context.response(ResponseCode.SUCCESS, body=body)

    def _queues_stats(self, name: str, topic: TopicConfig) -> bytes:
        queues = max(topic.read_queue_nums, topic.write_queue_nums)
        table = TopicStatsTable(
            offset_table={
                MessageQueue(name, self._broker.config.broker_name, queue_id): self._queue_stats(
                    name, queue_id
                )
                for queue_id in range(queues)
            },
            topic_put_tps=self._broker.stats.topic_put_tps(name),
        )
        return encode_body(table)

    def _queue_stats(self, topic: str, queue_id: int) -> TopicOffset:
        next_offset = self._broker.store.max_offset_in_queue(topic, queue_id)
        stored_ms = 0
        if next_offset > 0:
            stored_ms = self._broker.store.message_store_time_ms(topic, queue_id, next_offset - 1)
        return TopicOffset(
            last_update_timestamp_ms=stored_ms,
            max_offset=next_offset,
            min_offset=max(self._broker.store.min_offset_in_queue(topic, queue_id), 0),
        )


def _topic_of(header: headers.CreateTopicRequestHeader) -> TopicConfig:
    return TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
        topic_filter_type=header.topic_filter_type,
        topic_sys_flag=header.topic_sys_flag or 0,
    )


def _parsed_attributes(text: str | None) -> dict[str, str]:
    """Parse ``+name=value,-name`` into attribute changes by signed name."""
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
