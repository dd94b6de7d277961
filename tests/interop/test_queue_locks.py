"""Who may consume a queue in order after a restart of Roquet's and Apache's broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.client import LockBatchRequestBody, LockBatchResponseBody
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers.client import LockBatchMqRequestHeader
from tests.interop.cluster import APACHE, ROQUET, Cluster
from tests.patience import PATIENT

pytestmark = pytest.mark.interop

FIRST, SECOND = "10.0.0.1@1", "10.0.0.2@2"


def locked(cluster: Cluster, client_id: str) -> bool:
    """Whether a broker gives a queue to a client."""
    queue = MessageQueue("Ordered", cluster.broker_name, 0)
    body = LockBatchRequestBody(client_id=client_id, consumer_group="ordered", queues=[queue])

    async def ask() -> bool:
        async with RemotingClient(config=PATIENT) as client:
            answer = await client.invoke(
                cluster.broker.address,
                RequestCode.LOCK_BATCH_MQ,
                LockBatchMqRequestHeader(),
                body=encode_body(body),
            )
        return queue in decode_body(LockBatchResponseBody, answer.body).locked_queues

    return asyncio.run(ask())


@pytest.mark.parametrize("side", [ROQUET, APACHE])
def test_a_restart_frees_queues_at_upstream_only(
    request: pytest.FixtureRequest, side: str, tmp_path: Path
) -> None:
    """Apache's broker forgets who consumes a queue, and gives it to the first client that asks.

    The previous client continues with it for up to 30 seconds, as it need not ask sooner.
    """
    if side == APACHE:
        request.getfixturevalue("java_toolkit")
    with Cluster(side, side, tmp_path) as cluster:
        assert locked(cluster, FIRST)
        assert not locked(cluster, SECOND)
        cluster.broker.stop()
        cluster.start_broker()
        assert locked(cluster, SECOND) is (side == APACHE)
        assert locked(cluster, FIRST) is (side == ROQUET)
