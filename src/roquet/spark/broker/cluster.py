"""The driver's requests to a cluster: topics, queues and offsets.

Owns these requests and their retries. A restarting broker is unreachable, and missing from the
route, for seconds; requests about queues that were known before are retried until it is back or
the retries are used up.

Topic and queue names are the user's, without the namespace.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from roquet.client.expression import subscription_of
from roquet.client.instance import ClientInstance
from roquet.client.lifetime import Lifetime
from roquet.client.pull_api import PullApi
from roquet.client.request_reply import REPLY_TOPIC_SUFFIX
from roquet.errors import ClientError, NoRoute, SparkOptionError
from roquet.model.message_queue import MessageQueue
from roquet.model.topic import is_dlq_topic, is_retry_topic, is_system_topic
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.topic import TopicList
from roquet.remoting.codes import RequestCode
from roquet.spark.broker.offsets import QueueOffsets, named, queue_text
from roquet.spark.broker.planning import Sample
from roquet.spark.broker.read_options import ReadOptions

__all__ = ["Cluster", "topic_names"]

log = logging.getLogger(__name__)

REQUESTS_AT_ONCE = 64
RETRIES_AT_FIRST = 4

_T = TypeVar("_T")


class Cluster(Lifetime):
    """The cluster that a source reads from.

    Args:
        options: What to read, and how.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._running: tuple[ClientInstance, PullApi] | None = None
        self._room = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def start(self) -> None:
        """Start the client; sends no request yet."""
        client = await ClientInstance.open(self._options.client)
        self._running = client, PullApi(client, client.wrap(self._options.group))

    async def close(self) -> None:
        """Close the client."""
        running, self._running = self._running, None
        if running is not None:
            await running[0].close()

    @property
    def _client(self) -> ClientInstance:
        assert self._running is not None
        return self._running[0]

    @property
    def _api(self) -> PullApi:
        assert self._running is not None
        return self._running[1]

    # -------------------------------------------------------------------------------- queues

    async def queues(self, *, known: Iterable[MessageQueue] = ()) -> list[MessageQueue]:
        """Return the current queues, sorted.

        Args:
            known: Queues seen before; if one is missing, its broker may be restarting.

        Raises:
            SparkOptionError: A topic or an assigned queue does not exist.
            ClientError: The cluster cannot be reached.
        """
        wanted = set(known)
        attempt = 0
        while True:
            found = await self._retried(self._queues_now, is_known=bool(wanted))
            gone = wanted.difference(found)
            if not gone or attempt >= self._options.offset_retries:
                return found
            attempt += 1
            log.info("Waiting for %s", named(gone))
            await asyncio.sleep(self._options.offset_retry_ms / 1000)

    async def _queues_now(self) -> list[MessageQueue]:
        options = self._options
        topics: Iterable[str] = options.topics
        if options.topic_pattern is not None:
            topics = await self._matching()
        elif options.assigned:
            topics = dict.fromkeys(queue.topic for queue in options.assigned)
        found = [queue for topic in topics for queue in await self._queues_of(topic)]
        if options.assigned:
            missing = set(options.assigned).difference(found)
            if missing:
                raise SparkOptionError(
                    f"The cluster does not have {named(missing)}.",
                    hint=f"It has: {named(found)}." if found else "Check the names in assign.",
                )
            return list(options.assigned)
        return sorted(found)

    async def _queues_of(self, topic: str) -> list[MessageQueue]:
        client = self._client
        queues = await client.routes.subscribe_queues(client.wrap(topic), refresh=True)
        return [MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in queues]

    async def _matching(self) -> list[str]:
        client, pattern = self._client, self._options.topic_pattern
        assert pattern is not None
        own = [name for name in await topic_names(client) if not _is_internal(name)]
        found = [name for name in own if pattern.fullmatch(name)]
        if not found:
            raise SparkOptionError(
                f"No topic matches {pattern.pattern!r}.",
                hint=f"There are: {', '.join(own[:10])}." if own else "The cluster has no topic.",
            )
        return found

    # ------------------------------------------------------------------------------- offsets

    async def first_offsets(self, queues: Iterable[MessageQueue]) -> QueueOffsets:
        """Return the offset of each queue's oldest message."""
        return await self._each(queues, self._api.min_offset)

    async def latest_offsets(self, queues: Iterable[MessageQueue]) -> QueueOffsets:
        """Return the offset that each queue's next message will get."""
        return await self._each(queues, self._api.max_offset)

    async def offsets_at(self, times_ms: dict[MessageQueue, int]) -> QueueOffsets:
        """Return the offset of each queue's first message stored at or after a time."""
        wire = {self._on_wire(queue): time_ms for queue, time_ms in times_ms.items()}
        return await self._each(times_ms, lambda queue: self._api.search_offset(queue, wire[queue]))

    async def probe(self, queue: MessageQueue, queue_offset: int) -> None:
        """Pull once, so that a refusal shows up before any task runs.

        Raises:
            BrokerRefused: The broker refuses pulls of this group, or with this filter.
        """
        wire = self._on_wire(queue)
        subscription = subscription_of(wire.topic, self._options.expression, version_ms=0)

        async def pull() -> None:
            await self._api.pull_records(
                wire, queue_offset, subscription=subscription, max_messages=1
            )

        await self._retried(pull, is_known=True)

    async def sample(self, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, Sample]:
        """Pull a few messages of some queues, and return their sizes.

        Args:
            places: Where to begin in each queue.
        """

        async def one(queue: MessageQueue) -> Sample:
            wire = self._on_wire(queue)
            subscription = subscription_of(wire.topic, self._options.expression, version_ms=0)
            async with self._room:
                found = await self._retried(
                    lambda: self._api.pull_records(
                        wire,
                        places[queue],
                        subscription=subscription,
                        max_messages=self._options.pull_batch,
                    ),
                    is_known=True,
                )
            return Sample(max(found.next_offset - places[queue], 0), len(found.data))

        ordered = sorted(places)
        found = await asyncio.gather(*(one(queue) for queue in ordered))
        return dict(zip(ordered, found, strict=True))

    async def _each(
        self, queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[int]]
    ) -> QueueOffsets:
        ordered = sorted(queues)

        async def one(queue: MessageQueue) -> int:
            async with self._room:
                return await self._retried(lambda: ask(self._on_wire(queue)), is_known=True)

        found = await asyncio.gather(*(one(queue) for queue in ordered), return_exceptions=True)
        offsets: QueueOffsets = {}
        for queue, offset in zip(ordered, found, strict=True):
            if isinstance(offset, ClientError):
                raise type(offset)(
                    f"The offsets of {queue_text(queue)} cannot be queried: {offset.message}",
                    detail=offset.detail,
                    hint=offset.hint,
                ) from offset
            if isinstance(offset, BaseException):
                raise offset
            offsets[queue] = offset
        return offsets

    def _on_wire(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self._client.wrap(queue.topic), queue.broker_name, queue.queue_id)

    async def _retried(self, work: Callable[[], Awaitable[_T]], *, is_known: bool) -> _T:
        """Run ``work`` and retry it while brokers are unreachable.

        Args:
            work: What to do.
            is_known: Whether the topic existed before, so that a missing route is retried, too.
        """
        left = self._options.offset_retries
        if not is_known:
            # Fail fast on a wrong address or name.
            left = min(left, RETRIES_AT_FIRST)
        while True:
            try:
                return await work()
            except ClientError as error:
                is_absent = isinstance(error, NoRoute)
                if left <= 0 or not (error.retriable or (is_absent and is_known)):
                    raise
                log.info("Retrying: %s", error.message)
            left -= 1
            await asyncio.sleep(self._options.offset_retry_ms / 1000)


async def topic_names(client: ClientInstance) -> list[str]:
    """Return the topics of the client's namespace, sorted and without the namespace.

    Raises:
        ClientError: No name server is reachable.
    """
    names = await _listed(client, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    # Every cluster and every broker has a topic with its own name.
    names -= await _listed(client, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    return [
        client.unwrap(name) for name in sorted(names) if name == client.wrap(client.unwrap(name))
    ]


async def _listed(client: ClientInstance, code: RequestCode) -> set[str]:
    answer = await client.name_servers.ask(code)
    return set(decode_body(TopicList, answer.body).topic_list)


def _is_internal(topic: str) -> bool:
    return (
        is_system_topic(topic)
        or is_retry_topic(topic)
        or is_dlq_topic(topic)
        or topic.endswith(REPLY_TOPIC_SUFFIX)
    )
