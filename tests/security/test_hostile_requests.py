"""Well-formed requests for nonsense, at a whole broker.

As in ``test_hostile_peers.py`` a witness sends requests all the while, and nothing may be left
afterwards.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.format.batch import encode_batch
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import SerializeType
from tests.security.kit import (
    Peer,
    Scene,
    Victim,
    assert_tells_nothing,
    at_broker,
    peer_of,
    pull_fields,
    request,
    send_fields,
)

MIB = 1 << 20

ABSURD_NUMBERS = (
    *("-1", "-2", "-2147483648", "2147483647", "2147483648", "4294967296"),
    *("9223372036854775807", "-9223372036854775808", "9223372036854775808", "1" + "0" * 300),
    *("", " ", "x", "1.5", "0x1", "1e3", "+1", " 1", "\u0661", "true", "null", "\x00", "--1"),
)

EVIL_NAMES = (
    *("../../evil", "..", ".", "/etc/evil", "a/b", "a\\b", "~", "a\x00b", "\x00", "a\nb", "a b"),
    *("%2e%2e%2fevil", "$(evil)", "`evil`", "'", '"', "日本語", "é" * 60),
    *("x" * 128, "x" * 300, "x" * 40_000, "", " ", "%RETRY%../../evil", "%DLQ%/../evil"),
    *("%RETRY%", "%DLQ%", "%LMQ%../evil", "__syslo__x", "rmq_sys_../x", "SCHEDULE_TOPIC_XXXX"),
)

SAFE_FOLDER = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")


async def answers(peer: Peer, frames: Iterator[bytes]) -> list[RemotingCommand]:
    """Send one after the other; every request gets a response that reveals no internals."""
    found: list[RemotingCommand] = []
    for frame in frames:
        answer = await peer.ask(frame)
        assert_tells_nothing(answer)
        remark = answer.remark or ""
        assert "Error while handling" not in remark, remark
        found.append(answer)
    return found


async def store_message(peer: Peer, topic: str, body: bytes) -> None:
    answer = await peer.ask(request(RequestCode.SEND_MESSAGE_V2, send_fields(topic), body=body))
    assert answer.code == 0, answer.remark


# -------------------------------------------------------------------------------- numbers


def absurd_requests(number: str) -> Iterator[tuple[int, dict[str, str]]]:
    for name in "dehj":
        yield RequestCode.SEND_MESSAGE_V2, send_fields("Orders", **{name: number})
    for name in ("queueId", "queueOffset", "maxMsgNums", "commitOffset", "subVersion", "sysFlag"):
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            yield code, pull_fields("Orders") | {name: number}
    queue = {"topic": "Orders", "queueId": "0", "consumerGroup": "group"}
    for name in ("queueId", "commitOffset"):
        fields = {**queue, "commitOffset": "0", name: number}
        yield RequestCode.UPDATE_CONSUMER_OFFSET, fields
    yield RequestCode.QUERY_CONSUMER_OFFSET, {**queue, "queueId": number}
    yield RequestCode.GET_MAX_OFFSET, {**queue, "queueId": number}
    yield RequestCode.GET_MIN_OFFSET, {**queue, "queueId": number}
    yield RequestCode.GET_EARLIEST_MSG_STORETIME, {**queue, "queueId": number}
    for name in ("queueId", "timestamp"):
        yield RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**queue, "timestamp": "0", name: number}
    by_key = {"topic": "Orders", "key": "k", "maxNum": "32", "beginTimestamp": "0"}
    for name in ("maxNum", "beginTimestamp", "endTimestamp"):
        yield RequestCode.QUERY_MESSAGE, {**by_key, "endTimestamp": "9" * 13, name: number}
    yield RequestCode.VIEW_MESSAGE_BY_ID, {"offset": number}


@at_broker
@pytest.mark.parametrize("serialize_type", SerializeType)
async def test_absurd_queue_ids_offsets_and_counts(
    scene: Scene, serialize_type: SerializeType
) -> None:
    def frames() -> Iterator[bytes]:
        for number in ABSURD_NUMBERS:
            for code, fields in absurd_requests(number):
                yield request(code, fields, body=b"body", serialize_type=serialize_type)

    async with peer_of(scene.victim) as peer:
        await store_message(peer, "Orders", b"first")
        found = await answers(peer, frames())
        assert len(found) > 500
        pulled = await peer.ask(request(RequestCode.PULL_MESSAGE, pull_fields("Orders")))
        assert pulled.code == ResponseCode.SUCCESS
        assert b"first" in pulled.body
    await scene.hold()


# ---------------------------------------------------------------------------------- names


def heartbeat(client_id: str, group: str, topic: str) -> bytes:
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1}],
    }
    data = {
        "clientID": client_id,
        "producerDataSet": [{"groupName": group}],
        "consumerDataSet": [consumer],
    }
    return request(RequestCode.HEART_BEAT, {}, body=json.dumps(data).encode())


def requests_with_name(name: str) -> Iterator[bytes]:
    yield request(RequestCode.SEND_MESSAGE_V2, send_fields(name), body=b"x")
    yield request(RequestCode.SEND_MESSAGE_V2, send_fields("Orders", a=name), body=b"x")
    yield request(RequestCode.SEND_MESSAGE_V2, send_fields(name, c=name), body=b"x")
    yield request(RequestCode.PULL_MESSAGE, pull_fields(name))
    yield request(RequestCode.PULL_MESSAGE, pull_fields(consumerGroup=name))
    yield request(RequestCode.PULL_MESSAGE, pull_fields(subscription=name, expressionType=name))
    topic = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1"}
    topic |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    yield request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic)
    group = json.dumps({"groupName": name}).encode()
    yield request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body=group)
    offset = {"consumerGroup": name, "topic": name, "queueId": "0", "commitOffset": "1"}
    yield request(RequestCode.UPDATE_CONSUMER_OFFSET, offset)
    yield request(RequestCode.QUERY_CONSUMER_OFFSET, offset)
    yield heartbeat("client", name, "Orders")
    yield heartbeat(name, "group", name)
    yield request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": name})
    by_key = {"topic": name, "key": name, "maxNum": "32", "beginTimestamp": "0"}
    yield request(RequestCode.QUERY_MESSAGE, {**by_key, "endTimestamp": "9" * 13})
    yield request(RequestCode.GET_TOPIC_CONFIG, {"topic": name})
    yield request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name})
    yield request(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": name, "cleanOffset": "true"})


def folders_of(store: Path) -> list[str]:
    return [path.name for path in (store / "consumequeue").iterdir()]


@at_broker
async def test_names_that_would_leave_the_store(
    scene: Scene, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.getbasetemp()
    outside = {path for path in base.iterdir() if path.is_dir()}

    def frames() -> Iterator[bytes]:
        for name in EVIL_NAMES:
            yield from requests_with_name(name)

    async with peer_of(scene.victim) as peer:
        found = await answers(peer, frames())
    assert any(answer.code != 0 for answer in found)
    folder = scene.victim.folder
    assert {path.name for path in folder.iterdir()} == {"log", "store"}
    assert not list(folder.rglob("*evil*"))
    assert [name for name in folders_of(folder / "store") if not SAFE_FOLDER.fullmatch(name)] == []
    assert {path for path in base.iterdir() if path.is_dir()} == outside


async def test_hostile_names_do_not_break_the_next_start(tmp_path: Path) -> None:
    victim = await Victim.start("broker", tmp_path)
    try:
        async with peer_of(victim) as peer:
            await store_message(peer, "Orders", b"first")
            for name in EVIL_NAMES:
                await answers(peer, requests_with_name(name))
        await victim.stop()
        victim = await Victim.start("broker", tmp_path)
        async with peer_of(victim) as peer:
            pulled = await peer.ask(request(RequestCode.PULL_MESSAGE, pull_fields("Orders")))
            assert b"first" in pulled.body
        await victim.stop()
        assert "Traceback" not in victim.log()
    finally:
        await victim.kill()


async def test_names_do_not_forge_lines_of_the_log(tmp_path: Path) -> None:
    victim = await Victim.start("broker", tmp_path)
    try:
        async with peer_of(victim) as peer:
            for name in ("x\nFORGED", "x\r\nFORGED", "x\x1b[2JFORGED", "x\u2028FORGED"):
                await answers(peer, requests_with_name(name))
        await victim.stop()
        lines = re.split("[\n\r\x1b\u2028]", victim.log())
        assert [line for line in lines if line.startswith(("FORGED", "[2JFORGED"))] == []
    finally:
        await victim.kill()


# ---------------------------------------------------------------------------------- bodies


def false_batches() -> Iterator[bytes]:
    whole = encode_batch([(0, b"one", b"KEYS\x01k\x02"), (0, b"two", b"")])
    for place in range(0, len(whole), 2):
        for number in (-1, 2**31 - 1, -(2**31), 0):
            yield whole[:place] + struct.pack(">i", number) + whole[place + 4 :]
    for end in range(len(whole)):
        yield whole[:end]
    yield whole * 1_000
    yield encode_batch([(0, b"", b"")] * 2_000)
    yield bytes(MIB)
    yield b"\xff" * MIB


@at_broker
async def test_batches_with_false_lengths(scene: Scene) -> None:
    fields = send_fields("Orders", m="true")

    def frames() -> Iterator[bytes]:
        for body in false_batches():
            yield request(RequestCode.SEND_BATCH_MESSAGE, fields, body=body)

    async with peer_of(scene.victim) as peer:
        await store_message(peer, "Orders", b"first")
        await answers(peer, frames())
        pulled = await peer.ask(request(RequestCode.PULL_MESSAGE, pull_fields("Orders")))
        assert b"first" in pulled.body
    await scene.hold()


@at_broker
async def test_a_batch_too_long_to_be_acknowledged_is_not_stored(scene: Scene) -> None:
    """The response has an id for every message of the batch, so a long one is refused."""
    fields = send_fields("Orders", m="true", i="")
    queue = {"topic": "Orders", "queueId": "0"}
    async with peer_of(scene.victim) as peer:
        await store_message(peer, "Orders", b"first")
        for count in (16_385, 100_000):
            body = encode_batch([(0, b"x", b"")] * count)
            answer = await peer.ask(request(RequestCode.SEND_BATCH_MESSAGE, fields, body=body))
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert answer.remark == "a batch may have at most 16384 messages"
        end = await peer.ask(request(RequestCode.GET_MAX_OFFSET, queue))
        assert (end.ext_fields or {})["offset"] == "1"


def odd_messages() -> Iterator[tuple[dict[str, str], bytes]]:
    properties = (
        *("", "\x01", "\x02", "\x01\x02", "KEYS", "KEYS\x01", "KEYS\x01\x02", "\x01v\x02" * 1_000),
        *(
            "KEYS\x01" + "k " * 10_000 + "\x02",
            "K\x01v\x02" * 8_000,
            "a\x01" + "v" * 32_760 + "\x02",
        ),
        *("a\x01" + "v" * 100_000 + "\x02", "DELAY\x0199999999999\x02", "DELAY\x01-1\x02"),
        *(
            "DELAY\x01x\x02",
            "TIMER_DELAY_SEC\x01-5\x02",
            "TIMER_DELIVER_MS\x01" + "9" * 30 + "\x02",
        ),
        *(
            "REAL_TOPIC\x01../../evil\x02REAL_QID\x01-1\x02",
            "PGROUP\x01../evil\x02TRAN_MSG\x01true\x02",
        ),
        *(
            "INNER_NUM\x01-1\x02",
            "INNER_MULTI_DISPATCH\x01%LMQ%../../evil\x02",
            "WAIT\x01maybe\x02",
        ),
        *(
            "TAGS\x01\x00\x02",
            "CLUSTER\x01\x00\x02",
            "__CRC32#\x01x\x02",
            "UNIQ_KEY\x01" + "u" * 20_000,
        ),
    )
    for text in properties:
        yield send_fields("Orders", i=text), b"x"
    for sys_flag in ("1", "2", "4", "8", "12", "16", "32", "2147483647", "-2147483648"):
        yield send_fields("Orders", f=sys_flag), b"\x78\x9c" + bytes(100)
    yield send_fields("Orders"), b""
    yield send_fields("Orders"), bytes(4 * MIB - 10)
    yield send_fields("Orders"), bytes(4 * MIB + 1)
    yield send_fields("Orders"), bytes(15 * MIB)


@at_broker
async def test_messages_with_odd_properties_flags_and_sizes(scene: Scene) -> None:
    def frames() -> Iterator[bytes]:
        for fields, body in odd_messages():
            for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
                yield request(code, fields, body=body)

    async with peer_of(scene.victim) as peer:
        await store_message(peer, "Orders", b"first")
        await answers(peer, frames())
        pulled = await peer.ask(request(RequestCode.PULL_MESSAGE, pull_fields("Orders")))
        assert b"first" in pulled.body
    assert not list(scene.victim.folder.rglob("*evil*"))
    await scene.hold()


# ---------------------------------------------------------------------------------- pulls


@at_broker
async def test_a_consumer_that_pulls_and_never_reads(scene: Scene) -> None:
    """Each response has 256 KiB; what it does not read is not piled up for it."""
    pull = request(RequestCode.PULL_MESSAGE, pull_fields("Orders"))
    async with peer_of(scene.victim) as peer:
        for _ in range(32):
            await store_message(peer, "Orders", bytes(8192))
    async with peer_of(scene.victim) as peer:
        peer.stop_reading()
        for _ in range(100):
            await peer.push(pull * 50)
            if (await scene.victim.facts())["reading_paused"]:
                break
        else:
            pytest.fail("it could send requests forever")
        await scene.hold()


@at_broker
async def test_thousands_of_held_pulls_that_disconnect(scene: Scene) -> None:
    """Held pulls are bounded per connection, and removed with it."""
    fields = pull_fields("Orders", offset="1", sysFlag="6", suspendTimeoutMillis="9" * 15)
    pull = request(RequestCode.PULL_MESSAGE, fields)
    async with peer_of(scene.victim) as peer:
        await store_message(peer, "Orders", b"first")
        for _ in range(240):
            peer.write(pull * 100)
            await peer.writer.drain()
        refused = await peer.answer()
        assert refused.code in {ResponseCode.PULL_NOT_FOUND, ResponseCode.SYSTEM_BUSY}
        await scene.hold()
    async with peer_of(scene.victim) as peer:
        await store_message(peer, "Orders", b"second")
    await scene.hold()


@at_broker
async def test_an_endless_stream_of_one_way_sends(scene: Scene) -> None:
    """One-way sends are stored or refused; neither piles up."""
    send = request(RequestCode.SEND_MESSAGE_V2, send_fields("Orders"), body=bytes(100), oneway=True)
    async with peer_of(scene.victim) as peer:
        for _ in range(50):
            peer.write(send * 100)
            await peer.writer.drain()
        await store_message(peer, "Orders", b"last")
    await scene.hold()
