"""``async with``, for whatever is started and closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Lifetime"]


class Lifetime(ABC):
    """Something that ``async with`` starts and closes."""

    @abstractmethod
    async def start(self) -> None:
        """Begin."""

    @abstractmethod
    async def close(self) -> None:
        """End."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
