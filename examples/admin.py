"""Look after a cluster: topics, groups, progress, resets, messages by key."""

import asyncio
import sys

from roquet.admin import Admin
from roquet.client import Message, Producer


async def main(namesrv: str) -> None:
    async with Admin(namesrv) as admin, Producer(namesrv, group="shop") as producer:
        for broker in await admin.clusters.brokers():
            print("broker", broker.name, "of", broker.cluster)

        await admin.topics.create("Orders", queues=2)
        await admin.groups.create("billing", retry_max_times=5)
        for number in range(3):
            await producer.send(Message("Orders", b"%d" % number, keys=f"order-{number}"))
        print("messages:", (await admin.topics.stats("Orders")).messages)

        await admin.offsets.reset("billing", "Orders", "latest")
        print("billing waits for", (await admin.offsets.progress("billing")).lag)
        await admin.offsets.reset("billing", "Orders", "earliest")
        print("billing waits for", (await admin.offsets.progress("billing")).lag)

        found = await admin.messages.by_key("Orders", "order-1")
        print("by key:", *(message.body.decode() for message in found.messages))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
