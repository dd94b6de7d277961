"""Pulls without sockets: real managers and a real store, connections that only remember."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from roquet.broker.config import BrokerConfig, replace
from roquet.broker.manager.client_channel import ClientChannel
from roquet.broker.processor.pull_message import PullMessageProcessor
from roquet.broker.processor.query_message import QueryMessageProcessor
from roquet.broker.service.flow_control import FlowControl
from roquet.broker.service.pull_request_hold import PullRequestHoldService
from roquet.errors import RoquetError
from roquet.filter.tags import build_subscription
from roquet.model.message import BrokerMessage
from roquet.model.subscription import SubscriptionData
from roquet.model.topic_config import TopicConfig
from roquet.remoting.bodies.client import ConsumeFromWhere, ConsumeType, MessageModel
from roquet.remoting.codes import LanguageCode, RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand, create_request, create_response
from roquet.remoting.connection import Connection
from roquet.remoting.headers.base import Header
from roquet.remoting.headers.pull import PullFlag, PullMessageRequestHeader
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import (
    Port,
    ProcessorRegistry,
    ProcessorResult,
    RequestContext,
    Response,
    SlicedResponse,
)
from roquet.runtime.clock import ManualClock
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from tests.patience import PATIENCE_S
from tests.table_changes import put_topics
from tests.unit.broker.components_kit import components_of
from tests.unit.store.kit import CONFIG, NOW_MS, message, open_store, put

GROUP = "G"
TOPIC = "T"


class FakeConnection:
    """Records what it is to write, and joins bodies at once as a connection does."""

    def __init__(self, remote_address: str = "127.0.0.1:5000") -> None:
        self.remote_address = remote_address
        self.is_closed = False
        self.held_bytes = 0
        self.answers: list[RemotingCommand] = []
        self.writable = asyncio.Event()
        self._answered = asyncio.Event()
        self._on_close: list[Callable[[Connection], None]] = []

    def answer(self, context: RequestContext, answer: Response | None) -> None:
        assert answer is not None
        if not context.request.is_oneway:
            self.answers.append(whole(answer))
            self._answered.set()

    async def wait_answered(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self._answered.wait()

    def on_close(self, callback: Callable[[Connection], None]) -> None:
        self._on_close.append(callback)

    async def wait_writable(self) -> None:
        await self.writable.wait()

    def close(self) -> None:
        self.is_closed = True
        for callback in self._on_close:
            callback(cast("Connection", self))


def whole(answer: Response) -> RemotingCommand:
    """A response with its body, as a peer reads it."""
    if isinstance(answer, SlicedResponse):
        answer.command.body = b"".join(answer.body_slices)
        return answer.command
    return answer


class PullBroker:
    """The parts of a broker for pulls."""

    def __init__(
        self,
        root: Path,
        config: BrokerConfig,
        store: DefaultMessageStore,
        clock: ManualClock,
        *,
        held_max: int = 10_000,
        held_per_connection_max: int = 10_000,
        is_on_loop: bool = False,
    ) -> None:
        self.clock = clock
        self.store = store
        self.config = replace(config, store_root=str(root / "managers"))
        self.soon: list[Callable[[], None]] = []
        self.hold = PullRequestHoldService(
            clock,
            max_offset=store.max_offset_in_queue,
            record_at=store.select_one,
            held_max=held_max,
            held_per_connection_max=held_per_connection_max,
            call_soon=None if is_on_loop else self.soon.append,
        )
        self.parts = parts = components_of(
            self.config,
            store,
            clock,
            hold=self.hold,
            flow=FlowControl(self.config, clock, is_page_cache_busy=lambda: False),
        )
        self.topics = parts.topics
        self.groups = parts.groups
        self.offsets = parts.offsets
        self.consumers = parts.consumers
        self.filters = parts.filters
        self.flow = parts.flow
        self.processor = PullMessageProcessor(parts)
        self.registry = ProcessorRegistry(self.processor, QueryMessageProcessor(parts))
        self.connection = FakeConnection()
        self.topics.load()
        self.groups.load()
        put_topics(
            self.topics, TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4)
        )

    def subscribe(
        self,
        expression: str = "*",
        *,
        group: str = GROUP,
        topic: str = TOPIC,
        version: int = 0,
        message_model: MessageModel = MessageModel.CLUSTERING,
        consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY,
        connection: FakeConnection | None = None,
        subscription: SubscriptionData | None = None,
    ) -> None:
        """Let a consumer of a group send a heartbeat."""
        wanted = subscription or build_subscription(topic, expression)
        wanted.sub_version = version
        self.consumers.register(
            group,
            ClientChannel(
                connection=cast("Connection", connection or self.connection),
                client_id="client",
                language=LanguageCode.JAVA,
                version=0,
                last_update_ns=0,
            ),
            consume_type=consume_type,
            message_model=message_model,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            subscriptions=[wanted],
            notify_enabled=False,
        )

    def handle(
        self, request: RemotingCommand, connection: FakeConnection | None = None
    ) -> ProcessorResult:
        """The response to a request; failures become responses, as on a connection."""
        registration = self.registry.find(request.code, Port.MAIN)
        assert registration is not None
        context = RequestContext(
            cast("Connection", connection or self.connection), request, registration.permission
        )
        try:
            return registration.handle(context)
        except RequestRefused as error:
            return create_response(request, error.response_code, remark=error.message)
        except RoquetError as error:
            return create_response(request, ResponseCode.SYSTEM_ERROR, remark=error.message)

    def ask(
        self,
        header: PullMessageRequestHeader,
        *,
        code: int = RequestCode.PULL_MESSAGE,
        connection: FakeConnection | None = None,
    ) -> RemotingCommand | None:
        """Pull; ``None`` when the pull is held."""
        result = self.handle(create_request(code, header, opaque=1), connection)
        assert not isinstance(result, Awaitable)
        return None if result is None else whole(result)

    async def ask_in_thread(
        self, code: int, header: Header, **ext_fields: str
    ) -> RemotingCommand | None:
        """Send a request whose response comes from a thread."""
        request = create_request(code, header, opaque=1)
        request.ext_fields = {**(request.ext_fields or {}), **ext_fields}
        result = self.handle(request)
        assert isinstance(result, Awaitable)
        answer = await result
        return None if answer is None else whole(answer)

    def put(self, *messages: BrokerMessage) -> None:
        """Store messages as one burst."""
        put(self.store, *messages)

    def turn(self) -> int:
        """One turn of the loop; return how many calls were made."""
        todo = self.soon[:]
        self.soon.clear()
        for each in todo:
            each()
        return len(todo)


def pull(
    queue_offset: int = 0,
    *,
    topic: str = TOPIC,
    group: str = GROUP,
    queue_id: int = 0,
    max_messages: int = 32,
    flags: int = 0,
    commit_offset: int = 0,
    suspend_timeout_ms: int = 15_000,
    subscription: str | None = None,
    sub_version: int = 0,
    expression_type: str | None = None,
) -> PullMessageRequestHeader:
    return PullMessageRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        max_msg_nums=max_messages,
        sys_flag=int(flags),
        commit_offset=commit_offset,
        suspend_timeout_ms=suspend_timeout_ms,
        subscription=subscription,
        sub_version=sub_version,
        expression_type=expression_type,
    )


WAIT = PullFlag.SUSPEND
OWN = PullFlag.SUBSCRIPTION


@contextmanager
def pull_broker(
    root: Path,
    config: BrokerConfig | None = None,
    *,
    store_config: MessageStoreConfig = CONFIG,
    held_max: int = 10_000,
    held_per_connection_max: int = 10_000,
    is_on_loop: bool = False,
) -> Iterator[PullBroker]:
    """A broker that has a topic with four queues, and nothing in them.

    On a loop its turns are real ones; otherwise a test takes them.
    """
    clock = ManualClock(NOW_MS)
    store = open_store(root / "store", clock=clock, config=store_config)
    try:
        yield PullBroker(
            root,
            config or BrokerConfig(),
            store,
            clock,
            held_max=held_max,
            held_per_connection_max=held_per_connection_max,
            is_on_loop=is_on_loop,
        )
    finally:
        store.shutdown()


def tagged(tag: str, body: bytes = b"body", *, queue_id: int = 0) -> BrokerMessage:
    return message(body, topic=TOPIC, queue_id=queue_id, TAGS=tag)


def bodies(answer: RemotingCommand) -> list[bytes]:
    """The message bodies in the body of a response."""
    found = []
    position, data = 0, answer.body
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        body_bytes = int.from_bytes(data[position + 84 : position + 88], "big")
        found.append(data[position + 88 : position + 88 + body_bytes])
        position += size
    return found


def outcome(answer: RemotingCommand | None) -> tuple[int, str | None, int]:
    """Code, remark and the next offset."""
    assert answer is not None
    assert answer.ext_fields is not None
    return answer.code, answer.remark, int(answer.ext_fields["nextBeginOffset"])
