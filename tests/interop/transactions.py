"""Producers of transactions, in an agent.

How a transaction ends is given in its message: how it ends when it is sent, and what its producer
returns at each check.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.interop.agent import (
    Agent,
    Outgoing,
    Producer,
    ReceivedMessage,
    read_message,
    wait_until,
)

COMMIT = "commit"
ROLLBACK = "rollback"
UNKNOWN = "unknown"
# A listener of the Java client that raises.
THROW = "throw"

TRY_AGAIN_S = 1.0


@dataclass(frozen=True)
class Transaction:
    """A message to send in a transaction.

    Attributes:
        body: Its body, by which tests know it.
        local: How it ends when it is sent.
        checks: What the producer returns at the first check, the second and so on; the last holds
            for all further ones.
        tags: Its tag.
        keys: Its keys.
    """

    body: str
    local: str
    checks: Sequence[str] = (UNKNOWN,)
    tags: str = "Tag"
    keys: Sequence[str] = ("key",)

    def as_message(self) -> Outgoing:
        foretold = {"local": self.local, "checks": ",".join(self.checks)}
        return Outgoing(self.body, tags=self.tags, keys=self.keys, properties=foretold)


@dataclass(frozen=True)
class TransactionResult:
    """The client's result of a transaction that was sent."""

    status: str
    message_id: str
    transaction_id: str


class TransactionProducer(Producer):
    """A producer of transactions; it counts as gone once it is stopped.

    With `verdict` it returns that at every check, regardless of the messages.
    """

    def __init__(self, agent: Agent, namesrv: str, group: str, *, verdict: str = "") -> None:
        super().__init__(agent, agent.new_handle("transactional"))
        options = {"namesrv": namesrv, "group": group, "verdict": verdict}
        agent.call("transactional", handle=self.handle, **options)

    def transact(self, topic: str, transactions: Sequence[Transaction]) -> list[TransactionResult]:
        """Sends them and ends each as its message says."""
        messages = [each.as_message().as_parameters() for each in transactions]
        answer = self.agent.call("transact", producer=self.handle, topic=topic, messages=messages)
        return [
            TransactionResult(result["status"], result["msgId"], result["transactionId"])
            for result in answer["results"]
        ]

    def make_known(self, topic: str) -> None:
        """Waits until the broker can check this producer, which it may do after a heartbeat of it.

        A transaction without a producer to check is given up after some time, so it is tried
        repeatedly.
        """
        tried: list[str] = []

        def is_known() -> bool:
            if any(self.checks(body) for body in tried):
                return True
            if time.monotonic() > started + TRY_AGAIN_S * len(tried):
                tried.append(f"{self.handle} try {len(tried)}")
                self.transact(topic, [Transaction(tried[-1], UNKNOWN, [ROLLBACK])])
            return False

        started = time.monotonic()
        wait_until(is_known, lambda: self.agent.process.error("the broker never asks"))

    def checks(self, body: str) -> list[ReceivedMessage]:
        """The message with this body, as it came with each check of the broker."""
        asked = [read_message(event["message"]) for event in self.agent.events(self.handle)]
        return [message for message in asked if message.body == body]

    def wait_checked(self, body: str, times: int = 1) -> list[ReceivedMessage]:
        """Waits until the broker has checked the message with this body so often."""
        wait_until(
            lambda: len(self.checks(body)) >= times,
            lambda: self.agent.process.error(
                f"asked {len(self.checks(body))} times about {body!r}, not {times} times"
            ),
        )
        return self.checks(body)
