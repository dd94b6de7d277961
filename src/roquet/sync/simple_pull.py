"""Reading one queue, without asyncio.

Owns the blocking :class:`SimplePull`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roquet import client as aio
from roquet.client.expression import Expression
from roquet.client.message import ReceivedMessage
from roquet.client.options import ClientOptions
from roquet.errors import RoquetError
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SUBSCRIBE_ALL
from roquet.sync.blocking_proxy import LifetimeProxy, blocking

__all__ = ["SimplePull"]


class SimplePull(LifetimeProxy[aio.SimplePull]):
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
        with SimplePull(namesrv, queue, group="audit") as auditor:
            for message in auditor.read(auditor.min_offset(), auditor.max_offset()):
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
        super().__init__(aio.SimplePull(client, queue, group=group, expression=expression))

    @property
    def queue(self) -> MessageQueue:
        """The queue.

        Example:
            assert reader.queue == queue
        """
        return self._inner.queue

    @property
    def group(self) -> str:
        """The group.

        Example:
            assert reader.group == "examples"
        """
        return self._inner.group

    pull = blocking(aio.SimplePull.pull)
    min_offset = blocking(aio.SimplePull.min_offset)
    max_offset = blocking(aio.SimplePull.max_offset)
    offset_at = blocking(aio.SimplePull.offset_at)
    committed = blocking(aio.SimplePull.committed)
    commit = blocking(aio.SimplePull.commit)

    def read(
        self, start_offset: int, end_offset: int, *, batch: int = 32, skip_lost: bool = False
    ) -> Iterator[ReceivedMessage]:
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
            bodies = [message.body for message in reader.read(0, reader.max_offset())]
        """
        messages = self._inner.read(start_offset, end_offset, batch=batch, skip_lost=skip_lost)

        async def some() -> tuple[list[ReceivedMessage], RoquetError | None]:
            found: list[ReceivedMessage] = []
            try:
                async for message in messages:
                    found.append(message)
                    if len(found) >= batch:
                        break
            except RoquetError as error:
                return found, error
            return found, None

        # One call into the loop per batch, not per message; messages read before an error are
        # yielded before it is raised.
        while True:
            found, error = self._runner.run(some)
            yield from found
            if error is not None:
                raise error
            if len(found) < batch:
                return
