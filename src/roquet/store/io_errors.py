"""What the operating system refuses, told as the store's own errors.

Owns the one translation: callers of the store get results or :class:`~roquet.errors.StoreError`,
never a bare ``OSError``.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from roquet.errors import DiskFull, StoreError

_FULL = {errno.ENOSPC, errno.EDQUOT}


def store_error(action: str, error: OSError) -> StoreError:
    """The error to raise in place of ``error``; ``action`` says what was tried."""
    if error.errno in _FULL:
        return DiskFull(f"{action}: the disk is full", detail=str(error), hint="make room on it")
    return StoreError(
        f"{action} failed",
        detail=str(error),
        hint="look for errors of the disk in the system's log, and check owner and rights",
    )


@contextmanager
def translated(action: str) -> Iterator[None]:
    """Raise what a block's system calls refuse as :func:`store_error`."""
    try:
        yield
    except OSError as error:
        raise store_error(action, error) from error
