"""Consume the messages of one order one after the other, and different orders side by side."""

import asyncio
import sys

from roquet.client import ConsumeFromWhere, Message, Producer, PushConsumer, ReceivedMessage

STEPS = ("paid", "packed", "sent")


async def main(namesrv: str) -> None:
    seen: dict[str, list[str]] = {"17": [], "18": []}
    all_seen = asyncio.Event()

    async def follow(message: ReceivedMessage) -> None:
        order, step = message.body.decode().split(":")
        seen[order].append(step)
        if all(len(steps) == len(STEPS) for steps in seen.values()):
            all_seen.set()

    async with Producer(namesrv, group="shop") as producer:
        for step in STEPS:
            for order in seen:
                await producer.send(
                    Message("Shipping", f"{order}:{step}".encode()), sharding_key=order
                )
    consumer = PushConsumer(
        namesrv,
        group="shipping",
        handler=follow,
        orderly=True,
        consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe("Shipping")
    async with consumer:
        await all_seen.wait()
    for order, steps in seen.items():
        print(order, *steps)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
