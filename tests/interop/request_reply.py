"""Requests that wait for their replies, as commands of an agent."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from tests.interop.agent import Producer, ReceivedMessage, SendResult, read_send_result


@dataclass(frozen=True)
class Reply:
    """What a requester got."""

    body: str
    topic: str
    properties: dict[str, str]


def request(
    producer: Producer, topic: str, body: str, *, timeout_ms: int, mode: str = "sync"
) -> Reply:
    """Sends a request and waits; `mode` is sync, async, or selector with Java.

    Raises:
        AgentError: No reply came, or the request could not be sent.
    """
    answer = producer.agent.call(
        "request",
        producer=producer.handle,
        topic=topic,
        body=body,
        mode=mode,
        timeoutMs=timeout_ms,
    )
    return Reply(answer["body"], answer["topic"], answer["properties"])


@contextmanager
def asking(
    producer: Producer, topic: str, bodies: list[str], *, timeout_ms: int, mode: str = "sync"
) -> Iterator[dict[str, Future[Reply]]]:
    """Sends several requests at a time; the replies may be awaited within the block."""
    with ThreadPoolExecutor(max_workers=len(bodies)) as pool:
        yield {
            body: pool.submit(request, producer, topic, body, timeout_ms=timeout_ms, mode=mode)
            for body in bodies
        }


def reply(producer: Producer, asked: ReceivedMessage, body: str) -> SendResult:
    """Replies to a request that a consumer got.

    Raises:
        AgentError: The broker did not deliver it.
    """
    answer = producer.agent.call(
        "reply", producer=producer.handle, properties=asked.properties, body=body
    )
    return read_send_result(answer)
