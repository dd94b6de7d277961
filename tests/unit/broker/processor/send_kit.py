"""A send processor with a real store and no sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from roquet.broker.config import BrokerConfig
from roquet.broker.config import replace as replace_config
from roquet.broker.processor.send_message import SendMessageProcessor
from roquet.broker.service.flow_control import FlowControl
from roquet.errors import RoquetError
from roquet.model.message import StoredMessage
from roquet.model.topic_config import TopicConfig
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand, create_request, create_response
from roquet.remoting.connection import Connection
from roquet.remoting.headers.base import Header
from roquet.remoting.headers.send import SendMessageRequestHeaderV2
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import Port, ProcessorRegistry, RequestContext, Response
from roquet.runtime.clock import ManualClock
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from tests.table_changes import put_topics
from tests.unit.broker.components_kit import components_of

SMALL = MessageStoreConfig(
    commit_log_file_bytes=1 << 16, index_slots=100, index_entries=200, consume_queue_file_bytes=600
)
UNIQUE_KEY = "7F00000171E15FFD2B2749B877600000"
PLAIN = f"TAGS\x01A\x02UNIQ_KEY\x01{UNIQUE_KEY}\x02WAIT\x01true\x02"
SUFFIX = "MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"
KEY = f"UNIQ_KEY\x01{UNIQUE_KEY}\x02"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
ILLEGAL = (
    "the message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit 4194304B, msg properties length limit 32KB."
)


class FakeConnection:
    """A producer's connection, with the responses that were sent on it."""

    def __init__(self, remote_address: str = "10.1.2.3:4567") -> None:
        self.remote_address = remote_address
        self.attributes: dict[str, object] = {}
        self.answers: list[RemotingCommand] = []

    def answer(self, context: RequestContext, answer: Response | None) -> None:
        assert isinstance(answer, RemotingCommand)
        assert not context.request.is_oneway
        self.answers.append(answer)


class SendBroker:
    """The parts of a broker for sends."""

    def __init__(
        self,
        root: Path,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        *,
        seed: int = 7,
    ) -> None:
        self.clock = ManualClock()
        self.config = replace_config(config, store_root=str(root))
        self.store = DefaultMessageStore(root, store_config, clock=self.clock)
        self.busy = False
        self.parts = parts = components_of(
            self.config,
            self.store,
            self.clock,
            seed=seed,
            flow=FlowControl(self.config, self.clock, is_page_cache_busy=lambda: self.busy),
        )
        self.topics = parts.topics
        self.groups = parts.groups
        self.locks = parts.locks
        self.flow = parts.flow
        self.stats = parts.stats
        self.store.load()
        self.store.start(threads=False)
        self.processor = SendMessageProcessor(parts)
        self.registry = ProcessorRegistry(self.processor)
        self.connection = FakeConnection()

    def take(
        self, request: RemotingCommand, connection: FakeConnection | None = None
    ) -> RemotingCommand | None:
        """Hand a request in, with failures as on a connection; its burst continues."""
        registration = self.registry.find(request.code, Port.MAIN)
        assert registration is not None
        link = cast("Connection", connection or self.connection)
        context = RequestContext(link, request, registration.permission)
        try:
            answer = registration.handle(context)
        except RequestRefused as error:
            return create_response(request, error.response_code, remark=error.message)
        except RoquetError as error:
            return create_response(request, ResponseCode.SYSTEM_ERROR, remark=error.message)
        assert answer is None or isinstance(answer, RemotingCommand)
        return answer

    def end_burst(self) -> None:
        """What a server does after all frames of a read."""
        self.store.finish_burst()
        self.flow.end_burst()

    def handle(
        self, request: RemotingCommand, connection: FakeConnection | None = None
    ) -> RemotingCommand | None:
        """The response to a request that is a burst of its own; ``None`` while it waits."""
        link = connection or self.connection
        before = len(link.answers)
        answer = self.take(request, link)
        self.end_burst()
        later = link.answers[before:]
        assert len(later) + (answer is not None) <= 1, "a request gets one response"
        return answer if answer is not None else (later[0] if later else None)

    def send(
        self,
        properties: str = PLAIN,
        *,
        topic: str = "T",
        code: int = RequestCode.SEND_MESSAGE_V2,
        body: bytes = b"body",
        oneway: bool = False,
        version: int = 493,
        header: Header | None = None,
        **fields: object,
    ) -> RemotingCommand:
        """Send a message; return the response, or an empty command if there is none."""
        request = create_request(
            code, header or send_header(properties, topic=topic, **fields), opaque=3, body=body
        )
        request.flag = 2 if oneway else 0
        request.version = version
        return self.handle(request) or RemotingCommand(code=-1)

    def flush(self) -> None:
        """What the store's flusher does, and what follows from it."""
        self.store.flush()
        self.store.acks.flushed_offset = self.store.flushed_offset
        self.store.acks.release()

    def stored(self, topic: str = "T", queue_id: int = 0, queue_offset: int = 0) -> StoredMessage:
        """A message that must exist."""
        offset = self.store.physical_offset_in_queue(topic, queue_id, queue_offset)
        found = self.store.look_message(offset)
        assert found is not None, f"nothing at {topic}-{queue_id}:{queue_offset}"
        return found

    def count(self, topic: str = "T", queue_id: int = 0) -> int:
        """How many messages a queue has."""
        return self.store.max_offset_in_queue(topic, queue_id)


def send_header(
    properties: str = PLAIN, *, topic: str = "T", **fields: object
) -> SendMessageRequestHeaderV2:
    values: dict[str, object] = {
        "producer_group": "P",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp_ms": 1_699_999_999_000,
        "flag": 5,
        "properties": properties,
        "reconsume_times": 0,
        "unit_mode": False,
        "batch": False,
        **fields,
    }
    return SendMessageRequestHeaderV2(**values)  # type: ignore[arg-type]


@contextmanager
def broker(
    root: Path,
    *,
    store_config: MessageStoreConfig = SMALL,
    with_topic: bool = True,
    seed: int = 7,
    **settings: object,
) -> Iterator[SendBroker]:
    """A broker with topic T of four queues."""
    made = SendBroker(root, replace_config(BrokerConfig(), **settings), store_config, seed=seed)
    if with_topic:
        put_topics(made.topics, TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4))
    try:
        yield made
    finally:
        made.store.shutdown()


def refused(made: SendBroker, properties: str = PLAIN, **fields: object) -> tuple[int, str | None]:
    """The refusal of a message, which must leave nothing behind."""
    end = made.store.max_physical_offset
    answer = made.send(properties, **fields)  # type: ignore[arg-type]
    assert made.store.max_physical_offset == end
    assert answer.ext_fields == {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}
    return answer.code, answer.remark


def fields_of(answer: RemotingCommand) -> dict[str, str]:
    assert answer.ext_fields is not None
    return answer.ext_fields
