"""Push consumers of an in-process broker, and handlers that remember what they got."""

from __future__ import annotations

from roquet.client import ConsumeFromWhere, Handler, Message, Producer, PushConsumer
from roquet.client.push_options import PushSettings
from roquet.testing.broker import RunningBroker

TOPIC = "Orders"
GROUP = "billing"
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def consumer_of(
    a_broker: RunningBroker, handler: Handler, *, group: str = GROUP, **settings: object
) -> PushConsumer:
    wanted: PushSettings = {"consume_from": FIRST} | settings  # type: ignore[assignment]
    consumer = PushConsumer(a_broker.namesrv, group=group, handler=handler, **wanted)
    consumer.subscribe(TOPIC)
    return consumer


async def send(producer: Producer, *bodies: bytes, queue_id: int | None = None) -> None:
    queues = await producer.queues(TOPIC)
    for body in bodies:
        queue = None if queue_id is None else queues[queue_id]
        await producer.send(Message(TOPIC, body), queue=queue)


def committed(a_broker: RunningBroker, group: str = GROUP, topic: str = TOPIC) -> int:
    """How many messages of a topic a group has finished, according to the broker."""
    table = a_broker.broker.offsets
    return sum(max(table.query(group, topic, queue_id), 0) for queue_id in range(4))
