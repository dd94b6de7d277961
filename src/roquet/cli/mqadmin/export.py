"""Commands that export data about a cluster to files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from roquet.cli.mqadmin.broker import broker_settings, runtime_stats
from roquet.cli.mqadmin.commons_cli import Flags
from roquet.cli.mqadmin.consumer import sum_of_day, view_stats
from roquet.cli.mqadmin.failures import JavaFailure
from roquet.cli.mqadmin.java import concurrent_order, copied_order, hash_order
from roquet.cli.mqadmin.texts import pretty_json
from roquet.cli.mqadmin.tool import UNCLEAR, NoTargetGiven, Tool
from roquet.model.subscription import SubscriptionGroupConfig
from roquet.model.topic import (
    SCHEDULE_TOPIC,
    TRANS_HALF_TOPIC,
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
)
from roquet.model.topic_config import TopicConfig
from roquet.remoting.bodies.group import SubscriptionGroupWrapper
from roquet.remoting.bodies.route import MASTER_ID
from roquet.remoting.bodies.topic import TopicConfigSerializeWrapper, TopicList
from roquet.remoting.codes import RequestCode, version_name
from roquet.remoting.command import CURRENT_VERSION

__all__ = ["COMMANDS"]

EXPORT_TIMEOUT_MS = 10_000

SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
OWN_GROUPS = frozenset(
    {
        "CLIENT_INNER_PRODUCER",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_PULL",
        "DEFAULT_CONSUMER",
        "DEFAULT_PRODUCER",
        "FILTERSRV_CONSUMER",
        "SCHEDULE_CONSUMER",
        "SELF_TEST_C_GROUP",
        "SELF_TEST_P_GROUP",
        "TOOLS_CONSUMER",
        "__MONITOR_CONSUMER",
    }
)
"""Groups that every broker has, which are not exported."""

CONFIG_KEYS = (
    "brokerClusterName",
    "brokerId",
    "brokerName",
    "brokerRole",
    "fileReservedTime",
    "filterServerNums",
    "flushDiskType",
    "maxMessageSize",
    "messageDelayLevel",
    "msgTraceTopicName",
    "slaveReadEnable",
    "traceOn",
    "traceTopicEnable",
    "useTLS",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
)


def _write(tool: Tool, flags: Flags, name: str, content: Struct | Mapping[str, object]) -> None:
    folder = Path(tempfile.gettempdir()) / "rocketmq" / "export"
    if "f" in flags:
        folder = Path(flags.text("f"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(pretty_json(content))
    is_whole = name == "metadata.json" or ("c" in flags and "b" not in flags and _is_part(name))
    tool.say(f"export {path} success" + ("\n" if is_whole else ""), file=str(path))


def _is_part(name: str) -> bool:
    return name in {"topic.json", "subscriptionGroup.json"}


def _ordered(table: Mapping[str, object]) -> dict[str, object]:
    return {key: table[key] for key in hash_order(table)}


# ------------------------------------------------------------------------------------- metadata


async def _topics(tool: Tool, address: str, *, with_special: bool) -> TopicConfigSerializeWrapper:
    found = await tool.ask_body(
        TopicConfigSerializeWrapper,
        address,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        timeout_ms=EXPORT_TIMEOUT_MS,
    )
    code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
    own = set((await tool.ask_body(TopicList, address, code)).topic_list)

    def is_users(name: str, config: TopicConfig) -> bool:
        is_special = is_retry_topic(name) or is_dlq_topic(name)
        is_own = name in own or is_system_topic(name)
        return not is_own and (with_special or not is_special) and 0 <= config.perm < 8

    table = found.topic_config_table
    found.topic_config_table = {
        name: table[name] for name in copied_order(table) if is_users(name, table[name])
    }
    return found


async def _groups(tool: Tool, address: str) -> SubscriptionGroupWrapper:
    found = await tool.ask_body(
        SubscriptionGroupWrapper,
        address,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        timeout_ms=EXPORT_TIMEOUT_MS,
    )
    table = found.subscription_group_table
    found.subscription_group_table = {
        name: table[name]
        for name in copied_order(table)
        if not name.startswith(SYSTEM_GROUP_PREFIX) and name not in OWN_GROUPS
    }
    return found


async def _metadata(tool: Tool, flags: Flags) -> NoTargetGiven | None:
    """``exportMetadata``."""
    with_special = "s" in flags
    if "b" in flags:
        address = flags.text("b")
        if "t" in flags:
            topics = await _topics(tool, address, with_special=with_special)
            _write(tool, flags, "topic.json", topics)
        elif "g" in flags:
            _write(tool, flags, "subscriptionGroup.json", await _groups(tool, address))
        return None
    if "c" not in flags:
        return UNCLEAR
    topic_table: dict[str, TopicConfig] = {}
    group_table: dict[str, SubscriptionGroupConfig] = {}
    for address in await tool.masters(flags.text("c")):
        topics = await _topics(tool, address, with_special=with_special)
        for name, topic in topics.topic_config_table.items():
            if name in topic_table:
                topic.write_queue_nums += topic_table[name].write_queue_nums
                topic.read_queue_nums += topic_table[name].read_queue_nums
            topic_table[name] = topic
        for name, group in (await _groups(tool, address)).subscription_group_table.items():
            if name in group_table:
                group.retry_queue_nums += group_table[name].retry_queue_nums
            group_table[name] = group
    result: dict[str, object] = {"exportTime": tool.now_ms}
    if "g" not in flags or "t" in flags:
        result["topicConfigTable"] = _ordered(topic_table)
    if "t" not in flags:
        result["subscriptionGroupTable"] = _ordered(group_table)
    part = "topic" if "t" in flags else "subscriptionGroup" if "g" in flags else "metadata"
    _write(tool, flags, f"{part}.json", result)
    return None


# -------------------------------------------------------------------------- settings and figures


async def _configs(tool: Tool, flags: Flags) -> None:
    """``exportConfigs``."""
    configs: dict[str, object] = {}
    slaves = 0
    members = await tool.masters_and_slaves(flags.text("c"))
    for master, others in members.items():
        settings = await broker_settings(tool, master)
        slaves += len(others)
        kept = {key: settings[key] for key in CONFIG_KEYS if key in settings}
        name = settings.get("brokerName", "")
        configs[name] = {key: kept[key] for key in concurrent_order(kept)}
    scale = {
        "namesrvSize": len(tool.name_servers),
        "masterBrokerSize": len(members),
        "slaveBrokerSize": slaves,
    }
    result = {"brokerConfigs": _ordered(configs), "clusterScale": _ordered(scale)}
    _write(tool, flags, "configs.json", _ordered(result))


async def _counted(tool: Tool, address: str, topic: str) -> tuple[float, int]:
    try:
        found = await view_stats(tool, address, "TOPIC_PUT_NUMS", topic)
    except JavaFailure:
        return 0.0, 0
    tps = 0.0 if found.stats_minute is None else found.stats_minute.tps
    return tps, sum_of_day(found)


async def _metrics(tool: Tool, flags: Flags) -> None:
    """``exportMetrics``."""
    info = await tool.cluster_info()
    report: dict[str, object] = {}
    tps_total = dict.fromkeys(("NormalIn", "NormalOut", "TransIn", "ScheduleIn"), 0.0)
    day_total = dict.fromkeys(("normalIn", "normalOut", "transIn", "scheduleIn"), 0)
    for name in (info.cluster_addr_table or {}).get(flags.text("c"), ()):
        address = (info.broker_addr_table or {})[name].broker_addrs[MASTER_ID]
        figures = await _figures(tool, address)
        report[name] = _ordered(figures.report)
        for at, key in enumerate(tps_total):
            tps_total[key] += figures.tps[at]
        for at, key in enumerate(day_total):
            day_total[key] += figures.day[at]
    total = {
        "totalTps": _ordered({f"total{key}Tps": value for key, value in tps_total.items()}),
        "totalOneDayNum": _ordered(_day_names(day_total.items())),
    }
    result = {"evaluateReport": _ordered(report), "totalData": _ordered(total)}
    _write(tool, flags, "metrics.json", _ordered(result))


def _day_names(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    return {
        f"{key.removesuffix('In').removesuffix('Out')}OneDay"
        f"{'Out' if key.endswith('Out') else 'In'}Num": value
        for key, value in counts
    }


class _Figures(Struct, frozen=True, kw_only=True):
    """The metrics of one broker: in, out, transactions and delays; and its report."""

    tps: tuple[float, float, float, float]
    day: tuple[int, int, int, int]
    report: dict[str, object]


async def _figures(tool: Tool, address: str) -> _Figures:
    stats = await runtime_stats(tool, address)
    settings = await broker_settings(tool, address)
    groups = await _groups(tool, address)
    topics = await _topics(tool, address, with_special=False)
    trans_tps, trans_day = await _counted(tool, address, TRANS_HALF_TOPIC)
    delay_tps, delay_day = await _counted(tool, address, SCHEDULE_TOPIC)

    def rate(key: str) -> float:
        return float(stats.get(key, "").split(" ")[0] or 0)

    def of_yesterday(verb: str) -> int:
        today = int(stats.get(f"msg{verb}TotalTodayMorning", 0))
        return today - int(stats.get(f"msg{verb}TotalYesterdayMorning", 0))

    tps = (rate("putTps"), rate("getTransferredTps"), trans_tps, delay_tps)
    day = (of_yesterday("Put"), of_yesterday("Get"), trans_day, delay_day)
    names = ("normalIn", "normalOut", "transIn", "scheduleIn")
    disk = {key: stats.get(key) for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")}
    quota = {
        "diskRatio": _ordered(disk),
        "tps": _ordered({f"{name}Tps": value for name, value in zip(names, tps, strict=True)}),
        "oneDayNum": _ordered(_day_names(zip(names, day, strict=True))),
        "messageAverageSize": stats.get("putMessageAverageSize"),
        "topicSize": len(topics.topic_config_table),
        "groupSize": len(groups.subscription_group_table),
    }
    clients: list[str] = []
    for group in groups.subscription_group_table:
        try:
            connections = (await tool.connections(group)).connection_set
        except JavaFailure:
            continue
        clients += [f"{each.language}%{version_name(each.version)}" for each in connections]
    version = {
        "rocketmqVersion": version_name(CURRENT_VERSION),
        "clientInfo": hash_order(clients),
    }
    env = {
        "cpuNum": settings.get("clientCallbackExecutorThreads"),
        "totalMemKBytes": stats.get("totalMemKBytes"),
    }
    report: dict[str, object] = {
        "runtimeEnv": _ordered(env),
        "runtimeQuota": _ordered(quota),
        "runtimeVersion": _ordered(version),
    }
    return _Figures(tps=tps, day=day, report=report)


COMMANDS = {
    "exportConfigs": _configs,
    "exportMetadata": _metadata,
    "exportMetrics": _metrics,
}
