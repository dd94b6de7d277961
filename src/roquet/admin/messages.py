"""Messages: by id, by key, by time, by offset in a queue.

Owns :class:`Messages`. Queries consume nothing.
"""

from __future__ import annotations

from msgspec import field

from roquet.admin.calls import Calls, queues_by_address, targets_of
from roquet.admin.results import MessagesFound
from roquet.admin.tracks import MessageTrack, MessageTracker
from roquet.client import PullApi, PullResult, ReceivedMessage, subscription_of
from roquet.client.record_reader import read_message
from roquet.errors import ConfigError, CorruptRecord, NotFound, ProtocolError
from roquet.model.message_id import OffsetMessageId
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SUBSCRIBE_ALL
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.offset import QueryConsumeQueueResponseBody
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.admin import (
    QueryConsumeQueueRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from roquet.remoting.headers.pull import QueryMessageRequestHeader, ViewMessageRequestHeader

__all__ = ["LONG_MAX", "Messages", "received_messages"]

LONG_MAX = 0x7FFF_FFFF_FFFF_FFFF
UNIQUE_ID_MATCHES_MAX = 32
PULL_MESSAGES_MAX = 32
QUERY_TIMEOUT_FACTOR = 3
"""A search by key may read all of a broker's disk; Java's tools allow the same time."""

_OR_NOT_FOUND = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.QUERY_NOT_FOUND)})


class _UniqueKeyQueryHeader(QueryMessageRequestHeader, kw_only=True):
    """A search whose key is a unique id."""

    is_unique_key: bool = field(default=True, name="_UNIQUE_KEY_QUERY")


class Messages:
    """Messages; ``admin.messages``.

    Example:
        found = await admin.messages.by_key("Orders", "17")
    """

    def __init__(self, calls: Calls, tracks: MessageTracker) -> None:
        self._calls = calls
        self._tracks = tracks

    # ----------------------------------------------------------------------------------- ids

    async def by_id(self, topic: str, message_id: str) -> ReceivedMessage:
        """Return a message by the unique id from its producer, or by its offset message id.

        Raises:
            NotFound: There is none.
            NoRoute: No broker has the topic.
            BrokersFailed: It was not found, and some brokers do not respond.

        Example:
            message = await admin.messages.by_id("Orders", message_id)
        """
        header = _UniqueKeyQueryHeader(
            topic=topic,
            key=message_id,
            max_num=UNIQUE_ID_MATCHES_MAX,
            begin_timestamp_ms=0,
            end_timestamp_ms=LONG_MAX,
        )
        found = await self._query(topic, header)
        for message in found.messages:
            if message.message_id == message_id:
                return message
        try:
            return await self.by_offset_id(message_id)
        except (NotFound, ProtocolError):
            found.check_complete(f"Searching for {message_id}")
            raise NotFound(
                f"There is no message {message_id} in {topic}",
                hint="It may have expired, or be in another topic.",
            ) from None

    async def by_offset_id(self, offset_message_id: str) -> ReceivedMessage:
        """Return the message that an offset message id points to.

        The id contains a broker's address; no request goes to one outside the cluster.

        Raises:
            ProtocolError: The id is invalid.
            NotFound: No broker of the cluster has that address, or there is no such message.

        Example:
            message = await admin.messages.by_offset_id(offset_message_id)
        """
        place = OffsetMessageId.parse(offset_message_id)
        address = str(place.store_host)
        brokers = {each.address: each.name for each in await self._calls.brokers()}
        if address not in brokers:
            raise NotFound(
                f"No broker of the cluster has the address {address} of the id",
                detail=f"known: {', '.join(brokers)}",
            )
        header = ViewMessageRequestHeader(physical_offset=place.physical_offset)
        accept = _OR_NOT_FOUND | {int(ResponseCode.SYSTEM_ERROR)}
        code = RequestCode.VIEW_MESSAGE_BY_ID
        answer = await self._calls.ask(address, code, header, accept=accept)
        messages = received_messages(answer.body, brokers[address])
        if answer.code != ResponseCode.SUCCESS or not messages:
            raise NotFound(
                f"There is no message {offset_message_id}",
                detail=answer.remark,
                hint="It may have expired.",
            )
        return messages[0]

    # ---------------------------------------------------------------------------------- keys

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = 64,
        begin_ms: int = 0,
        end_ms: int = LONG_MAX,
    ) -> MessagesFound:
        """Return the messages of a topic that have a key, oldest first.

        Args:
            topic: The topic.
            key: One of the keys of the messages.
            max_messages: How many each broker may return.
            begin_ms: Stored at or after this time, in milliseconds since the epoch.
            end_ms: Stored at or before this time.

        Raises:
            NoRoute: No broker has the topic.
            BrokersFailed: No broker responds.

        Example:
            found = await admin.messages.by_key("Orders", "17", max_messages=10)
            print([each.body for each in found.messages], found.failures)
        """
        header = QueryMessageRequestHeader(
            topic=topic,
            key=key,
            max_num=_checked(max_messages),
            begin_timestamp_ms=begin_ms,
            end_timestamp_ms=end_ms,
        )
        found = await self._query(topic, header)
        # The index stores only hashes, and two keys may share one.
        messages = [each for each in found.messages if each.topic == topic and key in each.keys]
        return MessagesFound(messages=messages, failures=found.failures)

    async def _query(self, topic: str, header: QueryMessageRequestHeader) -> MessagesFound:
        route = await self._calls.route(topic)
        names = {each.address: each.name for each in targets_of(route)}

        async def ask(address: str) -> list[ReceivedMessage]:
            answer = await self._calls.ask(
                address,
                RequestCode.QUERY_MESSAGE,
                header,
                accept=_OR_NOT_FOUND,
                timeout_ms=self._calls.timeout_ms * QUERY_TIMEOUT_FACTOR,
            )
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                return []
            return received_messages(answer.body, names[address])

        found = await self._calls.gather(targets_of(route), ask)
        return MessagesFound.of(found.partial(f"Searching {topic}").values(), found.failures)

    # -------------------------------------------------------------------------- time, offset

    async def by_time(
        self, topic: str, begin_ms: int, end_ms: int, *, max_messages: int = 1_000
    ) -> MessagesFound:
        """Return the messages of a topic stored in a time range, oldest first.

        Args:
            topic: The topic.
            begin_ms: Stored at or after this time, in milliseconds since the epoch.
            end_ms: Stored at or before this time.
            max_messages: How many at most; if there are more, ``is_cut`` is set, and each queue
                returns its oldest ones.

        Raises:
            ConfigError: The end is before the beginning.
            NoRoute: No broker has the topic.
            BrokersFailed: No broker responds.

        Example:
            found = await admin.messages.by_time("Orders", 0, 4_102_444_800_000, max_messages=10)
        """
        limit = _checked(max_messages)
        if end_ms < begin_ms:
            raise ConfigError(
                "The time range ends before it begins", detail=f"{begin_ms} to {end_ms}"
            )
        route = await self._calls.route(topic)
        api = await self._calls.topic_api(topic)
        queues = queues_by_address(topic, route)

        async def look(address: str) -> list[ReceivedMessage]:
            messages: list[ReceivedMessage] = []
            for queue in queues[address]:
                messages += await _of_queue(api, queue, (begin_ms, end_ms), limit + 1)
            return messages

        found = await self._calls.gather(targets_of(route), look)
        parts = found.partial(f"Searching {topic}").values()
        return MessagesFound.of(parts, found.failures, max_messages=limit)

    async def at(
        self, queue: MessageQueue, queue_offset: int, *, max_messages: int = 1
    ) -> list[ReceivedMessage]:
        """Return the messages of a queue from an offset on; fewer, or none, at the end.

        Raises:
            NoRoute: No broker has the topic.
            NotFound: That broker does not have the topic.

        Example:
            messages = await admin.messages.at(MessageQueue("Orders", "dev", 0), 0, max_messages=5)
        """
        limit = _checked(max_messages)
        api = await self._calls.queue_api(queue)
        messages: list[ReceivedMessage] = []
        while len(messages) < limit:
            result = await _pull(api, queue, queue_offset, limit - len(messages))
            messages += result.messages
            if not result.messages or result.next_offset <= queue_offset:
                break
            queue_offset = result.next_offset
        return messages

    async def queue_entries(
        self, queue: MessageQueue, queue_offset: int, *, count: int = 10, group: str | None = None
    ) -> QueryConsumeQueueResponseBody:
        """Return the entries of a queue as stored, and whether a group's filter matches them.

        Raises:
            NoRoute: No broker has the topic.
            NotFound: That broker does not have the topic, or the queue has no such offset.

        Example:
            entries = await admin.messages.queue_entries(MessageQueue("Orders", "dev", 0), 0)
        """
        address = await self._calls.broker_of(queue.topic, queue.broker_name)
        header = QueryConsumeQueueRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            index=queue_offset,
            count=_checked(count),
            consumer_group=group,
        )
        answer = await self._calls.ask(address, RequestCode.QUERY_CONSUME_QUEUE, header)
        if not answer.body:
            raise NotFound(f"The queue has no offset {queue_offset}", detail=answer.remark)
        return decode_body(QueryConsumeQueueResponseBody, answer.body)

    async def tracks(self, message: ReceivedMessage) -> list[MessageTrack]:
        """Return whether each group of the topic has consumed a message.

        Raises:
            NoRoute: No broker has the topic.
            BrokersFailed: No broker responds.

        Example:
            message = await admin.messages.by_id("Orders", message_id)
            consumed = {each.group: each.type for each in await admin.messages.tracks(message)}
        """
        return await self._tracks.of(message)

    async def resume_check(self, message: ReceivedMessage) -> None:
        """Have a broker resume the transaction checks of a half message that it had given up.

        Args:
            message: A message of the topic ``TRANS_CHECK_MAX_TIME_TOPIC``.

        Raises:
            NotFound: Its broker is not in the cluster.
            BrokerRefused: It is not a half message.

        Example:
            given_up = await admin.messages.by_time("TRANS_CHECK_MAX_TIME_TOPIC", 0, 1)
            for message in given_up.messages:
                await admin.messages.resume_check(message)
        """
        header = ResumeCheckHalfMessageRequestHeader(
            topic=message.topic, msg_id=message.offset_message_id
        )
        code = RequestCode.RESUME_CHECK_HALF_MESSAGE
        told = await self._calls.gather(
            await self._calls.masters(broker=message.broker_name),
            lambda address: self._calls.ask(address, code, header),
        )
        told.complete("Resuming the check")


def _checked(count: int) -> int:
    if count < 1:
        raise ConfigError(f"{count} messages were requested", hint="Request at least one.")
    return count


def received_messages(data: bytes, broker_name: str) -> list[ReceivedMessage]:
    """Decode the messages of a response, one record after the other."""
    found: list[ReceivedMessage] = []
    position = 0
    while position < len(data):
        try:
            message = read_message(data, position, broker_name)
        except CorruptRecord as error:
            raise ProtocolError(
                f"A response of {broker_name} contains bytes that are not a message",
                detail=error.detail,
            ) from error
        found.append(message)
        position += message.store_size
    return found


async def _pull(
    api: PullApi, queue: MessageQueue, queue_offset: int, max_messages: int
) -> PullResult:
    wanted = subscription_of(queue.topic, SUBSCRIBE_ALL, version_ms=0)
    count = min(max_messages, PULL_MESSAGES_MAX)
    return await api.pull(queue, queue_offset, subscription=wanted, max_messages=count)


async def _of_queue(
    api: PullApi, queue: MessageQueue, span_ms: tuple[int, int], limit: int
) -> list[ReceivedMessage]:
    begin_ms, end_ms = span_ms
    end_offset = await api.max_offset(queue)
    queue_offset = max(await api.search_offset(queue, begin_ms), await api.min_offset(queue))
    messages: list[ReceivedMessage] = []
    while queue_offset < end_offset and len(messages) < limit:
        result = await _pull(api, queue, queue_offset, limit - len(messages))
        # The search returns the nearest message, which may be a little before the time.
        messages += [
            each for each in result.messages if begin_ms <= each.store_timestamp_ms <= end_ms
        ]
        is_past = any(each.store_timestamp_ms > end_ms for each in result.messages)
        if is_past or result.next_offset <= queue_offset:
            break
        queue_offset = result.next_offset
    return messages
