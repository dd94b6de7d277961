"""Replies reach their requesters, and are stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.broker.hooks import StatsType
from roquet.broker.processor import reply_message as module
from roquet.errors import RequestTimeout, SendFailed
from roquet.model import sys_flag as flags
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand, create_request, create_response
from roquet.remoting.headers.send import SendMessageRequestHeader
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import Port
from roquet.store.config import BrokerRole, FlushDiskType, replace
from tests.unit.broker.processor.hook_kit import Recorder
from tests.unit.broker.processor.reply_kit import CLIENT_ID, REPLY, REPLY_TOPIC, Replies
from tests.unit.broker.processor.send_kit import SMALL, broker, send_header
from tests.unit.remoting.net_kit import until

NOW_MS = 1_700_000_000_000
OUTSIDE = {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}
FIRST_ID = "7F00000100002A9F0000000000000000"


@pytest.fixture(name="at")
def _at(tmp_path: Path) -> Iterator[Replies]:
    with broker(tmp_path) as made:
        yield Replies(made)


async def test_a_reply_reaches_the_requester_and_is_stored(at: Replies) -> None:
    requester = at.requester()
    answer = await at.reply(flag=9, reconsume_times=2)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    assert answer.ext_fields == {"queueId": "0", "msgId": FIRST_ID, **OUTSIDE, "queueOffset": "0"}
    (pushed,) = requester.got
    assert (pushed.code, pushed.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"pong")
    assert requester.timeouts_ms == [10_000]
    told = f"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02PUSH_REPLY_TIME\x01{NOW_MS}\x02"
    assert pushed.ext_fields == {
        "producerGroup": "P",
        "topic": REPLY_TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1699999999000",
        "flag": "9",
        "properties": REPLY + told,
        "reconsumeTimes": "2",
        "unitMode": "false",
        "bornHost": "10.1.2.3:4567",
        "storeHost": "127.0.0.1:10911",
        "storeTimestamp": str(NOW_MS),
    }
    record = at.broker.stored(REPLY_TOPIC)
    assert (record.body, record.flag, record.reconsume_times) == (b"pong", 9, 2)
    assert str(record.born_host) == "10.1.2.3:4567"
    assert record.properties == {
        "MSG_TYPE": "reply",
        "REPLY_TO_CLIENT": CLIENT_ID,
        "UNIQ_KEY": "7F01",
        "TTL": "8000",
        "CORRELATION_ID": "c-1",
        **OUTSIDE,
    }
    assert at.processor.waiting == 0


@pytest.mark.parametrize("port", Port)
async def test_the_long_names_and_both_ports(at: Replies, port: Port) -> None:
    requester = at.requester()
    header = SendMessageRequestHeader(
        producer_group="P",
        topic=REPLY_TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=-1,
        sys_flag=0,
        born_timestamp_ms=1,
        flag=0,
        properties=REPLY,
    )
    answer = await at.reply(header=header, code=RequestCode.SEND_REPLY_MESSAGE, port=port)
    assert (answer.code, (answer.ext_fields or {})["queueId"]) == (0, "0")
    fields = requester.got[0].ext_fields or {}
    assert (fields["queueId"], fields["unitMode"]) == ("-1", "false")
    assert "reconsumeTimes" not in fields


async def test_a_reply_that_is_not_stored(tmp_path: Path) -> None:
    with broker(tmp_path, store_reply_message=False) as made:
        at = Replies(made)
        at.requester()
        answer = await at.reply()
        assert answer.code == ResponseCode.SUCCESS
        assert answer.ext_fields == {
            "queueId": "0",
            "msgId": "0",
            **OUTSIDE,
            "queueOffset": "0",
        }
        gone = await at.reply(REPLY.replace(CLIENT_ID, "gone"))
        assert (gone.code, gone.ext_fields) == (ResponseCode.SYSTEM_ERROR, OUTSIDE)
        assert made.store.max_physical_offset == 0


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        (
            REPLY.replace(CLIENT_ID, "gone"),
            "push reply message fail, channel of <gone> not found.",
        ),
        ("TAGS\x01A\x02", "reply message properties[REPLY_TO_CLIENT] is null"),
        ("", "reply message properties[REPLY_TO_CLIENT] is null"),
    ],
)
async def test_no_requester(at: Replies, properties: str, remark: str) -> None:
    requester = at.requester()
    answer = await at.reply(properties)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert (answer.ext_fields or {})["msgId"] == FIRST_ID, "it is stored all the same"
    assert (at.broker.count(REPLY_TOPIC), requester.got) == (1, [])


@pytest.mark.parametrize("error", [SendFailed("gone"), RequestTimeout("silent")])
async def test_the_requester_is_unreachable(at: Replies, error: Exception) -> None:
    at.requester().error = error
    answer = await at.reply()
    assert (answer.code, answer.remark) == (1, f"push reply message to {CLIENT_ID}fail.")
    assert (at.broker.count(REPLY_TOPIC), at.processor.waiting) == (1, 0)


async def test_the_requester_does_not_accept_it(at: Replies) -> None:
    def refuse(request: RemotingCommand) -> RemotingCommand:
        return create_response(request, 1, remark="process reply message fail")

    at.requester()._answer = refuse
    answer = await at.reply()
    assert (answer.code, answer.remark) == (1, f"push reply message to {CLIENT_ID}fail.")


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"topic": "bad topic!"}, ResponseCode.INVALID_PARAMETER, "contains illegal characters"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION, "is forbidden."),
        ({"topic": "N", "default_topic": "X"}, ResponseCode.TOPIC_NOT_EXIST, "not exist, apply"),
        ({"queue_id": 1}, ResponseCode.INVALID_PARAMETER, "request queueId[1] is illegal"),
    ],
)
async def test_a_reply_that_may_not_be_sent(
    at: Replies, fields: dict[str, object], code: int, words: str
) -> None:
    requester, hook = at.requester(), Recorder()
    at.processor.send_hooks.append(hook)
    answer = await at.reply(**fields)  # type: ignore[arg-type]
    assert (answer.code, answer.ext_fields) == (code, OUTSIDE)
    assert words in (answer.remark or "")
    assert (requester.got, at.broker.store.max_physical_offset) == ([], 0)
    assert [context.code for context in hook.done] == [code], "upstream calls hooks for this too"


async def test_a_broker_that_is_not_open_yet(tmp_path: Path) -> None:
    with broker(tmp_path, start_accept_send_timestamp_ms=NOW_MS + 1) as made:
        at = Replies(made)
        requester = at.requester()
        early = await at.reply()
        assert early.code == ResponseCode.SYSTEM_ERROR
        assert (early.remark or "").startswith("broker unable to service, until 2023-11-1")
        made.clock.advance(1)
        assert (await at.reply()).code == ResponseCode.SUCCESS
        assert len(requester.got) == 1


async def test_a_reply_without_a_body(at: Replies) -> None:
    answer = await at.reply(body=b"")
    assert (answer.code, answer.remark) == (1, "the message body is null")


@pytest.mark.parametrize(
    "properties",
    [f"{REPLY}INNER_NUM\x015\x02", f"{REPLY}TIMER_DELAY_MS\x015\x02", REPLY + "x" * 40_000],
)
async def test_a_reply_that_the_store_refuses_is_pushed_all_the_same(
    at: Replies, properties: str
) -> None:
    requester = at.requester()
    answer = await at.reply(properties)
    assert (answer.code, (answer.ext_fields or {})["msgId"]) == (ResponseCode.SUCCESS, "0")
    assert (len(requester.got), at.broker.store.max_physical_offset) == (1, 0)


async def test_a_slave_pushes_replies_and_stores_nothing(tmp_path: Path) -> None:
    with broker(tmp_path, store_config=replace(SMALL, broker_role=BrokerRole.SLAVE)) as made:
        at = Replies(made)
        requester = at.requester()
        answer = await at.reply()
        assert (answer.code, (answer.ext_fields or {})["msgId"]) == (ResponseCode.SUCCESS, "0")
        assert (len(requester.got), made.store.max_physical_offset) == (1, 0)


async def test_a_compressed_reply_can_be_read_where_it_is_stored(at: Replies) -> None:
    requester = at.requester()
    packed = flags.COMPRESSED | flags.COMPRESSION_ZSTD
    answer = await at.reply(sys_flag=packed | flags.TRANSACTION_PREPARED | flags.INNER_BATCH)
    assert answer.code == ResponseCode.SUCCESS
    assert (requester.got[0].ext_fields or {})["sysFlag"] == str(packed | 0x84)
    assert at.broker.stored(REPLY_TOPIC).sys_flag == packed


async def test_a_delayed_reply_waits_in_the_log_only(at: Replies) -> None:
    requester = at.requester()
    await at.reply(f"{REPLY}DELAY\x013\x02")
    assert len(requester.got) == 1
    record = at.broker.stored("SCHEDULE_TOPIC_XXXX", 2)
    assert (record.properties["REAL_TOPIC"], record.properties["REAL_QID"]) == (REPLY_TOPIC, "0")


async def test_the_response_waits_for_the_disk(tmp_path: Path) -> None:
    sync_flush = replace(SMALL, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    with broker(tmp_path, store_config=sync_flush) as made:
        at = Replies(made)
        requester = at.requester()
        asking = asyncio.ensure_future(at.reply())
        await until(lambda: made.store.max_physical_offset > 0)
        assert (asking.done(), len(requester.got), at.processor.waiting) == (False, 1, 1)
        made.flush()
        assert (await asking).code == ResponseCode.SUCCESS
        assert at.processor.waiting == 0


async def test_hooks_see_replies(at: Replies) -> None:
    hook = Recorder()
    at.requester()
    at.processor.send_hooks.append(hook)
    await at.reply()
    (context,) = hook.seen
    assert hook.done == [context]
    assert (context.topic, context.unique_key, context.body_bytes) == (REPLY_TOPIC, "7F01", 4)
    assert (context.is_success, context.code, context.msg_id) == (True, 0, FIRST_ID)
    assert (context.queue_offset, context.message_count) == (0, 1)
    assert context.stats_type is StatsType.SEND_SUCCESS
    await at.reply(REPLY.replace(CLIENT_ID, "gone"))
    late = hook.done[1]
    assert (late.is_success, late.code) == (False, ResponseCode.SYSTEM_ERROR)
    assert (late.stats_type, late.queue_offset) == (StatsType.SEND_SUCCESS, 1)
    assert late.error_message == "push reply message fail, channel of <gone> not found."


async def test_a_hook_may_refuse_a_reply(at: Replies) -> None:
    requester = at.requester()
    refusing = Recorder(before=RequestRefused("not today", response_code=207))
    at.processor.send_hooks.append(refusing)
    answer = await at.reply()
    assert (answer.code, answer.remark, answer.ext_fields) == (207, "not today", None)
    assert (requester.got, at.broker.store.max_physical_offset) == ([], 0)


def size_bytes(body: bytes) -> int:
    header = send_header(REPLY, topic=REPLY_TOPIC)
    return module._size_of(create_request(325, header, opaque=3, body=body))


@pytest.mark.parametrize(
    ("limit", "value"), [("REPLIES_WAITING_MAX", 2), ("REPLIES_BYTES_MAX", 2 * size_bytes(b"pong"))]
)
async def test_silent_clients_keep_few_replies_waiting(
    at: Replies, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(module, limit, value)
    go_on = asyncio.Event()
    requester = at.requester()
    send_request = requester.send_request

    async def slowly(code: int, *args: object, **options: object) -> RemotingCommand:
        await go_on.wait()
        return await send_request(code, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(requester, "send_request", slowly)
    asking = [asyncio.ensure_future(at.reply()) for _ in range(2)]
    await asyncio.sleep(0)
    assert at.processor.waiting == 2
    refused = await at.reply()
    assert (refused.code, refused.remark) == (
        ResponseCode.SYSTEM_BUSY,
        "[OVERLOAD]system busy, start flow control for a while",
    )
    go_on.set()
    assert [(await each).code for each in asking] == [0, 0]
    assert (await at.reply()).code == ResponseCode.SUCCESS
    assert len(requester.got) == 3


async def test_replies_count_from_their_arrival(
    at: Replies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A burst brings many before the work on any of them begins."""
    monkeypatch.setattr(module, "REPLIES_WAITING_MAX", 2)
    at.requester()
    answers = await asyncio.gather(*(at.reply() for _ in range(5)))
    assert sorted(answer.code for answer in answers) == [0, 0, 2, 2, 2]
    assert at.processor.waiting == 0
    assert at.processor._waiting_bytes == 0


async def test_one_large_reply_is_always_accepted(
    at: Replies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REPLIES_BYTES_MAX", 1)
    at.requester()
    assert (await at.reply()).code == ResponseCode.SUCCESS
