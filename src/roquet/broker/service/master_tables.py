"""The requests of a slave to its master.

The part of upstream's BrokerOuterAPI with which a slave copies tables. Owns the pages of long
tables and the limits on their size; :mod:`roquet.broker.service.slave_synchronize` decides when to
request what. Masters may be Roquet or Java brokers since 4.9. Every method raises
:class:`~roquet.errors.RoquetError` if the master is unreachable, refuses, or sends an invalid
response.

A table that has changed is read twice, and gets the version of the first time: a Java master takes
the entries first and the version then, so that a change in between is in the version only.

Long bodies are decoded in a thread. Java brokers write numbers as keys without quotes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, TypeVar

from roquet.errors import ProtocolError
from roquet.model.data_version import DataVersion
from roquet.model.subscription import SubscriptionGroupConfig
from roquet.model.topic_config import TopicConfig
from roquet.model.topic_queue_mapping import TopicQueueMappingDetail
from roquet.remoting.bodies.broker import HARuntimeInfo, KVTable
from roquet.remoting.bodies.client import MessageRequestModeSerializeWrapper
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.bodies.group import SubscriptionGroupWrapper
from roquet.remoting.bodies.offset import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
)
from roquet.remoting.bodies.topic import TopicConfigAndMappingSerializeWrapper
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import MAX_FRAME_BYTES
from roquet.remoting.headers import admin as headers
from roquet.remoting.headers.base import Header, decode_header
from roquet.remoting.headers.ha import ExchangeHAInfoHeader

__all__ = ["GroupTables", "MasterTables", "TopicTables"]

PAGE_ENTRIES = 2_000
"""Upstream's page of topics or groups."""

ENTRIES_MAX = 1_000_000
"""A longer table is refused."""

RESTARTS_MAX = 10
"""How often a table may change while its pages are requested."""

TIMEOUT_MS = 30_000
SHORT_TIMEOUT_MS = 3_000

DECODED_AT_ONCE_BYTES_MAX = 32 << 10
"""Longer bodies are decoded in a thread."""

_LOG_END = "commitLogMaxOffset"

T = TypeVar("T")
P = TypeVar("P")


class TopicTables(NamedTuple):
    """The topics of a master, and the mappings of static ones."""

    version: DataVersion
    topics: dict[str, TopicConfig]
    mapping_version: DataVersion
    mappings: dict[str, TopicQueueMappingDetail]


class GroupTables(NamedTuple):
    """The groups of a master, and what they may not read."""

    version: DataVersion
    groups: dict[str, SubscriptionGroupConfig]
    forbidden: dict[str, dict[str, int]]


class _Page(NamedTuple):
    """A page of a table.

    Attributes:
        entries: How many entries it has.
        total: How many entries the table has; ``None`` if this is all of it.
    """

    version: DataVersion
    entries: int
    total: int | None


class MasterTables:
    """Requests the tables of a master.

    Args:
        client: Sends the requests.
    """

    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    async def topics(
        self, master: str, known: DataVersion, known_mappings: DataVersion
    ) -> TopicTables | None:
        """Return the topics, or ``None`` if their versions are the known ones."""
        first = await self._topics(master, known, known_mappings)
        if first is None:
            return None
        whole = await self._topics(master, None, None)
        assert whole is not None, "no version is known"
        return whole._replace(version=first.version, mapping_version=first.mapping_version)

    async def _topics(
        self, master: str, known: DataVersion | None, known_mappings: DataVersion | None
    ) -> TopicTables | None:
        found: TopicTables | None = None

        async def page(first: int, version: str) -> _Page:
            nonlocal found
            header = headers.GetAllTopicConfigRequestHeader(
                topic_seq=first, data_version=version, max_topic_num=PAGE_ENTRIES
            )
            answer = await self._ask(master, RequestCode.GET_ALL_TOPIC_CONFIG, header)
            body = await _decoded(TopicConfigAndMappingSerializeWrapper, answer)
            if first == 0 or found is None:
                found = TopicTables(body.data_version, {}, body.mapping_data_version, {})
            found.topics.update(body.topic_config_table)
            found.mappings.update(body.topic_queue_mapping_detail_map)
            total = _total(answer, "totalTopicNum")
            return _Page(body.data_version, len(body.topic_config_table), total)

        def is_known() -> bool:
            assert found is not None
            return (found.version, found.mapping_version) == (known, known_mappings)

        return found if await _read_pages(page, is_known) else None

    async def groups(self, master: str, known: DataVersion) -> GroupTables | None:
        """Return the groups, or ``None`` if their version is the known one."""
        first = await self._groups(master, known)
        if first is None:
            return None
        whole = await self._groups(master, None)
        assert whole is not None, "no version is known"
        return whole._replace(version=first.version)

    async def _groups(self, master: str, known: DataVersion | None) -> GroupTables | None:
        found: GroupTables | None = None

        async def page(first: int, version: str) -> _Page:
            nonlocal found
            header = headers.GetAllSubscriptionGroupRequestHeader(
                group_seq=first, data_version=version, max_group_num=PAGE_ENTRIES
            )
            answer = await self._ask(master, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header)
            body = await _decoded(SubscriptionGroupWrapper, answer)
            if first == 0 or found is None:
                found = GroupTables(body.data_version, {}, {})
            found.groups.update(body.subscription_group_table)
            found.forbidden.update(body.forbidden_table)
            total = _total(answer, "totalGroupNum")
            return _Page(body.data_version, len(body.subscription_group_table), total)

        def is_known() -> bool:
            assert found is not None
            return found.version == known

        return found if await _read_pages(page, is_known) else None

    async def consumer_offsets(self, master: str) -> ConsumerOffsetSerializeWrapper:
        """Return all committed offsets."""
        answer = await self._ask(master, RequestCode.GET_ALL_CONSUMER_OFFSET)
        return await _decoded(ConsumerOffsetSerializeWrapper, answer)

    async def delay_offsets(self, master: str) -> DelayOffsetSerializeWrapper:
        """Return the offset of each delay level."""
        answer = await self._ask(master, RequestCode.GET_ALL_DELAY_OFFSET)
        return await _decoded(DelayOffsetSerializeWrapper, answer)

    async def request_modes(self, master: str) -> MessageRequestModeSerializeWrapper | None:
        """Return the request modes; ``None`` from masters before 5.0, which have none."""
        code = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
        answer = await self._client.invoke(master, code, timeout_ms=SHORT_TIMEOUT_MS)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        return await _decoded(MessageRequestModeSerializeWrapper, _succeeded(master, code, answer))

    async def log_end(self, master: str) -> int:
        """Return where the master's log ends now."""
        code = RequestCode.GET_BROKER_HA_STATUS
        answer = await self._client.invoke(master, code, timeout_ms=SHORT_TIMEOUT_MS)
        if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            _succeeded(master, code, answer)
            return (await _decoded(HARuntimeInfo, answer)).master_commit_log_max_offset
        # Before 5.0.
        answer = await self._ask(master, RequestCode.GET_BROKER_RUNTIME_INFO)
        text = (await _decoded(KVTable, answer)).table.get(_LOG_END, "")
        if not (text.isascii() and text.isdecimal()):
            raise ProtocolError(f"the master does not say where its log ends: {text[:40]!r}")
        return int(text)

    async def ha_info(self, master: str) -> ExchangeHAInfoHeader:
        """Return the master's addresses, and where its log ended when it started."""
        code = RequestCode.EXCHANGE_BROKER_HA_INFO
        answer = await self._ask(master, code, ExchangeHAInfoHeader(), timeout_ms=SHORT_TIMEOUT_MS)
        return decode_header(ExchangeHAInfoHeader, answer.ext_fields)

    async def _ask(
        self,
        master: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
    ) -> RemotingCommand:
        answer = await self._client.invoke(master, code, header, timeout_ms=timeout_ms)
        return _succeeded(master, code, answer)


async def _read_pages(
    page: Callable[[int, str], Awaitable[_Page]], is_known: Callable[[], bool]
) -> bool:
    """Request all pages of a table; return false if the first shows that it has not changed."""
    restarts = entries = 0
    version: DataVersion | None = None
    while True:
        text = "" if version is None else encode_body(version).decode()
        found = await page(entries, text)
        if version is None and is_known():
            return False
        if version is not None and version != found.version:
            # The table has changed, and this may be any of its pages.
            restarts += 1
            if restarts > RESTARTS_MAX:
                raise ProtocolError("the table changes faster than its pages can be read")
            version, entries = None, 0
            continue
        version = found.version
        entries += found.entries
        if found.total is None or entries >= found.total:
            return True
        if found.entries == 0 or found.total > ENTRIES_MAX:
            detail = f"{entries} of {found.total} entries came, {ENTRIES_MAX} are possible"
            raise ProtocolError("the table is incomplete or too long", detail=detail)


def _total(answer: RemotingCommand, name: str) -> int | None:
    """The number of entries on all pages; masters before 5.3.4 return all at once."""
    text = (answer.ext_fields or {}).get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise ProtocolError(f"{name} is not a number: {text[:40]!r}")
    return int(text)


def _succeeded(master: str, code: RequestCode, answer: RemotingCommand) -> RemotingCommand:
    if answer.code != ResponseCode.SUCCESS:
        raise ProtocolError(
            f"the master {master} refused {code.name}",
            detail=f"code {answer.code}: {(answer.remark or '')[:200]}",
        )
    return answer


async def _decoded(body_type: type[T], answer: RemotingCommand) -> T:
    decode = partial(decode_body, body_type, answer.body, number_keys_bytes_max=MAX_FRAME_BYTES)
    if len(answer.body) <= DECODED_AT_ONCE_BYTES_MAX:
        return decode()
    return await asyncio.get_running_loop().run_in_executor(None, decode)
