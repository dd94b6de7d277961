"""Pulls: the messages of a queue from an offset on, or the next one to arrive.

Upstream's PullMessageProcessor and DefaultPullMessageResultHandler. Owns the path of a pull:

.. code-block:: text

    check ─► read ─► respond ┬─► found: slices of the mapped log
                             ├─► nothing yet, and it may wait: hold ─► woken: check ─► read ─► …
                             └─► otherwise: where to continue

Invariants:

* The loop never waits for the disk: what may not be in memory is read and copied in a thread.
* A held pull is checked again when it is woken, is not held again, and does not commit its offset
  a second time.
* Slices of the log are in the response before control returns to the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Coroutine

from roquet.broker.components import BrokerComponents
from roquet.broker.hooks import (
    ConsumeMessageContext,
    StatsType,
    namespace_of,
    run_before,
)
from roquet.broker.manager.topic_queue_mapping import MappedQueue
from roquet.broker.processor.pull_check import AdmittedPull, PullCheck
from roquet.broker.processor.pull_response import PullResponse
from roquet.broker.processor.static_pull import StaticPull, pull_there, static_pull
from roquet.broker.service.flow_control import (
    OVERLOAD,
    REJECT_REQUEST,
    RequestClass,
)
from roquet.broker.service.held_pull import HeldPull
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.base import decode_header
from roquet.remoting.headers.pull import PullFlag, PullMessageRequestHeader
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import (
    Action,
    Permission,
    Port,
    ProcessorResult,
    RequestContext,
    Resource,
    Response,
    SlicedResponse,
    processor,
)
from roquet.store.config import BrokerRole
from roquet.store.results import GetMessageResult, GetMessageStatus

__all__ = ["PullMessageProcessor"]


SUSPEND_MS_MAX = 300_000
"""A pull is held no longer than this, whatever it requests."""

MESSAGES_MAX = 1_024
"""The most messages a pull may request, unless the store's own limit is higher; also bounds how
many entries are checked against a filter."""

UNWRITTEN_BYTES_MAX = 4 << 20
"""A held pull is not resumed while its connection buffers more than this: the peer is not reading.
"""

_NS_IN_MS = 1_000_000


class PullMessageProcessor:
    """Serves pulls.

    Args:
        components: The broker's components.

    Attributes:
        check: Admits or refuses pulls.
        response: Builds the responses.
        static_topics: Topics with logical queues.
        consume_hooks: Called before every response; they may withhold the messages.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._config = components.config
        self._store = components.store
        self._offsets = components.offsets
        self._hold = components.hold
        self._clock = components.clock
        self._flow = components.flow
        self._mappings = components.mappings
        self.static_topics: Collection[str] = components.mappings.table
        self._rpc = components.rpc
        self.check = PullCheck(components)
        self._stats = components.stats
        self.consume_hooks = components.hooks.consume
        self.response = PullResponse(components.config, components.store.config, components.clock)
        self._messages_max = max(components.store.config.transfer_count_in_memory_max, MESSAGES_MAX)
        self._late: set[asyncio.Future[None]] = set()
        components.hold.wake = self.answer_held
        components.store.add_arriving_listener(components.hold.notify_arriving)
        components.offsets.reset_assigned.append(components.hold.notify_reset)
        components.mappings.changed.append(self._mappings_changed)

    @processor(
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        header=PullMessageRequestHeader,
        permission=Permission(Action.SUB, Resource.TOPIC),
        ports={Port.MAIN},
        request_class=RequestClass.PULL,
    )
    def pull(self, context: RequestContext, header: PullMessageRequestHeader) -> ProcessorResult:
        """Return messages of a queue, at once or when the first arrives."""
        if not self._config.slave_read and self._store.config.broker_role is BrokerRole.SLAVE:
            raise RequestRefused(REJECT_REQUEST, response_code=ResponseCode.SYSTEM_BUSY)
        return self._pull(context, header, is_first=True)

    def _mappings_changed(self) -> None:
        """Wake held pulls, since another broker may lead their queues now."""
        for topic, detail in self._mappings.table.items():
            for items in detail.hosted_queues.values():
                for item in items:
                    if item.broker_name == detail.broker_name:
                        self._hold.notify_remapped(topic, item.queue_id)

    def _pull(
        self, context: RequestContext, header: PullMessageRequestHeader, *, is_first: bool
    ) -> ProcessorResult:
        queue = self._mappings.queue_of(header)
        if queue is None:
            return self._pull_physical(context, header, is_first=is_first)
        return self._pull_static(context, header, queue, is_first=is_first)

    def _pull_static(
        self,
        context: RequestContext,
        header: PullMessageRequestHeader,
        queue: MappedQueue,
        *,
        is_first: bool,
    ) -> ProcessorResult:
        """Read the physical queue, here or on another broker, that holds the logical offset."""
        named = self.check.names(context, header)
        if isinstance(named, RemotingCommand):
            return named
        static = static_pull(context, header, queue)
        if isinstance(static, RemotingCommand):
            return static
        if not static.is_local:
            return pull_there(self._rpc, context, static)
        return self._pull_physical(context, static.header, static, is_first=is_first)

    def _pull_physical(
        self,
        context: RequestContext,
        header: PullMessageRequestHeader,
        static: StaticPull | None = None,
        *,
        is_first: bool,
    ) -> ProcessorResult:
        began_ms = self._clock.now_ms()
        admitted = self.check.admit(context, header)
        if isinstance(admitted, RemotingCommand):
            return admitted
        topic, queue_id = header.topic, header.queue_id
        reset_offset = self._offsets.query_then_erase_reset_offset(
            topic, header.consumer_group, queue_id
        )
        if reset_offset is not None and self._config.use_server_side_reset_offset:
            result = GetMessageResult(
                GetMessageStatus.OFFSET_RESET,
                reset_offset,
                self._store.min_offset_in_queue(topic, queue_id),
                self._store.max_offset_in_queue(topic, queue_id),
            )
        else:
            found = self._store.get_message_in_memory(
                topic,
                queue_id,
                header.queue_offset,
                min(header.max_msg_nums, self._messages_max),
                message_filter=admitted.message_filter,
            )
            if found is None:
                return self._pull_cold(
                    context, header, admitted, began_ms, is_first=is_first, static=static
                )
            result = found
        return self._answer(
            context, header, admitted, result, began_ms, is_first=is_first, static=static
        )

    async def _pull_cold(
        self,
        context: RequestContext,
        header: PullMessageRequestHeader,
        admitted: AdmittedPull,
        began_ms: int,
        *,
        is_first: bool,
        static: StaticPull | None,
    ) -> Response | None:
        def read() -> GetMessageResult:
            result = self._store.get_message(
                header.topic,
                header.queue_id,
                header.queue_offset,
                min(header.max_msg_nums, self._messages_max),
                message_filter=admitted.message_filter,
            )
            if result.slices:
                # Copied here: even a slice of the mapped log may have to be read from the disk.
                result.slices = [result.body()]
            return result

        result = await self._flow.run(RequestClass.PULL, read)
        return self._answer(
            context, header, admitted, result, began_ms, is_first=is_first, static=static
        )

    # -- responding ---------------------------------------------------------------------------

    def _answer(
        self,
        context: RequestContext,
        header: PullMessageRequestHeader,
        admitted: AdmittedPull,
        result: GetMessageResult,
        began_ms: int,
        *,
        is_first: bool,
        static: StaticPull | None,
    ) -> Response | None:
        """Respond with what was read, or hold the pull."""
        command = self.response.make(context, header, admitted, result)
        if self.consume_hooks:
            try:
                self._run_hooks(context, header, command, result, is_first=is_first)
            except RequestRefused as error:
                command.code, command.remark = error.response_code, error.message
                return command
        if static is not None:
            static.rewrite(command)
        self._commit(header, result, is_first=is_first)
        self._count(header, command, result, began_ms)
        if command.code == ResponseCode.SUCCESS:
            return SlicedResponse(command, result.slices)
        if (
            command.code == ResponseCode.PULL_NOT_FOUND
            and is_first
            and header.sys_flag & PullFlag.SUSPEND
            and not context.request.is_oneway
        ):
            return self._suspend(context, header, admitted)
        return command

    def _commit(
        self, header: PullMessageRequestHeader, result: GetMessageResult, *, is_first: bool
    ) -> None:
        """Record the group's pull offset and, if the pull carries one, commit its consume offset.

        After a reset nothing is committed: the client did not know of the reset when it sent the
        offset, and may never send another one.
        """
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        self._offsets.commit_pull(group, topic, queue_id, result.next_begin_offset)
        is_reset = result.status is GetMessageStatus.OFFSET_RESET
        if is_first and header.sys_flag & PullFlag.COMMIT_OFFSET and not is_reset:
            self._offsets.commit(group, topic, queue_id, header.commit_offset)

    def _count(
        self,
        header: PullMessageRequestHeader,
        command: RemotingCommand,
        result: GetMessageResult,
        began_ms: int,
    ) -> None:
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        stats = self._stats
        if command.code == ResponseCode.SUCCESS:
            now_ms = self._clock.now_ms()
            stats.add_gets(group, topic, result.message_count, result.total_bytes)
            stats.add_get_latency(group, topic, queue_id, now_ms - began_ms)
            stats.record_fall(
                group,
                topic,
                queue_id,
                size_bytes=result.behind_bytes,
                time_ms=now_ms - result.last_store_timestamp_ms,
            )
        elif result.status is GetMessageStatus.OFFSET_OVERFLOW_ONE:
            stats.record_fall(group, topic, queue_id, size_bytes=0, time_ms=0)

    def _run_hooks(
        self,
        context: RequestContext,
        header: PullMessageRequestHeader,
        command: RemotingCommand,
        result: GetMessageResult,
        *,
        is_first: bool,
    ) -> None:
        stats_type: StatsType | None = StatsType.RCV_EPOLLS
        if command.code == ResponseCode.SUCCESS:
            stats_type = StatsType.RCV_SUCCESS
        elif command.code == ResponseCode.PULL_NOT_FOUND and is_first:
            stats_type = None
        run_before(
            self.consume_hooks,
            ConsumeMessageContext(
                namespace=namespace_of(header.topic),
                consumer_group=header.consumer_group,
                topic=header.topic,
                queue_id=header.queue_id,
                client_host=context.connection.remote_address,
                ext_fields=context.request.ext_fields or {},
                message_count=result.message_count,
                message_bytes=result.total_bytes,
                filtered_count=result.filtered_count,
                stats_type=stats_type,
            ),
        )

    # -- waiting ------------------------------------------------------------------------------

    def _suspend(
        self, context: RequestContext, header: PullMessageRequestHeader, admitted: AdmittedPull
    ) -> RemotingCommand | None:
        wait_ms = min(header.suspend_timeout_ms, SUSPEND_MS_MAX)
        if not self._config.long_polling:
            wait_ms = self._config.short_polling_ms
        held = HeldPull(
            context,
            header,
            admitted.message_filter,
            deadline_ns=self._clock.monotonic_ns() + wait_ms * _NS_IN_MS,
        )
        if self._hold.suspend(held):
            return None
        return context.response(ResponseCode.SYSTEM_BUSY, remark=OVERLOAD)

    def answer_held(self, held: HeldPull) -> None:
        """Respond to a held pull; later, if its peer is not reading."""
        if held.connection.held_bytes > UNWRITTEN_BYTES_MAX:
            self._keep(self._answer_when_read(held))
        else:
            self._answer_now(held)

    def _answer_now(self, held: HeldPull) -> None:
        header = held.header
        try:
            if header.logical is False:
                # The queue may have been remapped meanwhile.
                header = decode_header(PullMessageRequestHeader, held.context.request.ext_fields)
            result = self._pull(held.context, header, is_first=False)
        except Exception as error:  # noqa: BLE001 - the peer gets a response in any case
            result = held.context.failure(error)
        if isinstance(result, (RemotingCommand, SlicedResponse)):
            held.context.reply(result)
        elif result is not None:
            self._keep(self._answer_cold(held, result))

    async def _answer_when_read(self, held: HeldPull) -> None:
        connection = held.connection
        await connection.wait_writable()
        if not connection.is_closed:
            self._answer_now(held)

    async def _answer_cold(self, held: HeldPull, reading: Awaitable[Response | None]) -> None:
        try:
            answer = await reading
        except Exception as error:  # noqa: BLE001 - the peer gets a response in any case
            answer = held.context.failure(error)
        held.context.reply(answer)

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        """Keep a reference to a task, as the loop does not; bounded by the number of held pulls."""
        task = asyncio.ensure_future(work)
        self._late.add(task)
        task.add_done_callback(self._late.discard)
