"""The event loop of Roquet's own servers, blocking client and Spark tasks.

uvloop is installed with Roquet on platforms that have it, and makes a send about a fifth cheaper;
without it asyncio's own loop is used. An application that uses the client decides for itself.

Not for programs that a user interrupts: uvloop may delay a handler of :mod:`signal` until the next
event. Servers add their signal handlers to the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["loop_factory"]


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop factory for :class:`asyncio.Runner`.

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
