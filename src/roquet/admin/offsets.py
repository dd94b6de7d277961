"""Offsets: the progress of groups in their queues, and resetting it.

Owns :class:`Offsets`. The broker resets a group by notifying its clients; if none is connected, it
sets the committed offsets. Setting an offset while clients run is refused, because their next
commit would overwrite it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from roquet.admin.calls import Calls, queues_by_address, targets_of
from roquet.admin.results import GroupProgress, QueueOffsets, QueueReset, ServerResults
from roquet.client import PullApi
from roquet.errors import BrokerRefused, ConfigError, NotFound
from roquet.model.message_queue import MessageQueue
from roquet.model.properties_text import parse_properties
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.offset import (
    ConsumeStats,
    ConsumeStatsList,
    GetConsumerStatusBody,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QueueTimeSpan,
    ResetOffsetBody,
)
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers import offset as headers
from roquet.remoting.headers.admin import (
    GetConsumeStatsInBrokerRequestHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
)
from roquet.remoting.headers.base import decode_header
from roquet.remoting.headers.client import GetConsumerConnectionListRequestHeader

__all__ = ["Offsets", "ResetTarget"]

ResetTarget: TypeAlias = int | Literal["earliest", "latest"]
"""Where a group continues: a time in milliseconds since the epoch, or one of the ends."""

END_OF_QUEUE_MS = -1
NOT_COMMITTED = -1
SERVER_SIDE_RESET = "useServerSideResetOffset"
CLIENT_TIMEOUT_MS = 15_000
"""Brokers wait up to ten seconds for responses of clients."""

_NOBODY_TO_TELL = frozenset({int(ResponseCode.CONSUMER_NOT_ONLINE), int(ResponseCode.SYSTEM_ERROR)})
_OR_NOT_FOUND = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.QUERY_NOT_FOUND)})
_OR_OFFLINE = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.CONSUMER_NOT_ONLINE)})


class Offsets:
    """Offsets of queues and groups; ``admin.offsets``.

    Example:
        progress = await admin.offsets.progress("billing")
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    # --------------------------------------------------------------------------------- queues

    async def bounds(self, queue: MessageQueue) -> QueueOffsets:
        """Return the first and the next offset of a queue.

        Raises:
            NoRoute: No broker has the topic.
            NotFound: That broker does not have the topic.

        Example:
            bounds = await admin.offsets.bounds(MessageQueue("Orders", "dev", 0))
        """
        return await _bounds(await self._calls.queue_api(queue), queue)

    async def at_time(self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False) -> int:
        """Return the offset of the message stored at a time, or of the next one.

        Args:
            queue: The queue.
            timestamp_ms: The time, in milliseconds since the epoch.
            upper: Whether to return the last rather than the first of several messages of one time.

        Raises:
            NoRoute: No broker has the topic.
            NotFound: That broker does not have the topic.

        Example:
            queue_offset = await admin.offsets.at_time(MessageQueue("Orders", "dev", 0), 0)
        """
        api = await self._calls.queue_api(queue)
        boundary = headers.BoundaryType.UPPER if upper else headers.BoundaryType.LOWER
        return await api.search_offset(queue, timestamp_ms, boundary=boundary)

    async def earliest_store_time_ms(self, queue: MessageQueue) -> int:
        """Return when the first message of a queue was stored; -1 if it has none.

        Raises:
            NoRoute: No broker has the topic.
            NotFound: That broker does not have the topic.

        Example:
            queue = MessageQueue("Orders", "dev", 0)
            stored_ms = await admin.offsets.earliest_store_time_ms(queue)
        """
        return await (await self._calls.queue_api(queue)).earliest_store_time_ms(queue)

    # ------------------------------------------------------------------------------- progress

    async def progress(self, group: str, topic: str | None = None) -> GroupProgress:
        """Return a group's progress, in one topic or in all with committed offsets.

        Raises:
            BrokersFailed: No broker responds.

        Example:
            progress = await admin.offsets.progress("billing", "Orders")
            print(progress.lag, progress.failures)
        """
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        code = RequestCode.GET_CONSUME_STATS
        targets = (
            await self._calls.masters()
            if topic is None
            else await self._calls.brokers_of_topic(topic)
        )
        found = await self._calls.gather(
            targets, lambda address: self._calls.ask_body(ConsumeStats, address, code, header)
        )
        stats = found.partial(f"Querying the group {group}").values()
        queues = {queue: each for part in stats for queue, each in part.offset_table.items()}
        return GroupProgress(
            group=group,
            queues={queue: queues[queue] for queue in sorted(queues)},
            consume_tps=sum(part.consume_tps for part in stats),
            failures=found.failures,
        )

    async def all_progress(
        self, *, ordered_only: bool = False, cluster: str | None = None, broker: str | None = None
    ) -> ServerResults[ConsumeStatsList]:
        """Return the progress of all groups, on each broker.

        Example:
            found = await admin.offsets.all_progress()
            lag = sum(each.total_diff for each in found.answers.values())
        """
        code = RequestCode.GET_BROKER_CONSUME_STATS
        header = GetConsumeStatsInBrokerRequestHeader(is_order=ordered_only)
        targets = await self._calls.masters(cluster=cluster, broker=broker)
        return await self._calls.gather(
            targets, lambda address: self._calls.ask_body(ConsumeStatsList, address, code, header)
        )

    async def time_spans(self, group: str, topic: str) -> ServerResults[list[QueueTimeSpan]]:
        """Return when the first, the last and the next message to consume were stored, by queue.

        Raises:
            NoRoute: No broker has the topic.

        Example:
            found = await admin.offsets.time_spans("billing", "Orders")
        """
        header = QueryConsumeTimeSpanRequestHeader(topic=topic, group=group)

        async def ask(address: str) -> list[QueueTimeSpan]:
            code = RequestCode.QUERY_CONSUME_TIME_SPAN
            found = await self._calls.ask_body(QueryConsumeTimeSpanBody, address, code, header)
            return found.consume_time_span_set

        return await self._calls.gather(await self._calls.brokers_of_topic(topic), ask)

    async def of_clients(
        self, group: str, topic: str, *, client_id: str | None = None
    ) -> ServerResults[dict[str, dict[MessageQueue, int]]]:
        """Return the offsets that the clients of a group have in memory, by broker and client id.

        A broker to which no client of the group is connected is a failure.

        Raises:
            NoRoute: No broker has the topic.

        Example:
            found = await admin.offsets.of_clients("billing", "Orders")
        """
        header = headers.GetConsumerStatusRequestHeader(
            topic=topic, group=group, client_address=client_id
        )

        async def ask(address: str) -> dict[str, dict[MessageQueue, int]]:
            code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
            found = await self._calls.ask_body(
                GetConsumerStatusBody, address, code, header, timeout_ms=CLIENT_TIMEOUT_MS
            )
            return found.consumer_table

        return await self._calls.gather(await self._calls.brokers_of_topic(topic), ask)

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return the committed offset of a group; ``None`` if it has committed nothing there.

        Raises:
            NoRoute: No broker has the topic.
            NotFound: That broker does not have the topic.

        Example:
            queue = MessageQueue("Orders", "dev", 0)
            queue_offset = await admin.offsets.committed("billing", queue)
        """
        address = await self._calls.broker_of(queue.topic, queue.broker_name)
        found = await self._committed(address, group, queue)
        return None if found == NOT_COMMITTED else found

    async def _committed(self, address: str, group: str, queue: MessageQueue) -> int:
        header = headers.QueryConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False,
        )
        code = RequestCode.QUERY_CONSUMER_OFFSET
        answer = await self._calls.ask(address, code, header, accept=_OR_NOT_FOUND)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return NOT_COMMITTED
        return decode_header(headers.OffsetResponseHeader, answer.ext_fields).queue_offset

    async def least_of_others(
        self, topic: str, compare_group: str, *, without: Sequence[str] = ()
    ) -> ServerResults[dict[int, int]]:
        """Return the lowest offsets that other groups committed, by queue id, on each broker.

        Raises:
            NoRoute: No broker has the topic.

        Example:
            found = await admin.offsets.least_of_others("Orders", "billing", without=["shipping"])
        """
        header = headers.QueryCorrectionOffsetRequestHeader(
            filter_groups=",".join(without) or None, compare_group=compare_group, topic=topic
        )

        async def ask(address: str) -> dict[int, int]:
            code = RequestCode.QUERY_CORRECTION_OFFSET
            found = await self._calls.ask_body(QueryCorrectionOffsetBody, address, code, header)
            return found.correction_offsets

        return await self._calls.gather(await self._calls.brokers_of_topic(topic), ask)

    # --------------------------------------------------------------------------------- resets

    async def plan_reset(self, group: str, topic: str, to: ResetTarget) -> list[QueueReset]:
        """Return what :meth:`reset` would do now, without doing it.

        Raises:
            ConfigError: ``to`` is invalid.
            NoRoute: No broker has the topic.
            BrokersFailed: Some brokers do not respond.

        Example:
            moves = await admin.offsets.plan_reset("billing", "Orders", "earliest")
        """
        _timestamp_of(to)
        route = await self._calls.route(topic)
        api = await self._calls.topic_api(topic)
        queues = queues_by_address(topic, route)

        async def plan(address: str) -> list[QueueReset]:
            return [await self._plan(api, address, group, queue, to) for queue in queues[address]]

        found = await self._calls.gather(targets_of(route), plan)
        return [each for part in found.complete("Planning").values() for each in part]

    async def _plan(
        self, api: PullApi, address: str, group: str, queue: MessageQueue, to: ResetTarget
    ) -> QueueReset:
        if to == "earliest":
            target = await api.min_offset(queue)
        elif to == "latest":
            target = await api.max_offset(queue)
        else:
            target = await api.search_offset(queue, to)
        committed = await self._committed(address, group, queue)
        return QueueReset(queue=queue, committed_offset=committed, target_offset=target)

    async def reset(self, group: str, topic: str, to: ResetTarget) -> dict[MessageQueue, int]:
        """Reset the offsets of a group in a topic; returns the new offset of each queue.

        Connected clients are notified; if there are none, the committed offsets are set.

        Args:
            group: The group.
            topic: The topic.
            to: A time in milliseconds since the epoch, ``"earliest"`` or ``"latest"``.

        Raises:
            ConfigError: ``to`` is invalid.
            NoRoute: No broker has the topic.
            BrokerRefused: The only broker refused, for instance because the group does not exist.
            BrokersFailed: It failed on some brokers; on the others the group is reset.

        Example:
            moved = await admin.offsets.reset("billing", "Orders", "earliest")
        """
        header = headers.ResetOffsetRequestHeader(
            topic=topic, group=group, timestamp_ms=_timestamp_of(to), force=True
        )
        route = await self._calls.route(topic)
        api = await self._calls.topic_api(topic)
        queues = queues_by_address(topic, route)

        async def move(address: str) -> dict[MessageQueue, int]:
            code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
            try:
                found = await self._calls.ask(address, code, header, timeout_ms=CLIENT_TIMEOUT_MS)
            except BrokerRefused as error:
                # Two refusals mean that no client is connected; only one has its own code.
                if error.response_code not in _NOBODY_TO_TELL:
                    raise
                if await self._is_online(address, group):
                    raise
            else:
                return decode_body(ResetOffsetBody, found.body).offset_table
            plans = [await self._plan(api, address, group, queue, to) for queue in queues[address]]
            for each in plans:
                await self._commit(address, group, each.queue, each.target_offset)
            return {each.queue: each.target_offset for each in plans}

        told = await self._calls.gather(targets_of(route), move)
        moved: dict[MessageQueue, int] = {}
        for table in told.complete(f"Resetting the group {group}").values():
            moved |= table
        return {queue: moved[queue] for queue in sorted(moved)}

    async def reset_queue(self, group: str, queue: MessageQueue, queue_offset: int) -> None:
        """Reset a group to an offset of one queue.

        Raises:
            ConfigError: The queue has no such offset, or clients of the group are connected and the
                broker cannot notify them about a single queue.
            NoRoute: No broker has the topic.
            NotFound: That broker does not have the topic.
            BrokerRefused: The broker refused.

        Example:
            await admin.offsets.reset_queue("billing", MessageQueue("Orders", "dev", 0), 0)
        """
        address = await self._calls.broker_of(queue.topic, queue.broker_name)
        bounds = await _bounds(await self._calls.topic_api(queue.topic), queue)
        if not bounds.min_offset <= queue_offset <= bounds.max_offset:
            raise ConfigError(
                f"The queue has no offset {queue_offset}",
                detail=f"{bounds.min_offset} to {bounds.max_offset}",
            )
        answer = await self._calls.ask(address, RequestCode.GET_BROKER_CONFIG)
        settings = parse_properties(answer.body.decode("utf-8", "replace"))
        if settings.get(SERVER_SIDE_RESET, "").lower() == "true":
            header = headers.ResetOffsetRequestHeader(
                topic=queue.topic,
                group=group,
                queue_id=queue.queue_id,
                queue_offset=queue_offset,
                timestamp_ms=0,
                force=True,
            )
            await self._calls.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            return
        # Such a broker treats the request above as one for all queues.
        if await self._is_online(address, group):
            raise ConfigError(
                f"Clients of the group {group} are running and would overwrite the offset",
                hint=f"Stop them, set {SERVER_SIDE_RESET} on the broker, or reset the whole topic.",
            )
        await self._commit(address, group, queue, queue_offset)

    async def _commit(
        self, address: str, group: str, queue: MessageQueue, queue_offset: int
    ) -> None:
        header = headers.UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=queue_offset,
        )
        await self._calls.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def _is_online(self, address: str, group: str) -> bool:
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        answer = await self._calls.ask(address, code, header, accept=_OR_OFFLINE)
        return answer.code == ResponseCode.SUCCESS

    async def clone(
        self, source_group: str, target_group: str, topic: str, *, offline: bool = True
    ) -> list[str]:
        """Copy the offsets of one group to another; returns the brokers that did.

        Args:
            source_group: The group to copy from.
            target_group: The group to copy to; its clients should not run.
            topic: The topic.
            offline: Whether the topic counts even if no client of the source subscribes to it.

        Raises:
            NoRoute: No broker has the topic.
            NotFound: The source group has committed nothing.
            BrokersFailed: It failed on some brokers.

        Example:
            await admin.offsets.reset("billing", "Orders", "earliest")
            await admin.offsets.clone("billing", "auditing", "Orders")
        """
        progress = await self._calls.gather(
            await self._calls.masters(), lambda address: self._topics_of(address, source_group)
        )
        committed = progress.complete(f"Querying the group {source_group}")
        if not any(topic in topics for topics in committed.values()):
            raise NotFound(
                f"The group {source_group} has committed nothing in {topic}",
                hint="Check both names.",
            )
        header = headers.CloneGroupOffsetRequestHeader(
            source_group=source_group,
            destination_group=target_group,
            topic=topic,
            offline=offline,
        )
        code = RequestCode.CLONE_GROUP_OFFSET
        told = await self._calls.gather(
            await self._calls.brokers_of_topic(topic),
            lambda address: self._calls.ask(address, code, header),
        )
        return list(told.complete(f"Copying the offsets of {source_group}"))

    async def _topics_of(self, address: str, group: str) -> set[str]:
        header = GetConsumeStatsRequestHeader(consumer_group=group)
        code = RequestCode.GET_CONSUME_STATS
        found = await self._calls.ask_body(ConsumeStats, address, code, header)
        return {queue.topic for queue in found.offset_table}


async def _bounds(api: PullApi, queue: MessageQueue) -> QueueOffsets:
    first = await api.min_offset(queue)
    return QueueOffsets(min_offset=first, max_offset=await api.max_offset(queue))


def _timestamp_of(to: ResetTarget) -> int:
    match to:
        case "earliest":
            return 0
        case "latest":
            return END_OF_QUEUE_MS
        case int() if to >= 0:
            return to
    raise ConfigError(
        f"Cannot reset to {to!r}",
        hint='Pass milliseconds since the epoch, "earliest" or "latest".',
    )
