"""Process resources, standard output, and immediate exit."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

__all__ = ["exit_at_once", "silence_output", "usable_processors"]


def usable_processors() -> int:
    """How many processors this process may run on."""
    return len(os.sched_getaffinity(0))


def exit_at_once(code: int) -> NoReturn:
    """End the process without cleaning up, as a crash would."""
    os._exit(code)


def silence_output() -> None:
    """Stop writing to standard output, after its reader has closed it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
