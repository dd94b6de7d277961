"""Poll for messages: in a loop, in batches, again from the beginning."""

import asyncio
import sys

from roquet.client import ConsumeFromWhere, LitePullConsumer, Message, Producer


async def main(namesrv: str) -> None:
    async with Producer(namesrv, group="shop") as producer:
        for number in range(5):
            await producer.send(Message("Events", b"%d" % number), sharding_key="one queue")

    async with LitePullConsumer(
        namesrv, group="audit", consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    ) as consumer:
        await consumer.subscribe("Events")

        # A message counts as consumed when the loop comes back for the next one.
        async for message in consumer:
            print("event", message.body.decode())
            if message.body == b"4":
                break
        await consumer.commit()

        # Go back to the beginning, and poll in batches.
        await consumer.seek_to_begin(message.queue)
        again = await consumer.poll(timeout_ms=10_000)
        print("again from", again[0].body.decode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
