"""What a process may use, and how it ends at once."""

from __future__ import annotations

import os
import resource
from typing import NoReturn

__all__ = ["exit_at_once", "raise_open_files_limit"]


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
