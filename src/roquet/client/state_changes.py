"""Helps to log only changes of repeatedly checked conditions."""

from __future__ import annotations

__all__ = ["StateChanges"]


class StateChanges:
    """Remembers the last text about a few things.

    Example:
        >>> news = StateChanges()
        >>> [news.is_new("Orders", "no route") for _ in range(3)]
        [True, False, False]
        >>> news.forget("Orders")
        >>> news.is_new("Orders", "no route")
        True
    """

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def is_new(self, thing: str, text: str) -> bool:
        """Return whether a text differs from the last one about a thing."""
        is_new = self._told.get(thing) != text
        self._told[thing] = text
        return is_new

    def forget(self, thing: str) -> None:
        """Forget a thing, because all is well; the next text about it is new."""
        self._told.pop(thing, None)
