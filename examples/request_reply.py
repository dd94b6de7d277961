"""Send a request as a message, and wait for the reply of its consumer."""

import asyncio
import sys

from roquet.admin import Admin
from roquet.client import (
    ConsumeFromWhere,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    reply,
)


async def main(namesrv: str) -> None:
    async with Admin(namesrv) as admin:
        await admin.topics.create("Questions")

    async with Producer(namesrv, group="desk") as producer:

        async def answer(message: ReceivedMessage) -> None:
            await producer.send(reply(message, b"42 euros"))

        desk = PushConsumer(
            namesrv,
            group="desk",
            handler=answer,
            consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        desk.subscribe("Questions")
        async with desk:
            answered = await producer.request(
                Message("Questions", b"how much is it?"), timeout_ms=30_000
            )
        print(answered.body.decode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
