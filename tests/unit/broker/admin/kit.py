"""A broker's desk without sockets: real managers, a real store, and requests handed in directly."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, cast

from roquet.broker.config import BrokerConfig, replace
from roquet.broker.manager.client_channel import ClientChannel
from roquet.broker.processors import admin_processors, client_processors
from roquet.broker.service.flow_control import FlowControl
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
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from tests.table_changes import put_topics
from tests.unit.broker.components_kit import components_of
from tests.unit.store.kit import CONFIG, NOW_MS, message, open_store, put

T = TypeVar("T")


class FakeConnection:
    """A distinguishable peer."""

    def __init__(self, remote_address: str = "127.0.0.1:5000") -> None:
        self.remote_address = remote_address
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Desk:
    """Everything that serves clients and administrators, except messages."""

    def __init__(
        self,
        config: BrokerConfig,
        store: DefaultMessageStore,
        clock: ManualClock,
        *,
        files: Files | None = None,
    ) -> None:
        self.config = config
        self.store = store
        self.clock = clock
        self.registrations = 0
        self.notified: list[tuple[str, list[str]]] = []
        self.parts = parts = components_of(
            config,
            store,
            clock,
            files=files,
            flow=FlowControl(config, clock, is_page_cache_busy=lambda: False),
        )
        parts.consumers._notify = self._notify
        parts.registration.wait_registered = self._register  # type: ignore[assignment,method-assign]
        self.topics = parts.topics
        self.mappings = parts.mappings
        self.groups = parts.groups
        self.offsets = parts.offsets
        for manager in (self.topics, self.groups, self.offsets):
            assert manager.load() is None
        self.producers = parts.producers
        self.consumers = parts.consumers
        self.filters = parts.filters
        self.locks = parts.locks
        self.flow = parts.flow
        self.stats = parts.stats
        self.delay_offsets = parts.delay_offsets.table
        self._processors = {
            type(each): each for each in (*client_processors(parts), *admin_processors(parts))
        }
        self.registry = ProcessorRegistry(*self._processors.values())
        self.connection = FakeConnection()

    def processor(self, kind: type[T]) -> T:
        """The processor of a class."""
        found = self._processors[kind]
        assert isinstance(found, kind)
        return found

    async def _register(self) -> None:
        self.registrations += 1

    def _notify(self, group: str, channels: Sequence[ClientChannel]) -> None:
        self.notified.append((group, [each.client_id for each in channels]))

    async def handle(self, request: RemotingCommand, connection: object) -> RemotingCommand:
        """Handle a request; failures become responses, as on a connection."""
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
        """Send a request, and read the body of its response."""
        return decode_body(body_type, (await self.ask_ok(code, header)).body)

    def add_topic(self, name: str, queues: int = 4, **settings: str) -> None:
        """Create a topic; settings are attributes, without sign."""
        put_topics(
            self.topics,
            TopicConfig(
                topic_name=name,
                read_queue_nums=queues,
                write_queue_nums=queues,
                attributes={f"+{key}": value for key, value in settings.items()},
            ),
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
    files: Files | None = None,
    store_config: MessageStoreConfig = CONFIG,
    **settings: object,
) -> Iterator[Desk]:
    """A desk on an empty store."""
    clock = ManualClock(NOW_MS)
    config = replace(
        BrokerConfig(broker_name="broker-a", store_root=str(tmp_path / "store")), **settings
    )
    store = open_store(tmp_path / "store", clock=clock, config=store_config)
    try:
        yield Desk(config, store, clock, files=files)
    finally:
        store.shutdown()


def json_body(**members: object) -> bytes:
    """A JSON body as a client writes it."""
    return encode_body(members)
