"""Queries of single messages: by key, by unique key, by physical offset.

Upstream's QueryMessageProcessor. Owns no state. A query may touch any page of the log, so it runs
in a thread and responds with copies.
"""

from __future__ import annotations

from roquet.broker.components import BrokerComponents
from roquet.broker.service.flow_control import RequestClass
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.pull import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    Response,
    SlicedResponse,
    processor,
)
from roquet.store.results import QueryMessageResult

__all__ = ["QueryMessageProcessor"]

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
"""The ext field that marks the key as a unique one."""

UNIQUE_KEY_QUERY_MAX = 32
"""How many messages a query by unique key returns, whatever it requests."""


class QueryMessageProcessor:
    """Finds single messages.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._store = components.store
        self._flow = components.flow

    @processor(
        RequestCode.QUERY_MESSAGE,
        header=QueryMessageRequestHeader,
        permission=Permission(Action.GET, Resource.TOPIC),
        ports=ALL_PORTS,
        request_class=RequestClass.QUERY,
    )
    async def query(self, context: RequestContext, header: QueryMessageRequestHeader) -> Response:
        """Return messages of a topic by key and time."""
        ext_fields = context.request.ext_fields or {}
        is_unique_key = ext_fields.get(UNIQUE_KEY_QUERY) == "true"
        max_messages = UNIQUE_KEY_QUERY_MAX if is_unique_key else header.max_num

        def search() -> QueryMessageResult:
            found = self._store.query_message(
                header.topic,
                header.key,
                max_messages,
                header.begin_timestamp_ms,
                header.end_timestamp_ms,
            )
            found.records = [bytes(record) for record in found.records]
            return found

        found = await self._flow.run(RequestClass.QUERY, search)
        answer = QueryMessageResponseHeader(
            index_last_update_timestamp_ms=found.index_last_update_timestamp_ms,
            index_last_update_physical_offset=found.index_last_update_physical_offset,
        )
        if not found.records:
            remark = "can not find message, maybe time range not correct"
            return context.response(ResponseCode.QUERY_NOT_FOUND, answer, remark=remark)
        return SlicedResponse(context.response(ResponseCode.SUCCESS, answer), found.records)

    @processor(
        RequestCode.VIEW_MESSAGE_BY_ID,
        header=ViewMessageRequestHeader,
        permission=Permission(Action.GET, Resource.TOPIC),
        ports=ALL_PORTS,
        request_class=RequestClass.QUERY,
    )
    async def view(self, context: RequestContext, header: ViewMessageRequestHeader) -> Response:
        """Return the message at the physical offset of a message id."""

        def look() -> bytes | None:
            record = self._store.select_one(header.physical_offset)
            return None if record is None else bytes(record)

        record = await self._flow.run(RequestClass.QUERY, look)
        if record is None:
            remark = f"can not find message by the offset, {header.physical_offset}"
            return context.response(ResponseCode.SYSTEM_ERROR, remark=remark)
        return context.response(ResponseCode.SUCCESS, body=record)
