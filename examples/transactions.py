"""Send messages that become visible only if your own work succeeds.

The third payment hangs: the broker checks on it, by default after some seconds.
"""

import asyncio
import sys

from roquet.client import (
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
)


class Payments:
    """Books payments; a real one would ask its database in both methods."""

    def __init__(self) -> None:
        self.booked: set[str] = set()

    async def execute(self, message: Message, transaction_id: str) -> TransactionState:
        """Do the work; the message is stored but not yet visible."""
        if message.body == b"refused":
            return TransactionState.ROLLBACK
        self.booked.add(transaction_id)
        if message.body == b"hangs":
            return TransactionState.UNKNOWN
        return TransactionState.COMMIT

    async def check(self, message: ReceivedMessage) -> TransactionState:
        """Report the outcome of the work, maybe of an earlier process."""
        is_booked = message.transaction_id in self.booked
        return TransactionState.COMMIT if is_booked else TransactionState.ROLLBACK


async def main(namesrv: str) -> None:
    async with (
        TransactionProducer(namesrv, group="payments", listener=Payments()) as producer,
        LitePullConsumer(
            namesrv, group="ledger", consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        ) as consumer,
    ):
        for body in (b"paid", b"refused", b"hangs"):
            result = await producer.send_transaction(Message("Payments", body))
            print(body.decode(), result.state.name)
        await consumer.subscribe("Payments")
        async for message in consumer:
            print("seen:", message.body.decode())
            if message.body == b"hangs":
                break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
