"""Poll for messages without asyncio: in a loop, in batches, again from the beginning."""

import sys

from roquet.sync import ConsumeFromWhere, LitePullConsumer, Message, Producer


def main(namesrv: str) -> None:
    with Producer(namesrv, group="shop") as producer:
        for number in range(5):
            producer.send(Message("Events", b"%d" % number), sharding_key="one queue")

    with LitePullConsumer(
        namesrv, group="audit", consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    ) as consumer:
        consumer.subscribe("Events")

        # A message counts as consumed when the loop comes back for the next one.
        for message in consumer:
            print("event", message.body.decode())
            if message.body == b"4":
                break
        consumer.commit()

        # Go back to the beginning, and poll in batches.
        consumer.seek_to_begin(message.queue)
        again = consumer.poll(timeout_ms=10_000)
        print("again from", again[0].body.decode())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
