"""Whatever a peer sends, or does not read: no leaks, bounded memory, others are unaffected.

Each test attacks a bare server, a name server and a broker in turn. The fixture has a well-behaved
witness send requests all the while on another connection, and checks afterwards that descriptors,
tasks, connections and requests in flight are back to normal.
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
from collections.abc import Callable, Iterator

import pytest

from roquet.remoting.codes import RequestCode
from roquet.remoting.frame import MAX_FRAME_BYTES, SerializeType
from tests.security.kit import (
    PATIENCE_S,
    Peer,
    Scene,
    allow_descriptors,
    assert_tells_nothing,
    good_request,
    peer_of,
    raw_frame,
    refused_or_answered,
    request,
    silent_connections,
)

MIB = 1 << 20
HALF_OPEN = 2_000
UNKNOWN_CODE = 31_234
SENT_UNREAD_MAX = 100 * MIB


# --------------------------------------------------------------------------------- frames


BAD_LENGTHS = {
    "negative": struct.pack(">iI", -1, 0),
    "least": struct.pack(">iI", -(2**31), 0),
    "zero": struct.pack(">iI", 0, 0),
    "less than the header's length": struct.pack(">iI", 3, 0),
    "greatest": struct.pack(">iI", 2**31 - 1, 0),
    "beyond the limit": struct.pack(">iI", MAX_FRAME_BYTES - 3, 0),
    "header beyond the frame": struct.pack(">iI", 100, 97),
    "longest header": struct.pack(">iI", 100, 0xFFFFFF),
    "header beyond its own limit": struct.pack(">iI", 8 * MIB, 2 * MIB),
}


async def test_false_lengths_end_the_connection(scene: Scene) -> None:
    for head in BAD_LENGTHS.values():
        async with peer_of(scene.victim) as peer:
            peer.write(head)
            await peer.wait_closed_by_victim()
    facts = await scene.hold()
    assert facts["bad_frames"] == len(BAD_LENGTHS)


async def test_unknown_serialize_types_end_the_connection(scene: Scene) -> None:
    header = b'{"code":34}'
    marks = [2, 3, 7, 127, 128, 255]
    for mark in marks:
        async with peer_of(scene.victim) as peer:
            peer.write(raw_frame(header, mark=mark))
            await peer.wait_closed_by_victim()
    assert (await scene.hold())["bad_frames"] == len(marks)


async def test_ten_megabytes_of_garbage(scene: Scene, rng: random.Random) -> None:
    garbage = [rng.randbytes(10 * MIB), bytes(10 * MIB), b"\xff" * 10 * MIB, b"GET / HTTP/1.1\r\n"]
    for data in garbage:
        async with peer_of(scene.victim) as peer:
            peer.write(data)
            await peer.wait_closed_by_victim()
    assert (await scene.hold())["bad_frames"] == len(garbage)


async def test_garbage_inside_frames_of_the_right_length(scene: Scene, rng: random.Random) -> None:
    frames = [
        raw_frame(rng.randbytes(size), rng.randbytes(size), mark=mark)
        for size in (0, 1, 20, 21, 300, 70_000, MIB - 1)
        for mark in SerializeType
    ]
    await refused_or_answered(scene.victim, frames)
    await scene.hold()


async def test_half_frames_wait_without_disturbing(scene: Scene) -> None:
    whole = good_request(scene.victim)
    peers = [await Peer.connect(scene.victim) for _ in range(len(whole))]
    for end, peer in enumerate(peers):
        peer.write(whole[:end])
    await scene.hold()
    for end, peer in enumerate(peers):
        answer = await peer.ask(whole[end:])
        assert answer.code == 0
        await peer.close()


async def test_large_half_frames_of_many_peers_are_bounded(scene: Scene) -> None:
    """Each announces the longest frame, sends most of it and stops; a few are cut off at worst."""
    scene.memory_max_bytes = 190 * MIB  # the server's own limit for all connections is 80 MiB
    data = struct.pack(">iI", MAX_FRAME_BYTES - 4, 10) + bytes(14 * MIB)
    peers = [await Peer.connect(scene.victim) for _ in range(45)]
    await asyncio.gather(*(peer.push(data) for peer in peers))
    async with asyncio.timeout(PATIENCE_S):
        facts = await scene.hold()
        while facts["overload_closed"] == 0:
            facts = await scene.hold()
    for peer in peers:
        peer.abort()


# -------------------------------------------------------------------------------- headers


def json_bombs() -> Iterator[bytes]:
    yield b"[" * 100_000
    yield b'{"extFields":' * 20_000
    yield b'{"code":34,"extFields":{"a":' + b'{"b":' * 10_000 + b"1" + b"}" * 10_002
    yield b'{"code":34,"extFields":{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}}"
    yield b'{"code":' + b"9" * 60_000 + b"}"
    yield b'{"code":' + b"9" * 1_000_000 + b"}"
    yield b'{"code":1e999999999}'
    yield b'{"code":-0.' + b"0" * 50_000 + b"1}"
    yield b'{"opaque":4294967296}'
    yield b'{"code":34,"extFields":{"a":' + b"1" * 60_000 + b"}}"
    yield b"{" + b",".join([b'"code":34'] * 50_000) + b"}"
    yield b'{"extFields":{' + b",".join([b'"a":"b"'] * 50_000) + b'},"code":34}'
    yield (
        b'{"code":34,"extFields":{'
        + b",".join(b'"k%d":"v"' % number for number in range(60_000))
        + b"}}"
    )
    yield b'{"code":34,"extFields":{"a":"' + b"x" * (MIB - 40) + b'"}}'
    yield b'{"code":34,"extFields":{"a":"' + b"\\u0001" * 170_000 + b'"}}'
    yield b'{"code":34,"extFields":{"a":"' + b"\\ud83d" * 10_000 + b'"}}'
    yield b'{"code":34,"remark":"' + b"\\" * 65_000
    yield b'{"code":34,"language":"' + b"J" * 500_000 + b'"}'
    yield b'{"code":34}' + b" " * 900_000
    yield b"/*" * 30_000
    yield b"'" * 60_000
    yield b"\xef\xbb\xbf{}"


async def test_json_bombs(scene: Scene) -> None:
    await refused_or_answered(scene.victim, [raw_frame(bomb) for bomb in json_bombs()])
    await scene.hold()


async def test_json_bombs_are_defused_quickly(scene: Scene) -> None:
    """The witness gets responses while a peer sends only bombs, for all of them are small."""
    small = [raw_frame(bomb) for bomb in json_bombs() if len(bomb) <= 1 << 16]
    before = scene.witness.answered
    for _ in range(5):
        await refused_or_answered(scene.victim, small)
    assert scene.witness.answered > before
    await scene.hold()


def binary_header(ext: bytes, *, remark: bytes = b"", ext_length: int | None = None) -> bytes:
    fixed = struct.pack(">hbhiii", RequestCode.HEART_BEAT, 0, 493, 1, 0, len(remark))
    return fixed + remark + struct.pack(">i", len(ext) if ext_length is None else ext_length) + ext


def false_binary_headers() -> Iterator[bytes]:
    field = b"\x00\x01a\x00\x00\x00\x01b"
    for length in (-1, -(2**31), 2**31 - 1, len(field) - 1, len(field) + 1, 0):
        yield binary_header(field, ext_length=length)
    for remark_length in (-1, -(2**31), 2**31 - 1, 1, 4, 100):
        fixed = struct.pack(">hbhiii", 34, 0, 493, 1, 0, remark_length)
        yield fixed + struct.pack(">i", 0)
    for name_length in (0xFFFF, 0x8000, 0x7FFF, 2):
        yield binary_header(struct.pack(">H", name_length) + b"a\x00\x00\x00\x01b")
    for value_length in (-1, -(2**31), 2**31 - 1, 2, -7):
        yield binary_header(b"\x00\x01a" + struct.pack(">i", value_length) + b"b")
    yield binary_header(b"\x00\x00\x00\x00\x00\x00" * 170_000)
    yield binary_header(
        b"".join(b"\x00\x06" + b"%06d" % number + bytes(4) for number in range(80_000))
    )
    yield binary_header(b"\x00\x01a" + struct.pack(">i", 900_000) + b"\xff" * 900_000)
    yield binary_header(b"", remark=b"\xff" * 900_000)
    yield b""
    yield bytes(20)


async def test_binary_headers_with_false_lengths(scene: Scene) -> None:
    frames = [raw_frame(header, mark=1) for header in false_binary_headers()]
    await refused_or_answered(scene.victim, frames)
    await scene.hold()


# -------------------------------------------------------------------------------- reading


async def test_a_peer_that_never_reads_its_responses(scene: Scene) -> None:
    """Its requests are no longer read once its responses pile up."""
    question = good_request(scene.victim) * 1_000
    async with peer_of(scene.victim) as peer:
        peer.stop_reading()
        for _ in range(SENT_UNREAD_MAX // len(question)):
            await peer.push(question)
            if (await scene.victim.facts())["reading_paused"]:
                break
        else:
            pytest.fail("it could send forever")
        await scene.hold()


async def test_a_peer_that_reads_byte_by_byte(scene: Scene) -> None:
    count = 50
    async with peer_of(scene.victim) as peer:
        peer.write(good_request(scene.victim) * count)
        head = await peer.reader.readexactly(8)
        for _ in range(200):
            await peer.reader.readexactly(1)
            await asyncio.sleep(0.001)
        await scene.hold()
        rest = int.from_bytes(head[:4], "big") - 4 - 200
        await peer.reader.readexactly(max(rest, 0))


async def test_thousands_of_half_open_connections(scene: Scene) -> None:
    allow_descriptors(2 * HALF_OPEN)
    question = good_request(scene.victim)
    with silent_connections(scene.victim, HALF_OPEN, b"", b"\x00", question[:20]):
        async with peer_of(scene.victim) as peer:
            assert (await peer.ask(question)).code == 0
        assert (await scene.hold())["connections_opened"] > HALF_OPEN


async def test_peers_that_connect_and_disconnect(scene: Scene) -> None:
    """Connections that end in the middle of a frame, of a response, or at once."""
    question = good_request(scene.victim)
    for number in range(300):
        peer = await Peer.connect(scene.victim)
        peer.write((b"", question[:30], question, question * 50)[number % 4])
        peer.abort() if number % 3 else await peer.close()
    await scene.hold()


# ----------------------------------------------------------------------------- many requests


@pytest.mark.parametrize("serialize_type", SerializeType)
async def test_a_flood_of_oneway_requests(scene: Scene, serialize_type: SerializeType) -> None:
    unknown = request(UNKNOWN_CODE, oneway=True, serialize_type=serialize_type)
    wrong = request(
        RequestCode.SEND_MESSAGE_V2, {"a": "b"}, oneway=True, serialize_type=serialize_type
    )
    async with peer_of(scene.victim) as peer:
        for _ in range(100):
            peer.write((unknown + wrong) * 100)
            await peer.writer.drain()
        answer = await peer.ask(good_request(scene.victim))
        assert answer.code == 0, "one-way requests got responses"
    assert (await scene.hold())["requests"] > 20_000


async def test_a_flood_of_responses_to_nothing(scene: Scene) -> None:
    response = raw_frame(b'{"code":0,"flag":1,"opaque":77}', b"x" * 100)
    async with peer_of(scene.victim) as peer:
        for _ in range(100):
            peer.write(response * 100)
            await peer.writer.drain()
        assert (await peer.ask(good_request(scene.victim))).code == 0
    assert (await scene.hold())["unmatched_responses"] == 10_000


async def test_every_code_with_nothing_and_with_nonsense(scene: Scene) -> None:
    """No header, fields or body break the processor of any request code."""
    codes = [int(code) for code in RequestCode]
    nonsense: list[Callable[[int], bytes]] = [
        request,
        lambda code: request(code, {}, body=b"{"),
        lambda code: request(code, {"topic": "\x00", "queueId": "x"}, body=b"\xff\xfe"),
        lambda code: request(code, {"a": "", "b": "", "e": "-1"}, body=b"null"),
        lambda code: request(code, {"brokerName": "../..", "brokerId": "9" * 30}, body=b"[]"),
    ]
    async with peer_of(scene.victim) as peer:
        for make in nonsense:
            for code in codes:
                answer = await peer.ask(make(code))
                assert_tells_nothing(answer)
                assert answer.remark is None or "Error while handling" not in answer.remark
    await scene.hold()


def huge_bodies() -> Iterator[bytes]:
    group = {"groupName": "g", "subscriptionDataSet": [], "consumeType": "CONSUME_PASSIVELY"}
    groups = [{**group, "groupName": f"g{number}"} for number in range(20_000)]
    subscriptions = [{"topic": f"t{number}", "subString": "*"} for number in range(50_000)]
    many = {**group, "subscriptionDataSet": subscriptions}
    yield b"x" * 15 * MIB
    yield b"[" * 3 * MIB
    yield b'{"clientID":"' + b"c" * 15 * MIB + b'"}'
    yield b'{"clientID":"c","consumerDataSet":' + b"[" * 100_000
    yield b"{" + b",".join([b'"clientID":"c"'] * 500_000) + b"}"
    yield json.dumps({"clientID": "c1", "consumerDataSet": groups}).encode()
    yield json.dumps({"clientID": "c2", "producerDataSet": groups}).encode()
    yield json.dumps({"clientID": "c3", "consumerDataSet": [many]}).encode()
    yield json.dumps({"clientID": "c4\x00/../", "consumerDataSet": [group] * 10}).encode()


async def test_huge_heartbeats(scene: Scene) -> None:
    scene.memory_max_bytes = 300 * MIB
    frames = [request(RequestCode.HEART_BEAT, body=body) for body in huge_bodies()]
    await refused_or_answered(scene.victim, frames)
    await scene.hold()
