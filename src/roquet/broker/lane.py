"""The door between the broker and the compiled lane of the wire.

Owns what the lane may do by itself and the forms of its answers. The lane handles a request only if
the reference path would: a topic is approved when the send processor has made a plan without rules
for it, a pull when the checks of pulls have let one of its kind through. Both are forgotten when
anything they depend on changes. What it says has the forms of :mod:`roquet.broker.lane_answers`.
"""

from __future__ import annotations

import logging
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from roquet.broker.config import BrokerConfig
from roquet.broker.lane_answers import WaitingAnswers, cut_answer, ipv4_peer, sent_answer
from roquet.broker.manager.consumer import ConsumerManager
from roquet.broker.manager.consumer_offset import ConsumerOffsetManager, offset_key
from roquet.broker.manager.subscription_group import SubscriptionGroupManager
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.processor.inner_message import added_properties
from roquet.broker.processor.pull_message import MESSAGES_MAX, PullMessageProcessor
from roquet.broker.processor.send_answer import SendAnswers
from roquet.broker.processor.send_message import SendMessageProcessor
from roquet.broker.pure_lane import make_pure_lane
from roquet.broker.service.flow_control import FlowControl
from roquet.broker.stats.broker_stats import BrokerStats
from roquet.broker.stats.lane_counts import add_pulls, add_sends
from roquet.errors import RoquetError
from roquet.model.host import Host
from roquet.remoting.bodies.route import MASTER_ID
from roquet.remoting.codec import decode_command
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand, create_request, create_response
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import LogLimiter
from roquet.remoting.frame import FrameDecoder, Received
from roquet.remoting.frame_lane import FrameLane, Taken
from roquet.remoting.headers.base import decode_header
from roquet.remoting.headers.offset import UpdateConsumerOffsetResponseHeader
from roquet.remoting.headers.pull import PullMessageRequestHeader
from roquet.remoting.processor import Action, Permission, Port, RequestContext, Resource
from roquet.runtime import compiled
from roquet.runtime.clock import Clock
from roquet.store.config import BrokerRole
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.results import GetMessageResult, GetMessageStatus

if TYPE_CHECKING:
    from roquet import _fast

_IS_BUILT = all(find_spec(f"roquet.{name}") for name in ("_counts", "_fast", "_frame", "_wire"))
if _IS_BUILT:
    from roquet import _frame, _wire

__all__ = ["WireLane", "make_frame_lane", "make_wire_lane"]

log = logging.getLogger(__name__)

OUTPUT_BYTES_MAX = 4 << 20
"""The lane takes no further frame of a read once the answers are as long."""

_MAY_PULL = Permission(Action.SUB, Resource.TOPIC)


def make_frame_lane(
    config: BrokerConfig,
    *,
    store: DefaultMessageStore,
    topics: TopicConfigManager,
    groups: SubscriptionGroupManager,
    consumers: ConsumerManager,
    offsets: ConsumerOffsetManager,
    sends: SendMessageProcessor,
    pulls: PullMessageProcessor,
    flow: FlowControl,
    stats: BrokerStats,
    clock: Clock,
    store_host: Host,
) -> FrameLane | None:
    """The lane of a broker: the compiled one, else the one in Python, ``None`` if neither helps."""
    return make_wire_lane(
        config, store=store, topics=topics, groups=groups, consumers=consumers, offsets=offsets,
        sends=sends, pulls=pulls, flow=flow, stats=stats, clock=clock, store_host=store_host,
    ) or make_pure_lane(
        config, store=store, topics=topics, sends=sends, flow=flow, stats=stats, clock=clock,
        store_host=store_host,
    )  # fmt: skip


def make_wire_lane(
    config: BrokerConfig,
    *,
    store: DefaultMessageStore,
    topics: TopicConfigManager,
    groups: SubscriptionGroupManager,
    consumers: ConsumerManager,
    offsets: ConsumerOffsetManager,
    sends: SendMessageProcessor,
    pulls: PullMessageProcessor,
    flow: FlowControl,
    stats: BrokerStats,
    clock: Clock,
    store_host: Host,
) -> WireLane | None:
    """The compiled lane of a broker, ``None`` where it is not built or cannot help."""
    if not _IS_BUILT or not compiled.is_wanted() or store.lane is None or store_host.is_ipv6:
        return None
    if store.config.force_verify_property_crc:
        return None
    rules = WireRules(
        config, topics=topics, groups=groups, offsets=offsets, sends=sends, pulls=pulls, flow=flow,
        clock=clock,
    )  # fmt: skip
    answers = SendAnswers(config, store=store, clock=clock, store_host=store_host)
    lane = WireLane(
        config, rules, answers, store=store, store_lane=store.lane, pulls=pulls, flow=flow,
        stats=stats, clock=clock, store_host=store_host,
    )  # fmt: skip
    sends.approve_topic = lane.wire.approve_topic
    topics.changed.append(lane.wire.forget_topics)
    for changed in (topics.changed, groups.changed, consumers.changed):
        changed.append(lane.wire.forget_plans)
    stats.sources.append(lane.collect)
    return lane


class WireLane:
    """The lanes of a broker's connections.

    Args:
        config: The broker's settings.
        rules: What the lane may do.
        answers: Makes answers to sends.
        store: What keeps the messages.
        store_lane: The compiled lane of the store.
        pulls: The reference path of pulls.
        flow: What keeps the broker from taking more than it can.
        stats: The broker's counters.
        clock: The time.
        store_host: The broker's address in records and message ids.

    Attributes:
        requests_taken: How many requests the lane has handled.
    """

    def __init__(
        self,
        config: BrokerConfig,
        rules: WireRules,
        answers: SendAnswers,
        *,
        store: DefaultMessageStore,
        store_lane: _fast.Lane,
        pulls: PullMessageProcessor,
        flow: FlowControl,
        stats: BrokerStats,
        clock: Clock,
        store_host: Host,
    ) -> None:
        self._store = store
        self._pulls = pulls
        self._flow = flow
        self._stats = stats
        self._clock = clock
        self._answers = answers
        self._waits = store.acks.is_needed
        self.requests_taken = 0
        self._serves_pulls = (
            config.broker_id == MASTER_ID
            and store.config.broker_role is not BrokerRole.SLAVE
            and not config.reject_pull_consumer
        )
        self.wire = _wire.Wire(
            store_lane,
            store,
            rules,
            store_host,
            added_properties(config),
            {
                "sent": _templates(sent_answer(answers, "")),
                "batch": _templates(sent_answer(answers, None)),
                "committed": _templates(_committed()),
            },
            memory_bytes=store.reader.memory_bytes,
            pull_max=max(store.config.transfer_count_in_memory_max, MESSAGES_MAX),
        )

    def open(self, connection: Connection) -> _ConnectionLane | None:
        """The lane of a new connection; one over IPv6 has none."""
        host = ipv4_peer(connection)
        if host is None:
            return None
        is_main = connection.port is Port.MAIN
        return _ConnectionLane(self, _wire.Peer(connection, *host), is_main=is_main)

    def take(self, peer: _wire.Peer, data: Received, position: int, *, pulls: bool) -> Taken:
        """Handle frames of a connection."""
        wire, store = self.wire, self._store
        pulls = (
            pulls
            and self._serves_pulls
            and not self._pulls.consume_hooks
            and store.flags.is_readable
        )
        read = None
        if pulls and peer.is_reader:
            read = store.read_plain(partial(self._read, peer, data, position))
            if read.position == len(data):
                return read
            position = read.position
        taken = None

        def append(now_ms: int, dispatch: bool) -> int:  # noqa: FBT001 - called once a burst
            nonlocal taken
            taken = wire.take(
                data,
                position,
                peer,
                now_ms=now_ms,
                appends=now_ms >= 0,
                dispatch=dispatch,
                waits=self._waits,
                pulls=pulls,
                max_output=OUTPUT_BYTES_MAX,
            )
            return wire.messages

        if not self._waits:
            store.put_plain(append)
            assert taken is not None, "the store has called"
        else:
            waiting = WaitingAnswers(
                peer.connection, self._answers, self._flow, self._stats, self._clock
            )
            store.put_plain(append, waiting)
            assert taken is not None, "the store has called"
            waiting.hold(taken[3], wire.waiting_answers, wire.drain_sends())
        peer.is_reader = wire.gets > 0 and not wire.messages
        position, requests, answers, _ = taken
        self._count(requests)
        if read is not None:
            return Taken(position, read.requests + requests, read.answers + answers)
        return Taken(position, requests, answers)

    def _read(self, peer: _wire.Peer, data: Received, position: int, now_ms: int) -> Taken:
        """Handle frames that append nothing, of a connection that has last sent only such."""
        position, requests, answers, _ = self.wire.take(
            data,
            position,
            peer,
            now_ms=now_ms,
            appends=False,
            dispatch=False,
            waits=False,
            pulls=True,
            max_output=OUTPUT_BYTES_MAX,
        )
        self._count(requests)
        return Taken(position, requests, answers)

    def _count(self, requests: int) -> None:
        wire, stats = self.wire, self._store.stats
        self.requests_taken += requests
        if wire.gets:
            stats.get_found += wire.gets
            stats.get_messages += wire.got_messages

    def collect(self) -> None:
        """Put what was counted where it is looked at."""
        add_sends(self._stats, self.wire.drain_sends(), latency_ms=0)
        add_pulls(
            self._stats,
            (
                (plan.group, plan.topic, messages, size_bytes, queues)
                for plan, messages, size_bytes, queues in self.wire.drain_pulls()
            ),
        )


class _ConnectionLane:
    """The lane of one connection."""

    __slots__ = ("_is_main", "_lane", "_peer")

    def __init__(self, lane: WireLane, peer: _wire.Peer, *, is_main: bool) -> None:
        self._lane = lane
        self._peer = peer
        self._is_main = is_main

    def take(self, data: Received, position: int) -> Taken:
        """Handle frames from ``position`` on."""
        return self._lane.take(self._peer, data, position, pulls=self._is_main)


class WireRules:
    """What the reference path lets the lane do, asked by the lane.

    Args:
        config: The broker's settings.
        topics: The topics.
        groups: The consumer groups' settings.
        offsets: How far the groups are.
        sends: The reference path of sends.
        pulls: The reference path of pulls.
        flow: What keeps the broker from taking more than it can.
        clock: The time.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        sends: SendMessageProcessor,
        pulls: PullMessageProcessor,
        flow: FlowControl,
        clock: Clock,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._sends = sends
        self._flow = flow
        self._responses = pulls.response
        self._check = pulls.check
        self._log_limiter = LogLimiter(clock)

    def may_send(self) -> bool:
        """Whether sends are taken now; asked before the first of a read."""
        return not self._sends.send_hooks and self._flow.refusal_of_send() is None

    def plan(self, frame: bytes, connection: Connection) -> _wire.Plan | None:
        """How a pull and those like it are answered; ``None`` leaves them to the processor."""
        decoder = FrameDecoder()
        decoder.feed(frame)
        try:
            request = decode_command(next(iter(decoder)))
            header = decode_header(PullMessageRequestHeader, request.ext_fields)
        except RoquetError:
            return None
        context = RequestContext(connection, request, _MAY_PULL)
        admitted = self._check.admit(context, header)
        if isinstance(admitted, RemotingCommand):
            return None
        wanted = admitted.message_filter
        if wanted is not None and wanted.by_record is not None:
            return None
        found = GetMessageResult(GetMessageStatus.FOUND, 0, 0, 0)
        return _wire.Plan(
            header.consumer_group,
            header.topic,
            offset_key(header.topic, header.consumer_group),
            admitted.topic.read_queue_nums,
            None if wanted is None else wanted.by_queue,
            *_templates(self._responses.make(context, header, admitted, found)),
        )

    def may_pull(self, plan: _wire.Plan, queue_id: int) -> bool:
        """Whether a group reads on; one that was told to go elsewhere has to hear it first."""
        return not self._offsets.has_offset_reset(plan.topic, plan.group, queue_id)

    def pulled(
        self, plan: _wire.Plan, queue_id: int, next_offset: int, committed: int | None
    ) -> None:
        """Keep where a group reads and, if the pull says so, how far it has consumed."""
        self._offsets.commit_pull_at(plan.key, queue_id, next_offset)
        if committed is not None:
            self._offsets.commit(plan.group, plan.topic, queue_id, committed)

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Commit an offset; false leaves that to the processor."""
        if group not in self._groups.table or topic not in self._topics.table:
            return False
        if self._config.use_server_side_reset_offset and self._offsets.has_offset_reset(
            topic, group, queue_id
        ):
            return False
        self._offsets.commit(group, topic, queue_id, queue_offset)
        return True

    def failed(self, error: Exception) -> None:
        """Take note of an error in the lane; the reference path handles the frame."""
        more = self._log_limiter.allow("lane")
        if more is not None:
            log.error("the lane left a frame because of an error%s", more, exc_info=error)


def _committed() -> RemotingCommand:
    request = create_request(RequestCode.UPDATE_CONSUMER_OFFSET, opaque=0)
    return create_response(request, ResponseCode.SUCCESS, UpdateConsumerOffsetResponseHeader())


def _templates(answer: RemotingCommand) -> tuple[_frame.Template, _frame.Template]:
    """The forms of an answer for JSON and for binary headers."""
    form = cut_answer(answer, _frame.SLOT_NAMES)
    json, binary = (
        [(literal, _frame.SLOT_NAMES[name] if name else 0) for literal, name in parts]
        for parts in (form.json, form.binary)
    )
    return _frame.Template(json, -1), _frame.Template(binary, form.ext_size_at)
