"""A resident Java client, driven by commands (see `java/src/main/java/roquet/interop/Main.java`).

One virtual machine serves all commands of a test session, because starting one costs more than most
commands. Each command makes and closes its own RocketMQ client inside.
"""

from __future__ import annotations

import json
import selectors
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.javabroker import JavaBroker
from tests.interop.javabuild import JavaToolkit
from tests.interop.javaprocess import JavaProcess
from tests.interop.process import Listening

MAIN_CLASS = "roquet.interop.Main"
COMMAND_TIMEOUT_S = 120


class JavaCommandError(Exception):
    """The Java client responded to a command with an error."""


@dataclass(frozen=True)
class JavaMessage:
    """A message as the Java consumer got it; `body_sha1` is of the decompressed body."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    body_sha1: str
    tags: str | None
    keys: str | None
    properties: dict[str, str]
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    store_timestamp_ms: int
    born_host: str
    store_host: str
    message_id: str
    offset_message_id: str | None


@dataclass(frozen=True)
class JavaSendResult:
    """An acknowledged send of the Java producer and what it had sent."""

    topic: str
    queue_id: int
    queue_offset: int
    body_sha1: str
    tags: str
    keys: str
    properties: dict[str, str]
    flag: int
    message_id: str
    offset_message_id: str


@dataclass(frozen=True)
class JavaQueueOffsets:
    """The broker's offsets of one queue; `search` is the offset found for a time."""

    topic: str
    queue_id: int
    minimum: int
    maximum: int
    search: int | None


@dataclass(frozen=True)
class AdminOutcome:
    """What a command of the admin tool printed; `failures` went to standard error."""

    printed: str
    failures: str


class JavaClient(JavaProcess):
    """The resident client process; not for use by two threads at once."""

    def __init__(self, toolkit: JavaToolkit, folder: Path, namesrv: Listening) -> None:
        self._namesrv = namesrv.address
        self._buffer = b""
        super().__init__(
            toolkit, "client", MAIN_CLASS, arguments=["serve"], folder=folder, piped=True
        )

    def wait_registered(self, broker: JavaBroker) -> str:
        """Waits until the name server knows the broker and returns the address it has."""
        (line,) = self._command("wait", broker=broker.broker_name, address=broker.address)
        return str(line["address"])

    def offsets(
        self, broker: JavaBroker, topics: Sequence[str], *, queues: int, timestamp_ms: int = -1
    ) -> list[JavaQueueOffsets]:
        """Least and next offset of each queue 0 to queues - 1 of each topic."""
        lines = self._command(
            "offsets",
            broker=broker.broker_name,
            topics=",".join(topics),
            queues=queues,
            timestamp=timestamp_ms,
        )
        return [
            JavaQueueOffsets(
                topic=line["topic"],
                queue_id=line["queueId"],
                minimum=line["minOffset"],
                maximum=line["maxOffset"],
                search=line.get("searchOffset"),
            )
            for line in lines
        ]

    def consume(
        self, broker: JavaBroker, topics: Sequence[str], *, queues: int, expression: str = "*"
    ) -> list[JavaMessage]:
        """Every message of those queues, in order of topic, queue and offset."""
        lines = self._command(
            "consume",
            broker=broker.broker_name,
            topics=",".join(topics),
            queues=queues,
            expression=expression,
        )
        return [_message(line) for line in lines]

    def query(
        self, topic: str, keys: Sequence[str], *, unique: bool = False
    ) -> dict[str, list[JavaMessage]]:
        """The messages that each key, or each producer's unique key, finds through the index."""
        found: dict[str, list[JavaMessage]] = {key: [] for key in keys}
        for line in self._command(
            "query", topic=topic, keys=",".join(keys), unique="true" if unique else "false"
        ):
            found[line["queryKey"]].append(_message(line))
        return found

    def mqadmin(self, *words: str, at: Listening | None = None) -> str:
        """What Apache RocketMQ's admin tool prints to standard output, for any name server."""
        namesrv = self._namesrv if at is None else at.address
        return self.run_mqadmin(namesrv, words).printed

    def run_mqadmin(
        self, namesrv: str, words: Sequence[str], *, endless: bool = False
    ) -> AdminOutcome:
        """Runs a command of Apache RocketMQ's admin tool.

        Args:
            namesrv: Which name server it begins with.
            words: The command and its arguments.
            endless: Whether it repeats itself until it is interrupted, which it then is.
        """
        (line,) = self._command(
            "mqadmin",
            namesrv=namesrv,
            words=json.dumps(words),
            endless="true" if endless else "false",
        )
        return AdminOutcome(printed=line["printed"], failures=line["failures"])

    def clone_offsets(self, at: Listening, *, source: str, target: str, topic: str) -> None:
        """Copies the offsets of a group to another one, by the request for that purpose."""
        options = {"source": source, "target": target, "topic": topic}
        list(self._command("clone", namesrv=at.address, **options))

    def client_offsets(
        self, at: Listening, *, group: str, topic: str
    ) -> dict[tuple[str, int], int]:
        """The progress of a group's clients, by client and queue, as they report it."""
        lines = self._command("client-offsets", namesrv=at.address, group=group, topic=topic)
        return {(line["client"], line["queueId"]): line["offset"] for line in lines}

    def resume_check(self, at: Listening, topic: str, message_id: str) -> bool:
        """Has a broker check again a transaction that it gave up; returns whether it will."""
        options = {"topic": topic, "id": message_id}
        (line,) = self._command("resume-check", namesrv=at.address, **options)
        return bool(line["resumed"])

    def produce(
        self,
        broker: JavaBroker,
        topic: str,
        *,
        queues: int,
        count: int,
        size: int,
        seed: int,
        tags: Sequence[str] = ("TagA", "TagB"),
        window: int = 1,
        until_failure: bool = False,
    ) -> Iterator[JavaSendResult]:
        """Sends messages and yields each acknowledgement as it comes.

        Args:
            broker: Where to send.
            topic: An existing topic.
            queues: Message i goes to queue i mod queues.
            count: How many; the iterator must be exhausted.
            size: Bytes of the body beyond its short head.
            seed: Of the body; also the first part of the keys `<seed>-k<i>` and `<seed>-all`.
            tags: Taken in turn.
            window: How many messages may wait for their acknowledgement.
            until_failure: Whether a failed send ends the iteration instead of raising.
        """
        for line in self._command(
            "produce",
            broker=broker.broker_name,
            topics=topic,
            queues=queues,
            count=count,
            size=size,
            seed=seed,
            tags=",".join(tags),
            window=window,
            until_failure="true" if until_failure else "false",
        ):
            if "failed" in line:
                continue
            assert line["status"] == "SEND_OK", line
            yield JavaSendResult(
                topic=line["topic"],
                queue_id=line["queueId"],
                queue_offset=line["queueOffset"],
                body_sha1=line["bodySha1"],
                tags=line["tags"],
                keys=line["keys"],
                properties=line["properties"],
                flag=line["flag"],
                message_id=line["msgId"],
                offset_message_id=line["offsetMsgId"],
            )

    def _command(self, command: str, **options: str | int) -> Iterator[dict[str, Any]]:
        """Runs one command and yields its lines. The generator must be exhausted."""
        words = [command]
        for name, value in ({"namesrv": self._namesrv} | options).items():
            words += ["--" + name.replace("_", "-"), str(value)]
        self.stdin.write(json.dumps(words).encode() + b"\n")
        self.stdin.flush()
        while True:
            line = json.loads(self._read_line(command))
            if "error" in line:
                raise JavaCommandError(f"{command}: {line['error']}")
            if "done" in line:
                return
            yield line

    def _read_line(self, command: str) -> bytes:
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        with selectors.DefaultSelector() as selector:
            selector.register(self.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise self.error(f"no line of {command!r} within {COMMAND_TIMEOUT_S} s")
                chunk = self.stdout.read1(65536)  # type: ignore[attr-defined]
                if not chunk:
                    raise self.error(f"ended during {command!r}")
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


def _message(line: dict[str, Any]) -> JavaMessage:
    return JavaMessage(
        topic=line["topic"],
        queue_id=line["queueId"],
        queue_offset=line["queueOffset"],
        physical_offset=line["physicalOffset"],
        store_size=line["storeSize"],
        body_sha1=line["bodySha1"],
        tags=line.get("tags"),
        keys=line.get("keys"),
        properties=line["properties"],
        flag=line["flag"],
        sys_flag=line["sysFlag"],
        born_timestamp_ms=line["bornTimestamp"],
        store_timestamp_ms=line["storeTimestamp"],
        born_host=line["bornHost"],
        store_host=line["storeHost"],
        message_id=line["msgId"],
        offset_message_id=line.get("offsetMsgId"),
    )
