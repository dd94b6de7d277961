"""Fair reads: how many bytes are read from all connections in one pass of the loop.

Owns the connections that wait to be read again. An event loop reads every socket that has bytes,
and the same one dozens of times in a row; a hundred peers with megabytes in flight would block the
loop for seconds. Long reads are counted over all connections: after :data:`BUDGET_BYTES`, every
further read of this pass is short, and a connection that has more waits in line. Short reads are
never counted, so ordinary traffic pays nothing.

Everything runs on the event loop.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

__all__ = ["BUDGET_BYTES", "READERS_A_PASS", "SPENT_READ_BYTES", "ReadBudget", "Reader"]

BUDGET_BYTES = 4 << 20
"""The total of long reads in one pass: a few milliseconds of copying."""

SPENT_READ_BYTES = 4 << 10
"""The size of a read once the budget is spent: enough for an ordinary request."""

READERS_A_PASS = 16
"""How many waiting connections are read again in one pass, each at least once."""

_NOTED_BYTES = BUDGET_BYTES // 4
"""Below this, the end of a pass is not tracked; its few bytes may count for a later one."""


class Reader(Protocol):
    """A connection that waits to be read."""

    def read_on(self) -> None:
        """Read the socket again."""
        ...


class ReadBudget:
    """Shares the bytes of a pass among connections.

    Args:
        call_soon: Calls a function in the next pass of the loop.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._read_bytes = 0
        self._waiting: OrderedDict[Reader, None] = OrderedDict()
        self._is_scheduled = False

    @property
    def is_spent(self) -> bool:
        """Whether reads of this pass are to be short."""
        return self._read_bytes >= BUDGET_BYTES

    def allows_more(self, read_bytes: int) -> bool:
        """Count a long read; return whether its connection may be read further in this pass."""
        self._read_bytes += read_bytes
        if self._read_bytes >= _NOTED_BYTES:
            self._schedule()
        return not self.is_spent

    def wait(self, reader: Reader) -> None:
        """Read a connection again in a later pass."""
        self._waiting[reader] = None
        self._schedule()

    def forget(self, reader: Reader) -> None:
        """Forget a closed connection."""
        self._waiting.pop(reader, None)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._begin_pass)

    def _begin_pass(self) -> None:
        self._is_scheduled = False
        self._read_bytes = 0
        try:
            for _ in range(min(READERS_A_PASS, len(self._waiting))):
                reader, _ = self._waiting.popitem(last=False)
                reader.read_on()
        finally:
            if self._waiting:
                self._schedule()
