"""Commands that move the offsets of groups."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from roquet.cli.mqadmin.commons_cli import Flags
from roquet.cli.mqadmin.failures import BROKER_EXCEPTION, JavaFailure, with_url
from roquet.cli.mqadmin.java import bool_text, parse_moment_ms, parse_number, queue_order
from roquet.cli.mqadmin.tool import Tool, broker_address, front
from roquet.model.message_queue import MessageQueue
from roquet.model.topic import LMQ_PREFIX, WHEEL_TIMER_TOPIC
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.offset import ConsumeStats, OffsetWrapper, ResetOffsetBody
from roquet.remoting.bodies.route import QueueData
from roquet.remoting.bodies.topic import TopicStatsTable
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers import offset as headers
from roquet.remoting.headers.admin import GetConsumeStatsRequestHeader, TopicRequestHeader
from roquet.remoting.headers.base import decode_header

__all__ = ["COMMANDS"]

END_OF_QUEUE_MS = -1
ROW = "%-40s  %-40s  %-40s\n"
OLD_ROW = "%-20s  %-20s  %-20s  %-20s  %-20s  %-20s\n"


async def _commit(
    tool: Tool, address: str, group: str, queue: MessageQueue, queue_offset: int
) -> None:
    header = headers.UpdateConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=queue_offset,
    )
    await tool.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def _clone(tool: Tool, flags: Flags) -> None:
    """``cloneGroupOffset``."""
    source, target, topic = flags.text("s"), flags.text("d"), flags.text("t")
    table = (await tool.progress(source)).offset_table
    if table:
        brokers = (await tool.route(topic)).broker_datas
        addresses = {data.broker_name: broker_address(data) for data in brokers}
        for queue in queue_order(table):
            offset = table[queue].consumer_offset
            if offset >= 0:
                await _commit(tool, addresses[queue.broker_name], target, queue, offset)
    words = f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]"
    tool.say(words, source=source, target=target, topic=topic)


# ---------------------------------------------------------------------------------------- reset


class _Reset(Struct, frozen=True, kw_only=True):
    """Where a group is to continue."""

    topic: str
    group: str
    timestamp_ms: int
    force: bool
    cluster: str | None

    @property
    def route_topic(self) -> str:
        """The topic whose route is used."""
        is_elsewhere = self.topic.startswith(LMQ_PREFIX) or self.topic == WHEEL_TIMER_TOPIC
        return self.cluster if self.cluster and is_elsewhere else self.topic


async def _reset(tool: Tool, reset: _Reset) -> dict[MessageQueue, int]:
    """Let the brokers move a group and notify its clients."""
    header = headers.ResetOffsetRequestHeader(
        topic=reset.topic,
        group=reset.group,
        timestamp_ms=reset.timestamp_ms,
        force=reset.force,
    )
    found: dict[MessageQueue, int] = {}
    for data in (await tool.route(reset.route_topic)).broker_datas:
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        answer = await tool.ask(broker_address(data), code, header)
        if answer.body:
            found |= decode_body(ResetOffsetBody, answer.body).offset_table
    return found


def _say_reset(tool: Tool, group: str, table: Mapping[MessageQueue, int]) -> None:
    tool.say(ROW % ("#brokerName", "#queueId", "#offset"))
    for queue in queue_order(table):
        row = (front(queue.broker_name, 32), queue.queue_id, table[queue])
        tool.say(ROW % row, group=group, queue=queue, offset=table[queue])


async def _by_time(tool: Tool, flags: Flags) -> None:
    """``resetOffsetByTime``."""
    moment = flags.text("s")
    timestamp_ms = tool.now_ms if moment == "now" else parse_moment_ms(moment)
    reset = _Reset(
        topic=flags.text("t"),
        group=flags.text("g"),
        timestamp_ms=timestamp_ms,
        force=flags.truth("f", default=True),
        cluster=flags.get("c"),
    )
    names = f"group[{reset.group}], topic[{reset.topic}]"
    times = f"timestamp(string)[{moment}], timestamp(long)[{timestamp_ms}]"
    queue_id = flags.number("q", -1)
    if "b" in flags and queue_id >= 0:
        address = flags.text("b")
        words = f"start reset consumer offset by specified, {names}, queueId[{queue_id}]"
        tool.say(f"{words}, broker[{address}], {times}\n")
        await _reset_queue(tool, flags, reset, address, queue_id)
        return
    try:
        table = await _reset(tool, reset)
    except JavaFailure as failure:
        if not failure.is_clients or failure.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        force = bool_text(reset.force)
        rows = await _reset_offline(tool, reset)
        words = f"consumerGroup[{reset.group}], topic[{reset.topic}], force[{force}], {times}"
        tool.say(f"reset consumer offset by specified {words}\n")
        _say_offline(tool, rows, "#resetOffset")
        return
    force = bool_text(reset.force)
    tool.say(f"start reset consumer offset by specified, {names}, force[{force}], {times}\n")
    _say_reset(tool, reset.group, table)


async def _reset_queue(
    tool: Tool, flags: Flags, reset: _Reset, address: str, queue_id: int
) -> None:
    queue = MessageQueue(reset.topic, "", queue_id)
    offset = (
        parse_number(flags.text("o"))
        if "o" in flags
        else await _search(tool, address, queue, reset.timestamp_ms)
    )
    facts = {"group": reset.group, "topic": reset.topic, "queueId": queue_id, "offset": offset}
    tool.say(f"reset consumer offset to {offset}\n", **facts)
    if offset <= 0:
        return
    await _commit(tool, address, reset.group, queue, offset)
    header = headers.ResetOffsetRequestHeader(
        topic=reset.topic,
        group=reset.group,
        queue_id=queue_id,
        queue_offset=offset,
        timestamp_ms=0,
    )
    try:
        await tool.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    except JavaFailure as failure:
        if not failure.is_clients:
            raise
        text = with_url(f"CODE: {failure.code}  DESC: {failure.text}")
        raise JavaFailure(BROKER_EXCEPTION, text, code=failure.code) from failure


async def _search(tool: Tool, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
    if timestamp_ms == END_OF_QUEUE_MS:
        end = headers.GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        answer = await tool.ask(address, RequestCode.GET_MAX_OFFSET, end)
    else:
        header = headers.SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp_ms=timestamp_ms
        )
        answer = await tool.ask(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
    return decode_header(headers.OffsetResponseHeader, answer.ext_fields).queue_offset


async def _skip(tool: Tool, flags: Flags) -> None:
    """``skipAccumulatedMessage``."""
    reset = _Reset(
        topic=flags.text("t"),
        group=flags.text("g"),
        timestamp_ms=END_OF_QUEUE_MS,
        force=flags.truth("f", default=True),
        cluster=flags.get("c"),
    )
    try:
        table = await _reset(tool, reset)
    except JavaFailure as failure:
        if not failure.is_clients or failure.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        _say_offline(tool, await _reset_offline(tool, reset), "#rollbackOffset")
        return
    _say_reset(tool, reset.group, table)


# -------------------------------------------------------------------------------------- offline


class _Moved(Struct, frozen=True, kw_only=True, rename="camel"):
    """A queue of a group that was moved while none of its clients ran."""

    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    timestamp_offset: int
    rollback_offset: int


async def _reset_offline(tool: Tool, reset: _Reset) -> list[_Moved]:
    route = await tool.route(reset.route_topic)
    counts = {each.broker_name: each for each in route.queue_datas}
    found: list[_Moved] = []
    for data in route.broker_datas:
        address = broker_address(data)
        queues = await _known(tool, reset, address, counts[data.broker_name])
        found += [
            await _move(tool, reset, address, queue, queues[queue]) for queue in queue_order(queues)
        ]
    return found


async def _known(
    tool: Tool, reset: _Reset, address: str, count: QueueData
) -> dict[MessageQueue, OffsetWrapper]:
    """The progress of the group; the start of queues that it has not consumed."""
    header = GetConsumeStatsRequestHeader(consumer_group=reset.group)
    stats = await tool.ask_body(ConsumeStats, address, RequestCode.GET_CONSUME_STATS, header)
    known = {
        queue: each for queue, each in stats.offset_table.items() if queue.topic == reset.topic
    }
    if known:
        return known
    topic = TopicRequestHeader(topic=reset.topic)
    code = RequestCode.GET_TOPIC_STATS_INFO
    table = (await tool.ask_body(TopicStatsTable, address, code, topic)).offset_table
    return {
        queue: OffsetWrapper(broker_offset=each.max_offset, consumer_offset=each.min_offset)
        for queue, each in table.items()
        if queue.queue_id < count.read_queue_nums
    }


async def _move(
    tool: Tool, reset: _Reset, address: str, queue: MessageQueue, known: OffsetWrapper
) -> _Moved:
    target = await _search(tool, address, queue, reset.timestamp_ms)
    is_moved = reset.force or target <= known.consumer_offset
    if is_moved:
        await _commit(tool, address, reset.group, queue, target)
    return _Moved(
        broker_name=queue.broker_name,
        queue_id=queue.queue_id,
        broker_offset=known.broker_offset,
        consumer_offset=known.consumer_offset,
        timestamp_offset=target,
        rollback_offset=target if is_moved else known.consumer_offset,
    )


def _say_offline(tool: Tool, rows: list[_Moved], last: str) -> None:
    heads = ("#brokerName", "#queueId", "#brokerOffset", "#consumerOffset", "#timestampOffset")
    tool.say(OLD_ROW % (*heads, last))
    for each in rows:
        offsets = (each.broker_offset, each.consumer_offset, each.timestamp_offset)
        row = (front(each.broker_name, 32), each.queue_id, *offsets, each.rollback_offset)
        tool.say(OLD_ROW % row, moved=each)


COMMANDS = {
    "cloneGroupOffset": _clone,
    "resetOffsetByTime": _by_time,
    "skipAccumulatedMessage": _skip,
}
