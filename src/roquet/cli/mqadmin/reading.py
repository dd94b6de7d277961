"""Commands that read queues from an offset on. Nothing is committed."""

from __future__ import annotations

from collections import Counter

from roquet.admin.calls import TOOLS_GROUP
from roquet.cli.mqadmin.commons_cli import Flags
from roquet.cli.mqadmin.failures import CLIENT_EXCEPTION, SEE_HELP, JavaFailure, failure_of
from roquet.cli.mqadmin.java import (
    hash_order,
    message_queue_text,
    parse_moment_ms,
    parse_number,
    queue_order,
)
from roquet.cli.mqadmin.message_text import (
    MessageFacts,
    body_text,
    message_text,
    msg_id,
    note_bounds,
)
from roquet.cli.mqadmin.tool import Tool
from roquet.client import PullApi, PullResult, PullStatus, ReceivedMessage, subscription_of
from roquet.errors import ClientError
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SUBSCRIBE_ALL

__all__ = ["COMMANDS"]

PULL_MESSAGES_MAX = 32
COUNT_MAX = 128
LINE = "--------------------------------------------------------\n"


class _Reader:
    """Pulls the messages of a topic.

    Args:
        tool: The tool.
        group: The group that pulls.
    """

    def __init__(self, tool: Tool, group: str = TOOLS_GROUP) -> None:
        self._tool = tool
        self.api = PullApi(tool.client, group)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic, in upstream's order."""
        try:
            await self._tool.route(topic)
        except JavaFailure as failure:
            text = f"Can not find Message Queue for this topic, {topic}{SEE_HELP}"
            raise JavaFailure(CLIENT_EXCEPTION, text, cause=failure) from failure
        return queue_order(await self._tool.client.routes.subscribe_queues(topic))

    async def bounds(
        self, queue: MessageQueue, begin: str | None, end: str | None
    ) -> tuple[int, int]:
        """The first and the next offset of a queue, or the offsets of two times."""
        first, last = await self.api.min_offset(queue), await self.api.max_offset(queue)
        if begin is not None:
            first = await self.api.search_offset(queue, parse_moment_ms(begin))
        if end is not None:
            last = await self.api.search_offset(queue, parse_moment_ms(end))
        return first, last

    async def pull(
        self, queue: MessageQueue, expression: str, queue_offset: int, count: int
    ) -> PullResult | None:
        """Messages from an offset on; ``None`` after a failure, which is printed."""
        wanted = subscription_of(queue.topic, expression, version_ms=0)
        try:
            result = await self.api.pull(
                queue, queue_offset, subscription=wanted, max_messages=count
            )
        except ClientError as error:
            self._tool.output.fail(failure_of(error))
            return None
        note_bounds(result)
        return result


def _say_messages(
    tool: Tool, messages: list[ReceivedMessage], charset: str, *, with_body: bool
) -> None:
    for message in messages:
        try:
            body = body_text(message, charset) if with_body else "NOT PRINT BODY"
        except LookupError:
            continue
        text = f"MSGID: {msg_id(message)} {message_text(message)} BODY: {body}\n"
        tool.say(text, message=MessageFacts.of(message), body=body if with_body else None)


def _say_end(tool: Tool, queue: MessageQueue, result: PullResult) -> bool:
    """Print that a pull found nothing; return whether the queue is done."""
    is_done = result.status is not PullStatus.NO_MATCHED_MESSAGE
    what = "print msg finished" if is_done else "no matched msg"
    words = f"{message_queue_text(queue)} {what}. status={result.status.value}"
    tool.say(f"{words}, offset={result.next_offset}\n")
    return is_done


async def _print(tool: Tool, flags: Flags) -> None:
    """``printMsg``."""
    topic = flags.text("t")
    reader = _Reader(tool)
    parent = flags.get("l")
    queues = await reader.queues(topic if parent is None else parent)
    if parent is not None:
        queues = [MessageQueue(topic, each.broker_name, each.queue_id) for each in queues]
    for queue in queues:
        offset, end = await reader.bounds(queue, flags.get("b"), flags.get("e"))
        place = message_queue_text(queue)
        tool.say(f"minOffset={offset}, maxOffset={end}, {place}\n", queue=queue, begin=offset)
        while offset < end:
            expression = flags.text("s", SUBSCRIBE_ALL)
            result = await reader.pull(queue, expression, offset, PULL_MESSAGES_MAX)
            if result is None:
                break
            offset = result.next_offset
            if result.status is PullStatus.FOUND:
                with_body = flags.truth("d", default=True)
                charset = flags.text("c", "UTF-8")
                _say_messages(tool, result.messages, charset, with_body=with_body)
            elif _say_end(tool, queue, result):
                break
        tool.say(LINE)


async def _print_queue(tool: Tool, flags: Flags) -> None:
    """``printMsgByQueue``."""
    queue = MessageQueue(flags.text("t"), flags.text("a"), parse_number(flags.text("i")))
    reader = _Reader(tool)
    await tool.know_queue(queue)
    offset, end = await reader.bounds(queue, flags.get("b"), flags.get("e"))
    tags: Counter[str] = Counter()
    while offset < end:
        expression = flags.text("s", SUBSCRIBE_ALL)
        result = await reader.pull(queue, expression, offset, PULL_MESSAGES_MAX)
        if result is None or result.status is not PullStatus.FOUND:
            break
        offset = result.next_offset
        tags.update(each.tags for each in result.messages if each.tags)
        if flags.truth("p"):
            charset = flags.text("c", "UTF-8")
            _say_messages(tool, result.messages, charset, with_body=flags.truth("d"))
    if flags.truth("f"):
        for tag in sorted(hash_order(tags), key=lambda each: -tags[each]):
            tool.say("Tag: %-30s Count: %s\n" % (tag, tags[tag]), tag=tag, count=tags[tag])


# -------------------------------------------------------------------------------------- consume


async def _consume(tool: Tool, flags: Flags) -> None:
    """``consumeMessage``."""
    count = flags.number("c", COUNT_MAX)
    problem = _problem(tool, flags, count)
    if problem is not None:
        tool.say(problem, error=problem)
        return
    topic = flags.text("t")
    reader = _Reader(tool, flags.text("g", TOOLS_GROUP))
    try:
        if "i" in flags:
            queue = MessageQueue(topic, flags.text("b"), flags.number("i"))
            await tool.know_queue(queue)
            await _consume_queue(tool, reader, queue, flags, count)
        else:
            await _consume_topic(tool, reader, flags, count)
    except (ClientError, JavaFailure) as error:
        tool.output.fail(failure_of(error))


def _problem(tool: Tool, flags: Flags, count: int) -> str | None:
    begin = parse_moment_ms(flags.text("s", "0"))
    end = parse_moment_ms(flags.text("e", "0"))
    checks = (
        (count > 0, "Please input a positive messageNumber!"),
        ("i" not in flags or "b" in flags, "Please set the brokerName before queueId!"),
        ("o" not in flags or "i" in flags, "Please set queueId before offset!"),
        (begin <= tool.now_ms, "Please set the beginTimestamp before now!"),
        (end <= tool.now_ms, "Please set the endTimestamp before now!"),
        (
            "e" not in flags or begin <= end,
            "Please make sure that the beginTimestamp is less than or equal to the endTimestamp",
        ),
    )
    return next((words for is_fine, words in checks if not is_fine), None)


async def _consume_topic(tool: Tool, reader: _Reader, flags: Flags, count: int) -> None:
    for queue in await reader.queues(flags.text("t")):
        if count == 0:
            return
        first, last = await reader.bounds(queue, flags.get("s"), flags.get("e"))
        if last - first > count:
            words = f"The older {count} message of the {queue.queue_id} queue will be provided\n"
            tool.say(words)
            last, count = first + count - 1, 0
        else:
            count -= last - first + 1
        await _consume_span(tool, reader, queue, first, last)


async def _consume_queue(
    tool: Tool, reader: _Reader, queue: MessageQueue, flags: Flags, count: int
) -> None:
    first, last = await reader.bounds(queue, flags.get("s"), flags.get("e"))
    offset = flags.number("o")
    if offset > last:
        tool.say(f"{message_queue_text(queue)} no matched msg, offset={offset}\n", found=False)
        return
    first = max(first, offset)
    if last - first > count:
        tool.say(f"The oldler {count} message will be provided\n")
        last = first + count - 1
    await _consume_span(tool, reader, queue, first, last)


async def _consume_span(
    tool: Tool, reader: _Reader, queue: MessageQueue, offset: int, last: int
) -> None:
    while offset <= last:
        result = await reader.pull(queue, SUBSCRIBE_ALL, offset, last - offset + 1)
        if result is None:
            return
        offset = result.next_offset
        if result.status is PullStatus.FOUND:
            tool.say("Consume ok\n")
            _say_messages(tool, result.messages, "UTF-8", with_body=True)
        elif _say_end(tool, queue, result):
            return


COMMANDS = {
    "consumeMessage": _consume,
    "printMsg": _print,
    "printMsgByQueue": _print_queue,
}
