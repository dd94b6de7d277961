"""Handles the requests of one broker in the order in which they arrived.

Owns the order of registrations and unregistrations of one broker. A large registration is decoded
in a thread and applied step by step; later requests of the same broker must not overtake it: a
broker that unregisters right after it would stay in the routes, and a later incremental
registration would be undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

__all__ = ["BrokerAddress", "BrokerRequestOrder"]

T = TypeVar("T")


class BrokerAddress(NamedTuple):
    """A broker, as identified by both requests."""

    address: str
    broker_name: str


class BrokerRequestOrder:
    """The brokers whose requests are in progress."""

    def __init__(self) -> None:
        self._last: dict[BrokerAddress, asyncio.Event] = {}

    def is_busy(self, broker: BrokerAddress) -> bool:
        """Whether a request of a broker is in progress."""
        return broker in self._last

    def run(self, broker: BrokerAddress, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """Run some work after its broker's earlier requests; takes its place in line at once."""
        before, done = self._last.get(broker), asyncio.Event()
        self._last[broker] = done
        return self._run(broker, work, before, done)

    async def _run(
        self,
        broker: BrokerAddress,
        work: Callable[[], Awaitable[T]],
        before: asyncio.Event | None,
        done: asyncio.Event,
    ) -> T:
        try:
            if before is not None:
                await before.wait()
            return await work()
        finally:
            done.set()
            if self._last.get(broker) is done:
                del self._last[broker]
