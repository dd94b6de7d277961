"""Replies to request messages: SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2.

Upstream's ReplyMessageProcessor. A producer that sends a request names itself in the message; the
consumer sends its reply here, and the broker pushes it to that producer:

.. code-block:: text

    requester ── request (310) ──► broker ── pull ──► replier
        ▲                            │                   │
        └── PUSH_REPLY_MESSAGE ◄── broker ◄── reply (325)┘
            _TO_CLIENT (326)         └──► <cluster>_REPLY_TOPIC

Owns the push and the order: checks, push, store, response. The response code says whether the
requester has the reply; whether it is stored shows only in msgId and queueOffset, as upstream does
it.

Invariants:

* At most :data:`REPLIES_WAITING_MAX` replies, of :data:`REPLIES_BYTES_MAX` together, wait for their
  requesters at a time, so that unresponsive clients can neither exhaust memory nor block a
  replier's connection. Further ones are refused as busy.
* A reply is stored whether or not the requester got it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from roquet.broker.components import BrokerComponents
from roquet.broker.hooks import SendMessageContext, run_after
from roquet.broker.processor.inner_message import read_properties, region_properties
from roquet.broker.processor.send_answer import SendAnswers
from roquet.broker.processor.send_check import NewTopic, Refusal, TopicCheck, TopicPlan
from roquet.broker.processor.send_prepare import SendPreparation
from roquet.broker.processor.send_request import (
    before_send,
    born_host_of,
    chosen_queue_id,
    not_open_yet,
    note_answer,
    note_append,
)
from roquet.broker.service.flow_control import OVERLOAD
from roquet.errors import RequestTimeout, SendFailed
from roquet.model import properties as prop
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.endpoint import LogLimiter
from roquet.remoting.headers.send import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)
from roquet.remoting.turn_scheduler import RequestClass
from roquet.store.config import BrokerRole
from roquet.store.results import AppendResult, PutMessageResult

__all__ = ["REPLIES_BYTES_MAX", "REPLIES_WAITING_MAX", "ReplyMessageProcessor"]

log = logging.getLogger(__name__)

REPLIES_WAITING_MAX = 4_000
"""Below a connection's in-flight limit: the response to a push may come on the same connection."""

REPLIES_BYTES_MAX = 32 << 20

PUSH_TIMEOUT_MS = 10_000

_MAY_SEND = Permission(Action.PUB, Resource.TOPIC)


class ReplyMessageProcessor:
    """Pushes replies to their requesters.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self.send_hooks = components.hooks.send
        self._broker = components
        self._store_host = components.store_host
        self._region = region_properties(components.config)
        self._is_slave = components.store.config.broker_role is BrokerRole.SLAVE
        self._check = TopicCheck(components)
        self._answers = SendAnswers(components)
        self._prepare = SendPreparation(components, self._answers)
        self._waiting = 0
        self._waiting_bytes = 0
        self._log_limiter = LogLimiter(components.clock)

    @property
    def waiting(self) -> int:
        """How many replies wait for their requesters or for the store."""
        return self._waiting

    @processor(
        RequestCode.SEND_REPLY_MESSAGE,
        header=SendMessageRequestHeader,
        permission=_MAY_SEND,
        ports=ALL_PORTS,
        request_class=RequestClass.SEND,
    )
    @processor(
        RequestCode.SEND_REPLY_MESSAGE_V2,
        header=SendMessageRequestHeaderV2,
        permission=_MAY_SEND,
        ports=ALL_PORTS,
        request_class=RequestClass.SEND,
    )
    def send_reply(
        self, context: RequestContext, header: SendMessageRequestHeader
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """Push a reply to the requester, and store it."""
        request = context.request
        if not request.body:
            raise RequestRefused("the message body is null")
        size_bytes = _size_of(request)
        if self._is_full(size_bytes):
            raise RequestRefused(OVERLOAD, response_code=ResponseCode.SYSTEM_BUSY)
        hooked = before_send(
            self.send_hooks,
            context,
            header,
            self._broker.config,
            store_host=self._store_host,
            clock=self._broker.clock,
        )
        checked = self._checked(context, header)
        if isinstance(checked, Refusal):
            return self._refused(context, checked, hooked)
        # Counted from here on: the work starts once the loop has processed the rest of this burst.
        self._waiting += 1
        self._waiting_bytes += size_bytes
        work = asyncio.ensure_future(self._deliver(context, header, checked, hooked))
        work.add_done_callback(lambda _: self._count_out(size_bytes))
        return work

    def _checked(
        self, context: RequestContext, header: SendMessageRequestHeader
    ) -> tuple[TopicPlan, int] | Refusal | NewTopic:
        starts_ms = self._broker.config.start_accept_send_timestamp_ms
        if self._broker.clock.now_ms() < starts_ms:
            return not_open_yet(starts_ms)
        plan = self._check.check(header)
        if isinstance(plan, (Refusal, NewTopic)):
            return plan
        queue_id = chosen_queue_id(context, header, plan, self._broker.random)
        return queue_id if isinstance(queue_id, Refusal) else (plan, queue_id)

    def _refused(
        self, context: RequestContext, refusal: Refusal, hooked: SendMessageContext | None
    ) -> RemotingCommand:
        answer = self._answers.refused(context.request, refusal)
        self._after(hooked, answer)
        return answer

    def _is_full(self, size_bytes: int) -> bool:
        if self._waiting >= REPLIES_WAITING_MAX:
            return True
        return self._waiting > 0 and self._waiting_bytes + size_bytes > REPLIES_BYTES_MAX

    def _count_out(self, size_bytes: int) -> None:
        self._waiting -= 1
        self._waiting_bytes -= size_bytes

    async def _deliver(
        self,
        context: RequestContext,
        header: SendMessageRequestHeader,
        checked: tuple[TopicPlan, int] | Refusal | NewTopic,
        hooked: SendMessageContext | None,
    ) -> RemotingCommand:
        while isinstance(checked, NewTopic):
            await checked.topics.committed()
            checked = self._checked(context, header)
        if isinstance(checked, Refusal):
            return self._refused(context, checked, hooked)
        plan, queue_id = checked
        failure = await self._push(context, header)
        is_kept = self._broker.config.store_reply_message
        appended = await self._put(context, header, plan, queue_id) if is_kept else None
        if appended is not None:
            self._broker.stats.add_puts(header.topic, 1, appended.wrote_bytes)
        answer = self._answers.of_reply(
            context.request, queue_id, failure=failure, appended=appended
        )
        if hooked is not None and is_kept:
            note_append(hooked, appended)
        self._after(hooked, answer)
        return answer

    # --------------------------------------------------------------------------------- push

    async def _push(self, context: RequestContext, header: SendMessageRequestHeader) -> str | None:
        """Push a reply to its requester; return the reason if that fails."""
        properties = read_properties(header.properties or "")
        client_id = properties.get(prop.REPLY_TO_CLIENT)
        if client_id is None:
            return self._unpushed(f"reply message properties[{prop.REPLY_TO_CLIENT}] is null")
        channel = self._broker.producers.find_channel(client_id)
        if channel is None:
            return self._unpushed(f"push reply message fail, channel of <{client_id}> not found.")
        now_ms = self._broker.clock.now_ms()
        properties |= self._region | {prop.PUSH_REPLY_TIME: str(now_ms)}
        pushed = ReplyMessageRequestHeader(
            born_host=str(born_host_of(context.connection)),
            store_host=str(self._store_host),
            store_timestamp_ms=now_ms,
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp_ms=header.born_timestamp_ms,
            flag=header.flag,
            properties=prop.properties_text(properties),
            reconsume_times=header.reconsume_times,
            unit_mode=bool(header.unit_mode),
        )
        try:
            said = await channel.connection.send_request(
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
                pushed,
                body=context.request.body,
                timeout_ms=PUSH_TIMEOUT_MS,
            )
        except (SendFailed, RequestTimeout) as error:
            reason = error.message
        else:
            if said.code == ResponseCode.SUCCESS:
                return None
            reason = f"it responded with {said.code}: {said.remark}"
        return self._unpushed(f"push reply message to {client_id}fail.", reason)

    def _unpushed(self, remark: str, reason: str = "") -> str:
        more = self._log_limiter.allow("push")
        if more is not None:
            log.warning("%.300s %.300s%s", remark, reason, more)
        return remark

    # -------------------------------------------------------------------------------- store

    async def _put(
        self,
        context: RequestContext,
        header: SendMessageRequestHeader,
        plan: TopicPlan,
        queue_id: int,
    ) -> AppendResult | None:
        """Store a reply; a failure is logged, and the replier does not learn of it."""
        appended = await self._append(context, header, plan, queue_id)
        if isinstance(appended, AppendResult):
            return appended
        more = self._log_limiter.allow("put")
        if more is not None:
            log.warning("reply not stored: %.300s%s", appended, more)
        return None

    async def _append(
        self,
        context: RequestContext,
        header: SendMessageRequestHeader,
        plan: TopicPlan,
        queue_id: int,
    ) -> AppendResult | str:
        if self._is_slave:
            return "messages are put to the slave"
        born_host = born_host_of(context.connection)
        prepared = self._prepare.reply(context.request, header, plan, queue_id, born_host)
        if isinstance(prepared, Refusal):
            return prepared.remark
        stored: asyncio.Future[PutMessageResult] = asyncio.get_running_loop().create_future()

        def done(result: PutMessageResult) -> None:
            if not stored.done():  # cancelled during shutdown
                stored.set_result(result)

        self._broker.store.submit(prepared.message, done)
        self._broker.store.finish_burst()
        result = await stored
        if result.is_stored and result.append is not None:
            return result.append
        return f"{result.status.value} {result.detail}"

    # -------------------------------------------------------------------------------- hooks

    def _after(self, hooked: SendMessageContext | None, answer: RemotingCommand) -> None:
        if hooked is None:
            return
        note_answer(hooked, answer)
        hooked.is_success = answer.code == ResponseCode.SUCCESS
        run_after(self.send_hooks, hooked)


def _size_of(request: RemotingCommand) -> int:
    """About how many in-flight bytes a reply takes on its connection."""
    fields = request.ext_fields or {}
    return len(request.body) + sum(len(name) + len(text) for name, text in fields.items())
