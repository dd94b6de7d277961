"""Consumer groups: creating, changing, deleting and showing them.

The group part of upstream's AdminBrokerProcessor. The group manager owns the table.
A change of a group is acknowledged once it is in the file; waiting requests share one write.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from roquet.broker.admin.master_only import check_is_master
from roquet.broker.admin.pages import SortedNames, encode_table, page_of
from roquet.broker.components import BrokerComponents
from roquet.broker.request_body import ADMIN_BODY_BYTES_MAX, read_body
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
from roquet.remoting.turn_scheduler import RequestClass

__all__ = ["GroupAdmin"]

log = logging.getLogger(__name__)

_UPDATE = Permission(Action.UPDATE, Resource.GROUP)


class GroupAdmin:
    """Serves administrators' requests about groups.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._broker = components
        self._groups = components.groups
        self._offsets = components.offsets
        self._flow = components.flow
        self._stats = components.stats
        self._names = SortedNames(components.groups.table, components.groups.changes)

    @processor(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, permission=_UPDATE, ports=ALL_PORTS)
    async def update_group(self, context: RequestContext) -> RemotingCommand:
        """Create or change a group; without a body nothing happens, as in upstream."""
        if context.request.body:
            group = read_body(context, SubscriptionGroupConfig, max_bytes=ADMIN_BODY_BYTES_MAX)
            await self._update([group], context)
        return context.response(ResponseCode.SUCCESS)

    @processor(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        permission=_UPDATE,
        ports=ALL_PORTS,
        request_class=RequestClass.HEAVY,
    )
    async def update_group_list(self, context: RequestContext) -> RemotingCommand:
        """Create or change groups: all of them, or none."""
        body = read_body(context, SubscriptionGroupList, max_bytes=ADMIN_BODY_BYTES_MAX)
        await self._update(body.group_config_list or [], context)
        return context.response(ResponseCode.SUCCESS)

    async def _update(
        self, groups: Iterable[SubscriptionGroupConfig], context: RequestContext
    ) -> None:
        check_is_master(self._broker)
        checked = list(groups)
        for group in checked:
            fault = group_fault(group.group_name or "")
            if fault is not None:
                raise RequestRefused(fault, response_code=ResponseCode.INVALID_PARAMETER)
        self._groups.stage_all(checked)
        await self._groups.committed()
        log.info(
            "%s created or changed groups: %s",
            context.connection.remote_address,
            ", ".join(each.group_name or "" for each in checked[:10]),
        )

    @processor(
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        header=headers.DeleteSubscriptionGroupRequestHeader,
        permission=Permission(Action.DELETE, Resource.GROUP),
        ports=ALL_PORTS,
        request_class=RequestClass.HEAVY,
    )
    async def delete_group(
        self, context: RequestContext, header: headers.DeleteSubscriptionGroupRequestHeader
    ) -> RemotingCommand:
        """Delete a group, and its offsets if requested."""
        check_is_master(self._broker)
        self._groups.stage_delete(header.group_name)
        await self._groups.committed()
        self._stats.group_deleted(header.group_name)
        if header.clean_offset:
            self._offsets.remove_group(header.group_name)
            # A crash must not bring back offsets whose deletion was acknowledged.
            await self._offsets.written()
        log.info("%s deleted group %s", context.connection.remote_address, header.group_name)
        return context.response(ResponseCode.SUCCESS)

    @processor(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        header=headers.GetAllSubscriptionGroupRequestHeader,
        permission=Permission(Action.LIST, Resource.GROUP),
        ports=ALL_PORTS,
        request_class=RequestClass.HEAVY,
    )
    async def all_groups(
        self, context: RequestContext, header: headers.GetAllSubscriptionGroupRequestHeader
    ) -> RemotingCommand:
        """Return all groups, or one page of them, with their forbidden bits."""
        table, forbidden = self._groups.table, self._groups.forbidden
        page = page_of(
            table,
            self._names.get,
            self._groups.data_version,
            start=header.group_seq,
            known_version=header.data_version,
            max_entries=header.max_group_num,
        )
        body = SubscriptionGroupWrapper(
            data_version=msgspec.structs.replace(self._groups.data_version),
            forbidden_table={name: bits for name, bits in forbidden.items() if name in page},
        )
        answer = headers.GetAllSubscriptionGroupResponseHeader(total_group_num=len(table))
        data = await encode_table(self._flow, body, "subscriptionGroupTable", page, _member)
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
        """Return the settings of a group, which is created if that is allowed."""
        group = self._groups.find(header.group)
        if group is None:
            remark = "No group in this broker"
            return context.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
        return context.response(ResponseCode.SUCCESS, body=encode_body(group))


def _member(name: str, group: SubscriptionGroupConfig) -> bytes:
    return encode_body({name: group})[1:-1]
