"""Consumer groups: making, altering, dropping and showing them.

The part of upstream's AdminBrokerProcessor that is about groups. The table is the
group manager's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import msgspec

from roquet.broker.admin.pages import encode_page, page_of
from roquet.broker.manager.consumer_offset import ConsumerOffsetManager
from roquet.broker.manager.subscription_group import SubscriptionGroupManager
from roquet.broker.request_body import ADMIN_BODY_BYTES_MAX, read_body
from roquet.broker.service.flow_control import FlowControl, RequestClass
from roquet.model.subscription import SubscriptionGroupConfig
from roquet.model.topic import group_fault
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.group import SubscriptionGroupList, SubscriptionGroupWrapper
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import admin as headers
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)

__all__ = ["GroupAdmin"]

log = logging.getLogger(__name__)

_UPDATE = Permission(Action.UPDATE, Resource.GROUP)


class GroupAdmin:
    """Answers what administrators ask about groups.

    Args:
        groups: The table.
        offsets: What groups have committed.
        flow: Threads in which files are written.
        dropped: Called with the name of every group that was dropped.
    """

    def __init__(
        self,
        *,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        flow: FlowControl,
        dropped: Callable[[str], None] | None = None,
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._flow = flow
        self._dropped = dropped

    @processor(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, permission=_UPDATE, ports=ALL_PORTS)
    def update_group(self, context: RequestContext) -> RemotingCommand:
        """Make or alter a group; nothing happens without a body, as upstream has it."""
        if context.request.body:
            group = read_body(context, SubscriptionGroupConfig, max_bytes=ADMIN_BODY_BYTES_MAX)
            self._update([group], context)
        return context.response(ResponseCode.SUCCESS)

    @processor(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, permission=_UPDATE, ports=ALL_PORTS
    )
    def update_group_list(self, context: RequestContext) -> RemotingCommand:
        """Make or alter groups: all of them, or none."""
        body = read_body(context, SubscriptionGroupList, max_bytes=ADMIN_BODY_BYTES_MAX)
        self._update(body.group_config_list or [], context)
        return context.response(ResponseCode.SUCCESS)

    def _update(self, groups: Iterable[SubscriptionGroupConfig], context: RequestContext) -> None:
        checked = list(groups)
        for group in checked:
            fault = group_fault(group.group_name or "")
            if fault is not None:
                raise RequestRefused(fault, response_code=ResponseCode.INVALID_PARAMETER)
        self._groups.update_all(checked)
        log.info(
            "%s made or altered groups: %s",
            context.connection.remote_address,
            ", ".join(each.group_name or "" for each in checked[:10]),
        )

    @processor(
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        header=headers.DeleteSubscriptionGroupRequestHeader,
        permission=Permission(Action.DELETE, Resource.GROUP),
        ports=ALL_PORTS,
    )
    async def delete_group(
        self, context: RequestContext, header: headers.DeleteSubscriptionGroupRequestHeader
    ) -> RemotingCommand:
        """Drop a group, and its offsets if that is asked for."""
        self._groups.delete(header.group_name)
        if self._dropped is not None:
            self._dropped(header.group_name)
        if header.clean_offset:
            self._offsets.remove_group(header.group_name)
            # A crash must not bring back offsets that an administrator saw go.
            save_offsets = self._offsets.begin_persist()
            if save_offsets is not None:
                await self._flow.run(RequestClass.ADMIN, save_offsets)
        log.info("%s dropped group %s", context.connection.remote_address, header.group_name)
        return context.response(ResponseCode.SUCCESS)

    @processor(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        header=headers.GetAllSubscriptionGroupRequestHeader,
        permission=Permission(Action.LIST, Resource.GROUP),
        ports=ALL_PORTS,
    )
    async def all_groups(
        self, context: RequestContext, header: headers.GetAllSubscriptionGroupRequestHeader
    ) -> RemotingCommand:
        """All groups, or one page of them, with what they may not read."""
        table, forbidden = self._groups.table, self._groups.forbidden
        page = page_of(
            table,
            self._groups.data_version,
            start=header.group_seq,
            known_version=header.data_version,
            max_entries=header.max_group_num,
        )
        body = SubscriptionGroupWrapper(
            data_version=msgspec.structs.replace(self._groups.data_version),
            forbidden_table={name: bits for name, bits in forbidden.items() if name in page},
            subscription_group_table=page,
        )
        answer = headers.GetAllSubscriptionGroupResponseHeader(total_group_num=len(table))
        data = await encode_page(self._flow, body, entries=len(page))
        return context.response(ResponseCode.SUCCESS, answer, body=data)

    @processor(
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        header=headers.GetSubscriptionGroupConfigRequestHeader,
        permission=Permission(Action.GET, Resource.GROUP),
        ports=ALL_PORTS,
    )
    def group_config(
        self, context: RequestContext, header: headers.GetSubscriptionGroupConfigRequestHeader
    ) -> RemotingCommand:
        """The settings of a group; one that may be made by asking is made."""
        group = self._groups.find(header.group)
        if group is None:
            remark = "No group in this broker"
            return context.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
        return context.response(ResponseCode.SUCCESS, body=encode_body(group))
