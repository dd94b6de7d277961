"""The event loop of what Roquet runs itself: servers, the blocking client, Spark's tasks.

Owns the choice. uvloop is installed with Roquet wherever there is one, and takes about a fifth off
the cost of a send; without it asyncio's own loop does. An application that uses the client decides
for itself.

Not for what a user interrupts: uvloop may sleep through a handler of :mod:`signal` and notice it
with the next event. Servers ask the loop itself for their signals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["loop_factory"]


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What :class:`asyncio.Runner` takes to make its loop.

    Example:
        >>> with asyncio.Runner(loop_factory=loop_factory()) as runner:
        ...     runner.run(asyncio.sleep(0, "done"))
        'done'
    """
    try:
        import uvloop  # noqa: PLC0415 - only where a loop is made
    except ImportError:
        return None
    return uvloop.new_event_loop
