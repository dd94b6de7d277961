"""Read permissions of groups, and the broker's own topics.

The part of upstream's AdminBrokerProcessor for these limits.
"""

from __future__ import annotations

import logging

from roquet.broker.admin.master_only import check_is_master
from roquet.broker.components import BrokerComponents
from roquet.broker.processor.pull_check import READ_BIT
from roquet.model.topic import SYSTEM_TOPICS, group_fault, topic_fault
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.group import GroupForbidden
from roquet.remoting.bodies.topic import TopicList
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.admin import UpdateGroupForbiddenRequestHeader
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)

__all__ = ["ForbiddenAdmin"]

log = logging.getLogger(__name__)


class ForbiddenAdmin:
    """Returns and sets what groups are forbidden to read.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._broker = components
        self._groups = components.groups
        self._topics = components.topics

    @processor(
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        header=UpdateGroupForbiddenRequestHeader,
        permission=Permission(Action.UPDATE, Resource.GROUP),
        ports=ALL_PORTS,
    )
    async def group_forbidden(
        self, context: RequestContext, header: UpdateGroupForbiddenRequestHeader
    ) -> RemotingCommand:
        """Return whether a group may read a topic, after setting that if requested."""
        group, topic = header.group, header.topic
        if header.readable is not None:
            check_is_master(self._broker)
            # Names are kept forever, so only valid names of groups and topics are accepted.
            fault = group_fault(group) or topic_fault(topic)
            if fault is not None:
                raise RequestRefused(fault, response_code=ResponseCode.INVALID_PARAMETER)
            self._groups.stage_forbidden(group, topic, READ_BIT, forbidden=not header.readable)
            await self._groups.committed()
            log.info(
                "%s set that group %s %s read %s",
                context.connection.remote_address,
                group,
                "may" if header.readable else "may not",
                topic,
            )
        body = GroupForbidden(
            group=group,
            readable=not self._groups.is_forbidden(group, topic, READ_BIT),
            topic=topic,
        )
        # Upstream sets an empty remark here.
        return context.response(ResponseCode.SUCCESS, remark="", body=encode_body(body))

    @processor(
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        permission=Permission(Action.LIST, Resource.TOPIC),
        ports=ALL_PORTS,
    )
    def system_topics(self, context: RequestContext) -> RemotingCommand:
        """Return the system topics of the broker."""
        names = sorted(SYSTEM_TOPICS | self._topics.system_topics)
        body = encode_body(TopicList(topic_list=names))
        return context.response(ResponseCode.SUCCESS, body=body)
