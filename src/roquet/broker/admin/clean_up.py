"""Housekeeping requested by an administrator.

The part of upstream's AdminBrokerProcessor behind ``mqadmin cleanExpiredCQ``, ``cleanUnusedTopic``
and ``deleteExpiredCommitLog``. Queues belong to the event loop, which cleans a few of them at a
time; segments of the log are deleted in the next round of the usual thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from roquet.broker.components import BrokerComponents
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.admin import DeleteExpiredLogRequestHeader
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)
from roquet.remoting.turn_scheduler import RequestClass

__all__ = ["CleanUpAdmin"]

log = logging.getLogger(__name__)

_CLEAN = Permission(Action.UPDATE, Resource.CLUSTER)


class CleanUpAdmin:
    """Cleans up queues, topics and the log.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._store = components.store
        self._topics = components.topics
        self._is_slave = components.ha.is_slave

    @processor(
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        permission=_CLEAN,
        ports=ALL_PORTS,
        request_class=RequestClass.HEAVY,
    )
    async def clean_expired_queues(self, context: RequestContext) -> RemotingCommand:
        """Delete queues that have no messages in the log any more."""
        count = await _run(self._store.clean_expired_consume_queues())
        log.info("%s cleaned %d expired queues", context.connection.remote_address, count)
        return context.response(ResponseCode.SUCCESS)

    @processor(
        RequestCode.CLEAN_UNUSED_TOPIC,
        permission=_CLEAN,
        ports=ALL_PORTS,
        request_class=RequestClass.HEAVY,
    )
    async def clean_unused_topics(self, context: RequestContext) -> RemotingCommand:
        """Delete the queues of topics that no longer exist; on a slave, nothing.

        A slave gets messages of a new topic seconds before the topic itself, and deletes the queues
        of topics that its master deleted by itself.
        """
        if self._is_slave:
            return context.response(ResponseCode.SUCCESS)
        count = await _run(self._store.clean_unused_topics(self._topics.table))
        log.info("%s cleaned %d unused topics", context.connection.remote_address, count)
        return context.response(ResponseCode.SUCCESS)

    @processor(
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        header=DeleteExpiredLogRequestHeader,
        permission=_CLEAN,
        ports=ALL_PORTS,
        request_class=RequestClass.HEAVY,
    )
    def delete_expired_log(
        self, context: RequestContext, header: DeleteExpiredLogRequestHeader
    ) -> RemotingCommand:
        """Delete expired or archived segments of the log, at any hour."""
        self._store.delete_files_manually(archived_offset=header.archived_offset)
        log.info(
            "%s requested the deletion of segments: %s",
            context.connection.remote_address,
            "old ones"
            if header.archived_offset is None
            else f"archived up to {header.archived_offset}",
        )
        # Confirms that archived segments were understood: upstream ignores the field.
        answer = None if header.archived_offset is None else header
        return context.response(ResponseCode.SUCCESS, answer)


async def _run(steps: Iterable[int]) -> int:
    """Run steps, with other work after each; return the sum of their results."""
    count = 0
    for deleted in steps:
        count += deleted
        await asyncio.sleep(0)
    return count
