"""Requests about topics with batch consume queues, the same for both sides.

Every response that does not name a time, a port or an address must be the same, except for those of
:data:`DIFFERENT`.
"""

from __future__ import annotations

from collections.abc import Iterator

from roquet.format.batch import encode_batch
from roquet.model import sys_flag as flags
from roquet.remoting.codes import RequestCode
from tests.interop.asker import Ask, make_ask

__all__ = [
    "BATCH",
    "DIFFERENT",
    "ODD",
    "SIMPLE",
    "clean_sends",
    "odd_sends",
    "offsets",
    "reads",
    "topic_ask",
    "topics",
]

BATCH = "batch-queues"
SIMPLE = "simple-queues"
ODD = "odd-batches"

_SHIFTED = "it follows the prepared batch, which Roquet does not store"
DIFFERENT = {
    "SEND_BATCH_MESSAGE-prepared batch": "Java stores it where no consumer ever finds it",
    "SEND_BATCH_MESSAGE-flagged batch without unique key": _SHIFTED,
    "SEND_BATCH_MESSAGE-batch to simple queues": _SHIFTED,
    **{
        f"QUERY_CONSUME_QUEUE-{BATCH} {index}": "Java makes a queue for whoever asks"
        for index in (0, 1, 5)
    },
}
"""Requests that Roquet answers in another way, and why."""

_BORN_MS = 1_700_000_000_000
_INNER = flags.INNER_BATCH | flags.NEED_UNWRAP


def batch_body(count: int, first: int = 0) -> bytes:
    """The body of a batch of ``count`` messages, numbered on from ``first``."""
    return encode_batch(
        (number, b"body-%d" % number, b"UNIQ_KEY\x01%032d\x02" % number)
        for number in range(first, first + count)
    )


def properties_text(**properties: object) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def send_ask(
    note: str,
    topic: str,
    body: bytes,
    *,
    is_batch: bool = False,
    sys_flag: int = 0,
    properties: str = "",
) -> Ask:
    code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
    fields = {
        "a": "producers",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": sys_flag,
        "g": _BORN_MS,
        "h": 0,
        "i": properties,
        "j": 0,
        "k": "false",
        "m": "true" if is_batch else "false",
    }
    return make_ask(code, note, body, **fields)


def topics() -> Iterator[Ask]:
    for topic, attributes in (
        (BATCH, "+queue.type=BatchCQ"),
        (ODD, "+queue.type=BatchCQ"),
        (SIMPLE, "+queue.type=SimpleCQ"),
    ):
        yield topic_ask(f"create {topic}", topic, attributes)
    yield topic_ask("change the type", BATCH, "+queue.type=SimpleCQ")
    yield topic_ask("remove the type", BATCH, "-queue.type")
    yield topic_ask("keep the type", BATCH, "")


def topic_ask(note: str, topic: str, attributes: str) -> Ask:
    return make_ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        note,
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums=2,
        writeQueueNums=2,
        perm=6,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order="false",
        attributes=attributes,
    )


def unique(number: int) -> str:
    return f"{number:032X}"


def clean_sends(first: int = 0) -> Iterator[Ask]:
    """Inner batches of several sizes, with and without tags and keys."""
    for number, count in enumerate((3, 1, 2, 4, 5, 2, 1, 7, 3, 2, 6), first):
        extra: dict[str, object] = {"KEYS": f"key-{number}"} if number % 2 else {}
        if number % 3 == 0:
            extra["TAGS"] = f"Tag{number % 2}"
        properties = properties_text(UNIQ_KEY=unique(number), WAIT="true", **extra)
        body = batch_body(count, number * 10)
        yield send_ask(f"batch {number}", BATCH, body, is_batch=True, properties=properties)


def odd_sends() -> Iterator[Ask]:
    one = properties_text(UNIQ_KEY=unique(100))
    yield send_ask("single", ODD, b"single", properties=one)
    yield send_ask("batch behind a single", ODD, batch_body(2), is_batch=True, properties=one)
    yield send_ask("batch without unique key", ODD, batch_body(2), is_batch=True)
    yield send_ask("batch behind that", ODD, batch_body(2), is_batch=True, properties=one)
    three = properties_text(UNIQ_KEY=unique(101), INNER_NUM=3)
    yield send_ask("wrapped by the client", ODD, batch_body(3), sys_flag=_INNER, properties=three)
    base = properties_text(UNIQ_KEY=unique(101), INNER_NUM=3, INNER_BASE=77)
    yield send_ask("base of the client", ODD, batch_body(3), sys_flag=_INNER, properties=base)
    yield send_ask("flag without number", ODD, b"x", sys_flag=_INNER, properties=one)
    yield send_ask("number without flag", ODD, b"x", properties=three)
    yield send_ask(
        "batch: number without flag", ODD, batch_body(3), is_batch=True, properties=three
    )
    yield send_ask(
        "wrapped, not unwrapped", ODD, b"x", sys_flag=flags.INNER_BATCH, properties=three
    )
    for value in ("abc", "40000", "32767", "", "+3", " 3"):
        text = properties_text(UNIQ_KEY=unique(102), INNER_NUM=value)
        yield send_ask(f"number {value!r}", ODD, b"x", sys_flag=_INNER, properties=text)
    yield send_ask("empty body", ODD, b"", is_batch=True, properties=one)
    yield send_ask("bad body", ODD, b"\0\0\0\x20garbage", is_batch=True, properties=one)
    yield send_ask("short body", ODD, batch_body(2)[:-3], is_batch=True, properties=one)
    delay = properties_text(UNIQ_KEY=unique(103), DELAY=1)
    yield send_ask("delayed batch", ODD, batch_body(2), is_batch=True, properties=delay)
    yield send_ask(
        "prepared batch", ODD, batch_body(2), is_batch=True, properties=one,
        sys_flag=flags.TRANSACTION_PREPARED,
    )  # fmt: skip
    yield send_ask(
        "flagged batch without unique key", ODD, batch_body(2), is_batch=True, sys_flag=_INNER
    )
    for is_batch in (False, True):
        kind = "batch" if is_batch else "message"
        flagged = send_ask(
            f"flagged {kind} to simple queues", SIMPLE, batch_body(3), is_batch=is_batch,
            sys_flag=_INNER, properties=three,
        )  # fmt: skip
        yield flagged
        yield send_ask(
            f"numbered {kind} to simple queues", SIMPLE, batch_body(3), is_batch=is_batch,
            properties=three,
        )  # fmt: skip
    yield send_ask("batch to simple queues", SIMPLE, batch_body(3), is_batch=True, properties=one)


def offsets(topic: str, queue_id: int = 0) -> Iterator[Ask]:
    for code in (
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
    ):
        yield make_ask(code, f"{topic}-{queue_id}", topic=topic, queueId=queue_id)


def pull_ask(
    topic: str, offset: int, count: int, subscription: str = "*", size: int | None = None
) -> Ask:
    more = {} if size is None else {"maxMsgBytes": size}
    return make_ask(
        RequestCode.PULL_MESSAGE,
        f"{topic} {offset} {count} {subscription} {size}",
        consumerGroup="consumers",
        topic=topic,
        queueId=0,
        queueOffset=offset,
        maxMsgNums=count,
        sysFlag=4,
        commitOffset=0,
        suspendTimeoutMillis=0,
        subscription=subscription,
        subVersion=0,
        expressionType="TAG",
        **more,
    )


def reads(topic: str, end: int) -> Iterator[Ask]:
    yield from offsets(topic)
    for offset in range(-1, end + 2):
        yield pull_ask(topic, offset, 32)
        yield pull_ask(topic, offset, 1)
    for count in (2, 3, 4, 5, 6, 9, 10, 11, 40):
        yield pull_ask(topic, 1, count)
    for tags in ("Tag0", "Tag1", "Tag0 || Tag1", "none"):
        yield pull_ask(topic, 0, 32, tags)
        yield pull_ask(topic, 2, 4, tags)
    for size in (1, 300, 1000):
        yield pull_ask(topic, 0, 32, "*", size)
    for when in (0, 1 << 62):
        for boundary in ("LOWER", "UPPER"):
            yield make_ask(
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                f"{topic} {when} {boundary}",
                topic=topic,
                queueId=0,
                timestamp=when,
                boundaryType=boundary,
            )
    for index in (0, 1, 5):
        yield make_ask(
            RequestCode.QUERY_CONSUME_QUEUE, f"{topic} {index}", topic=topic, queueId=0,
            index=index, count=3, consumerGroup="",
        )  # fmt: skip
    yield make_ask(RequestCode.GET_TOPIC_STATS_INFO, topic, topic=topic)
