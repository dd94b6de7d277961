"""A broker's processors over a real store, fed with bytes and without sockets.

Two sides, one compiled and one on the reference path, get the same bytes under the same
clock; their responses and files can then be compared.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Generic, NamedTuple, TypeVar, cast
from unittest.mock import patch

from msgspec import structs

from roquet.broker.config import BrokerConfig
from roquet.broker.hot.path import HotPath, make_hot_path
from roquet.broker.processor.consumer_manage import ConsumerManageProcessor
from roquet.broker.processor.pull_message import PullMessageProcessor
from roquet.broker.processor.send_message import SendMessageProcessor
from roquet.broker.service.flow_control import FlowControl
from roquet.model.topic_config import TopicConfig
from roquet.remoting.codes import LanguageCode
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import Endpoint, RemotingLimits
from roquet.remoting.frame import FrameDecoder, encode_frame
from roquet.remoting.processor import Port, ProcessorRegistry
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.store.config import FlushDiskType, MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from tests.table_changes import put_topics
from tests.unit.broker.components_kit import components_of

TOPICS = ("Orders", "Other", "Narrow")
BATCHED = "Batched"
"""A topic with batch consume queues, of which the hot path takes nothing."""

CONFIG = MessageStoreConfig(
    commit_log_file_bytes=1 << 13,
    consume_queue_file_bytes=200,
    index_slots=7,
    index_entries=60,
    max_message_bytes=1000,
)
SYNC = structs.replace(CONFIG, flush_disk_type=FlushDiskType.SYNC_FLUSH)

T = TypeVar("T")


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
        room = connection.input.get_buffer(-1)
        count = min(len(room), len(data))
        room[:count] = data[:count]
        connection.buffer_updated(count)
        data = data[count:]


class Side:
    """One broker; use inside a running event loop.

    Args:
        root: Where its store is.
        config: The store's settings.
        is_hot: Whether it is compiled; otherwise everything takes the reference path.
        files: The store's files; real ones if not given.
    """

    def __init__(
        self,
        root: Path,
        config: MessageStoreConfig,
        *,
        is_hot: bool,
        files: Files | None = None,
    ) -> None:
        self.root = root
        self.clock = ManualClock()
        broker = self.broker_config = BrokerConfig(store_root=str(root))
        clock = self.clock
        with patch.dict(os.environ, ROQUET_PURE="0" if is_hot else "1"):
            self.store = DefaultMessageStore(root, config, clock=clock, files=files)
        self.store.load()
        self.store.start(threads=False)
        parts = self.parts = components_of(
            broker,
            self.store,
            clock,
            seed=1,
            flow=FlowControl(broker, clock, is_page_cache_busy=lambda: False),
        )
        self.topics = parts.topics
        self.groups = parts.groups
        self.offsets = parts.offsets
        self.consumers = parts.consumers
        self.flow = parts.flow
        self.stats = parts.stats
        self.sends = SendMessageProcessor(parts)
        pulls = self.pulls = PullMessageProcessor(parts)
        commits = ConsumerManageProcessor(parts)
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
        self.hot_path: HotPath | None = None
        if is_hot:
            self.hot_path = make_hot_path(parts, self.sends, pulls)
            assert self.hot_path is not None, "the hot path is built"
        self.endpoint.hot_path = self.hot_path
        self._make_topics()
        self.transports: list[FakeTransport] = []

    def _make_topics(self) -> None:
        for name in TOPICS:
            queues = 1 if name == "Narrow" else 4
            put_topics(
                self.topics,
                TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues),
            )
        self.store.queues.is_batch_topic = self.topics.has_batch_queues
        batched = {"+queue.type": "BatchCQ"}
        put_topics(self.topics, TopicConfig(topic_name=BATCHED, attributes=batched))

    def _burst_ended(self) -> None:
        self.store.finish_burst()
        self.flow.end_burst()

    @property
    def requests_taken(self) -> int:
        """How many requests the hot path has taken; none without it."""
        return 0 if self.hot_path is None else self.hot_path.requests_taken

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
            # Sends that create a topic wait for its file.
            await self.topics.committed()
            for _ in range(3):
                await asyncio.sleep(0)

    async def play(
        self, chunks: Sequence[bytes], *, port: Port = Port.MAIN, wait_ms: int = 0
    ) -> None:
        """Feed, flush after a while, and let those that wait for the flush continue."""
        await self.feed(chunks, port=port)
        self.clock.advance(wait_ms)
        self.flush()
        for _ in range(4):
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


class Played(NamedTuple, Generic[T]):
    """The result of what ran on a side, and the side's files after it was closed."""

    result: T
    files: dict[str, bytes]


def on_both_sides(
    config: MessageStoreConfig,
    run: Callable[[Side], Awaitable[T]],
    *,
    files: Files | None = None,
) -> tuple[Played[T], Played[T]]:
    """Run the same on a side with the hot path, and then on one without."""

    async def on_one(root: str, *, is_hot: bool) -> Played[T]:
        side = Side(Path(root), config, is_hot=is_hot, files=files)
        try:
            result = await run(side)
        finally:
            files_left = side.close()
        return Played(result, files_left)

    with TemporaryDirectory() as first, TemporaryDirectory() as second:
        return (
            asyncio.run(on_one(first, is_hot=True)),
            asyncio.run(on_one(second, is_hot=False)),
        )


def _frames(data: bytes) -> list[bytes]:
    decoder = FrameDecoder()
    decoder.feed(data)
    frames = sorted(encode_frame(*frame) for frame in decoder)
    assert decoder.buffered_bytes == 0, "a response is cut short"
    return frames
