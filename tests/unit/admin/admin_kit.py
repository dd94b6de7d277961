"""What tests of the admin need in a cluster: a topic with messages, and a group."""

from __future__ import annotations

from roquet.admin import Admin
from roquet.testing.broker import RunningBroker

TOPIC = "Orders"
GROUP = "billing"


async def prepared(server: RunningBroker, admin: Admin) -> None:
    await server.create_topic(TOPIC)
    await admin.groups.create(GROUP)
