"""Two brokers of one side with a static topic, and their responses before and after a remapping.

The steps are the same on both sides, and so must be what is seen of them: responses, mapping files,
the route, and what the admin tool prints.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from roquet.model.fastjson import loads
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from tests.interop.asker import Ask, Asker, make_ask
from tests.interop.cluster import EMPTY, Cluster
from tests.interop.mqadmin_side import AdminTool
from tests.patience import PATIENT

__all__ = ["BROKER_A", "BROKER_B", "Pair", "observe", "start_pair"]

BROKER_A = "broker-a"
BROKER_B = "broker-b"
GROUP = "static_group"
TOPIC = "StaticSeen"
QUEUES = 2
BLOCK = 10_000
"""Where the logical offsets of a queue go on after its first remapping."""

WAITS_MAX = 1_200
WAIT_S = 0.1

Seen = dict[str, object]
"""What was seen, by what it is."""

_PASSING = {"msgId", "transactionId", "timestamp", "lastUpdateTimestamp", "lastTimestamp", "epoch"}
"""Fields whose values are of one run."""


@dataclass
class Pair:
    """Brokers `broker-a` and `broker-b` at one name server.

    Attributes:
        tool: What runs commands of the admin tool.
        stores: The store directories by broker name.
        addresses: Where the brokers listen, by name.
    """

    cluster: Cluster
    tool: AdminTool
    stores: dict[str, Path]
    addresses: dict[str, str]

    def admin(self, *words: str) -> str:
        """What the admin tool prints, failures included."""
        outcome = self.tool.run_mqadmin(self.cluster.namesrv, list(words))
        # The tool writes mappings to a place of its own.
        for path in re.findall(r"written to file (\S+)$", outcome.printed, re.MULTILINE):
            Path(path).unlink()
        return outcome.printed + outcome.failures

    def create(self, topic: str, queues: int, *brokers: str) -> str:
        """Make a static topic, or give it more queues."""
        names = ",".join(brokers)
        return self.admin("updateStaticTopic", "-b", names, "-t", topic, "-qn", str(queues))

    def remap(self, topic: str, *brokers: str) -> str:
        """Move a static topic."""
        return self.admin("remappingStaticTopic", "-b", ",".join(brokers), "-t", topic)

    def mapping_file(self, broker: str) -> str:
        """What a broker keeps about static topics."""
        return (self.stores[broker] / "config" / "topicQueueMapping.json").read_text()


@contextmanager
def start_pair(sides: tuple[str, str], folder: Path, tool: AdminTool) -> Iterator[Pair]:
    """Start a name server and two brokers, each of the side named; the name server is the first's.

    Args:
        sides: Whose brokers.
        folder: Where their files go.
        tool: What runs commands of the admin tool.
    """
    first, second = sides
    settings = {"brokerName": BROKER_A}
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(first, first, folder, broker_settings=settings))
        other = cluster.start_other_broker(second, {"brokerName": BROKER_B})
        stack.enter_context(other)
        cluster.wait_other_registered(other)
        yield Pair(
            cluster,
            tool,
            {BROKER_A: folder / "store", BROKER_B: folder / "other-store"},
            {BROKER_A: cluster.broker.address, BROKER_B: other.address},
        )


# ------------------------------------------------------------------------------------- seeing


@dataclass
class _Watch:
    """Queries one pair, and records what it sees."""

    pair: Pair
    askers: dict[str, Asker]
    seen: Seen = field(default_factory=dict)

    async def ask(self, broker: str, request: Ask) -> RemotingCommand:
        answer = await self.askers[broker].ask(request)
        shown = {
            "code": answer.code,
            "remark": _masked_text(answer.remark),
            "fields": _masked(answer.ext_fields or {}),
            "body": _shown_body(request.code, answer.body),
        }
        name = f"{len(self.seen):03} {broker} {request.name}"
        self.seen[name] = shown
        return answer

    async def wait_forwarding(
        self, broker: str, code: RequestCode = RequestCode.GET_MIN_OFFSET
    ) -> None:
        """Wait until a broker finds others; Java's looks for them ten seconds after its start."""
        request = _queue(code, 0)
        for _ in range(WAITS_MAX):
            answer = await self.askers[broker].ask(request)
            if answer.code == ResponseCode.SUCCESS:
                return
            await asyncio.sleep(WAIT_S)
        raise AssertionError(f"{broker} does not find the other broker: {answer.remark}")

    async def wait_stored(self, broker: str, queue_end: int) -> None:
        """Wait until the first queue ends there; Java acknowledges messages before that."""
        request = _queue(RequestCode.GET_MAX_OFFSET, 0)
        for _ in range(WAITS_MAX):
            answer = await self.askers[broker].ask(request)
            if (answer.ext_fields or {}).get("offset") == str(queue_end):
                return
            await asyncio.sleep(WAIT_S)
        raise AssertionError(f"the first queue of {broker} ends at {answer.ext_fields}")

    def note(self, what: str, value: object) -> None:
        self.seen[f"{len(self.seen):03} {what}"] = value


def _masked(value: object, name: str = "") -> object:
    if isinstance(value, dict):
        return {str(key): _masked(item, str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item) for item in value]
    if name in {"topicPutTps", "consumeTps"}:
        return f"<{name}>"
    if name in _PASSING and value not in {0, "0"}:
        return f"<{name}>"
    return value


def _masked_text(text: str | None) -> str | None:
    if text is None:
        return None
    text = re.sub(r"\d{13}", "<epoch>", text)
    return re.sub(r"127\.0\.0\.1:\d+", "<address>", text)


def _shown_body(code: RequestCode, body: bytes) -> object:
    if code is RequestCode.PULL_MESSAGE:
        return f"{len(body)} bytes"
    return _masked(loads(body.decode())) if body else None


def _send(queue_id: int, **more: object) -> Ask:
    fields: dict[str, object] = {
        "producerGroup": "p",
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": queue_id,
        "sysFlag": 0,
        "bornTimestamp": 1_700_000_000_000,
        "flag": 0,
        "properties": "UNIQ_KEY\u00017F000001000018B4AAC200000000\u0002WAIT\u0001true\u0002",
        "reconsumeTimes": 0,
        "unitMode": "false",
        "batch": "false",
        **more,
    }
    return make_ask(RequestCode.SEND_MESSAGE, f"{queue_id}", b"body", **fields)


def _pull(queue_id: int, queue_offset: int, **more: object) -> Ask:
    fields: dict[str, object] = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": queue_id,
        "queueOffset": queue_offset,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 1000,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
        **more,
    }
    return make_ask(RequestCode.PULL_MESSAGE, f"{queue_id}@{queue_offset}", **fields)


def _queue(code: RequestCode, queue_id: int, **more: object) -> Ask:
    note = " ".join([str(queue_id), *(f"{name}={value}" for name, value in more.items())])
    return make_ask(code, note, **{"topic": TOPIC, "queueId": queue_id, **more})


def _offsets(queue_id: int) -> list[Ask]:
    return [
        _queue(RequestCode.GET_MIN_OFFSET, queue_id),
        _queue(RequestCode.GET_MAX_OFFSET, queue_id),
        _queue(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue_id, timestamp=0),
        _queue(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue_id, timestamp=4_000_000_000_000),
        _queue(RequestCode.GET_EARLIEST_MSG_STORETIME, queue_id),
    ]


def _commit(queue_id: int, queue_offset: int) -> Ask:
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    return _queue(code, queue_id, consumerGroup=GROUP, commitOffset=queue_offset)


def _query(queue_id: int, **more: object) -> Ask:
    return _queue(RequestCode.QUERY_CONSUMER_OFFSET, queue_id, consumerGroup=GROUP, **more)


def _tables() -> list[Ask]:
    return [
        make_ask(RequestCode.GET_TOPIC_CONFIG, "physical", topic=TOPIC),
        make_ask(RequestCode.GET_TOPIC_CONFIG, "logical", topic=TOPIC, lo="true"),
        make_ask(RequestCode.GET_TOPIC_STATS_INFO, "", topic=TOPIC),
        make_ask(RequestCode.GET_CONSUME_STATS, "", consumerGroup=GROUP, topic=TOPIC),
    ]


def observe(pair: Pair) -> Seen:
    """Take a pair through the life of a static topic."""
    return asyncio.run(_observe(pair))


async def _observe(pair: Pair) -> Seen:
    async with RemotingClient(config=PATIENT) as client:
        watch = _Watch(
            pair,
            {name: Asker(await client.connect(at)) for name, at in pair.addresses.items()},
        )
        for broker in pair.addresses:
            words = ("updateSubGroup", "-b", pair.addresses[broker], "-g", GROUP)
            await asyncio.to_thread(pair.admin, *words)
        await _created(watch)
        await _remapped(watch)
        await _refused(watch)
        return watch.seen


async def _look(watch: _Watch) -> None:
    for broker in (BROKER_A, BROKER_B):
        for request in _tables():
            await watch.ask(broker, request)
        watch.note(f"file of {broker}", _masked_file(watch.pair.mapping_file(broker)))
    route = await _printed(watch.pair.admin, "topicRoute", "-t", TOPIC)
    # The brokers are in the order in which they got the topic.
    watch.note("topicRoute", sorted(route.splitlines()))
    watch.note("topicStatus", await _printed(watch.pair.admin, "topicStatus", "-t", TOPIC))


def _masked_file(text: str) -> str:
    text = re.sub(r'("(?:epoch|timestamp)":)\d{13}', r"\1<time>", text)
    return re.sub(r'("counter":)\d+', r"\1<counter>", text)


async def _printed(command: Callable[..., str], *words: str | int) -> str:
    """What a command prints; in a thread, because Roquet's tool runs a loop of its own."""
    text = await asyncio.to_thread(command, *words)
    text = re.sub(r"\b\d{13}\b", "<epoch>", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "<address>", text)
    text = re.sub(r"(written to file )\S*/", r"\1<folder>/", text)
    text = re.sub(r"(Consume TPS|Topic Put TPS): [\d.]+", r"\1: <tps>", text)
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?", "<time>", text)


async def _created(watch: _Watch) -> None:
    pair = watch.pair
    watch.note("create", await _printed(pair.create, TOPIC, QUEUES, BROKER_A))
    await _look(watch)
    for request in (_send(0), _send(0), _send(0), _send(1), _send(-1), _send(7)):
        await watch.ask(BROKER_A, request)
    await watch.ask(BROKER_B, _send(0))
    await watch.ask(BROKER_A, _send(0, lo="false"))
    await watch.wait_stored(BROKER_A, 5)
    # Java's broker looks up its own address as well.
    await watch.wait_forwarding(BROKER_A, RequestCode.GET_EARLIEST_MSG_STORETIME)
    for broker in (BROKER_A, BROKER_B):
        for request in _offsets(0):
            await watch.ask(broker, request)
    for queue_offset in (0, 2, 5, 6, 9):
        await watch.ask(BROKER_A, _pull(0, queue_offset))
    await watch.ask(BROKER_A, _pull(9, 0))
    await watch.ask(BROKER_B, _pull(0, 0))
    await watch.ask(BROKER_A, _query(0))
    await watch.ask(BROKER_A, _query(0, setZeroIfNotFound="false"))
    for broker in (BROKER_A, BROKER_B):
        await watch.ask(broker, _commit(0, 2))
        await watch.ask(broker, _query(0))


async def _remapped(watch: _Watch) -> None:
    pair = watch.pair
    watch.note("remap", await _printed(pair.remap, TOPIC, BROKER_B))
    await watch.wait_forwarding(BROKER_B)
    await _look(watch)
    await watch.ask(BROKER_A, _send(0))
    for request in (*_offsets(0), _pull(0, BLOCK), _query(0), _query(1)):
        await watch.ask(BROKER_B, request)
    for request in (_send(0), _send(0), _send(-1)):
        await watch.ask(BROKER_B, request)
    await watch.wait_stored(BROKER_B, BLOCK + 3)
    for broker in (BROKER_A, BROKER_B):
        for request in _offsets(0):
            await watch.ask(broker, request)
    for queue_offset in (0, 2, 5, 6, 9, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 2, BLOCK + 9):
        await watch.ask(BROKER_B, _pull(0, queue_offset))
    await watch.ask(BROKER_A, _pull(0, 0))
    for queue_offset in (3, BLOCK + 1):
        await watch.ask(BROKER_B, _commit(0, queue_offset))
        await watch.ask(BROKER_B, _query(0))
    await watch.ask(BROKER_A, _query(0, lo="false"))
    await _look(watch)
    watch.note(
        "consumerProgress", await _printed(pair.admin, "consumerProgress", "-g", GROUP, "-t", TOPIC)
    )


def _detail(item: Mapping[str, object] = EMPTY, **changes: object) -> dict[str, object]:
    whole = {
        "bname": BROKER_A,
        "endOffset": -1,
        "gen": 0,
        "logicOffset": 0,
        "queueId": 0,
        "startOffset": 0,
        "timeOfEnd": -1,
        "timeOfStart": -1,
    }
    return {
        "bname": BROKER_A,
        "currIdMap": {},
        "dirty": False,
        "epoch": 1,
        "hostedQueues": {"0": [{**whole, **item}]},
        "scope": "__global__",
        "topic": TOPIC,
        "totalQueues": 1,
        **changes,
    }


FAR_EPOCH = 4_000_000_000_000


def _put(note: str, detail: object, *, topic: str = TOPIC, force: str = "false") -> Ask:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": 2,
        "writeQueueNums": 2,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
        "force": force,
    }
    return make_ask(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, note, detail, **fields)


async def _refused(watch: _Watch) -> None:
    far = FAR_EPOCH
    for request in (
        _put("small epoch", _detail()),
        _put("other scope", _detail(epoch=far, scope="x")),
        _put("negative start", _detail(epoch=far, item={"startOffset": -1})),
        _put("end before start", _detail(epoch=far, item={"startOffset": 9, "endOffset": 3})),
        _put("system topic", _detail(topic="TBW102"), topic="TBW102"),
        _put("bad name", _detail(topic="a/b"), topic="a/b"),
    ):
        await watch.ask(BROKER_A, request)
