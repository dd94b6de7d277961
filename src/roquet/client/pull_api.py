"""The requests of consumers to brokers: pulls and offsets.

Owns the requests, the choice of the broker (each response suggests which broker of the group to
pull from next) and the decoding of responses. Queues, topics and the group have their names on the
wire, with the namespace.

Invariants:

* No message is dropped silently. A message is returned even if its body cannot be decompressed;
  reading the body then raises. Bytes that are not a message end the list; the messages before them
  are returned, and a pull that begins with them raises.
* A message whose tag does not match is not returned: brokers compare only hashes.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct, structs

from roquet.client.instance import ClientInstance
from roquet.client.message import ReceivedMessage
from roquet.client.record_reader import decode_on_loop
from roquet.client.route import vip_address
from roquet.errors import BrokerRefused, NoRoute
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SubscriptionData
from roquet.remoting.bodies.route import MASTER_ID
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.base import Header, decode_header
from roquet.remoting.headers.offset import (
    BoundaryType,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from roquet.remoting.headers.pull import (
    PullFlag,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)

__all__ = ["PullApi", "PullResult", "PullStatus", "PulledRecords"]

PULL_TIMEOUT_MS = 10_000
"""How long a response may take, besides the time that the broker may hold the pull."""

OFFSET_TIMEOUT_MS = 5_000
PULL_BYTES_MAX = 2**31 - 1


class PullStatus(Enum):
    """The status of a pull; the values are Java's names.

    Example:
        assert PullStatus("NO_NEW_MSG") is PullStatus.NO_NEW_MESSAGE
    """

    FOUND = "FOUND"
    """There are messages."""

    NO_NEW_MESSAGE = "NO_NEW_MSG"
    """The queue has no message at the offset yet."""

    NO_MATCHED_MESSAGE = "NO_MATCHED_MSG"
    """The broker checked some messages, but none of them matches."""

    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"
    """The queue does not have this offset; ``next_offset`` is one that it has."""


_STATUS: dict[int, PullStatus] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MESSAGE,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MESSAGE,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}
_QUERIED = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.QUERY_NOT_FOUND)})


class PullResult(Struct, frozen=True, kw_only=True):
    """The result of a pull.

    Attributes:
        status: The status.
        next_offset: The offset of the next pull.
        min_offset: The first offset of the queue.
        max_offset: The offset that the next message of the queue will get.
        messages: The messages. It may be empty although some were found, if no tag matches.

    Example:
        found = await reader.pull(0)
        if found.status is PullStatus.FOUND:
            print(found.messages, found.next_offset)
    """

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[ReceivedMessage]


class PulledRecords(Struct, frozen=True, kw_only=True):
    """The result of a pull, with undecoded records.

    Attributes:
        status: The status.
        next_offset: The offset of the next pull.
        min_offset: The first offset of the queue.
        max_offset: The offset that the next message of the queue will get.
        offset_delta: What a static topic adds to the offsets in the records.
        data: Records as in a commit log, one after the other.
    """

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    offset_delta: int
    data: bytes


class PullApi:
    """Sends a group's requests to brokers.

    Args:
        client: The client.
        group: The group.

    Example:
        api = PullApi(client, "billing")
        wanted = subscription_of("Orders", "*", version_ms=0)
        for queue in await client.routes.subscribe_queues("Orders"):
            result = await api.pull(queue, await api.min_offset(queue), subscription=wanted)
    """

    def __init__(self, client: ClientInstance, group: str) -> None:
        self._client = client
        self.group = group
        self._broker_ids: dict[MessageQueue, int] = {}
        # Brokers of version 4 know only one kind of pull.
        self._old_brokers: set[str] = set()

    # ------------------------------------------------------------------------------ messages

    async def pull(
        self,
        queue: MessageQueue,
        queue_offset: int,
        *,
        subscription: SubscriptionData,
        max_messages: int = 32,
        max_bytes: int = PULL_BYTES_MAX,
        sys_flag: int = PullFlag.SUBSCRIPTION,
        suspend_ms: int = 0,
        commit_offset: int = 0,
        timeout_ms: int | None = None,
    ) -> PullResult:
        """Pull messages of a queue.

        Args:
            queue: The queue.
            queue_offset: The first offset.
            subscription: Which messages. With the flag SUBSCRIPTION the request contains its
                expression; otherwise the broker uses the one from the heartbeat.
            max_messages: How many at most; a broker may return fewer.
            max_bytes: How many bytes at most; brokers of version 4 ignore it.
            sys_flag: Bits of :class:`~roquet.remoting.headers.pull.PullFlag`.
            suspend_ms: With the flag SUSPEND: how long the broker may hold the pull.
            commit_offset: With the flag COMMIT_OFFSET: the group's offset.
            timeout_ms: How long to wait for the response.

        Raises:
            NoRoute: No broker of this name is known.
            ClientError: The broker did not respond, or refused.
            ProtocolError: The response cannot be decoded.

        Example:
            wanted = subscription_of("Orders", "paid", version_ms=0)
            result = await api.pull(queue, 0, subscription=wanted, max_messages=10)
            print(result.status, result.next_offset)
        """
        found = await self.pull_records(
            queue,
            queue_offset,
            subscription=subscription,
            max_messages=max_messages,
            max_bytes=max_bytes,
            sys_flag=sys_flag,
            suspend_ms=suspend_ms,
            commit_offset=commit_offset,
            timeout_ms=timeout_ms,
        )
        return await _result(queue, found, subscription, self._client.options.max_body_bytes)

    async def pull_records(
        self,
        queue: MessageQueue,
        queue_offset: int,
        *,
        subscription: SubscriptionData,
        max_messages: int = 32,
        max_bytes: int = PULL_BYTES_MAX,
        sys_flag: int = PullFlag.SUBSCRIPTION,
        suspend_ms: int = 0,
        commit_offset: int = 0,
        timeout_ms: int | None = None,
    ) -> PulledRecords:
        """As :meth:`pull`, without decoding the records.

        The caller compares tags itself: brokers compare only hashes.

        Raises:
            NoRoute: No broker of this name is known.
            ClientError: The broker did not respond, or refused.

        Example:
            wanted = subscription_of("Orders", "*", version_ms=0)
            pulled = await api.pull_records(queue, 0, subscription=wanted)
        """
        address, is_slave = await self._read_address(queue)
        if is_slave:
            sys_flag &= ~PullFlag.COMMIT_OFFSET
        has_expression = sys_flag & PullFlag.SUBSCRIPTION
        header = PullMessageRequestHeader(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=queue_offset,
            max_msg_nums=max_messages,
            sys_flag=int(sys_flag),
            commit_offset=commit_offset,
            suspend_timeout_ms=suspend_ms,
            subscription=subscription.sub_string if has_expression else None,
            sub_version=subscription.sub_version,
            max_msg_bytes=max_bytes,
            expression_type=subscription.expression_type,
            broker_name=queue.broker_name,
        )
        if timeout_ms is None:
            waits_ms = suspend_ms if sys_flag & PullFlag.SUSPEND else 0
            timeout_ms = PULL_TIMEOUT_MS + waits_ms
        answer = await self._ask(address, header, timeout_ms)
        answered = decode_header(PullMessageResponseHeader, answer.ext_fields)
        self._broker_ids[queue] = answered.suggest_which_broker_id
        return PulledRecords(
            status=_STATUS[answer.code],
            next_offset=answered.next_begin_offset,
            min_offset=answered.min_offset,
            max_offset=answered.max_offset,
            offset_delta=answered.offset_delta or 0,
            data=answer.body,
        )

    async def _ask(
        self, address: str, header: PullMessageRequestHeader, timeout_ms: int
    ) -> RemotingCommand:
        code = RequestCode.PULL_MESSAGE
        if header.sys_flag & PullFlag.LITE_PULL:
            if address not in self._old_brokers:
                try:
                    return await self._client.ask(
                        address,
                        RequestCode.LITE_PULL_MESSAGE,
                        header,
                        timeout_ms=timeout_ms,
                        accept=_STATUS,
                    )
                except BrokerRefused as error:
                    if error.response_code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                        raise
                self._old_brokers.add(address)
            header = structs.replace(header, sys_flag=header.sys_flag & ~PullFlag.LITE_PULL)
        return await self._client.ask(address, code, header, timeout_ms=timeout_ms, accept=_STATUS)

    def forget(self, queue: MessageQueue) -> None:
        """Forget which broker was suggested for a queue.

        Example:
            api.forget(queue)
        """
        self._broker_ids.pop(queue, None)

    # ------------------------------------------------------------------------------- offsets

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of the queue will get.

        Raises:
            NoRoute: The master of the queue is unknown.
            ClientError: The broker did not respond, or refused.

        Example:
            end = await api.max_offset(queue)
        """
        header = GetMaxOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        return await self._offset_of(queue, RequestCode.GET_MAX_OFFSET, header)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first message that still exists.

        Raises:
            NoRoute: The master of the queue is unknown.
            ClientError: The broker did not respond, or refused.

        Example:
            first = await api.min_offset(queue)
        """
        header = GetMinOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        return await self._offset_of(queue, RequestCode.GET_MIN_OFFSET, header)

    async def search_offset(
        self,
        queue: MessageQueue,
        timestamp_ms: int,
        *,
        boundary: BoundaryType = BoundaryType.LOWER,
    ) -> int:
        """Return the offset of the messages stored at a time, or of the next ones after it.

        Raises:
            NoRoute: The master of the queue is unknown.
            ClientError: The broker did not respond, or refused.

        Example:
            found = await api.search_offset(queue, 1_767_222_000_000)
        """
        header = SearchOffsetRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp_ms=timestamp_ms,
            boundary_type=boundary,
            broker_name=queue.broker_name,
        )
        return await self._offset_of(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def earliest_store_time_ms(self, queue: MessageQueue) -> int:
        """Return when the first existing message was stored; -1 if there is none.

        Raises:
            NoRoute: The master of the queue is unknown.
            ClientError: The broker did not respond, or refused.

        Example:
            stored_ms = await api.earliest_store_time_ms(queue)
        """
        header = GetEarliestMsgStoretimeRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        code = RequestCode.GET_EARLIEST_MSG_STORETIME
        answer = await self._client.ask(await self._master_address(queue), code, header)
        return decode_header(GetEarliestMsgStoretimeResponseHeader, answer.ext_fields).timestamp_ms

    async def query_offset(self, queue: MessageQueue) -> int | None:
        """Return the group's offset in a queue; ``None`` if it never consumed it.

        A broker may return 0 for a young queue that the group never consumed.

        Raises:
            NoRoute: No broker of this name is known.
            ClientError: The broker did not respond, or refused.

        Example:
            await api.update_offset(queue, 1)
            assert await api.query_offset(queue) == 1
        """
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            broker_name=queue.broker_name,
        )
        answer = await self._client.ask(
            await self._offset_address(queue),
            RequestCode.QUERY_CONSUMER_OFFSET,
            header,
            timeout_ms=OFFSET_TIMEOUT_MS,
            accept=_QUERIED,
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return decode_header(OffsetResponseHeader, answer.ext_fields).queue_offset

    async def update_offset(self, queue: MessageQueue, queue_offset: int) -> None:
        """Commit the group's offset, and wait for the response.

        Raises:
            NoRoute: No broker of this name is known.
            ClientError: The broker did not respond, or refused.

        Example:
            await api.update_offset(queue, await api.max_offset(queue))
        """
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=queue_offset,
            broker_name=queue.broker_name,
        )
        await self._client.ask(
            await self._offset_address(queue),
            RequestCode.UPDATE_CONSUMER_OFFSET,
            header,
            timeout_ms=OFFSET_TIMEOUT_MS,
        )

    async def _offset_of(self, queue: MessageQueue, code: int, header: Header) -> int:
        answer = await self._client.ask(await self._master_address(queue), code, header)
        return decode_header(OffsetResponseHeader, answer.ext_fields).queue_offset

    # ------------------------------------------------------------------------------- brokers

    async def _read_address(self, queue: MessageQueue) -> tuple[str, bool]:
        """Return the address of the broker to pull from, and whether it is a slave."""
        broker_id = self._broker_ids.get(queue, MASTER_ID)
        address = await self._address(queue, broker_id=broker_id)
        name = self._client.routes.broker_name_of(queue)
        master = self._client.routes.broker_address(name, master_only=True)
        return address, address != master

    async def _master_address(self, queue: MessageQueue) -> str:
        return self._vip(await self._address(queue, master_only=True))

    async def _offset_address(self, queue: MessageQueue) -> str:
        """Return the master's address, or without a master a slave's, which syncs to it later."""
        return self._vip(await self._address(queue))

    def _vip(self, address: str) -> str:
        return vip_address(address) if self._client.options.vip_channel else address

    async def _address(
        self, queue: MessageQueue, *, master_only: bool = False, broker_id: int = MASTER_ID
    ) -> str:
        routes = self._client.routes
        for is_asked in (False, True):
            if is_asked:
                await routes.route(queue.topic, refresh=True)
            found = routes.broker_address(
                routes.broker_name_of(queue), master_only=master_only, broker_id=broker_id
            )
            if found is not None:
                return found
        raise NoRoute(
            f"The broker {queue.broker_name} of the topic {queue.topic} is not known",
            detail="no master is known" if master_only else None,
            hint="It may be down, or registered at other name servers.",
        )


async def _result(
    queue: MessageQueue,
    pulled: PulledRecords,
    subscription: SubscriptionData,
    max_body_bytes: int,
) -> PullResult:
    next_offset = pulled.next_offset
    messages: list[ReceivedMessage] = []
    if pulled.status is PullStatus.FOUND:
        messages, is_whole = await decode_on_loop(
            pulled.data, queue, offset_delta=pulled.offset_delta, max_body_bytes=max_body_bytes
        )
        if not is_whole:
            next_offset = messages[-1].queue_offset + 1
        if subscription.tags_set and not subscription.class_filter_mode:
            messages = [each for each in messages if each.tags in subscription.tags_set]
    return PullResult(
        status=pulled.status,
        next_offset=next_offset,
        min_offset=pulled.min_offset,
        max_offset=pulled.max_offset,
        messages=messages,
    )
