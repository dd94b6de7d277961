"""Consume messages without asyncio: the handler runs in threads, and may send."""

import sys
from queue import SimpleQueue

from roquet.sync import Admin, ConsumeFromWhere, Message, Producer, PushConsumer, ReceivedMessage


def main(namesrv: str) -> None:
    done: SimpleQueue[str] = SimpleQueue()
    with Admin(namesrv) as admin:
        admin.topics.create("Bills")

    with Producer(namesrv, group="shop") as producer:

        def bill(message: ReceivedMessage) -> None:
            if message.reconsume_times == 0 and message.tags == "broken":
                # The message is redelivered: first after ten seconds, then after ever longer
                # delays.
                raise ValueError(message.body)
            producer.send(Message("Receipts", b"thank you for " + message.body))
            done.put(message.body.decode())

        consumer = PushConsumer(
            namesrv,
            group="billing",
            handler=bill,
            consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        consumer.subscribe("Bills", "paid || broken")
        with consumer:
            producer.send(Message("Bills", b"a book", tags="paid"))
            print(done.get())
            # A service would wait here until it is stopped: signal.pause(), or join a thread.


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
