"""Send a message that is delivered later."""

import asyncio
import sys

from roquet.client import ConsumeFromWhere, LitePullConsumer, Message, Producer


async def main(namesrv: str) -> None:
    async with Producer(namesrv, group="shop") as producer:
        # The levels are the broker's: 1 s, 5 s, 10 s, 30 s, 1 min, … 2 h.
        await producer.send(Message("Reminders", b"please pay", delay_level=1))

    async with LitePullConsumer(
        namesrv, group="letters", consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    ) as consumer:
        await consumer.subscribe("Reminders")
        message = await anext(consumer)
        waited_ms = message.store_timestamp_ms - message.born_timestamp_ms
        print(message.body.decode(), "after a second:", waited_ms >= 900)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
