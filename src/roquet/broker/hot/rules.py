"""What the reference path allows the hot path to do.

Owns the checks that compiled code calls. A request is plain only if the reference path would do
the same: a topic may be sent to once the send processor has made a plan without rules for it, and
a pull is served by a plan once the reference path has admitted one of its kind.
"""

from __future__ import annotations

import logging

from roquet.broker.components import BrokerComponents
from roquet.broker.hot.responses import templates
from roquet.broker.manager.consumer_offset import offset_key
from roquet.broker.processor.pull_message import PullMessageProcessor
from roquet.broker.processor.send_message import SendMessageProcessor
from roquet.errors import RoquetError
from roquet.remoting.codec import decode_command
from roquet.remoting.command import RemotingCommand
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import LogLimiter
from roquet.remoting.frame import FrameDecoder
from roquet.remoting.headers.base import decode_header
from roquet.remoting.headers.pull import PullMessageRequestHeader
from roquet.remoting.processor import Action, Permission, RequestContext, Resource
from roquet.runtime import compiled
from roquet.store.results import GetMessageResult, GetMessageStatus

if compiled.is_built("roquet.broker.hot._requests"):
    from roquet.broker.hot import _pull

__all__ = ["HotRules"]

log = logging.getLogger(__name__)

_MAY_PULL = Permission(Action.SUB, Resource.TOPIC)


class HotRules:
    """Decides what is plain at this moment.

    Args:
        components: The broker's components.
        sends: The reference path of sends.
        pulls: The reference path of pulls.

    Attributes:
        resets: As in :class:`ConsumerOffsetManager`; while it is empty, every group may read on.
        pulled_offsets: The offsets after the last pull of each group, which compiled code updates.
    """

    def __init__(
        self, components: BrokerComponents, sends: SendMessageProcessor, pulls: PullMessageProcessor
    ) -> None:
        self._config = components.config
        self._topics = components.topics
        self._groups = components.groups
        self._offsets = components.offsets
        self.resets = components.offsets.resets
        self.pulled_offsets = components.offsets.pulled
        self._flow = components.flow
        self._sends = sends
        self._static_topics = pulls.static_topics
        self._responses = pulls.response
        self._check = pulls.check
        self._log_limiter = LogLimiter(components.clock)

    def may_send(self) -> bool:
        """Whether sends are accepted now; called before the first of a burst."""
        return not self._sends.send_hooks and self._flow.refusal_of_send() is None

    def plan(self, frame: bytes, connection: Connection) -> _pull.Plan | None:
        """Return the plan for a pull and those like it; ``None`` leaves them to the processor."""
        decoder = FrameDecoder()
        decoder.feed(frame)
        try:
            request = decode_command(next(iter(decoder)))
            header = decode_header(PullMessageRequestHeader, request.ext_fields)
        except RoquetError:
            return None
        # The plan serves all queues, so that a pull of one that does not exist must not decide it.
        header.queue_id = 0
        if header.topic in self._static_topics:
            return None
        context = RequestContext(connection, request, _MAY_PULL)
        admitted = self._check.admit(context, header)
        if isinstance(admitted, RemotingCommand):
            return None
        wanted = admitted.message_filter
        if wanted is not None and wanted.by_record is not None:
            return None
        near = GetMessageResult(GetMessageStatus.FOUND, 0, 0, 0)
        far = GetMessageResult(GetMessageStatus.FOUND, 0, 0, 0, suggest_pulling_from_slave=True)
        return _pull.Plan(
            header.consumer_group,
            header.topic,
            offset_key(header.topic, header.consumer_group),
            admitted.topic.read_queue_nums,
            None if wanted is None else wanted.by_queue,
            *(
                templates(self._responses.make(context, header, admitted, found))
                for found in (near, far)
            ),
        )

    def may_pull(self, plan: _pull.Plan, queue_id: int) -> bool:
        """Whether a group may read on; after a reset it must first fetch its new offset."""
        return not self._offsets.has_offset_reset(plan.topic, plan.group, queue_id)

    def pulled(
        self, plan: _pull.Plan, queue_id: int, next_offset: int, committed: int | None
    ) -> None:
        """Record the group's pull offset and commit its consume offset if the pull has one."""
        self._offsets.commit_pull_at(plan.key, queue_id, next_offset)
        if committed is not None:
            self._offsets.commit(plan.group, plan.topic, queue_id, committed)

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Commit an offset; false leaves that to the processor."""
        if group not in self._groups.table or topic not in self._topics.table:
            return False
        if self._static_topics and topic in self._static_topics:
            return False
        if self._config.use_server_side_reset_offset and self._offsets.has_offset_reset(
            topic, group, queue_id
        ):
            return False
        self._offsets.commit(group, topic, queue_id, queue_offset)
        return True

    def failed(self, error: Exception) -> None:
        """Report an error in the hot path; the reference path handles the request."""
        more = self._log_limiter.allow("hot path")
        if more is not None:
            log.error(
                "the hot path failed, so the reference path handles the request%s",
                more,
                exc_info=error,
            )
