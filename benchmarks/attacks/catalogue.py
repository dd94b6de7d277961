"""The attacks: what one hostile or broken peer may do to a server.

Owns :data:`ATTACKS`, by name. An attack is prepared first (frames made, connections opened) and
then strikes; both get the target and a scale, with which a test runs a fraction of the full size.
Every attack is bounded in count and time, and goes to loopback only.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from benchmarks.attacks.flood import Flood, frame
from roquet.remoting.codes import RequestCode

STRIKE_S = 30.0
"""How long one attack waits for its responses."""

MIB = 1 << 20
LONG_TIME_MS = 1 << 62

Strike = Callable[[], None]


@dataclass(frozen=True)
class Target:
    """The target of an attack."""

    broker: str
    namesrv: str


@dataclass(frozen=True)
class Attack:
    """One attack.

    Attributes:
        title: What it does.
        prepare: Opens connections and builds frames; returns the strike.
        healthy: Which client watches, a key of :data:`benchmarks.attacks.healthy.KINDS`.
        on_namesrv: Whether it attacks the name server.
        open_files: The limit of open files under which the server runs; 0 for the machine's.
    """

    title: str
    prepare: Callable[[Target, float], Iterator[Strike]]
    healthy: str = "send"
    on_namesrv: bool = False
    open_files: int = 0


def _count(number: int, scale: float) -> int:
    return max(1, int(number * scale))


# ------------------------------------------------------------------------------- pipelines


def config_pipeline(target: Target, scale: float) -> Iterator[Strike]:
    """One connection writes 438 KiB of GET_BROKER_CONFIG at once."""
    one = frame(RequestCode.GET_BROKER_CONFIG, {})
    count = _count(438 * 1024 // len(one), scale)
    with closing(Flood(target.broker, 1)) as flood:
        flood.send(one * count)
        yield lambda: flood.run(seconds=STRIKE_S, responses_each=count)


def admin_pipelines(target: Target, scale: float) -> Iterator[Strike]:
    """50 connections with 4,000 admin reads each, closed before the responses."""
    frames = frame(RequestCode.GET_BROKER_RUNTIME_INFO, {}) * 2_000
    frames += frame(RequestCode.GET_ALL_TOPIC_CONFIG, {}) * 2_000
    flood = Flood(target.broker, _count(50, scale))
    flood.send(frames)

    def strike() -> None:
        flood.run(seconds=3.0, reads=False)
        flood.close()

    try:
        yield strike
    finally:
        flood.close()


def topic_updates(target: Target, scale: float) -> Iterator[Strike]:
    """2,000 topics created on one connection."""
    count = _count(2_000, scale)
    frames = [
        frame(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(f"Attack_{number}"))
        for number in range(count)
    ]
    with closing(Flood(target.broker, 1)) as flood:
        flood.send(b"".join(frames))
        yield lambda: flood.run(seconds=STRIKE_S, responses_each=count)


def group_updates(target: Target, scale: float) -> Iterator[Strike]:
    """1,500 subscription groups created on one connection."""
    count = _count(1_500, scale)
    frames = [
        frame(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            {},
            body=json.dumps({"groupName": f"attack_{number}", "consumeEnable": True}).encode(),
        )
        for number in range(count)
    ]
    with closing(Flood(target.broker, 1)) as flood:
        flood.send(b"".join(frames))
        yield lambda: flood.run(seconds=STRIKE_S, responses_each=count)


# ------------------------------------------------------------------------------ heartbeats


def heartbeat(client_id: str, *, consumers: int, producers: int, prefix: str = "hb") -> bytes:
    """The frame of a heartbeat."""
    subscription = {
        "topic": "Healthy",
        "subString": "*",
        "subVersion": 1,
        "classFilterMode": False,
        "codeSet": [],
        "tagsSet": [],
        "expressionType": "TAG",
    }
    data = {
        "clientID": client_id,
        "consumerDataSet": [
            {
                "groupName": f"{prefix}_c{number}",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [subscription],
                "unitMode": False,
            }
            for number in range(consumers)
        ],
        "producerDataSet": [{"groupName": f"{prefix}_p{number}"} for number in range(producers)],
    }
    return frame(RequestCode.HEART_BEAT, {}, body=json.dumps(data).encode())


def giant_heartbeat(target: Target, scale: float) -> Iterator[Strike]:
    """One heartbeat with 2,000 consumer groups and 3,000 producer groups."""
    consumers, producers = _count(2_000, scale), _count(3_000, scale)
    with closing(Flood(target.broker, 1)) as flood:
        flood.send(heartbeat("giant", consumers=consumers, producers=producers))
        yield lambda: flood.run(seconds=STRIKE_S, responses_each=1)


def client_id_flood(target: Target, scale: float) -> Iterator[Strike]:
    """10,000 heartbeats on one connection, each of another client and of new groups."""
    count = _count(10_000, scale)
    frames = [
        heartbeat(f"id{number}", consumers=1, producers=1, prefix=f"f{number}")
        for number in range(count)
    ]
    with closing(Flood(target.broker, 1)) as flood:
        flood.send(b"".join(frames))
        yield lambda: flood.run(seconds=STRIKE_S, responses_each=count)


# ----------------------------------------------------------------------------------- pulls


def pull_fields(
    offset: int, *, topic: str = "Healthy", suspend_ms: int = 0, subscription: str = "*"
) -> dict[str, str]:
    """The ext fields of a pull."""
    return {
        "consumerGroup": "attack_group",
        "topic": topic,
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "6" if suspend_ms else "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(suspend_ms),
        "subscription": subscription,
        "subVersion": "0",
    }


def held_pulls(target: Target, scale: float) -> Iterator[Strike]:
    """10 connections with 10,000 long polls each, to be held forever."""
    one = frame(
        RequestCode.PULL_MESSAGE, pull_fields(1 << 40, topic="Attacked", suspend_ms=LONG_TIME_MS)
    )
    create = frame(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("Attacked"))
    with closing(Flood(target.broker, 10)) as flood:
        flood.send(create)
        flood.run(seconds=STRIKE_S, responses_each=1)
        # An offset at the end of an empty queue is held; one far beyond it is corrected at once.
        held = one.replace(b'"%d"' % (1 << 40), b'"0"' + b" " * 12)
        flood.send(held * _count(10_000, scale))
        yield lambda: flood.run(seconds=5.0, responses_each=1 << 30)


def deaf_pullers(target: Target, scale: float) -> Iterator[Strike]:
    """200 connections that request 16 MiB each and read none of it."""
    body = b"x" * (256 << 10)
    with closing(Flood(target.broker, 1)) as writer:
        writer.send(b"".join(_send_frame("Big", body) for _ in range(64)))
        writer.run(seconds=STRIKE_S, responses_each=64)
    with closing(Flood(target.broker, _count(200, scale))) as flood:
        flood.send(frame(RequestCode.PULL_MESSAGE, pull_fields(0, topic="Big")) * 64)
        yield lambda: flood.run(seconds=5.0, responses_each=1, reads=False)


def _send_frame(topic: str, body: bytes) -> bytes:
    fields = {"a": "attack", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0"}
    fields |= {"g": "1700000000000", "h": "0", "i": "", "j": "0", "k": "false", "m": "false"}
    return frame(RequestCode.SEND_MESSAGE_V2, fields, body=body)


# ---------------------------------------------------------------------------------- memory


def half_frames(target: Target, scale: float) -> Iterator[Strike]:
    """1,200 connections that send 1 MiB of a frame of 16 MiB and stop."""
    half = (16 * MIB - 8).to_bytes(4, "big") + (10).to_bytes(4, "big") + bytes(MIB - 16)
    with closing(Flood(target.broker, _count(1_200, scale))) as flood:
        flood.send(half)
        yield lambda: flood.run(seconds=10.0, reads=False)


def large_half_frames(target: Target, scale: float) -> Iterator[Strike]:
    """Five times 120 connections that send 12 MiB of a frame and are closed."""
    half = (16 * MIB - 8).to_bytes(4, "big") + (10).to_bytes(4, "big") + bytes(12 * MIB)

    def strike() -> None:
        for _ in range(5):
            with closing(Flood(target.broker, _count(120, scale))) as flood:
                flood.send(half)
                flood.run(seconds=6.0, reads=False)

    yield strike


def slow_bytes(target: Target, scale: float) -> Iterator[Strike]:
    """500 connections that send a request byte by byte."""
    one = frame(RequestCode.GET_BROKER_CONFIG, {})

    def strike() -> None:
        with closing(Flood(target.broker, _count(500, scale))) as flood:
            for byte in range(40):
                flood.send(one[byte : byte + 1])
                flood.run(seconds=0.1, reads=False)

    yield strike


def deep_json(target: Target, scale: float) -> Iterator[Strike]:
    """400 frames with headers and bodies of deeply nested JSON, near the limits."""
    count = _count(100, scale)
    nested = b"[" * 400_000
    header = b'{"code":34,"extFields":{"a":' + nested
    raw = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    body = frame(RequestCode.HEART_BEAT, {}, body=nested)

    def strike() -> None:
        for _ in range(count):
            with closing(Flood(target.broker, 2)) as flood:
                flood.send([raw, body])
                flood.run(seconds=2.0, responses_each=1)

    yield strike


def long_expressions(target: Target, scale: float) -> Iterator[Strike]:
    """2,000 pulls with SQL92 expressions that are long, deep or full of wildcards."""
    count = _count(500, scale)
    expressions = (
        "(" * 2_000 + "a=1" + ")" * 2_000,
        " OR ".join(f"a{number} LIKE '%x%y%z%'" for number in range(400)),
        "NOT " * 3_000 + "TRUE",
        "a IN (" + ",".join(f"'{number}'" for number in range(3_000)) + ")",
    )
    frames = b"".join(
        frame(
            RequestCode.PULL_MESSAGE,
            {**pull_fields(0, subscription=each), "expressionType": "SQL92"},
        )
        for each in expressions
    )
    with closing(Flood(target.broker, 4)) as flood:
        flood.send(frames * (count // 4 or 1))
        yield lambda: flood.run(seconds=STRIKE_S, responses_each=4 * (count // 4 or 1))


# ---------------------------------------------------------------------------- descriptors


def idle_sockets(target: Target, scale: float) -> Iterator[Strike]:
    """1,100 idle connections to a server that may open 1,024 files."""

    def strike() -> None:
        with closing(Flood(target.broker, _count(1_100, scale))) as flood:
            flood.run(seconds=3.0, responses_each=1)

    yield strike


# ---------------------------------------------------------------------------- name server


def broker_flood(target: Target, scale: float) -> Iterator[Strike]:
    """800 brokers with 200 topics each registered on one connection, which then closes."""
    count = _count(800, scale)
    frames = [_registration(number, topics=200) for number in range(count)]
    flood = Flood(target.namesrv, 1)
    flood.send(b"".join(frames))

    def strike() -> None:
        flood.run(seconds=STRIKE_S, responses_each=count)
        flood.close()

    try:
        yield strike
    finally:
        flood.close()


def _registration(number: int, *, topics: int) -> bytes:
    table = {
        f"Flood_{number}_{topic}": {
            "topicName": f"Flood_{number}_{topic}",
            "readQueueNums": 8,
            "writeQueueNums": 8,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
        }
        for topic in range(topics)
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000}
    body = json.dumps(
        {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": table},
        }
    ).encode()
    address = f"127.0.0.1:{30_000 + number}"
    fields = {
        "brokerName": f"flood-{number}",
        "brokerAddr": address,
        "clusterName": "FloodCluster",
        "haServerAddr": address,
        "brokerId": "0",
        "compressed": "false",
        "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
    }
    return frame(RequestCode.REGISTER_BROKER, fields, body=body)


def topic_fields(topic: str) -> dict[str, str]:
    """The ext fields of UPDATE_AND_CREATE_TOPIC."""
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }


@contextmanager
def prepared(attack: Attack, target: Target, scale: float = 1.0) -> Iterator[Strike]:
    """Prepare an attack, and close its connections afterwards."""
    steps = attack.prepare(target, scale)
    yield next(steps)
    for _ in steps:
        pass


ATTACKS: dict[str, Attack] = {
    "config-pipeline": Attack("438 KiB of GET_BROKER_CONFIG in one write", config_pipeline),
    "admin-pipelines": Attack("50 x 4,000 admin reads, then closed", admin_pipelines),
    "topic-updates": Attack("2,000 topic updates", topic_updates),
    "group-updates": Attack("1,500 group creations", group_updates),
    "giant-heartbeat": Attack("heartbeat of 2,000 + 3,000 groups", giant_heartbeat),
    "client-ids": Attack("10,000 heartbeats of new clients and groups", client_id_flood),
    "held-pulls": Attack("10 x 10,000 long polls without end", held_pulls, healthy="poll"),
    "deaf-pullers": Attack("200 pullers that never read", deaf_pullers),
    "half-frames": Attack("1,200 x 1 MiB of half frames", half_frames),
    "large-half-frames": Attack("5 x 120 x 12 MiB, then closed", large_half_frames),
    "slow-bytes": Attack("500 connections, byte by byte", slow_bytes),
    "deep-json": Attack("deeply nested JSON", deep_json),
    "expressions": Attack("SQL92 expressions built to be slow", long_expressions),
    "idle-sockets": Attack("1,100 sockets at 1,024 open files", idle_sockets, open_files=1_024),
    "broker-flood": Attack(
        "800 brokers x 200 topics, then closed", broker_flood, healthy="route", on_namesrv=True
    ),
}
