"""A RocketMQ client in a process of its own, driven by lines of JSON.

`javaagent/` and `go/` are the programs; both take the same commands, so a scenario is written once
for all clients. A command gets one response; consumers and loads also print events, which are kept
here by handle. All waits have a deadline and fail with what was missing and the end of the log.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Self

from tests.interop.javabuild import JavaToolkit
from tests.interop.javaprocess import JavaProcess
from tests.interop.process import ChildProcess

COMMAND_TIMEOUT_S = 120
WAIT_TIMEOUT_S = 120
POLL_S = 0.02

AGENT_CLASS = "roquet.agent.Agent"


class AgentError(Exception):
    """A client responded to a command with an error."""


@dataclass(frozen=True)
class SendResult:
    """An acknowledgement; ids of a batch are joined by commas, as the client gives them."""

    status: str
    broker_name: str
    queue_id: int
    queue_offset: int
    message_id: str
    offset_message_id: str


@dataclass(frozen=True)
class ReceivedMessage:
    """A message as a consumer's listener got it."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: str
    tags: str
    keys: str
    properties: dict[str, str]
    message_id: str
    offset_message_id: str
    reconsume_times: int
    born_timestamp_ms: int
    store_timestamp_ms: int

    @property
    def position(self) -> tuple[int, int]:
        return self.queue_id, self.queue_offset


@dataclass(frozen=True)
class Ack:
    """A message of a load that was acknowledged, after so many tries."""

    body: str
    queue_id: int
    queue_offset: int
    number: int
    tries: int


@dataclass(frozen=True)
class Outgoing:
    """A message to send; `order` decides the queue of an ordered one, `queue` names it."""

    body: str
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: dict[str, str] = field(default_factory=dict)
    order: str | None = None
    queue: tuple[str, int] | None = None
    delay_level: int = 0

    def as_parameters(self) -> dict[str, Any]:
        given: dict[str, Any] = {"body": self.body, "properties": self.properties}
        if self.tags is not None:
            given["tags"] = self.tags
        if self.keys:
            given["keys"] = list(self.keys)
        if self.order is not None:
            given["order"] = self.order
        if self.queue is not None:
            given["broker"], given["queueId"] = self.queue
        if self.delay_level:
            given["delayLevel"] = self.delay_level
        return given


class Agent:
    """A running client process. Its methods may be called by several threads.

    Args:
        kind: Which client, for messages: `java-5.4.0`, `go-2.1.2`.
        process: Its process, with pipes.
    """

    def __init__(self, kind: str, process: ChildProcess) -> None:
        self.kind = kind
        self.process = process
        self._ids = count(1)
        self._lock = threading.Lock()
        self._answers: dict[int, Future[dict[str, Any]]] = {}
        self._messages: dict[str, list[ReceivedMessage]] = defaultdict(list)
        self._acks: dict[str, list[Ack]] = defaultdict(list)
        self._events: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._askers: dict[str, Producer] = {}
        self._reader = threading.Thread(target=self._read, name=f"{kind}-reader", daemon=True)
        self._reader.start()

    def call(self, do: str, **parameters: object) -> dict[str, Any]:
        """Runs one command and returns its response.

        Raises:
            AgentError: The client responded with an error.
        """
        number = next(self._ids)
        future: Future[dict[str, Any]] = Future()
        line = json.dumps({"id": number, "do": do, **parameters}).encode() + b"\n"
        with self._lock:
            self._answers[number] = future
            self.process.stdin.write(line)
            self.process.stdin.flush()
        try:
            answer = future.result(COMMAND_TIMEOUT_S)
        except TimeoutError:
            raise self.process.error(f"no response to {do!r} in {COMMAND_TIMEOUT_S} s") from None
        if "error" in answer:
            raise AgentError(f"{self.kind}: {do}: {answer['error']}")
        result: dict[str, Any] = answer["ok"]
        return result

    def producer(
        self, namesrv: str, group: str = "interop_producer", **options: object
    ) -> Producer:
        handle = self.new_handle("producer")
        self.call("producer", handle=handle, namesrv=namesrv, group=group, **options)
        return Producer(self, handle)

    def push(self, namesrv: str, topic: str, group: str, **options: object) -> Consumer:
        """A push consumer.

        Options are `listener` (concurrent, orderly), `model` (CLUSTERING, BROADCASTING),
        `expression`, `expressionType` (TAG, SQL92), `allocate` (Java only: AVG, AVG_BY_CIRCLE,
        CONSISTENT_HASH), and `failures`: how often every message fails before it is taken, or only
        those whose bodies begin with `failing`.
        """
        return self._consumer("push", namesrv, topic, group, options)

    def lite(self, namesrv: str, topic: str, group: str, **options: object) -> Consumer:
        """A lite pull consumer; `seek` and `broker` read queues from offsets instead."""
        return self._consumer("lite", namesrv, topic, group, options)

    def create_topic(self, namesrv: str, topic: str, *, queues: int, address: str) -> None:
        self.call(
            "create-topic",
            producer=self._asker(namesrv).handle,
            namesrv=namesrv,
            topic=topic,
            queueCount=queues,
            address=address,
        )

    def route(self, namesrv: str, topic: str) -> dict[str, Any]:
        return self.call(
            "route", producer=self._asker(namesrv).handle, namesrv=namesrv, topic=topic
        )

    def topics(self, namesrv: str) -> list[str]:
        """All topics that the name server knows; the Go client only."""
        return list(self.call("topics", namesrv=namesrv)["topics"])

    def messages(self, handle: str, start: int = 0) -> list[ReceivedMessage]:
        """A consumer's messages, from number `start` on."""
        with self._lock:
            return self._messages[handle][start:]

    def acks(self, handle: str) -> list[Ack]:
        """The acknowledgements of a load."""
        with self._lock:
            return list(self._acks[handle])

    def events(self, handle: str) -> list[dict[str, Any]]:
        """Other events of a handle, as they were printed."""
        with self._lock:
            return list(self._events[handle])

    def kill(self) -> None:
        """Ends the process at once, as kill -9 does; what it printed before is kept."""
        self.process.end()
        self._reader.join()
        self.process.kill()

    def new_handle(self, what: str) -> str:
        """A handle for something that the process is to start."""
        return f"{what}-{next(self._ids)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _consumer(
        self, do: str, namesrv: str, topic: str, group: str, options: dict[str, object]
    ) -> Consumer:
        handle = self.new_handle(do)
        self.call(do, handle=handle, namesrv=namesrv, topic=topic, group=group, **options)
        return Consumer(self, handle)

    def _asker(self, namesrv: str) -> Producer:
        """A producer that is kept for queries: Java sends them through one."""
        if namesrv not in self._askers:
            self._askers[namesrv] = self.producer(namesrv, "interop_asker")
        return self._askers[namesrv]

    def _read(self) -> None:
        for line in self.process.stdout:
            if line.endswith(b"\n"):  # A killed process may leave half a line.
                self._take(json.loads(line))
        with self._lock:
            waiting = list(self._answers.values())
        for future in waiting:
            future.set_result({"error": "the process has ended"})

    def _take(self, line: dict[str, Any]) -> None:
        event = line.get("event")
        with self._lock:
            if event is None:
                self._answers.pop(line["id"]).set_result(line)
            elif event == "messages":
                self._messages[line["handle"]] += map(read_message, line["messages"])
            elif event == "ack":
                self._acks[line["handle"]].append(_ack(line))
            else:
                self._events[line["handle"]].append(line)


class Producer:
    """A producer of an agent, and the queries that go through one."""

    def __init__(self, agent: Agent, handle: str) -> None:
        self.agent = agent
        self.handle = handle

    def send(self, topic: str, messages: Sequence[Outgoing], mode: str) -> list[SendResult]:
        """Sends by `mode`: sync, async, oneway, batch, ordered, queue, or with Java hashed."""
        answer = self.agent.call(
            "send",
            producer=self.handle,
            topic=topic,
            mode=mode,
            messages=[message.as_parameters() for message in messages],
        )
        return [read_send_result(result) for result in answer["results"]]

    def load(self, topic: str, *, broker: str, queues: Sequence[int], name: str) -> Load:
        """Sends without end to the queues, in the background, until it is stopped."""
        handle = f"load-{name}"
        self.agent.call(
            "load",
            handle=handle,
            producer=self.handle,
            topic=topic,
            broker=broker,
            queues=list(queues),
            name=name,
            pauseMs=5,
        )
        return Load(self.agent, handle, queues)

    def query(self, topic: str, key: str) -> list[ReceivedMessage]:
        answer = self.agent.call("query", producer=self.handle, topic=topic, key=key)
        return [read_message(item) for item in answer["messages"]]

    def view(self, topic: str, message_id: str) -> ReceivedMessage:
        return read_message(
            self.agent.call("view", producer=self.handle, topic=topic, msgId=message_id)
        )

    def offsets(self, topic: str, broker: str, queue_id: int, timestamp_ms: int) -> dict[str, int]:
        return self.agent.call(
            "offsets",
            producer=self.handle,
            topic=topic,
            broker=broker,
            queueId=queue_id,
            timestamp=timestamp_ms,
        )

    def stop(self) -> None:
        self.agent.call("stop", handle=self.handle)


class Load:
    """An endless sender."""

    def __init__(self, agent: Agent, handle: str, queues: Sequence[int]) -> None:
        self.agent = agent
        self._handle = handle
        self._queues = queues

    def acks(self) -> list[Ack]:
        return self.agent.acks(self._handle)

    def wait_more(self, more: int) -> None:
        """Waits until every queue has so many more acknowledgements than now."""
        before = self._counts()
        wait_until(
            lambda: all(
                now >= then + more for now, then in zip(self._counts(), before, strict=True)
            ),
            lambda: self.agent.process.error(
                f"not {more} more acknowledgements on each of the queues {self._queues}: "
                f"{before} before, {self._counts()} now"
            ),
        )

    def stop(self) -> list[Ack]:
        """Lets the messages in flight be acknowledged and returns all acknowledgements."""
        self.agent.call("load-stop", handle=self._handle)
        return self.acks()

    def _counts(self) -> list[int]:
        by_queue = Counter(ack.queue_id for ack in self.acks())
        return [by_queue[queue_id] for queue_id in self._queues]


class Consumer:
    """A consumer of an agent."""

    def __init__(self, agent: Agent, handle: str) -> None:
        self.agent = agent
        self._handle = handle

    def messages(self) -> list[ReceivedMessage]:
        """What its listener got so far, in that order."""
        return self.agent.messages(self._handle)

    def bodies(self) -> list[str]:
        return [message.body for message in self.messages()]

    def wait_for(self, bodies: Sequence[str]) -> list[ReceivedMessage]:
        """Waits until every one of `bodies` has come and returns all messages so far."""
        missing = set(bodies)
        looked_at = 0

        def is_done() -> bool:
            nonlocal looked_at
            new = self.agent.messages(self._handle, looked_at)
            looked_at += len(new)
            missing.difference_update(message.body for message in new)
            return not missing

        wait_until(
            is_done,
            lambda: self.agent.process.error(
                f"{len(missing)} of {len(bodies)} messages did not come within {WAIT_TIMEOUT_S} s: "
                f"{sorted(missing)[:5]} ...; {looked_at} came"
            ),
        )
        return self.messages()

    def wait(self, is_enough: Callable[[list[ReceivedMessage]], bool], what: str) -> None:
        """Waits until what has come is enough."""
        wait_until(
            lambda: is_enough(self.messages()),
            lambda: self.agent.process.error(
                f"not within {WAIT_TIMEOUT_S} s: {what}; {len(self.messages())} messages came"
            ),
        )

    def stop(self) -> None:
        self.agent.call("stop", handle=self._handle)


def wait_until(
    is_done: Callable[[], bool],
    report: Callable[[], Exception],
    timeout_s: float = WAIT_TIMEOUT_S,
) -> None:
    """Polls until `is_done`; at the deadline raises what `report` makes."""
    deadline = time.monotonic() + timeout_s
    while not is_done():
        if time.monotonic() > deadline:
            raise report()
        time.sleep(POLL_S)


def start_java_agent(
    kind: str, toolkit: JavaToolkit, folder: Path, jvm_options: Sequence[str]
) -> Agent:
    return Agent(
        kind,
        JavaProcess(
            toolkit,
            kind,
            AGENT_CLASS,
            arguments=[],
            folder=folder,
            jvm_options=jvm_options,
            piped=True,
        ),
    )


def start_go_agent(kind: str, program: Path, folder: Path, settings: dict[str, str]) -> Agent:
    environment = {"HOME": str(folder), "ROCKETMQ_GO_LOG_LEVEL": "warn", **settings}
    process = ChildProcess(kind, [str(program)], folder=folder, environment=environment, piped=True)
    return Agent(kind, process)


def read_send_result(item: dict[str, Any]) -> SendResult:
    """An acknowledgement as an agent prints it."""
    return SendResult(
        status=item["status"],
        broker_name=item["brokerName"],
        queue_id=item["queueId"],
        queue_offset=item["queueOffset"],
        message_id=item["msgId"],
        offset_message_id=item["offsetMsgId"],
    )


def read_message(item: dict[str, Any]) -> ReceivedMessage:
    """A message as an agent prints it."""
    return ReceivedMessage(
        topic=item["topic"],
        queue_id=item["queueId"],
        queue_offset=item["queueOffset"],
        physical_offset=item["physicalOffset"],
        body=item["body"],
        tags=item.get("tags") or "",
        keys=item.get("keys") or "",
        properties=item["properties"],
        message_id=item["msgId"],
        offset_message_id=item.get("offsetMsgId") or "",
        reconsume_times=item["reconsumeTimes"],
        born_timestamp_ms=item["bornTimestamp"],
        store_timestamp_ms=item["storeTimestamp"],
    )


def _ack(event: dict[str, Any]) -> Ack:
    return Ack(
        body=event["body"],
        queue_id=event["queueId"],
        queue_offset=event["queueOffset"],
        number=event["number"],
        tries=event["tries"],
    )
