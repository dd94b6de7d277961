"""The heartbeats of a client, by which brokers know its producers and consumers.

Owns the requests that introduce groups to brokers and sign them off. A broker gets one of them at a
time: a heartbeat that still names a group never arrives after the group was signed off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from weakref import WeakValueDictionary

from roquet.client.callbacks import ConsumerCallbacks, ProducerCallbacks
from roquet.client.response_errors import refused
from roquet.client.route import RouteCache
from roquet.errors import RoquetError
from roquet.remoting.bodies.client import HeartbeatData, ProducerData
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.route import MASTER_ID
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.base import Header
from roquet.remoting.headers.client import (
    HeartbeatRequestHeader,
    UnregisterClientRequestHeader,
)

__all__ = ["Heartbeats"]

log = logging.getLogger(__name__)


class Heartbeats:
    """Tells the brokers of all known routes about the groups of a client; failures are logged.

    Args:
        client_id: The id of the client.
        remoting: Its connections.
        routes: Its routes.
        producers: Its producers by group.
        consumers: Its consumers by group.
    """

    def __init__(
        self,
        client_id: str,
        remoting: RemotingClient,
        routes: RouteCache,
        producers: Mapping[str, ProducerCallbacks],
        consumers: Mapping[str, ConsumerCallbacks],
    ) -> None:
        self._client_id = client_id
        self._remoting = remoting
        self._routes = routes
        self._producers = producers
        self._consumers = consumers
        self._broker_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def send_all(self) -> None:
        """Send a heartbeat to all brokers; without consumers, to masters only."""
        if self._producers or self._consumers:
            addresses = self._broker_addresses(masters_only=not self._consumers)
            await asyncio.gather(*(self.send(address) for address in addresses))

    async def send(self, address: str) -> bool:
        """Send a heartbeat to a broker; returns whether it succeeded."""
        async with self._lock_of(address):
            data = HeartbeatData(
                client_id=self._client_id,
                consumer_data_set=[each.heartbeat_data() for each in self._consumers.values()],
                producer_data_set=[ProducerData(group_name=group) for group in self._producers],
            )
            if not (data.consumer_data_set or data.producer_data_set):
                return False
            return await self._tell(
                address, RequestCode.HEART_BEAT, HeartbeatRequestHeader(), encode_body(data)
            )

    async def sign_off(
        self, *, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        """Tell all brokers that a group has left."""
        header = UnregisterClientRequestHeader(
            client_id=self._client_id,
            producer_group=producer_group,
            consumer_group=consumer_group,
        )
        addresses = self._broker_addresses(masters_only=False)
        await asyncio.gather(*(self._sign_off_at(address, header) for address in addresses))

    async def _sign_off_at(self, address: str, header: UnregisterClientRequestHeader) -> None:
        async with self._lock_of(address):
            await self._tell(address, RequestCode.UNREGISTER_CLIENT, header)

    def is_due_at(self, address: str) -> bool:
        """Whether a broker on a new connection, where it knows nobody, needs a heartbeat."""
        if not (self._producers or self._consumers):
            return False
        is_told_anyway = self._lock_of(address).locked()
        return not is_told_anyway and address in self._broker_addresses(masters_only=False)

    def _broker_addresses(self, *, masters_only: bool) -> list[str]:
        return [
            address
            for addresses in self._routes.brokers.values()
            for broker_id, address in addresses.items()
            if not masters_only or broker_id == MASTER_ID
        ]

    def _lock_of(self, address: str) -> asyncio.Lock:
        lock = self._broker_locks.get(address)
        if lock is None:
            lock = self._broker_locks[address] = asyncio.Lock()
        return lock

    async def _tell(self, address: str, code: int, header: Header, body: bytes = b"") -> bool:
        """Send a request, and only log failures; returns whether it succeeded."""
        try:
            answer = await self._remoting.invoke(address, code, header, body=body)
        except RoquetError as error:
            log.warning("%s (%s)", error.message, error.detail)
            return False
        if answer.code != ResponseCode.SUCCESS:
            refusal = refused(answer, code, address)
            log.warning("%s (%s)", refusal.message, refusal.detail)
            return False
        return True
