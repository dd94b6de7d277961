"""Reads one queue, offset by offset, without joining a consumer group.

Owns :class:`SimplePull`. Nothing runs in the background but the client's own periodic tasks; it
takes part in no rebalancing, and brokers do not list it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from roquet.client.expression import Expression, subscription_of
from roquet.client.instance import ClientInstance
from roquet.client.lifetime import Running
from roquet.client.message import ReceivedMessage
from roquet.client.names import check_group, check_topic
from roquet.client.options import ClientOptions
from roquet.client.pull_api import PULL_BYTES_MAX, PullApi, PullResult, PullStatus
from roquet.errors import ConfigError, OffsetOutOfRange
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SUBSCRIBE_ALL, SubscriptionData
from roquet.remoting.headers.pull import PullFlag

__all__ = ["SimplePull"]


class SimplePull(Running["_Reader"]):
    """Reads one queue.

    Args:
        client: The name servers, as ``host:port``, separated by semicolons or as a sequence; or
            all settings of the client.
        queue: The queue; its topic is without the client's namespace.
        group: The group that reads; brokers check its permission and keep what it commits.
        expression: Which messages.

    Raises:
        BadName: The topic or group cannot have this name.
        BadExpression: The expression cannot be parsed.
        ConfigError: A setting cannot be used.

    Example:
        async with SimplePull(namesrv, queue, group="audit") as auditor:
            first, end = await auditor.min_offset(), await auditor.max_offset()
            async for message in auditor.read(first, end):
                print(message.queue_offset, message.body)
    """

    def __init__(
        self,
        client: str | Sequence[str] | ClientOptions,
        queue: MessageQueue,
        *,
        group: str,
        expression: Expression = SUBSCRIBE_ALL,
    ) -> None:
        check_group(group)
        check_topic(queue.topic)
        super().__init__(f"The reader of {queue.topic}")
        self._options = ClientOptions.of(client)
        subscription_of(queue.topic, expression, version_ms=0)
        self.queue = queue
        self.group = group
        self._expression = expression

    # ---------------------------------------------------------------------- start and close

    async def start(self) -> None:
        """Start. No request is sent yet: a wrong address shows with the first pull.

        Raises:
            ConfigError: The client runs with other settings.
            ClientClosed: The reader was closed.

        Example:
            later = SimplePull(namesrv, queue, group="later")
            await later.start()
            await later.close()
        """
        await super().start()

    async def _open(self) -> _Reader:
        client = await ClientInstance.open(self._options)
        return _Reader(client, self.queue, self.group, self._expression)

    async def close(self) -> None:
        """Close the reader.

        Example:
            await reader.close()
        """
        await super().close()

    # ------------------------------------------------------------------------------ messages

    async def pull(
        self,
        queue_offset: int,
        *,
        max_messages: int = 32,
        max_bytes: int = PULL_BYTES_MAX,
        wait_ms: int = 0,
    ) -> PullResult:
        """Pull messages from an offset on.

        Args:
            queue_offset: The first offset.
            max_messages: How many at most; a broker may return fewer.
            max_bytes: How many bytes at most; brokers of version 4 ignore it.
            wait_ms: How long the broker may wait for a message if there is none.

        Raises:
            ClientClosed: The reader is not started, or closed.
            ConfigError: A number cannot be used.
            NoRoute: No broker has the queue.
            ClientError: The broker did not respond, or refused.
            ProtocolError: The response cannot be decoded.

        Example:
            found = await reader.pull(0, max_messages=10, wait_ms=100)
            assert found.status is PullStatus.FOUND
        """
        for name, value, least in (
            ("queue_offset", queue_offset, 0),
            ("max_messages", max_messages, 1),
            ("max_bytes", max_bytes, 1),
            ("wait_ms", wait_ms, 0),
        ):
            if value < least:
                raise ConfigError(f"{name} is {value}", hint=f"It must be {least} or more.")
        reader = self._started
        found = await reader.api.pull(
            reader.queue,
            queue_offset,
            subscription=reader.subscription,
            max_messages=max_messages,
            max_bytes=max_bytes,
            sys_flag=PullFlag.SUBSCRIPTION | (PullFlag.SUSPEND if wait_ms else 0),
            suspend_ms=wait_ms,
        )
        for message in found.messages:
            message.topic = reader.client.unwrap(message.topic)
        return found

    async def read(
        self, start_offset: int, end_offset: int, *, batch: int = 32, skip_lost: bool = False
    ) -> AsyncIterator[ReceivedMessage]:
        """Yield all matching messages of an offset range, in order; never skips any silently.

        Args:
            start_offset: The first offset.
            end_offset: The offset after the last one.
            batch: How many messages to pull at a time.
            skip_lost: Whether to skip messages that the broker has removed.

        Raises:
            OffsetOutOfRange: The broker has removed some of the messages, or does not have all of
                them yet.
            ClientError: The broker did not respond, or refused.
            ProtocolError: A response cannot be decoded.

        Example:
            async for message in reader.read(0, await reader.max_offset()):
                print(message.body)
        """
        at = start_offset
        while at < end_offset:
            found = await self.pull(at, max_messages=batch)
            for message in found.messages:
                if message.queue_offset < end_offset:
                    yield message
            if found.next_offset <= at:
                raise self._out_of_range(at, end_offset, found, "they are not there yet")
            if self._lost_some(found) and not skip_lost:
                raise self._out_of_range(at, end_offset, found, "they were removed")
            at = found.next_offset

    def _lost_some(self, found: PullResult) -> bool:
        if found.status is PullStatus.NO_MATCHED_MESSAGE:
            # Without a filter, a broker skips only messages that it is removing.
            return self._started.subscription.sub_string == SUBSCRIBE_ALL
        return found.status is PullStatus.OFFSET_ILLEGAL

    def _out_of_range(
        self, start_offset: int, end_offset: int, found: PullResult, why: str
    ) -> OffsetOutOfRange:
        queue = self.queue
        return OffsetOutOfRange(
            f"Queue {queue.queue_id} of {queue.topic} on {queue.broker_name} lacks messages: {why}",
            detail=f"offsets {start_offset} to {end_offset - 1} were requested; "
            f"the queue has {found.min_offset} to {found.max_offset - 1}",
            hint="Read from min_offset to max_offset, or with skip_lost.",
        )

    # ------------------------------------------------------------------------------- offsets

    async def min_offset(self) -> int:
        """Return the offset of the first message that still exists.

        Example:
            first = await reader.min_offset()
        """
        return await self._started.api.min_offset(self._started.queue)

    async def max_offset(self) -> int:
        """Return the offset that the next message will get.

        Example:
            count = await reader.max_offset() - await reader.min_offset()
        """
        return await self._started.api.max_offset(self._started.queue)

    async def offset_at(self, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a time.

        Example:
            midnight_ms = 1_767_222_000_000
            first = await reader.offset_at(midnight_ms)
        """
        return await self._started.api.search_offset(self._started.queue, timestamp_ms)

    async def committed(self) -> int | None:
        """Return the group's offset; ``None`` if it is not known.

        Example:
            await reader.commit(1)
            assert await reader.committed() == 1
        """
        return await self._started.api.query_offset(self._started.queue)

    async def commit(self, queue_offset: int) -> None:
        """Commit the group's offset: the next one to read.

        Example:
            found = await reader.pull(0)
            await reader.commit(found.next_offset)
        """
        await self._started.api.update_offset(self._started.queue, queue_offset)


class _Reader:
    """The state of a running reader; names are those on the wire."""

    def __init__(
        self, client: ClientInstance, queue: MessageQueue, group: str, expression: Expression
    ) -> None:
        self.client = client
        self.queue = MessageQueue(client.wrap(queue.topic), queue.broker_name, queue.queue_id)
        self.api = PullApi(client, client.wrap(group))
        self.subscription: SubscriptionData = subscription_of(
            self.queue.topic, expression, version_ms=0
        )

    async def close(self) -> None:
        """Leave the client instance."""
        await self.client.close()
