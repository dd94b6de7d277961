"""The lane of the wire in Python, used where the compiled one is not.

Owns the way of plain sends from the bytes of a read to the bytes of their answers; what is plain
about their text is the matter of :mod:`roquet.broker.send_frames`. It takes frames from the front
and stops at the first that is not a plain send; who sends them cannot tell the difference.

A read is handled in three steps: all its plain sends are read, then the store appends them as one
burst, then their answers are written. Those that the store leaves are left to the reference path.
"""

from __future__ import annotations

import logging
import struct
from collections import Counter
from operator import itemgetter

from roquet.broker.config import BrokerConfig
from roquet.broker.lane_answers import WaitingAnswers, cut_answer, ipv4_peer, sent_answer
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.processor.inner_message import added_properties
from roquet.broker.processor.send_answer import SendAnswers
from roquet.broker.processor.send_message import SendMessageProcessor
from roquet.broker.send_frames import SendAnswerWriter, SendReader
from roquet.broker.service.flow_control import FlowControl
from roquet.broker.stats.broker_stats import BrokerStats
from roquet.broker.stats.lane_counts import QueueCounts, SendCounts, add_sends
from roquet.model.host import Host
from roquet.remoting.command import ONEWAY_FLAG
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import LogLimiter
from roquet.remoting.frame import MAX_FRAME_BYTES, Received
from roquet.remoting.frame_lane import Taken
from roquet.runtime.clock import Clock
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.plain_append import PlainAppend, TopicNote
from roquet.store.plain_burst import PlainBurst, PlainMessage

__all__ = ["PureLane", "make_pure_lane"]

log = logging.getLogger(__name__)

BURST_MESSAGES_MAX = 1024
"""The lane takes no further frame of a read after so many."""

HEADER_BYTES_MAX = 1 << 16

_HEAD = struct.Struct(">iI")
_BINARY = 1
_HEADER_LENGTH_MASK = 0xFFFFFF
_QUEUE = itemgetter(0, 1)

_Reply = tuple[int, bytes, int, int, bool, int]
"""Queue id, unique key, opaque, flag, whether the header is binary, and where the frame ends."""


def make_pure_lane(
    config: BrokerConfig,
    *,
    store: DefaultMessageStore,
    topics: TopicConfigManager,
    sends: SendMessageProcessor,
    flow: FlowControl,
    stats: BrokerStats,
    clock: Clock,
    store_host: Host,
) -> PureLane | None:
    """The lane in Python of a broker, ``None`` where the compiled one works or it cannot help."""
    if store.plain is None or store_host.is_ipv6:
        return None
    answers = SendAnswers(config, store=store, clock=clock, store_host=store_host)
    lane = PureLane(
        config, answers, store=store, plain=store.plain, sends=sends, flow=flow, stats=stats,
        clock=clock, store_host=store_host,
    )  # fmt: skip
    sends.approve_topic = lane.reader.approve_topic
    topics.changed.append(lane.reader.forget_topics)
    return lane


class PureLane:
    """The lanes of a broker's connections.

    Args:
        config: The broker's settings.
        answers: Makes answers to sends.
        store: What keeps the messages.
        plain: The quick way of the store.
        sends: The reference path of sends.
        flow: What keeps the broker from taking more than it can.
        stats: The broker's counters.
        clock: The time.
        store_host: The broker's address in records and message ids.

    Attributes:
        reader: What reads sends; knows the topics.
        requests_taken: How many requests the lane has handled.
    """

    def __init__(
        self,
        config: BrokerConfig,
        answers: SendAnswers,
        *,
        store: DefaultMessageStore,
        plain: PlainAppend,
        sends: SendMessageProcessor,
        flow: FlowControl,
        stats: BrokerStats,
        clock: Clock,
        store_host: Host,
    ) -> None:
        self._store = store
        self._stats = stats
        self._clock = clock
        self._sends = sends
        self._flow = flow
        self._answers = answers
        self._waits = store.acks.is_needed
        self._store_host = store_host.pack()
        self._own_properties = added_properties(config)
        self._log_limiter = LogLimiter(clock)
        self._burst = PlainBurst(
            store.config, store.commit_log, store.queues, store.index, store.dispatcher
        )
        self._writer = SendAnswerWriter(
            cut_answer(sent_answer(answers, ""), SendAnswerWriter.NAMES),
            store_host.pack().hex().upper().encode(),
        )
        self.reader = SendReader(plain.note_of)
        self.requests_taken = 0

    def open(self, connection: Connection) -> _ConnectionLane | None:
        """The lane of a new connection; one over IPv6 has none."""
        host = ipv4_peer(connection)
        return None if host is None else _ConnectionLane(self, connection, host.pack())

    def take(self, connection: _ConnectionLane, data: Received, position: int) -> Taken:
        """Handle frames of a connection."""
        messages: list[PlainMessage] = []
        replies: list[_Reply] = []
        try:
            self._read(data, position, messages, replies)
        except Exception as error:  # noqa: BLE001 - the reference path handles the frame
            self._failed(error)
        if not messages or self._sends.send_hooks or self._flow.refusal_of_send() is not None:
            return Taken(position, 0, b"")
        places: list[tuple[int, int]] = []

        def append(now_ms: int, dispatch: bool) -> int:  # noqa: FBT001 - called once a burst
            if now_ms >= 0:
                try:
                    places.extend(
                        self._burst.append(
                            messages,
                            now_ms,
                            dispatch=dispatch,
                            born_host=connection.born_host,
                            store_host=self._store_host,
                        )
                    )
                except Exception as error:  # noqa: BLE001 - the reference path handles the frames
                    self._failed(error)
            return len(places)

        if self._waits:
            waiting = WaitingAnswers(
                connection.connection, self._answers, self._flow, self._stats, self._clock
            )
            self._store.put_plain(append, waiting)
            frames = self._written(replies, places)
            waiting.hold(b"".join(frames), len(frames), self._counts(messages, places))
            answers = b""
        else:
            self._store.put_plain(append)
            answers = b"".join(self._written(replies, places))
            add_sends(self._stats, self._counts(messages, places), latency_ms=0)
        count = len(places)
        self.requests_taken += count
        return Taken(replies[count - 1][-1] if count else position, count, answers)

    def _read(
        self,
        data: Received,
        position: int,
        messages: list[PlainMessage],
        replies: list[_Reply],
    ) -> None:
        """Read plain sends up to the first frame that is not one, or not whole."""
        size = len(data)
        read_json, read_binary, split = (
            self.reader.read_json, self.reader.read_binary, self.reader.split,
        )  # fmt: skip
        own_properties = self._own_properties
        while position + _HEAD.size <= size and len(messages) < BURST_MESSAGES_MAX:
            length, mark = _HEAD.unpack_from(data, position)
            header_bytes = mark & _HEADER_LENGTH_MASK
            start, end = position + _HEAD.size, position + 4 + length
            body_start = start + header_bytes
            if (
                end > size
                or body_start >= end
                or length > MAX_FRAME_BYTES - 4
                or header_bytes > HEADER_BYTES_MAX
                or mark >> 24 > _BINARY
            ):
                return
            is_binary = mark >> 24 == _BINARY
            header = bytes(data[start:body_start])
            read = read_binary(header) if is_binary else read_json(header)
            if read is None:
                return
            route, queue_id, born_ms, properties, opaque, flag = read
            found = split(properties)
            if found is None or flag & ~ONEWAY_FLAG:
                return
            parts, (unique_at, keys_at, tags_at, _, _) = found
            unique_key = parts[unique_at]
            messages.append(
                (
                    route.topic, queue_id, bytes(data[body_start:end]), properties + own_properties,
                    route.flag, route.sys_flag, born_ms, unique_key,
                    parts[keys_at] if keys_at >= 0 else None,
                    parts[tags_at] if tags_at >= 0 else None,
                )
            )  # fmt: skip
            replies.append((queue_id, unique_key, opaque, flag, is_binary, end))
            position = end

    def _written(self, replies: list[_Reply], places: list[tuple[int, int]]) -> list[bytes]:
        """The answers to what was appended; none to one-way requests."""
        json, binary = self._writer.json, self._writer.binary
        return [
            (binary if is_binary else json)(queue_id, unique_key, place, opaque)
            for (queue_id, unique_key, opaque, flag, is_binary, _), place in zip(
                replies, places, strict=False
            )
            if not flag
        ]

    def _counts(
        self, messages: list[PlainMessage], places: list[tuple[int, int]]
    ) -> list[SendCounts]:
        """What was appended, for the counters; it lies in the log without gaps."""
        if not places:
            return []
        end_offset = self._store.commit_log.wrote_offset
        queues: dict[TopicNote, list[QueueCounts]] = {}
        for (topic, queue_id), count in Counter(map(_QUEUE, messages[: len(places)])).items():
            queues.setdefault(topic, []).append((queue_id, count, 0, 0))
        sizes: dict[TopicNote, int] = {}
        if len(queues) == 1:
            sizes[messages[0][0]] = end_offset - places[0][1]
        else:
            ends = [*(offset for _, offset in places[1:]), end_offset]
            for message, (_, offset), end in zip(messages, places, ends, strict=False):
                sizes[message[0]] = sizes.get(message[0], 0) + end - offset
        return [
            (topic.name, sum(count for _, count, _, _ in moved), sizes[topic], moved)
            for topic, moved in queues.items()
        ]

    def _failed(self, error: Exception) -> None:
        """Take note of an error in the lane."""
        more = self._log_limiter.allow("lane")
        if more is not None:
            log.error("the lane left frames because of an error%s", more, exc_info=error)


class _ConnectionLane:
    """The lane of one connection."""

    __slots__ = ("_lane", "born_host", "connection")

    def __init__(self, lane: PureLane, connection: Connection, born_host: bytes) -> None:
        self._lane = lane
        self.connection = connection
        self.born_host = born_host

    def take(self, data: Received, position: int) -> Taken:
        """Handle frames from ``position`` on."""
        return self._lane.take(self, data, position)
