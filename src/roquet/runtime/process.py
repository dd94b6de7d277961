"""What a process may use, where its words go, and how it ends at once."""

from __future__ import annotations

import os
import resource
import sys
from typing import NoReturn

__all__ = ["exit_at_once", "raise_open_files_limit", "silence_output", "usable_processors"]


def usable_processors() -> int:
    """How many processors this process may run on."""
    return len(os.sched_getaffinity(0))


def raise_open_files_limit() -> int:
    """Let this process open as many files and sockets as the system allows it to.

    Returns:
        The limit that holds now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # some systems call a limit infinite that they do not grant
        return soft
    return hard


def exit_at_once(code: int) -> NoReturn:
    """End the process without cleaning up, as a crash would."""
    os._exit(code)


def silence_output() -> None:
    """Write no more to standard output, after its reader has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
