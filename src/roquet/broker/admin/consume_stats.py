"""The progress of groups: offsets by queue, and the store times of consumed messages.

The part of upstream's AdminBrokerProcessor behind ``mqadmin consumerProgress``,
``brokerConsumeStats`` and the dashboard's group pages. Everything runs in a thread, because a store
time may have to be read from the log. Tables other than the store's are only looked up there, never
iterated: the iteration over committed offsets uses a copy of their keys.

In the responses the key of each entry is a queue, which the general body encoder writes at a
microsecond per byte, so they are assembled here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from roquet.broker.admin.offset_keys import topics_by_group, topics_of_group
from roquet.broker.components import BrokerComponents
from roquet.broker.service.flow_control import RequestClass
from roquet.model.fastjson import dumps
from roquet.model.message_queue import MessageQueue
from roquet.model.topic_config import TopicConfig
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.offset import QueryConsumeTimeSpanBody, QueueTimeSpan
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import admin as headers
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)
from roquet.runtime.clock import stamp_of

__all__ = ["ConsumeStatsAdmin", "time_text"]

_GROUP = Permission(Action.GET, Resource.GROUP)
_TOPIC_LIST_SEPARATOR = ";"


class _Progress(NamedTuple):
    """The progress of a group in a queue."""

    queue_id: int
    broker_offset: int
    consumer_offset: int
    last_timestamp_ms: int
    pull_offset: int


class ConsumeStatsAdmin:
    """Reports the progress of groups.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._broker = components

    # ---------------------------------------------------------------------------- one group

    @processor(
        RequestCode.GET_CONSUME_STATS,
        header=headers.GetConsumeStatsRequestHeader,
        permission=_GROUP,
        ports=ALL_PORTS,
    )
    async def consume_stats(
        self, context: RequestContext, header: headers.GetConsumeStatsRequestHeader
    ) -> RemotingCommand:
        """Return a group's progress in one topic, in a list, or in all with committed offsets.

        A topic that the group's clients do not subscribe to is included only if it is in a list.
        """
        group = header.consumer_group
        listed = [name for name in (header.topic_list or "").split(_TOPIC_LIST_SEPARATOR) if name]
        if listed:
            topics = list(dict.fromkeys(listed))
        elif header.topic and header.topic.strip():
            topics = self._subscribed(group, [header.topic])
        else:
            find = partial(topics_of_group, list(self._broker.offsets.table), group)
            topics = self._subscribed(group, await self._broker.flow.run(RequestClass.ADMIN, find))
        show = partial(self._stats_of_group, group, topics)
        body = await self._broker.flow.run(RequestClass.ADMIN, show)
        return context.response(ResponseCode.SUCCESS, body=body)

    def _stats_of_group(self, group: str, topics: Iterable[str]) -> bytes:
        entries: list[str] = []
        tps = 0.0
        for topic in topics:
            config = self._broker.topics.select(topic)
            if config is None:
                continue
            progress = self._progress(group, topic, config.read_queue_nums, with_pull=True)
            entries.extend(self._entry_texts(topic, progress))
            tps += self._tps(group, topic)
        return _stats_text(tps, entries).encode()

    # --------------------------------------------------------------------------- all groups

    @processor(
        RequestCode.GET_BROKER_CONSUME_STATS,
        header=headers.GetConsumeStatsInBrokerRequestHeader,
        permission=Permission(Action.LIST, Resource.GROUP),
        ports=ALL_PORTS,
        request_class=RequestClass.HEAVY,
    )
    async def broker_consume_stats(
        self, context: RequestContext, header: headers.GetConsumeStatsInBrokerRequestHeader
    ) -> RemotingCommand:
        """Return the progress of all groups, on request in ordered topics only."""
        show = partial(
            self._stats_of_broker,
            list(self._broker.groups.table),
            list(self._broker.offsets.table),
            only_ordered=header.is_order,
        )
        body = await self._broker.flow.run(RequestClass.ADMIN, show)
        return context.response(ResponseCode.SUCCESS, body=body)

    def _stats_of_broker(
        self, groups: Iterable[str], offset_keys: Iterable[str], *, only_ordered: bool
    ) -> bytes:
        committed = topics_by_group(offset_keys)
        texts: list[str] = []
        total_diff = 0
        total_inflight = 0
        for group in groups:
            stats: list[str] = []
            for topic in self._subscribed(group, committed.get(group, [])):
                config = self._broker.topics.select(topic)
                if config is None or (only_ordered and not config.order):
                    continue
                # Upstream omits the pulled offset here, so that the in-flight count is below 0.
                progress = list(
                    self._progress(group, topic, config.write_queue_nums, with_pull=False)
                )
                total_diff += sum(each.broker_offset - each.consumer_offset for each in progress)
                total_inflight += sum(each.pull_offset - each.consumer_offset for each in progress)
                entries = self._entry_texts(topic, progress)
                stats.append(_stats_text(self._tps(group, topic), entries))
            texts.append(f"{{{dumps(group)}:[{','.join(stats)}]}}")
        address = dumps(self._broker.advertised.address)
        return (
            f'{{"brokerAddr":{address},"consumeStatsList":[{",".join(texts)}],'
            f'"totalDiff":{total_diff},"totalInflightDiff":{total_inflight}}}'
        ).encode()

    # -------------------------------------------------------------------------------- times

    @processor(
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        header=headers.QueryConsumeTimeSpanRequestHeader,
        permission=_GROUP,
        ports=ALL_PORTS,
    )
    async def consume_time_span(
        self, context: RequestContext, header: headers.QueryConsumeTimeSpanRequestHeader
    ) -> RemotingCommand:
        """Return when the first, last and last consumed message of each queue were stored."""
        topic = self._broker.topics.select(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist"
            return context.response(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        show = partial(self._time_spans, header.group, header.topic, topic)
        body = await self._broker.flow.run(RequestClass.ADMIN, show)
        return context.response(ResponseCode.SUCCESS, body=body)

    def _time_spans(self, group: str, topic: str, config: TopicConfig) -> bytes:
        spans = [
            self._time_span(group, topic, queue_id) for queue_id in range(config.write_queue_nums)
        ]
        return encode_body(QueryConsumeTimeSpanBody(consume_time_span_set=spans))

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        store = self._broker.store
        next_offset = store.max_offset_in_queue(topic, queue_id)
        first_ms = store.earliest_message_time_in_queue_ms(topic, queue_id)
        last_ms = store.message_store_time_ms(topic, queue_id, next_offset - 1)
        consumer_offset = self._broker.offsets.query(group, topic, queue_id)
        consumed_ms = first_ms
        if consumer_offset > 0:
            consumed_ms = store.message_store_time_ms(topic, queue_id, consumer_offset - 1)
        delay_ms = 0
        if consumer_offset < next_offset:
            # Without a message its time is -1, and the delay is since the epoch, as in upstream.
            waiting_ms = store.message_store_time_ms(topic, queue_id, consumer_offset)
            delay_ms = store.now_ms() - waiting_ms
        return QueueTimeSpan(
            consume_timestamp_ms=consumed_ms,
            consume_timestamp_text=time_text(consumed_ms),
            delay_ms=delay_ms,
            max_timestamp_ms=last_ms,
            max_timestamp_text=time_text(last_ms),
            message_queue=MessageQueue(topic, self._broker.config.broker_name, queue_id),
            min_timestamp_ms=first_ms,
            min_timestamp_text=time_text(first_ms),
        )

    # ------------------------------------------------------------------------------------- parts

    def _subscribed(self, group: str, topics: Iterable[str]) -> list[str]:
        """The topics that a group's clients subscribe to; all if it has no clients here."""
        info = self._broker.consumers.find(group)
        if info is None or not info.subscriptions:
            return list(topics)
        find = self._broker.consumers.find_subscription
        return [topic for topic in topics if find(group, topic) is not None]

    def _progress(
        self, group: str, topic: str, queues: int, *, with_pull: bool
    ) -> Iterator[_Progress]:
        store, offsets = self._broker.store, self._broker.offsets
        # Each item of a static topic counts alone: another broker may have the commit.
        least = -1 if with_pull and topic in self._broker.mappings.table else 0
        for queue_id in range(queues):
            broker_offset = max(store.max_offset_in_queue(topic, queue_id), 0)
            consumer_offset = max(offsets.query(group, topic, queue_id), least)
            pull_offset = 0
            if with_pull:
                pull_offset = max(consumer_offset, offsets.query_pull(group, topic, queue_id))
            last_ms = 0
            if consumer_offset > 0:
                last_ms = store.message_store_time_ms(topic, queue_id, consumer_offset - 1)
            yield _Progress(queue_id, broker_offset, consumer_offset, max(last_ms, 0), pull_offset)

    def _entry_texts(self, topic: str, progress: Iterable[_Progress]) -> list[str]:
        broker_text, topic_text = dumps(self._broker.config.broker_name), dumps(topic)
        return [
            f'{{"brokerName":{broker_text},"queueId":{each.queue_id},"topic":{topic_text}}}:'
            f'{{"brokerOffset":{each.broker_offset},"consumerOffset":{each.consumer_offset},'
            f'"lastTimestamp":{each.last_timestamp_ms},"pullOffset":{each.pull_offset}}}'
            for each in progress
        ]

    def _tps(self, group: str, topic: str) -> float:
        return self._broker.stats.group_get_tps(group, topic)


def _stats_text(tps: float, entries: Iterable[str]) -> str:
    return f'{{"consumeTps":{dumps(tps)},"offsetTable":{{{",".join(entries)}}}}}'


def time_text(timestamp_ms: int) -> str:
    """Format a local time as upstream's responses do, ``yyyy-MM-dd#HH:mm:ss:SSS``."""
    stamp = stamp_of(timestamp_ms)
    date = f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}"
    return f"{date}#{stamp[8:10]}:{stamp[10:12]}:{stamp[12:14]}:{stamp[14:]}"
