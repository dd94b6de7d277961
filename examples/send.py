"""Send messages: one, several at once, by key, one-way."""

import asyncio
import sys

from roquet.client import Message, Producer


async def main(namesrv: str) -> None:
    async with Producer(namesrv, group="shop") as producer:
        result = await producer.send(Message("Orders", b"17 books", tags="paid", keys="17"))
        print(result.status.name, "in queue", result.queue.queue_id, "at", result.queue_offset)

        # Many at once: the sends are in flight together, not one after the other.
        orders = [Message("Orders", f"order {number}".encode()) for number in range(100)]
        results = await asyncio.gather(*(producer.send(order) for order in orders))
        print(len(results), "stored")

        # Messages of one key go to one queue, so that their order is kept.
        steps = [
            await producer.send(Message("Orders", step), sharding_key="order-17")
            for step in (b"paid", b"packed", b"sent")
        ]
        print("one queue:", len({step.queue for step in steps}) == 1)

        # Fire and forget: no acknowledgement.
        await producer.send_oneway(Message("Orders", b"somebody looked at a book"))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
