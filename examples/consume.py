"""Consume messages as they arrive, many at a time; failed ones are redelivered."""

import asyncio
import sys

from roquet.client import (
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)


async def main(namesrv: str) -> None:
    done: asyncio.Queue[str] = asyncio.Queue()

    async def bill(message: ReceivedMessage) -> ConsumeResult:
        if message.tags == "broken" and message.reconsume_times == 0:
            # An exception would do as well. Level 1 of the broker is a second.
            return ConsumeResult.retry(delay_level=1)
        done.put_nowait(f"{message.body.decode()}, tries: {message.reconsume_times + 1}")
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(
        namesrv,
        group="billing",
        handler=bill,
        concurrency=32,
        consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe("Bills", "paid || broken")
    async with Producer(namesrv, group="shop") as producer:
        await producer.send(Message("Bills", b"a book", tags="paid"))
        await producer.send(Message("Bills", b"a cracked cup", tags="broken"))
        await producer.send(Message("Bills", b"nothing for us", tags="gift"))
    async with consumer:
        print(await done.get())
        print(await done.get())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
