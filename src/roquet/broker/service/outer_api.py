"""The requests of a broker to a name server.

Upstream's BrokerOuterAPI. Owns the requests and the decoding of their responses, one method each;
:mod:`roquet.broker.service.registration` decides when to send what. Every method raises
:class:`~roquet.errors.RoquetError` when the name server is unreachable, refuses, or sends an
invalid response.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.manager.topic_queue_mapping import TopicQueueMappingManager
from roquet.broker.service.advertised_addresses import AdvertisedAddresses
from roquet.broker.service.register_body import RegisterBody, RegistrationBatch
from roquet.errors import ProtocolError
from roquet.model.data_version import DataVersion
from roquet.model.topic_config import TopicConfig
from roquet.remoting.bodies.broker import KVTable
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import namesrv as headers
from roquet.remoting.headers.base import Header, decode_header

__all__ = ["BrokerOuterApi", "RegisterResult"]

ANSWER_BYTES_MAX = 1 << 20
"""Enough for the order configurations of some ten thousand topics."""

TOPICS_IN_FLIGHT_MAX = 50
"""How many single topics are registered concurrently."""

_CRC_MASK = 0x7FFFFFFF


class RegisterResult(NamedTuple):
    """A name server's response to a registration.

    Attributes:
        ha_server_address: The address from which a slave replicates.
        master_address: The master's address, for a slave.
        ordered: Queues of ordered topics, by topic.
    """

    ha_server_address: str | None
    master_address: str | None
    ordered: Mapping[str, str]


class BrokerOuterApi:
    """Sends the broker's requests to name servers.

    Args:
        config: The broker's settings.
        client: Sends the requests.
        topics: The topics to register.
        mappings: The queue mappings of static topics.
        advertised: The broker's addresses.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        client: RemotingClient,
        topics: TopicConfigManager,
        mappings: TopicQueueMappingManager,
        advertised: AdvertisedAddresses,
    ) -> None:
        self._config = config
        self._client = client
        self._topics = topics
        self._advertised = advertised
        self._body = RegisterBody(config, topics, mappings)

    async def register(self, namesrv: str) -> RegisterResult:
        """Register the broker with all its current topics."""
        first, *others = self._body.parts()
        result = await self._register(namesrv, first)
        for part in others:
            result = await self._register(namesrv, part)
        return result

    async def _register(self, namesrv: str, part: RegistrationBatch) -> RegisterResult:
        body, compressed = await self._body.encode(part)
        config = self._config
        acting = config.slave_acting_master
        header = headers.RegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_address=self._advertised.address,
            cluster_name=config.cluster_name,
            ha_server_address=self._advertised.ha_address,
            broker_id=config.broker_id,
            heartbeat_timeout_ms=config.broker_not_active_timeout_ms if acting else None,
            enable_acting_master=acting,
            compressed=compressed,
            body_crc32=zlib.crc32(body) & _CRC_MASK,
        )
        answer = await self._ask(namesrv, RequestCode.REGISTER_BROKER, header, body)
        said = decode_header(headers.RegisterBrokerResponseHeader, answer.ext_fields)
        ordered = decode_body(KVTable, answer.body).table if answer.body else {}
        return RegisterResult(said.ha_server_address, said.master_address, ordered)

    async def register_topics(self, namesrv: str, topics: Iterable[TopicConfig]) -> None:
        """Register single topics of a registered broker."""
        left = iter(topics)
        while some := list(islice(left, TOPICS_IN_FLIGHT_MAX)):
            await asyncio.gather(*(self._register_topic(namesrv, topic) for topic in some))

    async def _register_topic(self, namesrv: str, topic: TopicConfig) -> None:
        header = headers.RegisterTopicRequestHeader(topic=topic.topic_name or "")
        body = encode_body(self._body.route(topic))
        await self._ask(namesrv, RequestCode.REGISTER_TOPIC_IN_NAMESRV, header, body)

    async def has_other_topics(self, namesrv: str) -> bool:
        """Whether a name server has, or may have, other topics than the broker.

        The request also counts as a sign of life.
        """
        header = headers.QueryDataVersionRequestHeader(
            broker_name=self._config.broker_name,
            broker_address=self._advertised.address,
            cluster_name=self._config.cluster_name,
            broker_id=self._config.broker_id,
        )
        ours = encode_body(self._topics.data_version)
        try:
            answer = await self._ask(namesrv, RequestCode.QUERY_DATA_VERSION, header, ours)
        except ProtocolError:
            return True
        said = decode_header(headers.QueryDataVersionResponseHeader, answer.ext_fields)
        known = decode_body(DataVersion, answer.body or ours)
        return said.changed or known != self._topics.data_version

    async def heartbeat(self, namesrv: str, *, timeout_ms: int) -> None:
        """Send a one-way sign of life."""
        header = headers.BrokerHeartbeatRequestHeader(
            cluster_name=self._config.cluster_name,
            broker_address=self._advertised.address,
            broker_name=self._config.broker_name,
        )
        await self._client.invoke_oneway(
            namesrv, RequestCode.BROKER_HEARTBEAT, header, timeout_ms=timeout_ms
        )

    async def unregister(self, namesrv: str, *, timeout_ms: int) -> None:
        """Leave."""
        header = headers.UnregisterBrokerRequestHeader(
            broker_name=self._config.broker_name,
            broker_address=self._advertised.address,
            cluster_name=self._config.cluster_name,
            broker_id=self._config.broker_id,
        )
        code = RequestCode.UNREGISTER_BROKER
        await self._ask(namesrv, code, header, b"", timeout_ms=timeout_ms)

    async def _ask(
        self,
        namesrv: str,
        code: RequestCode,
        header: Header,
        body: bytes,
        *,
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        timeout_ms = timeout_ms or self._config.register_broker_timeout_ms
        answer = await self._client.invoke(namesrv, code, header, body=body, timeout_ms=timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            detail = f"code {answer.code}: {(answer.remark or '')[:200]}"
            raise ProtocolError(f"the name server refused {code.name}", detail=detail)
        if len(answer.body) > ANSWER_BYTES_MAX:
            detail = f"{len(answer.body)} bytes, more than {ANSWER_BYTES_MAX}"
            raise ProtocolError("the name server's response is too long", detail=detail)
        return answer
