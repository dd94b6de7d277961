"""Send messages that become visible only if a database transaction commits."""

import sqlite3
import sys

from roquet.sync import (
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    Producer,
    ReceivedMessage,
    TransactionState,
)


def main(namesrv: str) -> None:
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.execute("create table payment (id text primary key, cents integer)")

    def book(message: Message, transaction_id: str) -> TransactionState:
        # Runs in the thread that sends, so its connection to the database may be used.
        with database:
            database.execute(
                "insert into payment values (?, ?)", (transaction_id, int(message.body))
            )
        return TransactionState.COMMIT

    def check(message: ReceivedMessage) -> TransactionState:
        # Runs in another thread, if the broker never learned the outcome.
        found = database.execute("select 1 from payment where id = ?", (message.transaction_id,))
        return TransactionState.COMMIT if found.fetchone() else TransactionState.ROLLBACK

    with Producer(namesrv, group="payments", check=check) as producer:
        result = producer.send_in_transaction(Message("Payments", b"1995"), book)
        print(result.state.name)
    print("booked:", database.execute("select cents from payment").fetchone()[0])
    database.close()

    with LitePullConsumer(
        namesrv, group="ledger", consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    ) as consumer:
        consumer.subscribe("Payments")
        print("seen:", next(consumer).body.decode())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
