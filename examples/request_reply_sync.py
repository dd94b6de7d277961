"""Send a request as a message, and wait for the reply, without asyncio."""

import sys

from roquet.sync import (
    Admin,
    ConsumeFromWhere,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    reply,
)


def main(namesrv: str) -> None:
    with Admin(namesrv) as admin:
        admin.topics.create("Questions")

    with Producer(namesrv, group="desk") as producer:

        def answer(message: ReceivedMessage) -> None:
            producer.send(reply(message, b"42 euros"))

        desk = PushConsumer(
            namesrv,
            group="desk",
            handler=answer,
            consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        desk.subscribe("Questions")
        with desk:
            answered = producer.request(Message("Questions", b"how much is it?"), timeout_ms=30_000)
        print(answered.body.decode())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
