"""Request messages and their replies.

Owns the table of requests that wait for a reply, and the form of a reply:

.. code-block:: text

    requester ──► topic ──► consumer ──► reply(message, body) ──► the broker of the cluster's reply
        ▲                                                         topic
        └────────────── PUSH_REPLY_MESSAGE_TO_CLIENT (326) ◄──────┘

A request carries three properties: the correlation id of its reply, the client that waits, and the
timeout.
"""

from __future__ import annotations

import asyncio
import uuid

from msgspec import structs

from roquet.client.instance import ClientInstance
from roquet.client.message import Message, ReceivedMessage
from roquet.client.outgoing_message import MESSAGE_TYPE, REPLY
from roquet.errors import BadMessage, ClientClosed, RequestTimeout
from roquet.model import properties as prop

__all__ = ["PendingReplies", "reply"]

CORRELATION_ID = "CORRELATION_ID"
TTL = "TTL"
REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"


def reply(request: ReceivedMessage, body: bytes) -> Message:
    r"""Return the reply to a request; any producer of the cluster may send it.

    Args:
        request: The message that a consumer received.
        body: The body of the reply.

    Raises:
        BadMessage: The message is not a request.

    Example:
        >>> data = b"CLUSTER\x01c\x02REPLY_TO_CLIENT\x01me\x02CORRELATION_ID\x0117\x02"
        >>> asked = ReceivedMessage(topic="T", raw_body=b"?", properties_data=data)
        >>> reply(asked, b"!").topic
        'c_REPLY_TOPIC'
    """
    properties = request.properties
    cluster = properties.get(prop.CLUSTER)
    client_id = properties.get(prop.REPLY_TO_CLIENT)
    correlation_id = properties.get(CORRELATION_ID)
    if cluster is None or client_id is None or correlation_id is None:
        raise BadMessage(
            "The message is not a request, so it cannot be replied to",
            detail=f"{request.message_id} of {request.topic}",
            hint="Requests are sent with Producer.request.",
        )
    system = {
        MESSAGE_TYPE: REPLY,
        CORRELATION_ID: correlation_id,
        prop.REPLY_TO_CLIENT: client_id,
    }
    if TTL in properties:
        system[TTL] = properties[TTL]
    return Message(cluster + REPLY_TOPIC_SUFFIX, body, system_properties=system)


class PendingReplies:
    """The requests of one producer that wait for a reply.

    Args:
        client: The client that waits.
    """

    def __init__(self, client: ClientInstance) -> None:
        self._client = client
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def open(
        self, message: Message, timeout_ms: int
    ) -> tuple[Message, str, asyncio.Future[ReceivedMessage]]:
        """Start waiting for a reply; returns the message to send, its id, and a future."""
        bits = self._client.randomness.getrandbits(128)
        correlation_id = str(uuid.UUID(int=bits, version=4))
        system = dict(message.system_properties or {})
        system[CORRELATION_ID] = correlation_id
        system[prop.REPLY_TO_CLIENT] = self._client.client_id
        system[TTL] = str(timeout_ms)
        future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return structs.replace(message, system_properties=system), correlation_id, future

    def forget(self, correlation_id: str) -> None:
        """Stop waiting for a reply."""
        self._waiting.pop(correlation_id, None)

    def arrived(self, message: ReceivedMessage) -> bool:
        """Hand a reply to its waiter; returns whether there is one."""
        future = self._waiting.pop(message.properties.get(CORRELATION_ID, ""), None)
        if future is None or future.done():
            return False
        future.set_result(message)
        return True

    def close(self) -> None:
        """Fail all waiters."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ClientClosed("The producer was closed before a reply came"))
                future.exception()  # a request whose send failed does not await it
        self._waiting.clear()

    @staticmethod
    def late(message: Message, timeout_ms: int) -> RequestTimeout:
        """Return the error of a request that got no reply."""
        return RequestTimeout(
            f"No reply to a request of {message.topic} came in time",
            detail=f"waited {timeout_ms} ms; the request is stored",
            hint="Is there a consumer of the topic that replies?",
        )
