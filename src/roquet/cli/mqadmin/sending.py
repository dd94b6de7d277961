"""Commands that send messages, as a test or to measure how long it takes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from roquet.cli.mqadmin.commons_cli import Flags
from roquet.cli.mqadmin.failures import JavaFailure
from roquet.cli.mqadmin.message_text import send_result_text
from roquet.cli.mqadmin.tool import Tool
from roquet.client import Message, Producer
from roquet.errors import ClientError
from roquet.model.message_queue import MessageQueue

__all__ = ["COMMANDS"]

SEND_ROW = "%-32s  %-4s  %-20s    %s\n"
WARM_UP_BYTES = 16
CHINA = timedelta(hours=8)


def _producer(tool: Tool, group: str | None = None, *, trace: bool = False) -> Producer:
    return Producer(tool.client.options, group=group or str(tool.now_ms), trace=trace)


async def _send(tool: Tool, flags: Flags) -> None:
    """``sendMessage``."""
    if "i" in flags and "b" not in flags:
        words = "Broker name must be set if the queue is chosen!"
        tool.say(words, error=words)
        return
    topic = flags.text("t")
    message = Message(topic, flags.text("p").encode(), tags=flags.get("c"), keys=flags.get("k"))
    queue_id = flags.number("i", -1)
    queue = MessageQueue(topic, flags.text("b"), queue_id) if queue_id > -1 else None
    if queue is not None and not await _may_be_made(tool, topic):
        await tool.know_queue(queue)
    async with _producer(tool, trace=flags.truth("m")) as producer:
        result = await producer.send(message, queue=queue)
    tool.say(SEND_ROW % ("#Broker Name", "#QID", "#Send Result", "#MsgId"))
    row = (result.queue.broker_name, result.queue.queue_id, result.status.value)
    tool.say(SEND_ROW % (*row, result.message_id), result=result)


async def _may_be_made(tool: Tool, topic: str) -> bool:
    """Whether a topic does not exist, so that the first message may create it."""
    try:
        await tool.route(topic)
    except JavaFailure:
        return True
    return False


async def _send_status(tool: Tool, flags: Flags) -> None:
    """``sendMsgStatus``."""
    topic = flags.text("b")
    size, count = flags.number("s", 128), flags.number("c", 50)
    async with _producer(tool, "PID_SMSC") as producer:
        await producer.send(Message(topic, _body(WARM_UP_BYTES)))
        for _ in range(count):
            begin_ms = tool.now_ms
            result = await producer.send(Message(topic, _body(size)))
            spent_ms = tool.now_ms - begin_ms
            words = f"rt={spent_ms}ms, SendResult={send_result_text(result)}\n"
            tool.say(words, spentMs=spent_ms, result=result)


def _body(size: int) -> bytes:
    """The body of upstream's test messages."""
    return b"hello jodie" * (size // 11 + (size % 11 > 0))


async def _check_times(tool: Tool, flags: Flags) -> None:
    """``checkMsgSendRT``."""
    count, size = flags.number("a", 100), flags.number("s", 128)
    message = Message(flags.text("t"), b"a" * size)
    tool.say(SEND_ROW % ("#Broker Name", "#QID", "#Send Result", "#RT"))
    total_ms = 0
    chosen: list[MessageQueue] = []

    def select(queues: Sequence[MessageQueue], _message: Message, arg: object) -> MessageQueue:
        assert isinstance(arg, int)
        chosen[:] = [queues[arg % len(queues)]]
        return chosen[0]

    async with _producer(tool) as producer:
        for at in range(count):
            begin_ms = tool.now_ms
            try:
                await producer.send(message, selector=select, arg=at)
                is_sent = True
            except ClientError:
                is_sent = False
            spent_ms = tool.now_ms - begin_ms
            total_ms += spent_ms if at else 0
            name, queue_id = (chosen[0].broker_name, chosen[0].queue_id) if chosen else ("", 0)
            row = (name, queue_id, "true" if is_sent else "false", spent_ms)
            facts = {"broker": name, "queueId": queue_id, "sent": is_sent, "spentMs": spent_ms}
            tool.say(SEND_ROW % row, **facts)
    average = total_ms / (count - 1) if count > 1 else float("nan")
    text = f"{average:.2f}" if count > 1 else "NaN"
    tool.say(f"Avg RT: {text}\n", averageMs=None if count < 2 else average)


async def _cluster_times(tool: Tool, flags: Flags) -> None:
    """``clusterRT``."""
    count, size = flags.number("a", 100), flags.number("s", 128)
    as_log = flags.truth("p")
    clusters = (await tool.cluster_info()).cluster_addr_table or {}
    wanted = [flags.text("c")] if "c" in flags else list(clusters)
    if not as_log:
        heads = ("#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount")
        tool.say("%-24s  %-24s  %-4s  %-8s  %-8s\n" % heads)
    async with _producer(tool) as producer:
        while True:
            for cluster in wanted:
                if cluster not in clusters:
                    tool.say(f"cluster [{cluster}] not exist", cluster=cluster, error="not exist")
                    break
                for name in clusters[cluster]:
                    message = Message(name, b"a" * size)
                    average, sent = await _average_ms(tool, producer, message, count)
                    facts = {"cluster": cluster, "broker": name, "sent": sent}
                    if as_log:
                        room = flags.text("m", "noname")
                        now = f"{datetime.now(UTC) + CHINA:%Y-%m-%d %H:%M:%S}"
                        line = f"{now}|{room}|{cluster}|{name}|{round(average)}\n"
                        tool.say(line, **facts, averageMs=average)
                    else:
                        row = (cluster, name, f"{average:.2f}", sent, count - sent)
                        text = "%-24s  %-24s  %-8s  %-16s  %-16s\n" % row
                        tool.say(text, **facts, averageMs=average)
            await tool.pause(flags.number("i", 10))


async def _average_ms(
    tool: Tool, producer: Producer, message: Message, count: int
) -> tuple[float, int]:
    total_ms = sent = 0
    for at in range(count):
        begin_ms = tool.now_ms
        try:
            await producer.send(message)
            sent += 1
        except ClientError:
            pass
        total_ms += tool.now_ms - begin_ms if at else 0
    return total_ms / max(count - 1, 1), sent


COMMANDS = {
    "checkMsgSendRT": _check_times,
    "clusterRT": _cluster_times,
    "sendMessage": _send,
    "sendMsgStatus": _send_status,
}
