"""Removes clients with closed connections from the tables, a few per pass of the event loop.

One connection after the other: a connection may have been in thousands of groups, and a network
failure closes thousands of connections at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from roquet.remoting.connection import Connection

__all__ = ["GROUPS_A_TURN", "ClosedConnectionCleaner", "Drop"]

GROUPS_A_TURN = 50

Drop = Callable[[Connection, int], int]
"""Removes a connection from at most this many groups; returns from how many."""


class ClosedConnectionCleaner:
    """Removes closed connections.

    Args:
        drops: The functions that remove a connection from each table.
        call_soon: Schedules a call for the next iteration of the loop.
    """

    def __init__(
        self, drops: Sequence[Drop], call_soon: Callable[[Callable[[], None]], object]
    ) -> None:
        self._drops = drops
        self._call_soon = call_soon
        self._left: deque[Connection] = deque()
        self._to_drop = GROUPS_A_TURN
        self._awaits_turn = False

    def connection_closed(self, connection: Connection) -> None:
        """Remove a connection, at once if no other is pending."""
        self._left.append(connection)
        self._go_on()

    def _go_on(self) -> None:
        while self._left and self._to_drop > 0:
            connection = self._left[0]
            for drop in self._drops:
                self._to_drop -= drop(connection, max(self._to_drop, 0))
            if self._to_drop > 0:
                self._to_drop -= 1
                self._left.popleft()
        if not self._awaits_turn:
            self._awaits_turn = True
            self._call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._awaits_turn = False
        self._to_drop = GROUPS_A_TURN
        if self._left:
            self._go_on()
