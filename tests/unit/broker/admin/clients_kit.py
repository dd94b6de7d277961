"""Clients for a desk that relays requests: they respond, stay silent, or are gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from roquet.broker.manager.client_channel import ClientChannel
from roquet.errors import SendFailed
from roquet.model.subscription import SubscriptionData
from roquet.remoting.bodies.client import ConsumeFromWhere, ConsumeType, MessageModel
from roquet.remoting.codes import LanguageCode, version_ordinal
from roquet.remoting.command import RemotingCommand, create_request, create_response
from roquet.remoting.connection import Connection
from roquet.remoting.headers.base import Header
from tests.unit.broker.admin.kit import Desk, FakeConnection

ADDRESS = "127.0.0.1:10911"

Answerer = Callable[[RemotingCommand], RemotingCommand]


class FakeClient(FakeConnection):
    """A client that records its requests."""

    def __init__(self, answerer: Answerer | None = None) -> None:
        super().__init__()
        self.answerer = answerer
        self.asked: list[RemotingCommand] = []
        self.told: list[RemotingCommand] = []
        self.timeouts_ms: list[int] = []
        self.error: Exception | None = None

    async def send_request(
        self, code: int, header: Header | None = None, *, body: bytes = b"", timeout_ms: int
    ) -> RemotingCommand:
        request = create_request(code, header, opaque=1, body=body)
        self.asked.append(request)
        self.timeouts_ms.append(timeout_ms)
        if self.error is not None:
            raise self.error
        assert self.answerer is not None
        return self.answerer(request)

    def send_oneway(self, code: int, header: Header | None = None, *, body: bytes = b"") -> None:
        if self.is_closed:
            raise SendFailed("The connection is closed")
        self.told.append(create_request(code, header, opaque=1, body=body, oneway=True))


def answering(code: int, *, remark: str | None = None, body: bytes = b"") -> Answerer:
    """Always returns the same response."""
    return lambda request: create_response(request, code, remark=remark, body=body)


def subscribe(
    at: Desk,
    group: str,
    *topics: str,
    client: FakeClient | None = None,
    client_id: str = "c1",
    version: str = "V5_3_1",
) -> FakeClient:
    """Have a client of a group heartbeat."""
    client = client or FakeClient()
    at.consumers.register(
        group,
        ClientChannel(
            connection=cast("Connection", client),
            client_id=client_id,
            language=LanguageCode.JAVA,
            version=version_ordinal(version),
            last_update_ns=0,
        ),
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscriptions=[SubscriptionData(topic=topic, sub_string="*") for topic in topics],
        notify_enabled=False,
    )
    return client
