"""Handlers that remember what they got."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from roquet.client import ConsumeResult, ReceivedMessage
from tests.unit.client.client_kit import until


class Seen:
    """A handler that notes what it gets."""

    def __init__(
        self, answer: Callable[[ReceivedMessage], Awaitable[ConsumeResult | None]] | None = None
    ) -> None:
        self.messages: list[ReceivedMessage] = []
        self._answer = answer

    async def __call__(self, message: ReceivedMessage) -> ConsumeResult | None:
        self.messages.append(message)
        return None if self._answer is None else await self._answer(message)

    @property
    def bodies(self) -> list[bytes]:
        return [each.body for each in self.messages]

    async def wait(self, count: int) -> None:
        await until(lambda: len(self.messages) >= count)

    async def wait_for(self, *bodies: bytes) -> None:
        """Wait until each of these came."""
        await until(lambda: set(bodies) <= set(self.bodies))
