"""Send messages without asyncio, from one thread and from several."""

import sys
from concurrent.futures import ThreadPoolExecutor

from roquet.sync import Message, Producer


def main(namesrv: str) -> None:
    with Producer(namesrv, group="shop") as producer:
        result = producer.send(Message("Orders", b"17 books", tags="paid", keys="17"))
        print(result.status.name, "in queue", result.queue.queue_id, "at", result.queue_offset)

        # Any number of threads may share a producer.
        orders = [Message("Orders", f"order {number}".encode()) for number in range(100)]
        with ThreadPoolExecutor(16) as threads:
            results = list(threads.map(producer.send, orders))
        print(len(results), "stored")

        # Messages of one key go to one queue, so that their order is kept.
        steps = [
            producer.send(Message("Orders", step), sharding_key="order-17")
            for step in (b"paid", b"packed", b"sent")
        ]
        print("one queue:", len({step.queue for step in steps}) == 1)

        # Fire and forget: no acknowledgement.
        producer.send_oneway(Message("Orders", b"somebody looked at a book"))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
