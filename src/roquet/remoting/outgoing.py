"""Our pending requests on one connection.

Owns the matching of responses to requests by their opaque, the timeouts, and the limit on pending
requests.

A connection has one timer, for the request that is due first; when it fires, all are checked. Most
responses arrive long before they are due, so a timer for each request would be a waste. Many
pending requests are checked less often.
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

__all__ = ["OutgoingRequests", "RequestSlots", "request_timeout"]

_OPAQUE_MASK = 0x7FFFFFFF

_PAUSE_S_A_REQUEST = 5e-6
"""How much later overdue requests may be noticed, for each that is pending.

Checking one takes about a twentieth of this, so that checks never take all the time, however many
requests a peer that hangs leaves pending.
"""

Due = tuple[float, int, str, int]
"""The deadline of a request on the loop's clock, its code, its peer, its timeout."""


class RequestSlots:
    """Limits the pending requests to all peers together.

    Args:
        count: The limit.
    """

    __slots__ = ("_free", "_waiting")

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_free(self) -> bool:
        """Take a slot if one is free and nobody is waiting."""
        if self._free <= 0:
            return False
        self._free -= 1
        return True

    async def take(self) -> None:
        """Take a slot, after earlier waiters."""
        if self.take_free():
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            # Cancelled waiters are skipped when a slot is given back.
            if granted.done() and not granted.cancelled():
                self.give_back()
            raise

    def give_back(self) -> None:
        """Give a slot back, to the longest waiter if there is one."""
        while self._waiting:
            granted = self._waiting.popleft()
            if not granted.done():
                granted.set_result(None)
                return
        self._free += 1


class OutgoingRequests:
    """Requests that wait for a response.

    Args:
        loop: The event loop of the connection.

    Attributes:
        waiting: The futures of the responses, by opaque.
        due: The deadlines, by opaque.
        plain: The opaques whose futures also accept compiled code's short form of a response.
        next_opaque: Where the search for a free opaque starts.
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
        """An opaque that no pending request has."""
        opaque = self.next_opaque
        while opaque in self.waiting:
            opaque = (opaque + 1) & _OPAQUE_MASK
        self.next_opaque = (opaque + 1) & _OPAQUE_MASK
        return opaque

    async def wait(
        self, request: RemotingCommand, peer: str, *, timeout_ms: int | None
    ) -> RemotingCommand:
        """Wait for the response to a request that was just sent.

        Raises:
            RequestTimeout: It did not arrive in time.
            AnswerLost: The connection broke.
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
        """A future for the response to a request that was just sent; fails like :meth:`wait`.

        A caller may give up a request that has a timeout by cancelling the future.
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
        """Check for overdue requests at that time, on the loop's clock."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at_s, self._look)
        self.timer_s = at_s

    def _look(self) -> None:
        """Fail overdue requests, forget cancelled ones, and set the timer for the next."""
        self._timer, self.timer_s = None, inf
        now_s = self._loop.time()
        for opaque, (at_s, code, peer, timeout_ms) in list(self.due.items()):
            future = self.waiting.get(opaque)
            if future is None or future.done() or at_s <= now_s:
                self._forget(opaque)
                if future is not None:
                    _fail(future, partial(request_timeout, peer, code, timeout_ms))
        if self.due:
            next_s = min(due[0] for due in self.due.values())
            self.set_timer(max(next_s, now_s + len(self.due) * _PAUSE_S_A_REQUEST))

    def answered(self, response: RemotingCommand) -> bool:
        """Deliver a response to its waiter; ``False`` if there is none."""
        opaque = response.opaque
        future = self.waiting.get(opaque)
        self._forget(opaque)
        if future is None or future.done():
            return False
        future.set_result(response)
        return True

    def fail(self, make_error: Callable[[], ClientError]) -> None:
        """Fail all pending requests, because the connection is closed."""
        for future in self.waiting.values():
            _fail(future, make_error)
        self.waiting.clear()
        self.due.clear()
        self.plain.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self.timer_s = None, inf


def request_timeout(peer: str, code: int, timeout_ms: int) -> RequestTimeout:
    """The error of a request without a response in time."""
    return RequestTimeout(
        f"{peer} did not answer {request_code_name(code)} in time",
        detail=f"waited {timeout_ms} ms",
        hint="The peer may be busy or down; it is unknown whether the request was handled.",
    )


def _fail(future: asyncio.Future[RemotingCommand], make_error: Callable[[], ClientError]) -> None:
    if not future.done():
        future.set_exception(make_error())
