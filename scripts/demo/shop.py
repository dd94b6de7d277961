"""The shop: what it sends, and who consumes it.

Orders have a customer, a category and a price. Some are paid in a transaction, some get a reminder
later, and a few are poison: billing fails on them each time, until they are dead letters.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from roquet.client import (
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendStatus,
    TransactionState,
)
from scripts.demo.servers import Failed

ORDERS, PAYMENTS, REMINDERS = "Orders", "Payments", "Reminders"
BILLING, SHIPPING = "billing", "shipping"
CATEGORIES = {"books": 18, "music": 12, "garden": 40, "toys": 25, "tools": 60}
ORDER_COUNT = 5_000
CUSTOMERS = 400
POISON_EVERY = 1_000
REMIND_EVERY = 250
PAY_EVERY = 50
REMIND_LEVEL = 1
BILLING_TRIES = 1
CONSUME_TIMEOUT_S = 60
SEED = 20261115


@dataclass
class Sent:
    """What was acknowledged.

    Attributes:
        orders: Numbers of all orders.
        poison: Numbers of those that billing cannot parse.
        payments: Numbers of the paid ones.
        refused: How many payments were rolled back.
        reminders: Numbers of orders with a reminder.
    """

    orders: list[int] = field(default_factory=list)
    poison: list[int] = field(default_factory=list)
    payments: list[int] = field(default_factory=list)
    refused: int = 0
    reminders: list[int] = field(default_factory=list)


def order(number: int, random: Random) -> Message:
    """One order; every thousandth is not JSON."""
    category = random.choices(list(CATEGORIES), weights=[8, 5, 2, 4, 1])[0]
    customer = int(CUSTOMERS * random.random() ** 2)
    price = round(CATEGORIES[category] * random.lognormvariate(0, 0.5), 2)
    body = json.dumps({"order": number, "customer": customer, "item": category, "price": price})
    return Message(
        ORDERS,
        b"{broken" if number % POISON_EVERY == POISON_EVERY - 1 else body.encode(),
        tags=category,
        keys=[f"order-{number}", f"customer-{customer}"],
        properties={"customer": str(customer), "price": str(price)},
    )


async def open_shop(namesrv: str) -> Sent:
    """Send everything; returns when all of it is acknowledged."""
    random, sent = Random(SEED), Sent()

    async def book(message: Message, _transaction_id: str) -> TransactionState:
        return TransactionState.ROLLBACK if b"refused" in message.body else TransactionState.COMMIT

    async def check(_message: ReceivedMessage) -> TransactionState:
        return TransactionState.ROLLBACK

    async with Producer(namesrv, group="shop", check=check) as producer:

        async def one(number: int, message: Message, *, is_refused: bool) -> None:
            result = await producer.send(message, sharding_key=str(message.properties["customer"]))
            if result.status is not SendStatus.SEND_OK:
                raise Failed(f"order {number} is not safe: {result.status}")
            sent.orders.append(number)
            if number % REMIND_EVERY == 0:
                text = f"order {number}: how was it?".encode()
                await producer.send(Message(REMINDERS, text, delay_level=REMIND_LEVEL))
                sent.reminders.append(number)
            if number % PAY_EVERY == 0:
                text = b"refused" if is_refused else f"order {number} is paid".encode()
                await producer.send_in_transaction(
                    Message(PAYMENTS, text, keys=[str(number)]), book
                )
                if is_refused:
                    sent.refused += 1
                else:
                    sent.payments.append(number)

        messages = [order(number, random) for number in range(ORDER_COUNT)]
        sent.poison = [number for number in range(ORDER_COUNT) if _is_poison(number)]
        for begin in range(0, ORDER_COUNT, 500):
            part = range(begin, begin + 500)
            refused = [random.random() < 0.2 for _ in part]
            await asyncio.gather(
                *(
                    one(number, messages[number], is_refused=refused[number - begin])
                    for number in part
                )
            )
    return sent


def _is_poison(number: int) -> bool:
    return number % POISON_EVERY == POISON_EVERY - 1


@dataclass
class Consumed:
    """What the groups saw.

    Attributes:
        billed: How often billing consumed each order without failing.
        failures: How often billing failed.
        revenue: The billed amount by category.
        shipped: The offsets of shipped orders, by queue, in order.
        others: Bodies of payments and reminders.
    """

    billed: Counter[int] = field(default_factory=Counter)
    failures: int = 0
    revenue: Counter[str] = field(default_factory=Counter)
    shipped: dict[int, list[int]] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)


async def consume(namesrv: str, sent: Sent) -> Consumed:
    """Let two groups consume everything; shipping stops early, and falls behind."""
    seen = Consumed()
    good = len(sent.orders) - len(sent.poison)
    expected_others = len(sent.payments) + len(sent.reminders)

    async def bill(message: ReceivedMessage) -> ConsumeResult:
        if message.topic != ORDERS:
            seen.others.append(message.body.decode())
            return ConsumeResult.SUCCESS
        try:
            found = json.loads(message.body)
        except ValueError:
            seen.failures += 1
            return ConsumeResult.retry(delay_level=REMIND_LEVEL)
        if not seen.billed[found["order"]]:
            seen.revenue[found["item"]] += found["price"]
        seen.billed[found["order"]] += 1
        return ConsumeResult.SUCCESS

    async def ship(message: ReceivedMessage) -> ConsumeResult:
        seen.shipped.setdefault(message.queue_id, []).append(message.queue_offset)
        return ConsumeResult.SUCCESS

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    billing = PushConsumer(
        namesrv, group=BILLING, handler=bill, consume_from=first, max_reconsume_times=BILLING_TRIES
    )
    for topic in (ORDERS, PAYMENTS, REMINDERS):
        billing.subscribe(topic)
    shipping = PushConsumer(namesrv, group=SHIPPING, handler=ship, consume_from=first, orderly=True)
    shipping.subscribe(ORDERS, "books || music")

    def is_done() -> bool:
        return (
            len(seen.billed) >= good
            and len(seen.others) >= expected_others
            and seen.failures >= len(sent.poison) * (1 + BILLING_TRIES)
        )

    async with billing:
        async with shipping:
            await until(
                lambda: sum(map(len, seen.shipped.values())) > ORDER_COUNT // 10,
                "shipping got a part",
            )
        await until(is_done, "billing got everything")
    return seen


async def until(is_done: Callable[[], bool], what: str) -> None:
    """Wait for something."""
    for _ in range(CONSUME_TIMEOUT_S * 20):
        if is_done():
            return
        await asyncio.sleep(0.05)
    raise Failed(f"it took longer than {CONSUME_TIMEOUT_S} s until {what}")


def check_consumed(sent: Sent, seen: Consumed) -> None:
    """Check that no acknowledged order is missing, and that shipping kept each queue's order."""
    missing = set(sent.orders) - set(sent.poison) - set(seen.billed)
    if missing:
        raise Failed(f"{len(missing)} acknowledged orders were not consumed: {sorted(missing)[:5]}")
    for queue_id, offsets in seen.shipped.items():
        first_seen = list(dict.fromkeys(offsets))
        if first_seen != sorted(first_seen):
            raise Failed(f"queue {queue_id} was shipped in another order: {first_seen}")
