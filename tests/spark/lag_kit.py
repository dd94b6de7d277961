"""Groups of a live cluster that lag behind, and what the job must say about them."""

import asyncio

from pyspark.sql import SparkSession

from roquet.admin import Admin
from roquet.client import PullApi
from roquet.client.instance import ClientInstance
from roquet.client.options import ClientOptions
from roquet.model.message_queue import MessageQueue
from roquet.spark.jobs.inputs import Wanted
from roquet.spark.jobs.lag import lag
from tests.spark.broker_side import Servers, load


def commit(broker: Servers, group: str, offsets: dict[MessageQueue, int]) -> None:
    async def committing() -> None:
        async with Admin(broker.namesrv) as admin:
            await admin.groups.create(group)
        client = await ClientInstance.open(ClientOptions(namesrv=broker.namesrv))
        try:
            api = PullApi(client, group)
            for queue, offset in offsets.items():
                await api.update_offset(queue, offset)
        finally:
            await client.close()

    asyncio.run(committing())


def check_live(spark: SparkSession, broker: Servers, broker_name: str, topic: str) -> None:
    """Two queues with ten messages each; one group has read some of them, and one all."""
    queues = [MessageQueue(topic, broker_name, queue_id) for queue_id in range(2)]
    for group, offsets in (("slow", (3, 10)), ("done", (10, 10))):
        commit(broker, f"{topic}_{group}", dict(zip(queues, offsets, strict=True)))
    rows = load(spark, broker, topic, columns="queueId,queueOffset,storeTimestamp").collect()
    times = {
        (row.queueId, row.queueOffset): round(row.storeTimestamp.timestamp() * 1000) for row in rows
    }
    now_ms = max(times.values()) + 60_000
    age = round((now_ms - times[0, 3]) / 1000, 3)
    cluster = ClientOptions(namesrv=broker.namesrv)
    wanted = Wanted(topics=[topic], to_ms=now_ms)
    report = lag(spark, cluster, wanted=wanted, messages_max=5, seconds_max=3600.0)
    slow, done = f"{topic}_slow", f"{topic}_done"
    assert report.table("Groups").rows == [[done, topic, 0, None], [slow, topic, 7, age]]
    assert report.table("Queues").rows == [
        [done, topic, broker_name, 0, 10, 10, 0, None],
        [done, topic, broker_name, 1, 10, 10, 0, None],
        [slow, topic, broker_name, 0, 3, 10, 7, age],
        [slow, topic, broker_name, 1, 10, 10, 0, None],
    ]
    assert [(each.kind, each.where) for each in report.findings] == [
        ("behind", f"{slow} at {topic}")
    ]
    now = lag(spark, cluster, wanted=Wanted(topics=[topic]), groups=[slow], seconds_max=0.0)
    seconds = now.table("Groups").rows[0][3]
    assert isinstance(seconds, float)
    assert 0 <= seconds < 3600
