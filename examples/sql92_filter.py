"""Consume only messages whose properties satisfy a condition; the broker does the filtering.

The broker must allow it: enablePropertyFilter=true.
"""

import asyncio
import sys

from roquet.client import ConsumeFromWhere, LitePullConsumer, Message, Producer, Sql


async def main(namesrv: str) -> None:
    async with Producer(namesrv, group="shop") as producer:
        for city, price in (("Oslo", "5"), ("Rome", "40"), ("Oslo", "75")):
            properties = {"city": city, "price": price}
            body = f"{price} euros to {city}".encode()
            await producer.send(Message("Sales", body, properties=properties))

    async with LitePullConsumer(
        namesrv, group="big-in-oslo", consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    ) as consumer:
        await consumer.subscribe("Sales", Sql("city = 'Oslo' AND price > 10"))
        message = await anext(consumer)
        print(message.body.decode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
