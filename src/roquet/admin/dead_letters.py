"""Dead letters: messages that a group failed to consume too many times.

Owns :class:`DeadLetters`. They are in the topic ``%DLQ%`` plus the name of the group.
"""

from __future__ import annotations

from roquet.admin.clients import Clients
from roquet.admin.messages import LONG_MAX, Messages
from roquet.admin.results import MessagesFound, TopicStats
from roquet.admin.topics import Topics
from roquet.client import ReceivedMessage
from roquet.client.names import check_group
from roquet.errors import NoRoute
from roquet.model.topic import DLQ_GROUP_TOPIC_PREFIX
from roquet.remoting.bodies.client import ConsumeMessageDirectlyResult

__all__ = ["DeadLetters"]


class DeadLetters:
    """Dead letters of groups; ``admin.dead_letters``.

    Example:
        groups = await admin.dead_letters.groups()
    """

    def __init__(self, topics: Topics, messages: Messages, clients: Clients) -> None:
        self._topics = topics
        self._messages = messages
        self._clients = clients

    async def groups(self) -> list[str]:
        """Return the groups that have, or had, dead letters, sorted.

        Example:
            groups = await admin.dead_letters.groups()
        """
        return [
            name.removeprefix(DLQ_GROUP_TOPIC_PREFIX)
            for name in await self._topics.names()
            if name.startswith(DLQ_GROUP_TOPIC_PREFIX)
        ]

    async def stats(self, group: str) -> TopicStats:
        """Return the number of a group's dead letters, by queue.

        Raises:
            BadName: No group can have this name.
            BrokersFailed: No broker responds.

        Example:
            count = (await admin.dead_letters.stats("billing")).messages
        """
        topic = _topic_of(group)
        try:
            return await self._topics.stats(topic)
        except NoRoute:
            return TopicStats(topic=topic, queues={})

    async def messages(
        self, group: str, *, begin_ms: int = 0, end_ms: int = LONG_MAX, max_messages: int = 1_000
    ) -> MessagesFound:
        """Return the dead letters of a group, oldest first.

        Args:
            group: The group.
            begin_ms: Stored at or after this time, in milliseconds since the epoch.
            end_ms: Stored at or before this time.
            max_messages: How many at most.

        Raises:
            BadName: No group can have this name.
            BrokersFailed: No broker responds.

        Example:
            found = await admin.dead_letters.messages("billing", max_messages=10)
        """
        topic = _topic_of(group)
        try:
            return await self._messages.by_time(topic, begin_ms, end_ms, max_messages=max_messages)
        except NoRoute:
            return MessagesFound(messages=[])

    async def redeliver(
        self, group: str, message: ReceivedMessage, *, client_id: str | None = None
    ) -> ConsumeMessageDirectlyResult:
        """Have a client of the group consume a dead letter now; the letter stays where it is.

        Raises:
            NotFound: No such client is connected to the broker that has the message.
            BrokerRefused: The client did not respond in time.

        Example:
            for message in (await admin.dead_letters.messages("billing")).messages:
                result = await admin.dead_letters.redeliver("billing", message)
        """
        return await self._clients.consume(group, message, client_id=client_id)


def _topic_of(group: str) -> str:
    check_group(group)
    return f"{DLQ_GROUP_TOPIC_PREFIX}{group}"
