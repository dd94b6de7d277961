"""A broker's processors over a real store, fed with bytes and without sockets.

Two sides, one with a lane of the wire and one without, get the same bytes under the same
clock; whatever they answer and write can then be compared.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import cast
from unittest.mock import patch

from roquet.broker.config import BrokerConfig
from roquet.broker.expression_filter import make_filters
from roquet.broker.lane import WireLane, make_wire_lane
from roquet.broker.manager.consumer import ConsumerManager
from roquet.broker.manager.consumer_offset import ConsumerOffsetManager
from roquet.broker.manager.subscription_group import SubscriptionGroupManager
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.processor.consumer_manage import ConsumerManageProcessor
from roquet.broker.processor.pull_message import PullMessageProcessor
from roquet.broker.processor.send_message import SendMessageProcessor
from roquet.broker.pure_lane import PureLane, make_pure_lane
from roquet.broker.service.flow_control import FlowControl
from roquet.broker.service.pull_request_hold import PullRequestHoldService
from roquet.broker.stats.broker_stats import BrokerStats
from roquet.model.host import Host
from roquet.model.topic_config import TopicConfig
from roquet.remoting.codes import LanguageCode
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import Endpoint, RemotingLimits
from roquet.remoting.frame import FrameDecoder, encode_frame
from roquet.remoting.processor import Port, ProcessorRegistry
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.runtime.randomness import seeded
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore

STORE_HOST = Host.parse("127.0.0.1:10911")
TOPICS = ("Orders", "Other", "Narrow")


class LaneKind(Enum):
    """The lanes of the wire."""

    COMPILED = "compiled"
    PURE = "pure"


class FakeTransport:
    """Keeps what is written."""

    def __init__(self, peer: tuple[str, int]) -> None:
        self._peer = peer
        self._is_closing = False
        self.written: list[bytes] = []

    def get_extra_info(self, name: str) -> object:
        return self._peer if name == "peername" else None

    def set_write_buffer_limits(self, *, high: int, low: int) -> None:
        assert high > low

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self._is_closing = True

    abort = close


def bring(connection: Connection, data: bytes) -> None:
    """Bytes as reads bring them."""
    while data:
        room = connection.get_buffer(-1)
        count = min(len(room), len(data))
        room[:count] = data[:count]
        connection.buffer_updated(count)
        data = data[count:]


class Side:
    """One broker; use inside a running event loop.

    Args:
        root: Where its store is.
        config: The store's settings.
        lane: Which lane it has, if any.
    """

    def __init__(self, root: Path, config: MessageStoreConfig, *, lane: LaneKind | None) -> None:
        self.root = root
        self.clock = ManualClock()
        broker = self.broker_config = BrokerConfig(store_root=str(root))
        clock = self.clock
        with patch.dict(os.environ, ROQUET_PURE="1" if lane is LaneKind.PURE else "0"):
            self.store = DefaultMessageStore(root, config, clock=clock)
        self.store.load()
        self.store.start(threads=False)
        self.topics = TopicConfigManager.at(broker, Files(), clock)
        self.groups = SubscriptionGroupManager.at(broker, Files(), clock)
        self.offsets = ConsumerOffsetManager.at(broker, Files(), clock)
        consumers = self.consumers = ConsumerManager(
            broker, clock, notify=lambda _group, _channels: None
        )
        self.flow = FlowControl(broker, clock, is_page_cache_busy=lambda: False)
        filters = make_filters(broker, Files(), clock, store=self.store, consumers=consumers)
        hold = PullRequestHoldService(
            clock, max_offset=self.store.max_offset_in_queue, record_at=self.store.select_one
        )
        self.stats = BrokerStats(broker.cluster_name, clock)
        self.store.dispatcher.arriving.append(hold.notify_arriving)
        self.sends = SendMessageProcessor(
            broker,
            store=self.store,
            topics=self.topics,
            groups=self.groups,
            clock=clock,
            store_host=STORE_HOST,
            flow=self.flow,
            random=seeded(1),
            stats=self.stats,
        )
        pulls = self.pulls = PullMessageProcessor(
            broker,
            store=self.store,
            topics=self.topics,
            groups=self.groups,
            consumers=consumers,
            filters=filters,
            offsets=self.offsets,
            hold=hold,
            clock=clock,
            flow=self.flow,
            stats=self.stats,
        )
        commits = ConsumerManageProcessor(
            broker,
            store=self.store,
            topics=self.topics,
            groups=self.groups,
            consumers=consumers,
            offsets=self.offsets,
        )
        self.endpoint = Endpoint(
            ProcessorRegistry(self.sends, pulls, commits),
            RemotingLimits(),
            hooks=(),
            clock=clock,
            language=LanguageCode.JAVA,
            serialize_type=None,
            reads_while_unwritten=False,
        )
        self.endpoint.burst_listeners.append(self._burst_ended)
        self.lane: WireLane | PureLane | None = None
        if lane is LaneKind.COMPILED:
            self.lane = make_wire_lane(
                broker,
                store=self.store,
                topics=self.topics,
                groups=self.groups,
                consumers=consumers,
                offsets=self.offsets,
                sends=self.sends,
                pulls=pulls,
                flow=self.flow,
                stats=self.stats,
                clock=clock,
                store_host=STORE_HOST,
            )
            assert self.lane is not None, "the lane is built"
        elif lane is LaneKind.PURE:
            self.lane = make_pure_lane(
                broker,
                store=self.store,
                topics=self.topics,
                sends=self.sends,
                flow=self.flow,
                stats=self.stats,
                clock=clock,
                store_host=STORE_HOST,
            )
            assert self.lane is not None, "the store has its quick way"
        self.endpoint.lane = self.lane
        for name in TOPICS:
            queues = 1 if name == "Narrow" else 4
            self.topics.update(
                TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
            )
        self.transports: list[FakeTransport] = []

    def _burst_ended(self) -> None:
        self.store.finish_burst()
        self.flow.end_burst()

    def connect(self, *, port: Port = Port.MAIN) -> Connection:
        """A new connection; the peers of both sides have the same addresses."""
        transport = FakeTransport(("10.1.2.3", 40_000 + len(self.transports)))
        self.transports.append(transport)
        connection = Connection(self.endpoint, port=port)
        connection.connection_made(cast("asyncio.BaseTransport", transport))
        return connection

    async def feed(self, chunks: Sequence[bytes], *, port: Port = Port.MAIN) -> None:
        """Bytes as reads bring them; a connection that is closed is followed by a new one."""
        connection = self.connect(port=port)
        for chunk in chunks:
            if connection.is_closed:
                connection = self.connect(port=port)
            bring(connection, chunk)
            for _ in range(3):
                await asyncio.sleep(0)

    def flush(self) -> None:
        """What the flush thread would do."""
        self.store.flusher.flush_all()

    def answers(self) -> list[list[bytes]]:
        """The frames written on each connection, in an order that does not depend on bursts."""
        return [_frames(b"".join(each.written)) for each in self.transports]

    def close(self) -> dict[str, bytes]:
        """Shut down; the files of log, queues and index."""
        self.flow.close()
        self.store.shutdown()
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for folder in ("commitlog", "consumequeue", "index")
            for path in sorted((self.root / folder).rglob("*"))
            if path.is_file()
        }


def _frames(data: bytes) -> list[bytes]:
    decoder = FrameDecoder()
    decoder.feed(data)
    frames = sorted(encode_frame(*frame) for frame in decoder)
    assert decoder.buffered_bytes == 0, "an answer is cut short"
    return frames
