"""Commands about topics."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from roquet.admin.kv import ORDER_NAMESPACE
from roquet.admin.static_plan import logical_stats
from roquet.admin.static_topics import StaticTopics
from roquet.admin.topics import creation_header
from roquet.cli.mqadmin.commons_cli import Flags
from roquet.cli.mqadmin.failures import JavaFailure, client_failure
from roquet.cli.mqadmin.java import hash_order, map_text, millis_time, queue_order
from roquet.cli.mqadmin.namesrv import delete_kv, get_kv, put_kv
from roquet.cli.mqadmin.texts import attributes_wire, parse_attributes, pretty_json, topic_text
from roquet.cli.mqadmin.tool import UNCLEAR, NoTargetGiven, Tool, broker_address, front
from roquet.client.allocate import AllocateAveragely
from roquet.model.message_queue import MessageQueue
from roquet.model.topic import is_dlq_topic, is_retry_topic
from roquet.model.topic_config import PERM_READ, TopicConfig
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.bodies.route import MASTER_ID, ClusterInfo, TopicRouteData
from roquet.remoting.bodies.topic import CreateTopicListRequestBody, TopicStatsTable
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers import admin as headers
from roquet.remoting.headers.namesrv import DeleteTopicFromNamesrvRequestHeader

__all__ = ["COMMANDS", "drop_topic"]

DEFAULT_QUEUES = 8
UNIT = 1
HAS_UNIT_SUBSCRIPTION = 2

ROUTE_ROW = "%-45s %-32s %-50s %-10s %-11s %-5s\n"
STATUS_HEAD = "%-32s  %-4s  %-20s  %-20s    %s\n"
LIST_HEAD = "%-20s  %-48s  %-48s\n"
LIST_ROW = "%-20s  %-64s  %-64s\n"


async def _put(tool: Tool, address: str, config: TopicConfig) -> None:
    header = creation_header(config, attributes=attributes_wire(config.attributes))
    await tool.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def update_topic(tool: Tool, flags: Flags) -> NoTargetGiven | None:
    """``updateTopic``."""
    unit = UNIT if flags.truth("u") else 0
    config = TopicConfig(
        topic_name=flags.text("t"),
        read_queue_nums=flags.number("r", DEFAULT_QUEUES),
        write_queue_nums=flags.number("w", DEFAULT_QUEUES),
        perm=flags.number("p", TopicConfig().perm),
        topic_sys_flag=unit | (HAS_UNIT_SUBSCRIPTION if flags.truth("s") else 0),
        order=flags.truth("o"),
        attributes=parse_attributes(flags.text("a")),
    )
    topic = flags.text("t")
    if "b" in flags:
        address = flags.text("b")
        await _put(tool, address, config)
        if config.order:
            order = f"{await tool.broker_name_of(address)}:{config.write_queue_nums}"
            await _put_order(tool, topic, order)
            tool.say(f"set broker orderConf. isOrder=true, orderConf=[{order}]\n", order=order)
        tool.say(f"create topic to {address} success.\n", topic=topic, broker=address)
    else:
        cluster = flags.text("c")
        for address in await tool.masters(cluster):
            await _put(tool, address, config)
            tool.say(f"create topic to {address} success.\n", topic=topic, broker=address)
        if config.order:
            names = await tool.broker_names(cluster)
            order = ";".join(f"{name}:{config.write_queue_nums}" for name in names)
            await put_kv(tool, ORDER_NAMESPACE, topic, order)
            tool.say(f"set cluster orderConf. isOrder=true, orderConf=[{order}]\n", order=order)
    tool.say(f"{topic_text(config)}\n", settings=config)
    return None


async def _put_order(tool: Tool, topic: str, value: str) -> None:
    """Add a broker's queues of an ordered topic to those of other brokers."""
    try:
        known = await get_kv(tool, ORDER_NAMESPACE, topic)
    except JavaFailure as failure:
        tool.output.fail(failure)
        known = ""
    parts = {part.partition(":")[0]: part for part in (known or "").split(";") if part.strip()}
    parts[value.partition(":")[0]] = value
    text = ";".join(parts[name] for name in hash_order(parts))
    await put_kv(tool, ORDER_NAMESPACE, topic, text)


async def update_topic_list(tool: Tool, flags: Flags) -> NoTargetGiven | None:
    """``updateTopicList``."""
    path = Path(flags.text("f"))
    if not path.exists():
        tool.say(f"the file path {flags.text('f')} does not exists\n", missing=str(path))
        return None
    configs = decode_body(list[TopicConfig], path.read_bytes())
    if not configs:
        return None
    body = encode_body(CreateTopicListRequestBody(topic_config_list=configs))
    is_one = "b" in flags
    for address in [flags.text("b")] if is_one else await tool.masters(flags.text("c")):
        header = headers.CreateTopicListRequestHeader()
        await tool.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, header, body=body)
        words = "success, please check the result later."
        tool.say(f"submit batch of topic config to {address} {words}\n", broker=address)
    return None if is_one else UNCLEAR


async def drop_topic(tool: Tool, topic: str, cluster: str) -> None:
    """Delete a topic on the masters of a cluster, and its route."""
    await _drop_on_brokers(tool, topic, cluster)
    await _drop_route(tool, DeleteTopicFromNamesrvRequestHeader(topic=topic))


async def _drop_on_brokers(tool: Tool, topic: str, cluster: str) -> None:
    header = headers.DeleteTopicRequestHeader(topic=topic)
    for address in await tool.masters(cluster):
        await tool.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, header)


async def _drop_route(tool: Tool, header: DeleteTopicFromNamesrvRequestHeader) -> None:
    for address in tool.name_servers:
        await tool.ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)


async def delete_topic(tool: Tool, flags: Flags) -> None:
    """``deleteTopic``."""
    topic, cluster = flags.text("t"), flags.text("c")
    await _drop_on_brokers(tool, topic, cluster)
    words = f"delete topic [{topic}] from cluster [{cluster}] success.\n"
    tool.say(words, topic=topic, cluster=cluster)
    await _drop_route(tool, DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster))
    tool.say(f"delete topic [{topic}] from NameServer success.\n")


async def update_perm(tool: Tool, flags: Flags) -> NoTargetGiven | None:
    """``updateTopicPerm``."""
    topic = flags.text("t")
    route = await tool.route(topic)
    first = route.queue_datas[0]
    perm = flags.number("p")
    config = TopicConfig(
        topic_name=topic,
        read_queue_nums=first.read_queue_nums,
        write_queue_nums=first.write_queue_nums,
        topic_sys_flag=first.topic_sys_flag,
        perm=perm,
    )
    if "b" in flags:
        await _update_perm_on(tool, flags.text("b"), route, config)
        return None
    if "c" not in flags:
        return UNCLEAR
    for address in await tool.masters(flags.text("c")):
        await _put(tool, address, config)
        _say_perm(tool, first.perm, perm, address)
    return None


async def _update_perm_on(
    tool: Tool, address: str, route: TopicRouteData, config: TopicConfig
) -> None:
    name = next(
        (
            data.broker_name
            for data in route.broker_datas
            if data.broker_addrs.get(MASTER_ID) == address
        ),
        None,
    )
    if name is None:
        words = "updateTopicPerm error broker not exit or broker is not master!."
        tool.say(f"{words}\n", error=words)
        return
    old = next((each.perm for each in route.queue_datas if each.broker_name == name), 0)
    if old == config.perm:
        tool.say("new perm equals to the old one!\n", broker=address, perm=old)
        return
    await _put(tool, address, config)
    _say_perm(tool, old, config.perm, address)
    tool.say(f"{topic_text(config)}.\n", settings=config)


def _say_perm(tool: Tool, old: int, new: int, address: str) -> None:
    words = f"update topic perm from {old} to {new} in {address} success.\n"
    tool.say(words, broker=address, oldPerm=old, perm=new)


async def topic_route(tool: Tool, flags: Flags) -> None:
    """``topicRoute``."""
    route = await tool.route(flags.text("t"))
    if "l" not in flags:
        tool.say(f"{pretty_json(route)}\n", route=route)
        return
    heads = ("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm")
    tool.say(ROUTE_ROW % heads)
    queues = {each.broker_name: each for each in route.queue_datas}
    for data in sorted(route.broker_datas, key=lambda each: each.broker_name or ""):
        each = queues[data.broker_name]
        addresses = {str(key): address for key, address in data.broker_addrs.items()}
        row = (each.read_queue_nums, each.write_queue_nums, each.perm)
        tool.say(
            ROUTE_ROW % (data.cluster, data.broker_name, map_text(addresses), *row),
            cluster=data.cluster,
            queues=each,
            addresses=addresses,
        )
    read = sum(queues[data.broker_name].read_queue_nums for data in route.broker_datas)
    write = sum(queues[data.broker_name].write_queue_nums for data in route.broker_datas)
    tool.say("-" * 158 + "\n")
    tool.say(ROUTE_ROW % ("Total:", len(queues), "", read, write, ""))


async def topic_status(tool: Tool, flags: Flags) -> None:
    """``topicStatus``."""
    topic = flags.text("t")
    route = await tool.route(flags.text("c") if "c" in flags else topic)
    table = TopicStatsTable()
    header = headers.TopicRequestHeader(topic=topic)
    for data in route.broker_datas:
        code = RequestCode.GET_TOPIC_STATS_INFO
        found = await tool.ask_body(TopicStatsTable, broker_address(data), code, header)
        table.offset_table.update(found.offset_table)
    if route.topic_queue_mapping_by_broker:
        known = await StaticTopics(tool, await tool.cluster_info()).known(topic)
        table.offset_table.update(logical_stats(known, table))
    if not table.offset_table and "c" not in flags:
        raise client_failure("Not found the topic stats info")
    heads = ("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated")
    tool.say(STATUS_HEAD % heads)
    for queue in sorted(table.offset_table):
        each = table.offset_table[queue]
        updated_ms = each.last_update_timestamp_ms
        updated = millis_time(updated_ms) if updated_ms > 0 else ""
        name = front(queue.broker_name, 32)
        row = (name, queue.queue_id, each.min_offset, each.max_offset, updated)
        tool.say(STATUS_HEAD % row, queue=queue, offsets=each)
    # Upstream does not add up the rates of the brokers.
    tool.say(f"\nTopic Put TPS: {table.topic_put_tps}\n", putTps=table.topic_put_tps)


def _clusters_of(route: TopicRouteData, info: ClusterInfo) -> list[str]:
    name = route.broker_datas[0].broker_name
    table = info.cluster_addr_table or {}
    return [cluster for cluster, names in table.items() if name in names]


async def topic_clusters(tool: Tool, flags: Flags) -> None:
    """``topicClusterList``."""
    info = await tool.cluster_info()
    for cluster in hash_order(_clusters_of(await tool.route(flags.text("t")), info)):
        tool.say(f"{cluster}\n", cluster=cluster)


async def topic_list(tool: Tool, flags: Flags) -> None:
    """``topicList``."""
    if "c" not in flags:
        for topic in await tool.topics():
            tool.say(f"{topic}\n", topic=topic)
        return
    info = await tool.cluster_info()
    tool.say(LIST_HEAD % ("#Cluster Name", "#Topic", "#Consumer Group"))
    for topic in await tool.topics():
        if is_retry_topic(topic) or is_dlq_topic(topic):
            continue
        cluster, groups = "", [""]
        try:
            cluster = next(iter(_clusters_of(await tool.route(topic), info)), "null")
            groups = await tool.groups_of(topic) or [""]
        except JavaFailure:
            pass
        for group in groups:
            row = (front(cluster, 20), front(topic, 64), front(group, 64))
            tool.say(LIST_ROW % row, cluster=cluster, topic=topic, group=group)


async def update_order(tool: Tool, flags: Flags) -> NoTargetGiven | None:
    """``updateOrderConf``."""
    topic = flags.text("t")
    match flags.text("m"):
        case "get":
            order = await get_kv(tool, ORDER_NAMESPACE, topic)
            words = f"get orderConf success. topic=[{topic}], orderConf=[{order}] "
            tool.say(words, topic=topic, order=order)
        case "put":
            order = flags.text("v")
            if not order:
                raise JavaFailure("java.lang.Exception", "please set orderConf with option -v.")
            await put_kv(tool, ORDER_NAMESPACE, topic, order)
            words = f"update orderConf success. topic=[{topic}], orderConf=[{order}]"
            tool.say(words, topic=topic, order=order)
        case "delete":
            await delete_kv(tool, ORDER_NAMESPACE, topic)
            tool.say(f"delete orderConf success. topic=[{topic}]", topic=topic, order=None)
        case _:
            return UNCLEAR
    return None


async def allocate(tool: Tool, flags: Flags) -> None:
    """``allocateMQ``."""
    topic = flags.text("t")
    clients = flags.text("i").split(",")
    queues = queue_order(_readable_queues(topic, await tool.route(topic)))
    result = {
        client: AllocateAveragely().allocate(client, queues, clients)
        for client in hash_order(clients)
    }
    tool.say(f"{encode_body({'result': result}).decode()}\n", result=result)


def _readable_queues(topic: str, route: TopicRouteData) -> Iterable[MessageQueue]:
    for each in route.queue_datas:
        if each.perm & PERM_READ:
            for queue_id in range(each.read_queue_nums):
                yield MessageQueue(topic, each.broker_name or "", queue_id)


COMMANDS = {
    "allocateMQ": allocate,
    "deleteTopic": delete_topic,
    "topicClusterList": topic_clusters,
    "topicList": topic_list,
    "topicRoute": topic_route,
    "topicStatus": topic_status,
    "updateOrderConf": update_order,
    "updateTopic": update_topic,
    "updateTopicList": update_topic_list,
    "updateTopicPerm": update_perm,
}
