"""Commands about clients: connections, progress of groups, state of consumers."""

from __future__ import annotations

from pathlib import Path

from roquet.cli.mqadmin.commons_cli import Flags
from roquet.cli.mqadmin.failures import JavaFailure, client_failure
from roquet.cli.mqadmin.java import concurrent_order, day_and_time, hash_order
from roquet.cli.mqadmin.running_info import (
    analysis,
    is_push,
    running_info_facts,
    running_info_text,
)
from roquet.cli.mqadmin.tool import Tool, broker_address, front
from roquet.model.message_queue import MessageQueue
from roquet.model.topic import RETRY_GROUP_TOPIC_PREFIX, is_dlq_topic, is_retry_topic
from roquet.remoting.bodies.broker import BrokerStatsData
from roquet.remoting.bodies.client import (
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeType,
    ProducerConnection,
    ProducerTableInfo,
)
from roquet.remoting.bodies.offset import ConsumeStats, ConsumeStatsList
from roquet.remoting.bodies.route import MASTER_ID
from roquet.remoting.codes import RequestCode, version_name
from roquet.remoting.headers import admin as headers
from roquet.remoting.headers.client import (
    GetAllProducerInfoRequestHeader,
    GetProducerConnectionListRequestHeader,
)

__all__ = ["COMMANDS", "sum_of_day", "view_stats"]

STATS_TIMEOUT_MS = 50_000
STARTED_LONG_AGO_MS = 120_000

PROGRESS_HEAD = "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s%s\n"
PROGRESS_ROW = "%-64s  %-32s  %-4d  %-20d  %-20d  %-20d %-20d %s\n"
CLIENTS_HEAD = "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s %-20s%s\n"
CLIENTS_ROW = "%-64s  %-32s  %-4d  %-20d  %-20d  %-20s %-20d %-20d %s\n"
GROUPS_ROW = "%-64s  %-6s  %-24s %-5s  %-14s  %-7s  %s\n"
BROKER_ROW = "%-64s  %-64s  %-32s  %-4s  %-20s  %-20s  %-20s  %s\n"
STATS_ROW = "%-64s  %-64s %12s %11s %11s %14s %14s\n"
CONNECTION_ROW = "%-36s %-22s %-10s %s\n"
STATUS_ROW = "%-10s %-40s %-20s %s\n"


# ---------------------------------------------------------------------------------- connections


async def _consumer_connection(tool: Tool, flags: Flags) -> None:
    """``consumerConnection``."""
    found = await tool.connections(flags.text("g"), flags.get("b"))
    tool.say(CONNECTION_ROW % ("#ClientId", "#ClientAddr", "#Language", "#Version"))
    for each in found.connection_set:
        row = (each.client_id, each.client_address, each.language, version_name(each.version))
        tool.say(CONNECTION_ROW % row, client=each, version=version_name(each.version))
    tool.say("\nBelow is subscription:\n")
    tool.say("%-20s %s\n" % ("#Topic", "#SubExpression"))
    for topic in concurrent_order(found.subscription_table):
        each_sub = found.subscription_table[topic]
        tool.say("%-20s %s\n" % (each_sub.topic, each_sub.sub_string), subscription=each_sub)
    kinds = [
        None if value is None else value.value
        for value in (found.consume_type, found.message_model, found.consume_from_where)
    ]
    texts = ["null" if value is None else value for value in kinds]
    tool.say(
        f"\nConsumeType: {texts[0]}\nMessageModel: {texts[1]}\nConsumeFromWhere: {texts[2]}\n",
        consumeType=kinds[0],
        messageModel=kinds[1],
        consumeFromWhere=kinds[2],
    )


async def _producer_connection(tool: Tool, flags: Flags) -> None:
    """``producerConnection``."""
    route = await tool.route(flags.text("t"))
    found = await tool.ask_body(
        ProducerConnection,
        broker_address(route.broker_datas[0]),
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        GetProducerConnectionListRequestHeader(producer_group=flags.text("g")),
    )
    if not found.connection_set:
        raise client_failure("Not found the producer group connection")
    for number, each in enumerate(found.connection_set, start=1):
        version = version_name(each.version)
        row = (number, each.client_id, each.client_address, each.language, version)
        tool.say("%04d  %-32s %-22s %-8s %s\n" % row, client=each, version=version)


async def _producers(tool: Tool, flags: Flags) -> None:
    """``producer``."""
    code = RequestCode.GET_ALL_PRODUCER_INFO
    header = GetAllProducerInfoRequestHeader()
    found = (await tool.ask_body(ProducerTableInfo, flags.text("b"), code, header)).data or {}
    for group in hash_order(found):
        if not found[group]:
            tool.say(f"producer group ({group}) instances are empty\n", group=group)
        for each in found[group]:
            text = (
                f"clientId={each.client_id},remoteIP={each.remote_ip}, language={each.language}, "
                f"version={each.version}, lastUpdateTimestamp={each.last_update_timestamp_ms}"
            )
            tool.say(f"producer group ({group}) instance : {text}\n", group=group, client=each)


# ------------------------------------------------------------------------------------- progress


async def _progress(tool: Tool, flags: Flags) -> None:
    """``consumerProgress``."""
    if "g" in flags:
        await _progress_of(tool, flags)
        return
    heads = ("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total")
    tool.say(GROUPS_ROW % heads)
    for topic in await tool.topics():
        if is_retry_topic(topic):
            await _say_group(tool, topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX))


async def _progress_of(tool: Tool, flags: Flags) -> None:
    group = flags.text("g")
    stats = await tool.progress(group, flags.get("t"))
    with_clients = flags.truth("s")
    clients = await _clients_of_queues(tool, group) if with_clients else {}
    names = ("#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset")
    ends = ("#Diff", "#Inflight", "#LastTime")
    if with_clients:
        tool.say(CLIENTS_HEAD % (*names, "#Client IP", *ends))
    else:
        tool.say(PROGRESS_HEAD % (*names, *ends))
    for queue in sorted(stats.offset_table):
        each = stats.offset_table[queue]
        diff = each.broker_offset - each.consumer_offset
        in_flight = each.pull_offset - each.consumer_offset
        last = day_and_time(each.last_timestamp_ms) if each.last_timestamp_ms else "N/A"
        place = (front(queue.topic, 64), front(queue.broker_name, 32), queue.queue_id)
        cells = (*place, each.broker_offset, each.consumer_offset)
        client = clients.get(queue, "N/A")
        text = (
            CLIENTS_ROW % (*cells, client, diff, in_flight, last)
            if with_clients
            else PROGRESS_ROW % (*cells, diff, in_flight, last)
        )
        tool.say(text, queue=queue, offsets=each, diff=diff, inFlight=in_flight)
    diff_total = sum(e.broker_offset - e.consumer_offset for e in stats.offset_table.values())
    in_flight_total = sum(e.pull_offset - e.consumer_offset for e in stats.offset_table.values())
    tool.say(
        f"\nConsume TPS: {stats.consume_tps:.2f}\nConsume Diff Total: {diff_total}\n"
        f"Consume Inflight Total: {in_flight_total}\n",
        tps=stats.consume_tps,
        diffTotal=diff_total,
        inFlightTotal=in_flight_total,
    )


async def _clients_of_queues(tool: Tool, group: str) -> dict[MessageQueue, str]:
    found: dict[MessageQueue, str] = {}
    try:
        for each in (await tool.connections(group)).connection_set:
            client_id = each.client_id or ""
            info = await tool.running_info(group, client_id)
            found |= dict.fromkeys(info.queues, client_id.split("@")[0])
    except JavaFailure:
        pass
    return found


async def _say_group(tool: Tool, group: str) -> None:
    try:
        stats = await tool.progress(group)
    except JavaFailure:
        stats = ConsumeStats()
    try:
        clients = await tool.connections(group)
    except JavaFailure:
        clients = ConsumerConnection()
    count = len(clients.connection_set)
    version = kind = model = ""
    if count:
        version = version_name(min(each.version for each in clients.connection_set))
        kind = "PULL" if clients.consume_type is ConsumeType.CONSUME_ACTIVELY else "PUSH"
        if clients.consume_type is ConsumeType.CONSUME_PASSIVELY and clients.message_model:
            model = clients.message_model.value
    diff = sum(each.broker_offset - each.consumer_offset for each in stats.offset_table.values())
    tps = int(stats.consume_tps)
    tool.say(
        GROUPS_ROW % (front(group, 64), count, version or "OFFLINE", kind, model, tps, diff),
        group=group,
        clients=count,
        version=version,
        type=kind,
        model=model,
        tps=stats.consume_tps,
        diffTotal=diff,
    )


async def _broker_progress(tool: Tool, flags: Flags) -> None:
    """``brokerConsumeStats``."""
    level = flags.number("l")
    found = await tool.ask_body(
        ConsumeStatsList,
        flags.text("b"),
        RequestCode.GET_BROKER_CONSUME_STATS,
        headers.GetConsumeStatsInBrokerRequestHeader(is_order=flags.truth("o")),
        timeout_ms=flags.number("t", STATS_TIMEOUT_MS),
    )
    names = ("#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset")
    tool.say(BROKER_ROW % (*names, "#Diff", "#LastTime"))
    rows = [
        (group, queue, stats.offset_table[queue])
        for table in found.consume_stats_list
        for group in hash_order(table)
        for stats in table[group]
        for queue in sorted(stats.offset_table)
    ]
    for group, queue, each in rows:
        diff = each.broker_offset - each.consumer_offset
        if diff < level or each.last_timestamp_ms <= 0:
            continue
        place = (front(queue.topic, 64), group, front(queue.broker_name, 32), queue.queue_id)
        last = day_and_time(each.last_timestamp_ms)
        cells = (*place, each.broker_offset, each.consumer_offset, diff, last)
        tool.say(BROKER_ROW % cells, group=group, queue=queue, offsets=each, diff=diff)
    tool.say(f"\nDiff Total: {found.total_diff}\n", diffTotal=found.total_diff)


# ---------------------------------------------------------------------------------------- stats


async def view_stats(tool: Tool, address: str, name: str, key: str) -> BrokerStatsData:
    """A counter of a broker."""
    header = headers.ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
    return await tool.ask_body(BrokerStatsData, address, RequestCode.VIEW_BROKER_STATS_DATA, header)


def sum_of_day(stats: BrokerStatsData) -> int:
    """The sum of a day, or of the longest span that has a value."""
    spans = (stats.stats_day, stats.stats_hour, stats.stats_minute)
    return next((each.sum for each in spans if each is not None and each.sum), 0)


async def _rate(tool: Tool, masters: list[str], name: str, key: str) -> tuple[float, int]:
    tps, count = 0.0, 0
    for address in masters:
        try:
            found = await view_stats(tool, address, name, key)
        except JavaFailure:
            continue
        tps += 0.0 if found.stats_minute is None else found.stats_minute.tps
        count += sum_of_day(found)
    return tps, count


async def _stats_all(tool: Tool, flags: Flags) -> None:
    """``statsAll``."""
    names = ("#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS")
    topics = await tool.topics()
    tool.say(STATS_ROW % (*names, "#InMsg24Hour", "#OutMsg24Hour"))
    wanted = flags.get("t")
    for topic in topics:
        if is_retry_topic(topic) or is_dlq_topic(topic) or (wanted and topic != wanted):
            continue
        try:
            await _say_topic_stats(tool, topic, active_only="a" in flags)
        except JavaFailure:
            continue


async def _say_topic_stats(tool: Tool, topic: str, *, active_only: bool) -> None:
    route = await tool.route(topic)
    groups = await tool.groups_of(topic)
    masters = [
        data.broker_addrs[MASTER_ID]
        for data in route.broker_datas
        if MASTER_ID in data.broker_addrs
    ]
    in_tps, in_count = await _rate(tool, masters, "TOPIC_PUT_NUMS", topic)
    facts = {"topic": topic, "inTps": in_tps, "in24Hours": in_count}
    if not groups and (not active_only or in_count > 0):
        row = (front(topic, 64), "", 0, f"{in_tps:.2f}", "", in_count, "NO_CONSUMER")
        tool.say(STATS_ROW % row, **facts, group=None)
    for group in groups:
        out_tps, out_count = await _rate(tool, masters, "GROUP_GET_NUMS", f"{topic}@{group}")
        lag = 0
        try:
            table = (await tool.progress(group, topic)).offset_table.values()
            lag = max(sum(each.broker_offset - each.consumer_offset for each in table), 0)
        except JavaFailure:
            pass
        if not active_only or in_count > 0 or out_count > 0:
            rates = (f"{in_tps:.2f}", f"{out_tps:.2f}", in_count, out_count)
            cells = (front(topic, 64), front(group, 64), lag, *rates)
            more = {"group": group, "lag": lag, "outTps": out_tps, "out24Hours": out_count}
            tool.say(STATS_ROW % cells, **facts, **more)


# --------------------------------------------------------------------------------------- status


async def _status(tool: Tool, flags: Flags) -> None:
    """``consumerStatus``."""
    group = flags.text("g")
    found = await tool.connections(group, flags.get("b"))
    with_stacks = "s" in flags
    if "i" in flags:
        info = await tool.running_info(group, flags.text("i"), with_stacks=with_stacks)
        facts = running_info_facts(info)
        tool.say(running_info_text(info), client=flags.text("i"), info=facts)
        return
    now_ms = tool.now_ms
    infos: dict[str, ConsumerRunningInfo] = {}
    tool.say(STATUS_ROW % ("#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile"))
    for each in found.connection_set:
        client_id = each.client_id or ""
        try:
            info = await tool.running_info(group, client_id, with_stacks=with_stacks)
        except JavaFailure as failure:
            tool.output.fail(failure)
            continue
        infos[client_id] = info
        path = Path(str(now_ms)) / client_id.replace("/", "_")
        path.parent.mkdir(exist_ok=True)
        path.write_text(running_info_text(info))
        row = (len(infos), client_id, version_name(each.version), str(path))
        tool.say(STATUS_ROW % row, client=client_id, file=str(path), info=running_info_facts(info))
    if not infos:
        return
    if not _have_same_subscriptions(infos, now_ms):
        words = "WARN: Different subscription in the same group of consumer!!!"
        tool.say(f"\n\n{words}", sameSubscription=False)
        return
    words = "Same subscription in the same group of consumer\n\nRebalance OK\n"
    tool.say(f"\n\n{words}", sameSubscription=True)
    for client_id in sorted(infos):
        tool.say(analysis(client_id, infos[client_id], now_ms))


def _have_same_subscriptions(infos: dict[str, ConsumerRunningInfo], now_ms: int) -> bool:
    ordered = [infos[client_id] for client_id in sorted(infos)]
    first = ordered[0]
    started_ms = int(first.properties.get("PROP_CONSUMER_START_TIMESTAMP", now_ms))
    if not is_push(first) or now_ms - started_ms <= STARTED_LONG_AGO_MS:
        return True
    texts = {
        tuple(sorted((each.topic, each.sub_string) for each in info.subscription_set))
        for info in ordered
    }
    return len(texts) == 1


COMMANDS = {
    "brokerConsumeStats": _broker_progress,
    "consumerConnection": _consumer_connection,
    "consumerProgress": _progress,
    "consumerStatus": _status,
    "producer": _producers,
    "producerConnection": _producer_connection,
    "statsAll": _stats_all,
}
