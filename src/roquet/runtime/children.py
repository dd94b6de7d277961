"""Ends processes that this one started through a library, which keeps their handles to itself.

Owns the search for them in ``/proc``; elsewhere none are found.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

__all__ = ["descendants", "kill_descendants"]

_PROC = "/proc"


def descendants() -> list[int]:
    """Return the ids of the processes below this one, children before their children."""
    below: dict[int, list[int]] = {}
    try:
        names = os.listdir(_PROC)
    except OSError:
        return []
    for name in names:
        if name.isdecimal() and (parent := _parent(int(name))) is not None:
            below.setdefault(parent, []).append(int(name))
    found, waiting = [], [os.getpid()]
    while waiting:
        children = below.get(waiting.pop(0), [])
        found += children
        waiting += children
    return found


def _parent(pid: int) -> int | None:
    try:
        with open(f"{_PROC}/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None  # it has ended
    # The name, in parentheses, may contain anything; the state and the parent follow it.
    return int(text[text.rindex(b")") + 1 :].split()[1])


def kill_descendants(kept: frozenset[int] = frozenset()) -> bool:
    """Kill the processes below this one; those that they start meanwhile too.

    Args:
        kept: Ids of processes to leave alone.

    Returns:
        Whether there were any.
    """
    killed: set[int] = set()
    while found := [pid for pid in descendants() if pid not in killed | kept]:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed.update(found)
    return bool(killed)
