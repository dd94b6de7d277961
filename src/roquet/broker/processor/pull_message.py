"""Pulls: the messages of a queue from an offset on, or the first that comes.

Upstream's PullMessageProcessor and DefaultPullMessageResultHandler. Owns the way of a pull:

.. code-block:: text

    check ─► read ─► answer ─┬─► found: slices of the mapped log
                             ├─► nothing yet, and it may wait: hold ─► woken: check ─► read ─► …
                             └─► otherwise: where to go on

Invariants:

* The loop never waits for the disk: what may not be in memory is read, and copied, in a thread.
* A pull that was held is checked anew when it is woken, is not held again, and does not commit
  the offset it carries a second time.
* Slices of the log are in the answer before control returns to the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine

from roquet.broker.config import BrokerConfig
from roquet.broker.hooks import (
    ConsumeMessageContext,
    ConsumeMessageHook,
    StatsType,
    namespace_of,
    run_before,
)
from roquet.broker.manager.consumer import ConsumerManager
from roquet.broker.manager.consumer_filter import ConsumerFilterManager
from roquet.broker.manager.consumer_offset import ConsumerOffsetManager
from roquet.broker.manager.subscription_group import SubscriptionGroupManager
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.processor.pull_check import Admitted, PullCheck
from roquet.broker.processor.pull_response import PullResponse
from roquet.broker.service.flow_control import (
    OVERLOAD,
    REJECT_REQUEST,
    FlowControl,
    RequestClass,
)
from roquet.broker.service.pull_request_hold import HeldPull, PullRequestHoldService
from roquet.broker.stats.broker_stats import BrokerStats
from roquet.errors import RoquetError
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.pull import PullFlag, PullMessageRequestHeader
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import (
    Action,
    Answer,
    AnswerInParts,
    Permission,
    Port,
    ProcessorResult,
    RequestContext,
    Resource,
    processor,
)
from roquet.runtime.clock import Clock
from roquet.store.config import BrokerRole
from roquet.store.message_store import MessageStore
from roquet.store.results import GetMessageResult, GetMessageStatus

__all__ = ["PullMessageProcessor"]

log = logging.getLogger(__name__)

MESSAGES_MAX = 1_024
"""What a pull may ask for, unless the store's own limit is higher: also a bound of how many
entries are looked at for a filter."""

UNWRITTEN_BYTES_MAX = 4 << 20
"""A pull that was held waits on while its connection holds more: its peer does not read."""

_NS_IN_MS = 1_000_000


class PullMessageProcessor:
    """Answers pulls.

    Args:
        config: The broker's settings.
        store: The messages.
        topics: The topics.
        groups: The consumer groups' settings.
        consumers: The consumers that are there.
        filters: What groups filter by, other than tags.
        offsets: How far the groups are.
        hold: Where pulls wait.
        clock: Time.
        flow: The threads that read what is not in memory.
        stats: The broker's counters; without them, nobody sees what is counted.
        consume_hooks: The hooks, if others have them too.

    Attributes:
        check: Says who may pull what.
        response: Makes the answers.
        consume_hooks: Told of every answer before it is given; they may refuse to hand out.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        filters: ConsumerFilterManager,
        offsets: ConsumerOffsetManager,
        hold: PullRequestHoldService,
        clock: Clock,
        flow: FlowControl,
        stats: BrokerStats | None = None,
        consume_hooks: list[ConsumeMessageHook] | None = None,
    ) -> None:
        self._config = config
        self._store = store
        self._offsets = offsets
        self._hold = hold
        self._clock = clock
        self._flow = flow
        self.check = PullCheck(
            config, topics=topics, groups=groups, consumers=consumers, filters=filters
        )
        self._stats = BrokerStats(config.cluster_name, clock) if stats is None else stats
        self.consume_hooks = [] if consume_hooks is None else consume_hooks
        self.response = PullResponse(config, store.config, clock)
        self._messages_max = max(store.config.transfer_count_in_memory_max, MESSAGES_MAX)
        self._late: set[asyncio.Future[None]] = set()
        hold.wake = self.answer_held

    @processor(
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        header=PullMessageRequestHeader,
        permission=Permission(Action.SUB, Resource.TOPIC),
        ports={Port.MAIN},
    )
    def pull(self, context: RequestContext, header: PullMessageRequestHeader) -> ProcessorResult:
        """Messages of a queue, at once or when the first comes."""
        if not self._config.slave_read and self._store.config.broker_role is BrokerRole.SLAVE:
            raise RequestRefused(REJECT_REQUEST, response_code=ResponseCode.SYSTEM_BUSY)
        return self._pull(context, header, is_first=True)

    def _pull(
        self, context: RequestContext, header: PullMessageRequestHeader, *, is_first: bool
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
                return self._pull_cold(context, header, admitted, began_ms, is_first=is_first)
            result = found
        return self._answer(context, header, admitted, result, began_ms, is_first=is_first)

    async def _pull_cold(
        self,
        context: RequestContext,
        header: PullMessageRequestHeader,
        admitted: Admitted,
        began_ms: int,
        *,
        is_first: bool,
    ) -> Answer | None:
        def read() -> GetMessageResult:
            result = self._store.get_message(
                header.topic,
                header.queue_id,
                header.queue_offset,
                min(header.max_msg_nums, self._messages_max),
                message_filter=admitted.message_filter,
            )
            if result.slices:
                # Copied here: even a slice of the mapped log may have to come from the disk.
                result.slices = [result.body()]
            return result

        result = await self._flow.run(RequestClass.PULL, read)
        return self._answer(context, header, admitted, result, began_ms, is_first=is_first)

    # -- answering ----------------------------------------------------------------------------

    def _answer(
        self,
        context: RequestContext,
        header: PullMessageRequestHeader,
        admitted: Admitted,
        result: GetMessageResult,
        began_ms: int,
        *,
        is_first: bool,
    ) -> Answer | None:
        """Answer with what was read, or let the pull wait."""
        command = self.response.make(context, header, admitted, result)
        if self.consume_hooks:
            try:
                self._run_hooks(context, header, command, result, is_first=is_first)
            except RequestRefused as error:
                command.code, command.remark = error.response_code, error.message
                return command
        self._commit(header, result, is_first=is_first)
        self._count(header, command, result, began_ms)
        if command.code == ResponseCode.SUCCESS:
            return AnswerInParts(command, result.slices)
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
        """Keep where the group reads and, if the pull says so, how far it has consumed.

        A client that is told to go on somewhere else said so before it knew, and may never come to
        say it again.
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
        self, context: RequestContext, header: PullMessageRequestHeader, admitted: Admitted
    ) -> RemotingCommand | None:
        wait_ms = header.suspend_timeout_ms
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
        """Answer a pull that was held; later, if its peer does not read."""
        if held.context.connection.held_bytes > UNWRITTEN_BYTES_MAX:
            self._keep(self._answer_when_read(held))
        else:
            self._answer_now(held)

    def _answer_now(self, held: HeldPull) -> None:
        try:
            result = self._pull(held.context, held.header, is_first=False)
        except Exception as error:  # noqa: BLE001 - whatever it is, the peer gets an answer
            result = _failure(held.context, error)
        if isinstance(result, (RemotingCommand, AnswerInParts)):
            held.context.reply(result)
        elif result is not None:
            self._keep(self._answer_cold(held, result))

    async def _answer_when_read(self, held: HeldPull) -> None:
        connection = held.context.connection
        await connection.wait_writable()
        if not connection.is_closed:
            self._answer_now(held)

    async def _answer_cold(self, held: HeldPull, reading: Awaitable[Answer | None]) -> None:
        try:
            answer = await reading
        except Exception as error:  # noqa: BLE001 - whatever it is, the peer gets an answer
            answer = _failure(held.context, error)
        held.context.reply(answer)

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        """Have something done that the loop would forget; bounded by how many pulls are held."""
        task = asyncio.ensure_future(work)
        self._late.add(task)
        task.add_done_callback(self._late.discard)


def _failure(context: RequestContext, error: Exception) -> RemotingCommand:
    """The answer to a pull that failed after it was held, as a connection answers others."""
    if isinstance(error, RequestRefused):
        return context.response(error.response_code, remark=error.message)
    if isinstance(error, RoquetError):
        return context.response(ResponseCode.SYSTEM_ERROR, remark=error.message)
    remark = f"{type(error).__name__} while handling {context.request.code_name}"
    log.error("%s of %s", remark, context.connection.remote_address, exc_info=error)
    return context.response(ResponseCode.SYSTEM_ERROR, remark=remark)
