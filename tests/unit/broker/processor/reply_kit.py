"""A reply processor on the broker of the send kit, and clients that sent requests."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import cast

from roquet.broker.manager.client_channel import ClientChannel
from roquet.broker.processor.reply_message import ReplyMessageProcessor
from roquet.errors import RoquetError
from roquet.remoting.codes import LanguageCode, RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand, create_request, create_response
from roquet.remoting.connection import Connection
from roquet.remoting.headers.base import Header
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import Port, RequestContext
from tests.unit.broker.processor.send_kit import (
    FakeConnection,
    SendBroker,
    send_header,
)

CLIENT_ID = "10.9.8.7@1#2"
REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
REPLY = (
    f"MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01{CLIENT_ID}\x02UNIQ_KEY\x017F01\x02"
    "TTL\x018000\x02CORRELATION_ID\x01c-1\x02"
)


class Requester:
    """A client that takes replies."""

    def __init__(self, answer: Callable[[RemotingCommand], RemotingCommand] | None = None) -> None:
        self.is_closed = False
        self.got: list[RemotingCommand] = []
        self.timeouts_ms: list[int] = []
        self.error: Exception | None = None
        self._answer = answer or (lambda request: create_response(request, ResponseCode.SUCCESS))

    async def send_request(
        self, code: int, header: Header | None = None, *, body: bytes = b"", timeout_ms: int
    ) -> RemotingCommand:
        request = create_request(code, header, opaque=1, body=body)
        self.got.append(request)
        self.timeouts_ms.append(timeout_ms)
        if self.error is not None:
            raise self.error
        return self._answer(request)


class Replies:
    """The parts of a broker for replies."""

    def __init__(self, made: SendBroker) -> None:
        self.broker = made
        self.producers = made.parts.producers
        self.processor = ReplyMessageProcessor(made.parts)
        made.registry.add(self.processor)

    def requester(self, client_id: str = CLIENT_ID) -> Requester:
        """A client that waits for replies."""
        client = Requester()
        self.producers.register(
            "CLIENT_INNER_PRODUCER",
            ClientChannel(
                connection=cast("Connection", client),
                client_id=client_id,
                language=LanguageCode.JAVA,
                version=493,
                last_update_ns=0,
            ),
        )
        return client

    async def ask(
        self, request: RemotingCommand, connection: FakeConnection, port: Port = Port.MAIN
    ) -> RemotingCommand:
        """The response to a request; failures become responses, as on a connection."""
        registration = self.broker.registry.find(request.code, port)
        assert registration is not None
        context = RequestContext(cast("Connection", connection), request, registration.permission)
        try:
            answer = registration.handle(context)
            if inspect.isawaitable(answer):
                answer = await answer
        except RequestRefused as error:
            return create_response(request, error.response_code, remark=error.message)
        except RoquetError as error:
            return create_response(request, ResponseCode.SYSTEM_ERROR, remark=error.message)
        assert isinstance(answer, RemotingCommand)
        return answer

    async def reply(
        self,
        properties: str = REPLY,
        *,
        topic: str = REPLY_TOPIC,
        code: int = RequestCode.SEND_REPLY_MESSAGE_V2,
        body: bytes = b"pong",
        header: Header | None = None,
        port: Port = Port.MAIN,
        **fields: object,
    ) -> RemotingCommand:
        """Send a reply."""
        given = header or send_header(properties, topic=topic, **fields)
        request = create_request(code, given, opaque=3, body=body)
        return await self.ask(request, FakeConnection(), port)
