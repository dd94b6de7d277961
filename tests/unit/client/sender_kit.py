"""What brokers do with a producer's messages, besides storing them."""

from __future__ import annotations

import asyncio

from roquet.remoting.codes import ResponseCode
from roquet.remoting.processor import RequestContext, Response
from tests.unit.client.fake_cluster import FakeCluster

TOPIC = "Orders"


async def never(context: RequestContext) -> Response | None:
    """Never respond."""
    del context
    await asyncio.Event().wait()
    raise AssertionError


async def hang_up(context: RequestContext) -> Response | None:
    """Close the connection instead of responding."""
    context.connection.abort()
    return None


def refuse_at(cluster: FakeCluster, code: ResponseCode, remark: str = "no") -> None:
    for each in cluster.brokers:
        each.code, each.remark = code, remark
