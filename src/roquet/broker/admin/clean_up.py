"""House-keeping that an administrator asks for.

The part of upstream's AdminBrokerProcessor behind ``mqadmin cleanExpiredCQ``, ``cleanUnusedTopic``
and ``deleteExpiredCommitLog``. Queues are the loop's, so they are cleaned on it; segments of the
log are deleted by the thread that always does, with its next round.
"""

from __future__ import annotations

import logging

from roquet.broker.manager.topic_config import TopicConfigManager
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
from roquet.store.message_store import MessageStore

__all__ = ["CleanUpAdmin"]

log = logging.getLogger(__name__)

_CLEAN = Permission(Action.UPDATE, Resource.CLUSTER)


class CleanUpAdmin:
    """Cleans up.

    Args:
        store: The messages.
        topics: The topics.
    """

    def __init__(self, *, store: MessageStore, topics: TopicConfigManager) -> None:
        self._store = store
        self._topics = topics

    @processor(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, permission=_CLEAN, ports=ALL_PORTS)
    def clean_expired_queues(self, context: RequestContext) -> RemotingCommand:
        """Delete queues none of whose messages is in the log any more."""
        count = self._store.clean_expired_consume_queues()
        log.info("%s cleaned %d expired queues", context.connection.remote_address, count)
        return context.response(ResponseCode.SUCCESS)

    @processor(RequestCode.CLEAN_UNUSED_TOPIC, permission=_CLEAN, ports=ALL_PORTS)
    def clean_unused_topics(self, context: RequestContext) -> RemotingCommand:
        """Delete the queues of topics that are no more."""
        count = self._store.clean_unused_topics(self._topics.table)
        log.info("%s cleaned %d unused topics", context.connection.remote_address, count)
        return context.response(ResponseCode.SUCCESS)

    @processor(
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        header=DeleteExpiredLogRequestHeader,
        permission=_CLEAN,
        ports=ALL_PORTS,
    )
    def delete_expired_log(
        self, context: RequestContext, header: DeleteExpiredLogRequestHeader
    ) -> RemotingCommand:
        """Delete the segments of the log that are old enough, or archived, whatever the hour."""
        self._store.delete_files_manually(archived_offset=header.archived_offset)
        log.info(
            "%s has segments deleted: %s",
            context.connection.remote_address,
            "old ones"
            if header.archived_offset is None
            else f"archived up to {header.archived_offset}",
        )
        # Who asks for archived segments sees that it was understood: upstream passes it over.
        answer = None if header.archived_offset is None else header
        return context.response(ResponseCode.SUCCESS, answer)
