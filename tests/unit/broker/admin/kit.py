"""A broker's desk without sockets: real managers and a real store, requests are handed in."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, cast

from roquet.broker.admin.connection import ConnectionAdmin
from roquet.broker.admin.group import GroupAdmin
from roquet.broker.admin.offset import OffsetAdmin
from roquet.broker.admin.queue_lock import QueueLockAdmin
from roquet.broker.admin.runtime_info import RuntimeInfoAdmin
from roquet.broker.admin.topic import TopicAdmin
from roquet.broker.config import BrokerConfig, replace
from roquet.broker.expression_filter import make_filters
from roquet.broker.manager.client_channel import ClientChannel
from roquet.broker.manager.consumer import ConsumerManager
from roquet.broker.manager.consumer_offset import ConsumerOffsetManager
from roquet.broker.manager.producer import ProducerManager
from roquet.broker.manager.rebalance_lock import RebalanceLockManager
from roquet.broker.manager.subscription_group import SubscriptionGroupManager
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.processor.client_manage import ClientManageProcessor, CompileExpression
from roquet.broker.processor.consumer_manage import ConsumerManageProcessor
from roquet.broker.service.flow_control import FlowControl
from roquet.broker.stats.broker_stats import BrokerStats
from roquet.errors import RoquetError
from roquet.model.topic_config import TopicConfig
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.codes import ResponseCode
from roquet.remoting.command import RemotingCommand, create_request, create_response
from roquet.remoting.connection import Connection
from roquet.remoting.headers.base import Header
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import (
    Port,
    ProcessorRegistry,
    RequestContext,
    unknown_code_response,
)
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.store.default_message_store import DefaultMessageStore
from tests.unit.store.kit import NOW_MS, message, open_store, put

T = TypeVar("T")


class FakeConnection:
    """A peer to tell apart from others."""

    def __init__(self, remote_address: str = "127.0.0.1:5000") -> None:
        self.remote_address = remote_address
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Desk:
    """Everything that answers clients and administrators, but for messages."""

    def __init__(
        self,
        config: BrokerConfig,
        store: DefaultMessageStore,
        clock: ManualClock,
        *,
        files: Files | None = None,
        compile_expression: CompileExpression | None = None,
    ) -> None:
        files = files or Files()
        self.config = config
        self.store = store
        self.clock = clock
        self.registrations = 0
        self.notified: list[tuple[str, list[str]]] = []
        self.topics = TopicConfigManager.at(config, files, clock)
        self.groups = SubscriptionGroupManager.at(config, files, clock)
        self.offsets = ConsumerOffsetManager.at(config, files, clock)
        for manager in (self.topics, self.groups, self.offsets):
            assert manager.load() is None
        self.producers = ProducerManager(config, clock)
        self.consumers = ConsumerManager(config, clock, notify=self._notify)
        self.filters = make_filters(config, files, clock, store=store, consumers=self.consumers)
        self.locks = RebalanceLockManager(clock)
        self.flow = FlowControl(config, clock, is_page_cache_busy=lambda: False)
        self.stats = BrokerStats(config.cluster_name, clock)
        self.clients = ClientManageProcessor(
            config,
            topics=self.topics,
            groups=self.groups,
            producers=self.producers,
            consumers=self.consumers,
            clock=clock,
            compile_expression=compile_expression,
        )
        self.delay_offsets: dict[int, int] = {}
        self.registry = ProcessorRegistry(
            self.clients,
            ConsumerManageProcessor(
                config,
                store=store,
                topics=self.topics,
                groups=self.groups,
                consumers=self.consumers,
                offsets=self.offsets,
            ),
            OffsetAdmin(store=store, offsets=self.offsets, flow=self.flow),
            QueueLockAdmin(locks=self.locks),
            TopicAdmin(
                config,
                store=store,
                topics=self.topics,
                offsets=self.offsets,
                flow=self.flow,
                registered=self._register,
            ),
            GroupAdmin(groups=self.groups, offsets=self.offsets, flow=self.flow),
            ConnectionAdmin(producers=self.producers, consumers=self.consumers, clock=clock),
            RuntimeInfoAdmin(
                config,
                store=store,
                flow=self.flow,
                clock=clock,
                files=files,
                delay_offsets=self.delay_offsets,
                stats=self.stats,
            ),
        )
        self.connection = FakeConnection()

    async def _register(self) -> None:
        self.registrations += 1

    def _notify(self, group: str, channels: Sequence[ClientChannel]) -> None:
        self.notified.append((group, [each.client_id for each in channels]))

    async def handle(self, request: RemotingCommand, connection: object) -> RemotingCommand:
        """Answer a request, with failures as a connection answers them."""
        registration = self.registry.find(request.code, Port.FAST)
        if registration is None:
            return unknown_code_response(request)
        context = RequestContext(cast("Connection", connection), request, registration.permission)
        try:
            answer: object = registration.handle(context)
            if inspect.isawaitable(answer):
                answer = await answer
        except RequestRefused as error:
            return create_response(request, error.response_code, remark=error.message)
        except RoquetError as error:
            return create_response(request, ResponseCode.SYSTEM_ERROR, remark=error.message)
        assert isinstance(answer, RemotingCommand)
        return answer

    async def ask(
        self,
        code: int,
        header: Header | None = None,
        *,
        body: bytes = b"",
        connection: object = None,
    ) -> RemotingCommand:
        """Send a request."""
        request = create_request(code, header, opaque=1, body=body)
        return await self.handle(request, connection or self.connection)

    async def ask_ok(
        self, code: int, header: Header | None = None, *, body: bytes = b""
    ) -> RemotingCommand:
        """Send a request that must succeed."""
        answer = await self.ask(code, header, body=body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer

    async def body_of(self, code: int, header: Header | None, body_type: type[T]) -> T:
        """Send a request, and read the body of its answer."""
        return decode_body(body_type, (await self.ask_ok(code, header)).body)

    def add_topic(self, name: str, queues: int = 4, **settings: str) -> None:
        """Make a topic; settings are attributes, without sign."""
        self.topics.update(
            TopicConfig(
                topic_name=name,
                read_queue_nums=queues,
                write_queue_nums=queues,
                attributes={f"+{key}": value for key, value in settings.items()},
            )
        )

    def put(self, topic: str, queue_id: int, count: int) -> None:
        """Store messages, one a millisecond."""
        for _ in range(count):
            self.clock.advance(1)
            put(self.store, message(topic=topic, queue_id=queue_id))


@contextmanager
def desk(
    tmp_path: Path,
    *,
    compile_expression: CompileExpression | None = None,
    files: Files | None = None,
    **settings: object,
) -> Iterator[Desk]:
    """A desk on an empty store."""
    clock = ManualClock(NOW_MS)
    config = replace(
        BrokerConfig(broker_name="broker-a", store_root=str(tmp_path / "store")), **settings
    )
    store = open_store(tmp_path / "store", clock=clock)
    try:
        yield Desk(config, store, clock, files=files, compile_expression=compile_expression)
    finally:
        store.shutdown()


def json_body(**members: object) -> bytes:
    """A JSON body as a client writes it."""
    return encode_body(members)
