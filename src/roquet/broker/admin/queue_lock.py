"""Queue locks, so that only one client at a time consumes a queue in order.

The lock part of upstream's AdminBrokerProcessor; the lock manager owns the leases. Locks are local
to this broker: with ``lockInStrictMode`` upstream also asks the replicas.
"""

from __future__ import annotations

from roquet.broker.components import BrokerComponents
from roquet.broker.request_body import CLIENT_BODY_BYTES_MAX, read_body
from roquet.remoting.bodies.client import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.client import LockBatchMqRequestHeader, UnlockBatchMqRequestHeader
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

__all__ = ["QueueLockAdmin"]

NAME_LENGTH_MAX = 1_024
"""Names in a lock request are kept for the lease; real ones are far shorter than this."""

_CONSUME = Permission(Action.SUB, Resource.GROUP)


class QueueLockAdmin:
    """Grants and releases locks.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._locks = components.locks

    @processor(
        RequestCode.LOCK_BATCH_MQ,
        header=LockBatchMqRequestHeader,
        permission=_CONSUME,
        ports=ALL_PORTS,
        request_class=RequestClass.CLIENT,
    )
    def lock(self, context: RequestContext, header: LockBatchMqRequestHeader) -> RemotingCommand:
        """Lock queues for a client; the response lists those that it holds now."""
        del header
        body = read_body(context, LockBatchRequestBody, max_bytes=CLIENT_BODY_BYTES_MAX)
        group, client_id = _owner(body)
        locked = self._locks.try_lock_batch(group, body.queues, client_id)
        answer = LockBatchResponseBody(locked_queues=list(locked))
        return context.response(ResponseCode.SUCCESS, body=encode_body(answer))

    @processor(
        RequestCode.UNLOCK_BATCH_MQ,
        header=UnlockBatchMqRequestHeader,
        permission=_CONSUME,
        ports=ALL_PORTS,
        request_class=RequestClass.CLIENT,
    )
    def unlock(
        self, context: RequestContext, header: UnlockBatchMqRequestHeader
    ) -> RemotingCommand:
        """Release queues that a client holds."""
        del header
        body = read_body(context, UnlockBatchRequestBody, max_bytes=CLIENT_BODY_BYTES_MAX)
        group, client_id = _owner(body)
        self._locks.unlock_batch(group, body.queues, client_id)
        return context.response(ResponseCode.SUCCESS)


def _owner(body: LockBatchRequestBody) -> tuple[str, str]:
    group, client_id = body.consumer_group, body.client_id
    if group is None or client_id is None:
        raise RequestRefused("a lock needs a consumer group and a client id")
    names = [group, client_id]
    for queue in body.queues:
        names += (queue.topic, queue.broker_name)
    if any(len(name) > NAME_LENGTH_MAX for name in names):
        raise RequestRefused(f"a lock has a name that is longer than {NAME_LENGTH_MAX}")
    return group, client_id
