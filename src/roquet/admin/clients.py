"""Connected clients: their ids, and what they report about themselves.

Owns :class:`Clients`.
"""

from __future__ import annotations

from roquet.admin.calls import Calls
from roquet.admin.offsets import CLIENT_TIMEOUT_MS
from roquet.admin.results import ServerResults
from roquet.client import ReceivedMessage
from roquet.errors import BrokerRefused, NotFound, RoquetError
from roquet.remoting.bodies.client import (
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers import client as headers

__all__ = ["Clients"]

_OR_OFFLINE = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.CONSUMER_NOT_ONLINE)})


class Clients:
    """Connected clients; ``admin.clients``.

    Example:
        found = await admin.clients.consumers("billing")
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def consumers(self, group: str) -> ServerResults[ConsumerConnection]:
        """Return the clients and subscriptions of a consumer group, on each broker.

        A broker without connected clients returns no connections.

        Example:
            found = await admin.clients.consumers("billing")
            online = any(each.connection_set for each in found.answers.values())
        """
        header = headers.GetConsumerConnectionListRequestHeader(consumer_group=group)

        async def ask(address: str) -> ConsumerConnection:
            code = RequestCode.GET_CONSUMER_CONNECTION_LIST
            answer = await self._calls.ask(address, code, header, accept=_OR_OFFLINE)
            if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return ConsumerConnection()
            return decode_body(ConsumerConnection, answer.body)

        return await self._calls.gather(await self._calls.masters(), ask)

    async def producers(self, group: str) -> ServerResults[ProducerConnection]:
        """Return the clients of a producer group, on each broker.

        A broker without connected clients returns no connections.

        Example:
            found = await admin.clients.producers("shop")
        """
        header = headers.GetProducerConnectionListRequestHeader(producer_group=group)

        async def ask(address: str) -> ProducerConnection:
            code = RequestCode.GET_PRODUCER_CONNECTION_LIST
            try:
                return await self._calls.ask_body(ProducerConnection, address, code, header)
            except BrokerRefused as error:
                # There is no response code of its own for an unknown group.
                if "not exist" in error.remark:
                    return ProducerConnection()
                raise

        return await self._calls.gather(await self._calls.masters(), ask)

    async def all_producers(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> ServerResults[dict[str, list[ProducerInfo]]]:
        """Return the clients of all producer groups, by broker and group.

        Example:
            found = await admin.clients.all_producers()
        """

        async def ask(address: str) -> dict[str, list[ProducerInfo]]:
            code = RequestCode.GET_ALL_PRODUCER_INFO
            header = headers.GetAllProducerInfoRequestHeader()
            return (await self._calls.ask_body(ProducerTableInfo, address, code, header)).data or {}

        targets = await self._calls.masters(cluster=cluster, broker=broker)
        return await self._calls.gather(targets, ask)

    async def consumer_ids(self, group: str) -> list[str]:
        """Return the ids of a consumer group's clients on all brokers that respond, sorted.

        Raises:
            BrokersFailed: No broker responds.

        Example:
            ids = await admin.clients.consumer_ids("billing")
        """
        found = (await self.consumers(group)).partial(f"Listing the clients of {group}")
        return sorted(
            {each.client_id or "" for part in found.values() for each in part.connection_set}
        )

    async def running_info(
        self, group: str, client_id: str, *, with_stacks: bool = False
    ) -> ConsumerRunningInfo:
        """Return what a consumer reports about itself: settings, queues, rates.

        Args:
            group: Its group.
            client_id: The client.
            with_stacks: Whether to include the stacks of its threads, which takes some time.

        Raises:
            NotFound: No such client is connected to any broker.
            RoquetError: It does not respond.

        Example:
            for client_id in await admin.clients.consumer_ids("billing"):
                info = await admin.clients.running_info("billing", client_id)
        """
        header = headers.GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=with_stacks
        )
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        failure: RoquetError | None = None
        for address in await self._where(group, client_id):
            try:
                return await self._calls.ask_body(
                    ConsumerRunningInfo, address, code, header, timeout_ms=CLIENT_TIMEOUT_MS
                )
            except RoquetError as error:
                failure = error
        raise failure or _not_connected(group, client_id)

    async def _where(self, group: str, client_id: str) -> list[str]:
        """Return the addresses of the brokers that a client is connected to."""
        found = (await self.consumers(group)).partial(f"Listing the clients of {group}")
        addresses = {each.name: each.address for each in await self._calls.masters()}
        return [
            address
            for name, part in found.items()
            if any(each.client_id == client_id for each in part.connection_set)
            and (address := addresses.get(name)) is not None
        ]

    async def consume(
        self, group: str, message: ReceivedMessage, *, client_id: str | None = None
    ) -> ConsumeMessageDirectlyResult:
        """Have a client of a group consume a message now, regardless of its offsets.

        Args:
            group: The group.
            message: A message found with this admin API.
            client_id: The client; by default the first one connected to the broker that has the
                message.

        Raises:
            NotFound: No such client is connected to the broker that has the message.
            BrokerRefused: The client did not respond in time.

        Example:
            for message in (await admin.messages.by_key("Orders", "17")).messages:
                for client_id in await admin.clients.consumer_ids("billing"):
                    await admin.clients.consume("billing", message, client_id=client_id)
        """
        found = await self.consumers(group)
        connected = found.answers.get(message.broker_name, ConsumerConnection()).connection_set
        ids = sorted(each.client_id or "" for each in connected)
        if not ids or (client_id is not None and client_id not in ids):
            raise _not_connected(group, client_id or "any")
        (target,) = await self._calls.masters(broker=message.broker_name)
        header = headers.ConsumeMessageDirectlyRequestHeader(
            consumer_group=group,
            client_id=client_id or ids[0],
            msg_id=message.offset_message_id,
            topic=message.topic,
        )
        if target.address is None:
            raise _not_connected(group, client_id or ids[0])
        return await self._calls.ask_body(
            ConsumeMessageDirectlyResult,
            target.address,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            header,
            timeout_ms=CLIENT_TIMEOUT_MS,
        )


def _not_connected(group: str, client_id: str) -> NotFound:
    return NotFound(
        f"No client of the group {group} is connected",
        detail=f"wanted: {client_id}",
        hint="Is it running, and does it subscribe to a topic of this broker?",
    )
