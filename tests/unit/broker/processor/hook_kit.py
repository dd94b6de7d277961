"""A hook that remembers."""

from __future__ import annotations

from roquet.broker.hooks import (
    SendMessageContext,
)


class Recorder:
    """A hook that remembers what it saw."""

    def __init__(self, *, before: Exception | None = None, after: Exception | None = None) -> None:
        self.seen: list[SendMessageContext] = []
        self.done: list[SendMessageContext] = []
        self._before = before
        self._after = after

    def before(self, context: SendMessageContext) -> None:
        self.seen.append(context)
        if self._before is not None:
            raise self._before

    def after(self, context: SendMessageContext) -> None:
        self.done.append(context)
        if self._after is not None:
            raise self._after
