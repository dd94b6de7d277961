"""Commands about brokers and clusters: settings, state, house-keeping, replication."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import field

from roquet.cli.mqadmin.commons_cli import Flags
from roquet.cli.mqadmin.failures import JavaFailure
from roquet.cli.mqadmin.java import bool_text, millis_time, parse_number
from roquet.cli.mqadmin.namesrv import say_settings, setting_body
from roquet.cli.mqadmin.tool import NO_MASTER, UNCLEAR, NoTargetGiven, Tool
from roquet.model.properties_text import parse_properties
from roquet.remoting.bodies.broker import EpochEntryCache, HARuntimeInfo, KVTable
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers.base import Header
from roquet.remoting.headers.ha import ResetMasterFlushOffsetRequestHeader

__all__ = ["COMMANDS", "broker_settings", "runtime_stats"]

HA_INTERVAL_S = 3
POP_TIMEOUT_MS = 30_000


async def broker_settings(tool: Tool, address: str) -> dict[str, str]:
    """The settings of a broker."""
    answer = await tool.ask(address, RequestCode.GET_BROKER_CONFIG)
    return parse_properties(answer.body.decode("utf-8", "replace"))


async def runtime_stats(tool: Tool, address: str) -> dict[str, str]:
    """The runtime state of a broker."""
    return (await tool.ask_body(KVTable, address, RequestCode.GET_BROKER_RUNTIME_INFO)).table


# ------------------------------------------------------------------------------------- settings


async def _update_setting(tool: Tool, flags: Flags) -> NoTargetGiven | None:
    """``updateBrokerConfig``."""
    body = setting_body(flags)

    async def update(address: str) -> None:
        await tool.ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)
        facts = {"broker": address, "key": flags.text("k"), "value": flags.text("v")}
        tool.say(f"update broker config success, {address}\n", **facts)

    if "b" in flags:
        await update(flags.text("b"))
        return None
    if "c" not in flags:
        return UNCLEAR
    addresses = tool.members if "a" in flags else tool.masters
    for address in await addresses(flags.text("c")):
        try:
            await update(address)
        except JavaFailure as failure:
            tool.output.fail(failure)
    return None


async def _servers(tool: Tool, flags: Flags) -> list[tuple[str, str]]:
    """The brokers that ``-b`` or ``-c`` name, each with upstream's heading."""
    line = "============"
    if "b" in flags:
        address = flags.text("b")
        return [(address, f"{line}{address}{line}\n")]
    found: list[tuple[str, str]] = []
    for master, slaves in (await tool.masters_and_slaves(flags.text("c"))).items():
        found.append((master, f"{line}Master: {master}{line}\n"))
        found += [
            (slave, f"{line}My Master: {master}=====Slave: {slave}{line}\n") for slave in slaves
        ]
    return found


async def _get_settings(tool: Tool, flags: Flags) -> None:
    """``getBrokerConfig``."""
    for address, heading in await _servers(tool, flags):
        tool.say(heading)
        if address != NO_MASTER:
            say_settings(tool, address, await broker_settings(tool, address))
            tool.say("\n")


# ---------------------------------------------------------------------------------------- state


async def _status(tool: Tool, flags: Flags) -> None:
    """``brokerStatus``."""
    if "b" in flags:
        _say_stats(tool, flags.text("b"), await runtime_stats(tool, flags.text("b")), prefix="")
        return
    for address in await tool.members(flags.text("c")):
        try:
            stats = await runtime_stats(tool, address)
        except JavaFailure as failure:
            tool.output.fail(failure)
        else:
            _say_stats(tool, address, stats, prefix="%-24s " % address)


def _say_stats(tool: Tool, address: str, stats: Mapping[str, str], *, prefix: str) -> None:
    for key in sorted(stats):
        row = "%-32s: %s\n" % (key, stats[key])
        tool.say(f"{prefix}{row}", broker=address, key=key, value=stats[key])


async def _cluster_list(tool: Tool, flags: Flags) -> None:
    """``clusterList``."""
    interval_s = flags.number("i")
    show = _say_more if "m" in flags else _say_base
    while True:
        info = await tool.cluster_info()
        wanted = [flags.text("c")] if flags.text("c") else list(info.cluster_addr_table or {})
        brokers = [
            (cluster, name, broker_id, address)
            for cluster in wanted
            for name in sorted((info.cluster_addr_table or {}).get(cluster, ()))
            if name in (info.broker_addr_table or {})
            for broker_id, address in (info.broker_addr_table or {})[name].broker_addrs.items()
        ]
        await show(tool, brokers)
        if "i" not in flags:
            return
        await tool.pause(interval_s)


Brokers = Iterable[tuple[str, str, int, str]]
"""Cluster, name, id and address of each."""

MORE_HEAD = "%-16s  %-32s %14s %14s %14s %14s\n"
BASE_HEAD = "%-22s  %-22s  %-4s  %-22s %-16s  %16s  %30s  %-22s  %-11s  %-12s  %-8s  %-10s\n"
BASE_ROW = "%-22s  %-22s  %-4s  %-22s %-16s  %16s  %30s  %-22s  %11s  %-12s  %-8s  %10s\n"


async def _say_more(tool: Tool, brokers: Brokers) -> None:
    heads = ("#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday")
    tool.say(MORE_HEAD % ("#Cluster Name", "#Broker Name", *heads))
    for cluster, name, _broker_id, address in brokers:
        totals = [0, 0, 0, 0]
        try:
            stats = await runtime_stats(tool, address)
        except JavaFailure:
            stats = {}
        if stats:
            for at, verb in enumerate(("Put", "Get")):
                spans = ("TodayNow", "TodayMorning", "YesterdayMorning")
                now, today, yesterday = (
                    int(stats.get(f"msg{verb}Total{span}", 0)) for span in spans
                )
                totals[at], totals[at + 2] = today - yesterday, now - today
        facts = dict(zip(("inYesterday", "outYesterday", "in", "out"), totals, strict=True))
        tool.say(MORE_HEAD % (cluster, name, *totals), cluster=cluster, broker=name, **facts)


async def _say_base(tool: Tool, brokers: Brokers) -> None:
    heads = ("#InTPS(LOAD)", "#OutTPS(LOAD)", "#Timer(Progress)", "#PCWait(ms)", "#Hour")
    names = ("#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version")
    tool.say(BASE_HEAD % (*names, *heads, "#SPACE", "#ACTIVATED"))
    for cluster, name, broker_id, address in brokers:
        try:
            stats = await runtime_stats(tool, address)
        except JavaFailure as failure:
            tool.output.fail(failure)
            stats = {}
        row = (cluster, name, broker_id, address, *_base_cells(stats, tool.now_ms))
        facts = {"cluster": cluster, "broker": name, "brokerId": broker_id, "address": address}
        tool.say(BASE_ROW % row, **facts, state=stats)


def _base_cells(stats: Mapping[str, str], now_ms: int) -> tuple[str, ...]:
    def text(key: str, default: str = "null") -> str:
        return stats.get(key, default) if stats else ""

    def first(key: str) -> float:
        parts = stats.get(key, "").split(" ")
        return float(parts[0] or 0)

    def load(kind: str, default: str = "null") -> str:
        size = text(f"{kind}ThreadPoolQueueSize", default)
        return f"{size},{text(f'{kind}ThreadPoolQueueHeadWaitTimeMills', default)}ms"

    read_behind, offset_behind, congested = (
        int(stats.get(key, 0))
        for key in ("timerReadBehind", "timerOffsetBehind", "timerCongestNum")
    )
    enqueue, dequeue = (float(stats.get(key, 0)) for key in ("timerEnqueueTps", "timerDequeueTps"))
    earliest = stats.get("earliestMessageTimeStamp", "")
    hours = (now_ms - int(earliest)) / 3_600_000 if earliest else 0.0
    return (
        text("brokerVersionDesc"),
        f"{first('putTps'):9.2f}({load('send')})",
        f"{first('getTransferredTps'):9.2f}({load('pull')}|{load('ack', 'N')})",
        f"{read_behind}-{offset_behind}({congested / 10_000:.1f}w, {enqueue:.1f}, {dequeue:.1f})",
        text("pageCacheLockTimeMills"),
        f"{hours:2.2f}",
        f"{float(stats.get('commitLogDiskRatio') or 0):.4f}",
        bool_text(stats.get("brokerActive", "").lower() == "true"),
    )


# -------------------------------------------------------------------------------- house-keeping


async def _tell(tool: Tool, flags: Flags, code: RequestCode) -> None:
    is_done = False
    if "b" in flags:
        await tool.ask(flags.text("b"), code)
        is_done = True
    else:
        info = await tool.cluster_info()
        table = info.broker_addr_table or {}
        clusters = info.cluster_addr_table or {}
        wanted = [flags.text("c")] if flags.text("c") else list(clusters)
        for cluster in wanted:
            for name in clusters.get(cluster, ()):
                for address in table[name].broker_addrs.values():
                    await tool.ask(address, code)
                    is_done = True
    tool.say("success" if is_done else "false", done=is_done)


async def _clean_queues(tool: Tool, flags: Flags) -> None:
    """``cleanExpiredCQ``."""
    await _tell(tool, flags, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)


async def _clean_topics(tool: Tool, flags: Flags) -> None:
    """``cleanUnusedTopic``."""
    await _tell(tool, flags, RequestCode.CLEAN_UNUSED_TOPIC)


async def _delete_log(tool: Tool, flags: Flags) -> None:
    """``deleteExpiredCommitLog``."""
    await _tell(tool, flags, RequestCode.DELETE_EXPIRED_COMMITLOG)


class _ReadAheadHeader(Header, kw_only=True):
    """The read-ahead mode of the log."""

    mode: str = field(name="READ_AHEAD_MODE")


class _TimerEngineHeader(Header, kw_only=True):
    """The timer engine of a broker."""

    engine_type: str = field(name="E_T")


async def _set_read_ahead(tool: Tool, flags: Flags) -> None:
    """``setCommitLogReadAheadMode``."""
    mode = flags.text("m")
    if mode not in {"0", "1"}:
        tool.say("set the read mode error; 0 is default, 1 random read\n", mode=mode)
        return
    header = _ReadAheadHeader(mode=mode)
    for address, heading in await _servers(tool, flags):
        tool.say(f" {heading}")
        answer = await tool.ask(address, RequestCode.SET_COMMITLOG_READ_MODE, header)
        remark = answer.remark or ""
        tool.say(f"commitLog set readAhead mode rstStr{remark}\n", broker=address, remark=remark)


async def _switch_timer(tool: Tool, flags: Flags) -> NoTargetGiven | None:
    """``switchTimerEngine``."""
    engine = flags.text("e")
    if engine not in {"R", "F"}:
        tool.say("switchTimerEngine engineType must be R or F\n", engine=engine)
        return None
    header = _TimerEngineHeader(engine_type=engine)
    if "b" in flags:
        address = flags.text("b")
        await tool.ask(address, RequestCode.SWITCH_TIMER_ENGINE, header)
        tool.say(f"switchTimerEngine to {engine} success, {address}\n", broker=address)
        return None
    if "c" not in flags:
        return UNCLEAR
    name = "ROCKSDB_TIMELINE" if engine == "R" else "FILE_TIME_WHEEL"
    for address in await tool.masters(flags.text("c")):
        try:
            await tool.ask(address, RequestCode.SWITCH_TIMER_ENGINE, header)
        except JavaFailure as failure:
            tool.output.fail(failure)
        else:
            tool.say(f"switchTimerEngine to {name} success, {address}\n", broker=address)
    return None


async def _export_pop(tool: Tool, flags: Flags) -> None:
    """``exportPopRecord``."""
    is_dry = (flags.get("d") or "").lower() == "false"
    brokers: list[tuple[str, str]] = []
    if "b" in flags:
        address = flags.text("b")
        settings = await broker_settings(tool, address)
        brokers.append((settings.get("brokerName", "null"), address))
    elif "c" in flags:
        info = await tool.cluster_info()
        for name in (info.cluster_addr_table or {}).get(flags.text("c"), ()):
            data = (info.broker_addr_table or {})[name]
            brokers += [(name, address) for address in data.broker_addrs.values()]
    for name, address in brokers:
        words = f"brokerName={name}, brokerAddr={address}, dryRun={bool_text(is_dry)}\n"
        try:
            if not is_dry:
                code = RequestCode.POP_ROLLBACK
                await tool.ask(address, code, timeout_ms=POP_TIMEOUT_MS)
        except JavaFailure as failure:
            tool.say(f"Export broker records error, {words}{failure}", broker=name, done=False)
        else:
            tool.say(f"Export broker records, {words}", broker=name, done=True)


# ---------------------------------------------------------------------------------- replication


async def _reset_flush_offset(tool: Tool, flags: Flags) -> None:
    """``resetMasterFlushOffset``."""
    offset = parse_number(flags.text("o"))
    header = ResetMasterFlushOffsetRequestHeader(master_flush_offset=offset)
    await tool.ask(flags.text("b"), RequestCode.RESET_MASTER_FLUSH_OFFSET, header)
    tool.say(f"reset master flush offset to {offset} success\n", offset=offset)


async def _ha_status(tool: Tool, flags: Flags) -> NoTargetGiven | None:
    """``haStatus``."""
    if "b" not in flags and "c" not in flags:
        return UNCLEAR
    while True:
        is_one = "b" in flags
        for address in [flags.text("b")] if is_one else await tool.masters(flags.text("c")):
            code = RequestCode.GET_BROKER_HA_STATUS
            _say_ha(tool, address, await tool.ask_body(HARuntimeInfo, address, code))
        if "i" not in flags:
            return None
        await tool.pause(parse_number(flags.text("i")) if flags.text("i") else HA_INTERVAL_S)


HA_HEAD = "%-32s  %-16s %16s %16s %16s %16s\n"


def _say_ha(tool: Tool, address: str, info: HARuntimeInfo) -> None:
    if not info.master:
        client = info.ha_client_runtime_info
        speed = client.transferred_bytes_per_second / 1024
        tool.say(
            f"\n#MasterAddr\t{client.master_address}\n"
            f"#CommitLogMaxOffset\t{client.max_physical_offset}\n"
            f"#TransferSpeed(KB/s)\t{speed:.2f}\n"
            f"#LastReadTime\t{millis_time(client.last_read_timestamp_ms)}\n"
            f"#LastWriteTime\t{millis_time(client.last_write_timestamp_ms)}\n"
            f"#MasterFlushOffset\t{client.master_flush_offset}\n",
            broker=address,
            slave=client,
        )
        return
    tool.say(
        f"\n#MasterAddr\t{address}\n"
        f"#MasterCommitLogMaxOffset\t{info.master_commit_log_max_offset}\n"
        f"#SlaveNum\t{len(info.ha_connection_info)}\n"
        f"#InSyncSlaveNum\t{info.in_sync_slave_nums}\n",
        broker=address,
        master=info,
    )
    heads = ("#Diff", "#TransferSpeed(KB/s)", "#Status", "#TransferFromWhere")
    tool.say(HA_HEAD % ("#SlaveAddr", "#SlaveAckOffset", *heads))
    for each in info.ha_connection_info:
        speed = each.transferred_bytes_per_second / 1024
        status = "OK" if each.in_sync else "Fall Behind"
        cells = (each.diff_bytes, f"{speed:.2f}", status, each.transfer_from_where)
        tool.say(HA_HEAD % (each.address, each.slave_ack_offset, *cells))


async def _epochs(tool: Tool, flags: Flags) -> None:
    """``getBrokerEpoch``."""
    while True:
        if "b" in flags:
            table = (await tool.cluster_info()).broker_addr_table or {}
            name = flags.text("b")
            addresses = list(table[name].broker_addrs.values()) if name in table else []
        else:
            addresses = await tool.members(flags.text("c"))
        for address in addresses:
            code = RequestCode.GET_BROKER_EPOCH_CACHE
            _say_epochs(tool, address, await tool.ask_body(EpochEntryCache, address, code))
        if "i" not in flags:
            return
        await tool.pause(parse_number(flags.text("i")) if flags.text("i") else HA_INTERVAL_S)


def _say_epochs(tool: Tool, address: str, cache: EpochEntryCache) -> None:
    tool.say(
        f"\n#clusterName\t{cache.cluster_name}\n#brokerName\t{cache.broker_name}\n"
        f"#brokerAddr\t{address}\n#brokerId\t{cache.broker_id}",
        broker=address,
        epochs=cache,
    )
    entries = cache.epoch_list or []
    for at, entry in enumerate(entries):
        end = cache.max_physical_offset if at == len(entries) - 1 else entry.end_offset
        text = f"epoch={entry.epoch}, startOffset={entry.start_offset}, endOffset={end}"
        tool.say(f"\n#Epoch: EpochEntry{{{text}}}")
    tool.say("\n")


COMMANDS = {
    "brokerStatus": _status,
    "cleanExpiredCQ": _clean_queues,
    "cleanUnusedTopic": _clean_topics,
    "clusterList": _cluster_list,
    "deleteExpiredCommitLog": _delete_log,
    "exportPopRecord": _export_pop,
    "getBrokerConfig": _get_settings,
    "getBrokerEpoch": _epochs,
    "haStatus": _ha_status,
    "resetMasterFlushOffset": _reset_flush_offset,
    "setCommitLogReadAheadMode": _set_read_ahead,
    "switchTimerEngine": _switch_timer,
    "updateBrokerConfig": _update_setting,
}
