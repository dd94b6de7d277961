"""Requests that we sent on one connection and that are not answered yet.

Owns the pairing of answers with requests by their opaque, the time-outs, and how many may be open.

A connection has one timer, for the request that is due first; when it fires, all are looked at.
Most requests are answered long before they are due: a timer for each would be made for nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf

from roquet.errors import ClientError, RequestTimeout
from roquet.remoting.codes import request_code_name
from roquet.remoting.command import RemotingCommand

__all__ = ["OutgoingRequests", "Slots", "request_timeout"]

_OPAQUE_MASK = 0x7FFFFFFF

Due = tuple[float, int, str, int]
"""When a request must be answered, on the loop's clock; its code, its peer, its time-out."""


class Slots:
    """How many requests may be open at once, to all peers together.

    Args:
        count: That many.
    """

    __slots__ = ("_free", "_waiting")

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_free(self) -> bool:
        """Take a slot, if one is free; while somebody waits, none is."""
        if self._free <= 0:
            return False
        self._free -= 1
        return True

    async def take(self) -> None:
        """Take a slot, after those who waited before."""
        if self.take_free():
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            # A turn that was given up is passed over when a slot is given back.
            if turn.done() and not turn.cancelled():
                self.give_back()
            raise

    def give_back(self) -> None:
        """Give a slot back: to whoever waits longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class OutgoingRequests:
    """Requests that wait for an answer.

    Args:
        loop: The event loop of the connection.

    Attributes:
        waiting: By opaque: who waits for an answer.
        due: By opaque: until when.
        plain: The opaques of those who take a lane's short form of an answer as well.
        next_opaque: Where to look for a free number.
        timer_s: When the timer fires, on the loop's clock; infinity if it does not run.
    """

    __slots__ = ("_loop", "_timer", "due", "next_opaque", "plain", "timer_s", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.next_opaque = 0
        self.waiting: dict[int, asyncio.Future[RemotingCommand]] = {}
        self.due: dict[int, Due] = {}
        self.plain: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.timer_s = inf

    def __len__(self) -> int:
        return len(self.waiting)

    def free_opaque(self) -> int:
        """A number that no waiting request has."""
        opaque = self.next_opaque
        while opaque in self.waiting:
            opaque = (opaque + 1) & _OPAQUE_MASK
        self.next_opaque = (opaque + 1) & _OPAQUE_MASK
        return opaque

    async def wait(
        self, request: RemotingCommand, peer: str, *, timeout_ms: int | None
    ) -> RemotingCommand:
        """Wait for the answer to a request that was just sent.

        Raises:
            RequestTimeout: It did not come in time.
            SendFailed: The connection broke.
        """
        opaque = request.opaque
        future = self.expect(opaque, request.code, peer, timeout_ms=timeout_ms)
        try:
            return await future
        finally:
            self._forget(opaque)

    def expect(
        self, opaque: int, code: int, peer: str, *, timeout_ms: int | None
    ) -> asyncio.Future[RemotingCommand]:
        """What will be the answer to a request that was just sent; fails as :meth:`wait` does.

        Whoever gives up a request with a time-out may simply cancel it.
        """
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        self.waiting[opaque] = future
        if timeout_ms is not None:
            at_s = self._loop.time() + timeout_ms / 1000
            self.due[opaque] = (at_s, code, peer, timeout_ms)
            if at_s < self.timer_s:
                self.set_timer(at_s)
        return future

    def _forget(self, opaque: int) -> None:
        self.waiting.pop(opaque, None)
        self.due.pop(opaque, None)
        self.plain.discard(opaque)

    def set_timer(self, at_s: float) -> None:
        """Look at that time, on the loop's clock, what is overdue."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at_s, self._look)
        self.timer_s = at_s

    def _look(self) -> None:
        """Fail what is overdue, forget what was given up, and wait for what is due next."""
        self._timer, self.timer_s = None, inf
        now_s = self._loop.time()
        for opaque, (at_s, code, peer, timeout_ms) in list(self.due.items()):
            future = self.waiting.get(opaque)
            if future is None or future.done() or at_s <= now_s:
                self._forget(opaque)
                if future is not None:
                    _fail(future, partial(request_timeout, peer, code, timeout_ms))
        if self.due:
            self.set_timer(min(due[0] for due in self.due.values()))

    def answered(self, response: RemotingCommand) -> bool:
        """Hand an answer to whoever waits for it; ``False`` when nobody does."""
        opaque = response.opaque
        future = self.waiting.get(opaque)
        self._forget(opaque)
        if future is None or future.done():
            return False
        future.set_result(response)
        return True

    def fail(self, make_error: Callable[[], ClientError]) -> None:
        """End everything that waits, because the connection is gone."""
        for future in self.waiting.values():
            _fail(future, make_error)
        self.waiting.clear()
        self.due.clear()
        self.plain.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self.timer_s = None, inf


def request_timeout(peer: str, code: int, timeout_ms: int) -> RequestTimeout:
    """The error of a request that was not answered in time."""
    return RequestTimeout(
        f"{peer} did not answer {request_code_name(code)} in time",
        detail=f"waited {timeout_ms} ms",
        hint="The peer may be busy or stopped; whether it did its work is not known.",
    )


def _fail(future: asyncio.Future[RemotingCommand], make_error: Callable[[], ClientError]) -> None:
    if not future.done():
        future.set_exception(make_error())
