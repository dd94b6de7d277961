"""What a broker says to a name server.

Upstream's BrokerOuterAPI. Owns the requests and the reading of their answers, one method each; when
to say what is :mod:`roquet.broker.service.registration`'s. Every method raises
:class:`~roquet.errors.RoquetError` when the name server cannot be asked, refuses, or answers
something else than it should.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.service.register_body import RegisterBody
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
from roquet.runtime.clock import Clock

__all__ = ["BrokerOuterApi", "RegisterResult"]

ANSWER_BYTES_MAX = 1 << 20
"""Order configurations of some ten thousand topics."""

_CRC_MASK = 0x7FFFFFFF


class RegisterResult(NamedTuple):
    """What a name server answers to a registration.

    Attributes:
        ha_server_address: Where a slave finds its master's replication.
        master_address: Where a slave finds its master.
        ordered: Queues of ordered topics, by topic.
    """

    ha_server_address: str | None
    master_address: str | None
    ordered: Mapping[str, str]


class BrokerOuterApi:
    """Speaks to name servers on behalf of a broker.

    Args:
        config: The broker's settings.
        client: Sends the requests.
        topics: What is registered.
        address: Where clients find the broker.
        ha_address: Where slaves find it.
        clock: The time.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        client: RemotingClient,
        topics: TopicConfigManager,
        address: Callable[[], str],
        ha_address: Callable[[], str],
        clock: Clock,
    ) -> None:
        self._config = config
        self._client = client
        self._topics = topics
        self._address = address
        self._ha_address = ha_address
        self._body = RegisterBody(config, topics, clock)

    async def register(self, namesrv: str) -> RegisterResult:
        """Register the broker with all topics that it has now."""
        body, compressed = await self._body.encode()
        config = self._config
        acting = config.slave_acting_master
        header = headers.RegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_address=self._address(),
            cluster_name=config.cluster_name,
            ha_server_address=self._ha_address(),
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
        """Register single topics of a broker that is registered."""
        await asyncio.gather(*(self._register_topic(namesrv, topic) for topic in topics))

    async def _register_topic(self, namesrv: str, topic: TopicConfig) -> None:
        header = headers.RegisterTopicRequestHeader(topic=topic.topic_name or "")
        body = encode_body(self._body.route(topic))
        await self._ask(namesrv, RequestCode.REGISTER_TOPIC_IN_NAMESRV, header, body)

    async def has_other_topics(self, namesrv: str) -> bool:
        """Whether a name server has, or may have, other topics than there are.

        Asking is a sign of life.
        """
        header = headers.QueryDataVersionRequestHeader(
            broker_name=self._config.broker_name,
            broker_address=self._address(),
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
        """Show that the broker lives; one-way."""
        header = headers.BrokerHeartbeatRequestHeader(
            cluster_name=self._config.cluster_name,
            broker_address=self._address(),
            broker_name=self._config.broker_name,
        )
        await self._client.invoke_oneway(
            namesrv, RequestCode.BROKER_HEARTBEAT, header, timeout_ms=timeout_ms
        )

    async def unregister(self, namesrv: str, *, timeout_ms: int) -> None:
        """Leave."""
        header = headers.UnregisterBrokerRequestHeader(
            broker_name=self._config.broker_name,
            broker_address=self._address(),
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
            raise ProtocolError("the name server answered too much", detail=detail)
        return answer
