"""Commands that find messages: by id, key, offset and trace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import structs

from roquet.admin.calls import TOOLS_GROUP
from roquet.admin.messages import LONG_MAX
from roquet.cli.mqadmin.commons_cli import Flags
from roquet.cli.mqadmin.failures import JavaFailure, failure_of
from roquet.cli.mqadmin.java import bool_text, day_and_time, hash_order, millis_time, null_text
from roquet.cli.mqadmin.message_text import (
    MessageFacts,
    body_file,
    body_text,
    message_text,
    msg_id,
    note_bounds,
    properties_text,
    send_result_text,
)
from roquet.cli.mqadmin.running_info import is_push
from roquet.cli.mqadmin.searching import (
    UNIQUE_ID_MATCHES_MAX,
    Query,
    by_id,
    consume_directly,
    search,
    tracks,
)
from roquet.cli.mqadmin.texts import pretty_json
from roquet.cli.mqadmin.tool import Tool, broker_address
from roquet.client import Message, Producer, PullApi, ReceivedMessage, subscription_of
from roquet.client.record_reader import read_message
from roquet.errors import ClientError, CorruptRecord
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SUBSCRIBE_ALL
from roquet.model.topic import TRACE_TOPIC
from roquet.remoting.bodies.client import ConsumeMessageDirectlyResult
from roquet.remoting.bodies.offset import ConsumeQueueData, QueryConsumeQueueResponseBody
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers.admin import QueryConsumeQueueRequestHeader

__all__ = ["COMMANDS"]

HOUR_MS = 3_600_000
LINE = "======================================\n"
KEY_ROW = "%-50s %4s %40s %-200s\n"
TRACE_ROW = "%-10s %-20s %-20s %-20s %-10s %-10s\n"


def _say_fields(tool: Tool, message: ReceivedMessage, path: str, *, with_id: bool) -> None:
    keys = message.properties.get("KEYS")
    fields: list[tuple[str, object]] = [
        *([("OffsetID:", message.offset_message_id)] if with_id else []),
        ("Topic:", message.topic),
        ("Tags:", f"[{null_text(message.tags)}]"),
        ("Keys:", f"[{null_text(keys)}]"),
        ("Queue ID:", message.queue_id),
        ("Queue Offset:", message.queue_offset),
        ("CommitLog Offset:", message.physical_offset),
        ("Reconsume Times:", message.reconsume_times),
        ("Born Timestamp:", millis_time(message.born_timestamp_ms)),
        ("Store Timestamp:", millis_time(message.store_timestamp_ms)),
        ("Born Host:", message.born_host),
        ("Store Host:", message.store_host),
        ("System Flag:", message.sys_flag),
        ("Properties:", properties_text(message)),
        ("Message Body Path:", path),
    ]
    text = "".join("%-20s %s\n" % field for field in fields)
    tool.say(text, message=MessageFacts.of(message), bodyFile=path)


async def _say_tracks(tool: Tool, message: ReceivedMessage, *, end: str) -> None:
    try:
        found = await tracks(tool, message)
    except JavaFailure as failure:
        tool.output.fail(failure)
        return
    tool.say("\n\n" if found else "\n\nWARN: No Consumer")
    for track in found:
        tool.say(f"{track.text}{end}", track=track)


async def _say_message(tool: Tool, message: ReceivedMessage, charset: str | None) -> None:
    _say_fields(tool, message, body_file(message), with_id=True)
    if charset is not None:
        text = _charset_text(message, charset)
        tool.say("%-20s %s\n" % ("Message Body:", text), body=text)
    await _say_tracks(tool, message, end="\n")


def _charset_text(message: ReceivedMessage, charset: str) -> str:
    try:
        return body_text(message, charset)
    except LookupError:
        name = "java.nio.charset.UnsupportedCharsetException"
        raise JavaFailure(name, charset) from None


# ------------------------------------------------------------------------------------------ ids


async def _by_id(tool: Tool, flags: Flags) -> None:
    """``queryMsgById``."""
    topic, cluster = flags.text("t"), flags.get("c")
    ids = [part.strip() for part in flags.text("i").split(",") if part.strip()]
    if "g" in flags and "d" in flags:
        for each in ids:
            await _quietly(tool, _push(tool, flags, each))
    elif "s" in flags:
        if flags.truth("s"):
            for each in ids:
                await _quietly(tool, _resend(tool, flags, each))
    else:
        for each in ids:
            message = await by_id(tool, topic, each, cluster=cluster)
            await _say_message(tool, message, flags.get("f"))


async def _quietly(tool: Tool, work: Awaitable[None]) -> None:
    """Print a failure, and continue."""
    try:
        await work
    except (JavaFailure, ClientError) as error:
        tool.output.fail(failure_of(error))


async def _push(tool: Tool, flags: Flags, message_id: str) -> None:
    group, client_id = flags.text("g"), flags.text("d")
    info = await tool.running_info(group, client_id)
    if not is_push(info):
        words = f"this {client_id} client is not push consumer ,not support direct push \n"
        tool.say(words, client=client_id, consumed=False)
        return
    message = await by_id(tool, flags.text("t"), message_id, cluster=flags.get("c"))
    _say_consumed(tool, await consume_directly(tool, message, group, client_id))


def _say_consumed(tool: Tool, result: ConsumeMessageDirectlyResult) -> None:
    outcome = None if result.consume_result is None else result.consume_result.value
    text = (
        f"ConsumeMessageDirectlyResult [order={bool_text(result.order)}, "
        f"autoCommit={bool_text(result.auto_commit)}, consumeResult={null_text(outcome)}, "
        f"remark={null_text(result.remark)}, spentTimeMills={result.spent_time_ms}]"
    )
    tool.say(text, result=result)


async def _resend(tool: Tool, flags: Flags, message_id: str) -> None:
    message = await by_id(tool, flags.text("t"), message_id, cluster=flags.get("c"))
    tool.say(f"prepare resend msg. originalMsgId={message_id}")
    again = Message(
        message.topic, message.body, system_properties=dict(message.properties), flag=message.flag
    )
    options = structs.replace(tool.client.options, unit_name=flags.text("u"))
    async with Producer(options, group="ReSendMsgById") as producer:
        result = await producer.send(again)
    tool.say(send_result_text(result), msgId=message_id, result=result)


async def _by_unique_key(tool: Tool, flags: Flags) -> None:
    """``queryMsgByUniqueKey``."""
    topic, message_id = flags.text("t"), flags.text("i")
    if "g" in flags and "d" in flags:
        await _consume_unique(tool, flags, topic, message_id)
        return
    query = Query(
        topic=topic,
        key=message_id,
        is_unique=True,
        count_max=UNIQUE_ID_MATCHES_MAX,
        begin_ms=flags.number("s"),
        end_ms=flags.number("e", LONG_MAX),
        cluster=flags.get("c"),
    )
    found = sorted(await search(tool, query), key=lambda each: each.store_timestamp_ms)
    for number, message in enumerate(found if "a" in flags else found[:1]):
        _say_fields(tool, message, body_file(message, number=number), with_id=False)
        await _say_tracks(tool, message, end="")


async def _consume_unique(tool: Tool, flags: Flags, topic: str, message_id: str) -> None:
    group, client_id = flags.text("g"), flags.text("d")
    try:
        info = await tool.running_info(group, client_id)
    except JavaFailure:
        tool.say(f"get consumer runtime info for {client_id} client failed \n")
    else:
        if is_push(info):
            message = await by_id(tool, topic, message_id)
            _say_consumed(tool, await consume_directly(tool, message, group, client_id))
            return
    words = f"get consumer info failed or this {client_id} client is not push consumer, not"
    tool.say(f"{words} support direct push \n", client=client_id, consumed=False)


async def _by_key(tool: Tool, flags: Flags) -> None:
    """``queryMsgByKey``."""
    topic, key, kind = flags.text("t"), flags.text("k"), flags.text("p") or "K"
    query = Query(
        topic=topic,
        key=key,
        count_max=flags.number("m", 64),
        begin_ms=flags.number("b"),
        end_ms=flags.number("e", LONG_MAX),
        cluster=flags.get("c"),
        kind=kind,
        last_key=flags.get("l"),
    )
    found = await search(tool, query)
    tool.say(KEY_ROW % ("#Message ID", "#QID", "#Offset", "#IndexKey"))
    for message in found:
        hour_ms = message.store_timestamp_ms // HOUR_MS * HOUR_MS
        identity = f"{msg_id(message)}@{message.physical_offset}"
        index_key = f"{hour_ms}@{topic}@{kind}@{key}@{identity}"
        row = (msg_id(message), message.queue_id, message.queue_offset, index_key)
        tool.say(KEY_ROW % row, message=MessageFacts.of(message), indexKey=index_key)


# ---------------------------------------------------------------------------------------- place


async def _by_offset(tool: Tool, flags: Flags) -> None:
    """``queryMsgByOffset``."""
    queue = MessageQueue(flags.text("t"), flags.text("b"), flags.number("i"))
    await tool.know_queue(queue)
    api = PullApi(tool.client, TOOLS_GROUP)
    wanted = subscription_of(queue.topic, SUBSCRIBE_ALL, version_ms=0)
    result = await api.pull(queue, flags.number("o"), subscription=wanted, max_messages=1)
    note_bounds(result)
    if result.messages:
        await _say_message(tool, result.messages[0], flags.get("f"))


async def _queue_entries(tool: Tool, flags: Flags) -> None:
    """``queryCq``."""
    topic, index = flags.text("t"), flags.number("i")
    address = flags.get("b") or broker_address((await tool.route(topic)).broker_datas[0])
    header = QueryConsumeQueueRequestHeader(
        topic=topic,
        queue_id=flags.number("q"),
        index=index,
        count=flags.number("c", 10),
        consumer_group=flags.get("g"),
    )
    code = RequestCode.QUERY_CONSUME_QUEUE
    found = await tool.ask_body(QueryConsumeQueueResponseBody, address, code, header)
    if found.subscription_data is not None:
        text = f"Subscription data: \n{pretty_json(found.subscription_data)}\n{LINE}"
        tool.say(text, subscription=found.subscription_data)
    if found.filter_data is not None:
        tool.say(f"Filter data: \n{found.filter_data}\n{LINE}", filter=found.filter_data)
    tool.say(
        f"Queue data: \nmax: {found.max_queue_index}, min: {found.min_queue_index}\n{LINE}",
        max=found.max_queue_index,
        min=found.min_queue_index,
    )
    for at, entry in enumerate(found.queue_data or (), start=index):
        tool.say(f"idx: {at}\n{_entry_text(entry)}\n{LINE}", index=at, entry=entry)


def _entry_text(entry: ConsumeQueueData) -> str:
    return (
        f"ConsumeQueueData{{physicOffset={entry.physical_offset}, "
        f"physicSize={entry.physical_bytes}, tagsCode={entry.tags_code}, "
        f"extendDataJson='{null_text(entry.extend_data_json)}', "
        f"bitMap='{null_text(entry.bit_map)}', eval={bool_text(entry.eval)}, "
        f"msg='{null_text(entry.msg)}'}}"
    )


async def _dump_log(tool: Tool, flags: Flags) -> None:
    """``dumpCompactionLog``."""
    if "f" not in flags:
        tool.say("miss dump log file name\n", missing=True)
        return
    path = Path(flags.text("f"))
    wrong = "is a directory." if path.is_dir() else "" if path.exists() else "not exist."
    if wrong:
        name = "org.apache.rocketmq.tools.command.SubCommandException"
        raise JavaFailure(name, f"file {flags.text('f')} {wrong}")
    data = path.read_bytes()
    position = 0
    while position < len(data):
        try:
            message = read_message(data, position)
        except CorruptRecord:
            break
        position += message.store_size
        tool.say(f"{message_text(message, with_body=False)}\n", message=MessageFacts.of(message))


# --------------------------------------------------------------------------------------- traces


async def _by_trace(tool: Tool, flags: Flags) -> None:
    """``queryMsgTraceById``."""
    message_id = flags.text("i")
    query = Query(
        topic=flags.text("t") or TRACE_TOPIC,
        key=message_id,
        count_max=flags.number("c", 64),
        begin_ms=flags.number("b"),
        end_ms=flags.number("e", LONG_MAX),
    )
    consumed: dict[str, list[tuple[str, ...]]] = {}
    for message in await search(tool, query):
        for line in message.body.decode("utf-8", "replace").split("\x02"):
            fields = line.split("\x01")
            host = str(message.born_host).rpartition(":")[0]
            if fields[0] == "Pub" and fields[5:6] == [message_id]:
                _say_sent(tool, fields, host)
            elif fields[0] == "SubAfter" and fields[2:3] == [message_id] and len(fields) >= 9:
                row = (fields[8], host, day_and_time(int(fields[7])), f"{fields[3]}ms")
                consumed.setdefault(fields[8], []).append((*row, _outcome(fields[4])))
    for group in hash_order(consumed):
        heads = ("#ConsumerGroup", "#ClientHost", "#ConsumerTime", "#CostTimes", "#Status")
        tool.say(TRACE_ROW % ("#Type", *heads))
        for cells in consumed[group]:
            tool.say(TRACE_ROW % ("Sub", *cells), type="Sub", group=group, cells=cells)
        tool.say("\n")


def _say_sent(tool: Tool, fields: list[str], host: str) -> None:
    heads = ("#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status")
    tool.say(TRACE_ROW % ("#Type", *heads))
    status = _outcome(fields[12] if len(fields) == 13 else "".join(fields[13:14]))
    sent = day_and_time(int(fields[1]))
    tool.say(
        TRACE_ROW % ("Pub", fields[3], host, sent, f"{fields[10]}ms", status),
        type="Pub",
        group=fields[3],
        host=host,
        timestamp=int(fields[1]),
        costMs=int(fields[10]),
        status=status,
    )
    tool.say("\n")


def _outcome(text: str) -> str:
    return "success" if text.lower() == "true" else "failed"


COMMANDS: dict[str, Callable[[Tool, Flags], Awaitable[None]]] = {
    "dumpCompactionLog": _dump_log,
    "queryCq": _queue_entries,
    "queryMsgById": _by_id,
    "queryMsgByKey": _by_key,
    "queryMsgByOffset": _by_offset,
    "queryMsgByUniqueKey": _by_unique_key,
    "queryMsgTraceById": _by_trace,
}
