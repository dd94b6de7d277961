"""Objects that hold files open, and close them at the end of a ``with`` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closeable(ABC):
    """Has a method :meth:`close`, which the end of a ``with`` block calls."""

    @abstractmethod
    def close(self) -> None:
        """Close all files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
