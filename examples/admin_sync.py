"""Look after a cluster without asyncio."""

import sys

from roquet.sync import Admin, Message, Producer


def main(namesrv: str) -> None:
    with Admin(namesrv) as admin, Producer(namesrv, group="shop") as producer:
        for broker in admin.clusters.brokers():
            print("broker", broker.name, "of", broker.cluster)

        admin.topics.create("Orders", queues=2)
        admin.groups.create("billing", retry_max_times=5)
        for number in range(3):
            producer.send(Message("Orders", b"%d" % number, keys=f"order-{number}"))
        print("messages:", admin.topics.stats("Orders").messages)

        admin.offsets.reset("billing", "Orders", "earliest")
        print("billing waits for", admin.offsets.progress("billing").lag)

        found = admin.messages.by_key("Orders", "order-1")
        print("by key:", *(message.body.decode() for message in found.messages))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
