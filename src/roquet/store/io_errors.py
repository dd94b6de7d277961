"""Translates errors of the operating system into the store's own.

The only such translation: callers of the store get results or :class:`~roquet.errors.StoreError`,
never a bare ``OSError``.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from roquet.errors import DiskFull, OutOfResources, StoreError
from roquet.runtime.exhaustion import exhaustion_hint, is_exhausted

_FULL = {errno.ENOSPC, errno.EDQUOT}


def store_error(action: str, error: OSError) -> StoreError:
    """The error to raise instead of ``error``; ``action`` says what was attempted."""
    if error.errno in _FULL:
        return DiskFull(f"{action}: the disk is full", detail=str(error), hint="free some space")
    if is_exhausted(error):
        return OutOfResources(f"{action} failed", detail=str(error), hint=exhaustion_hint(error))
    return StoreError(
        f"{action} failed",
        detail=str(error),
        hint="check the system log for disk errors, and the owner and permissions of the files",
    )


@contextmanager
def translated(action: str) -> Iterator[None]:
    """Translate an ``OSError`` of a block by :func:`store_error`."""
    try:
        yield
    except OSError as error:
        raise store_error(action, error) from error
