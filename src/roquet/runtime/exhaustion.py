"""Errors that mean a lack of resources, not a fault.

A call that fails because there are no descriptors or no memory left did nothing and may be
retried, whereas a failed sync may have lost data.
"""

from __future__ import annotations

import errno

__all__ = ["EXHAUSTED", "SyncFailed", "exhaustion_hint", "is_exhausted"]

EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""The error numbers for a process or machine that is out of descriptors or memory."""


class SyncFailed(OSError):
    """A sync started and failed, whatever the reason: the data may be lost, a retry proves nothing.

    Only ``data_sync`` and ``sync_dir`` of :class:`roquet.runtime.files.Files` raise this, and never
    for a failed open.
    """


def is_exhausted(error: OSError) -> bool:
    """Whether a call failed for lack of descriptors or memory, so that a retry may succeed.

    Such a call did nothing, and says nothing about the disk. A failed sync never counts.

    Example:
        >>> is_exhausted(OSError(errno.EMFILE, "Too many open files"))
        True
        >>> is_exhausted(OSError(errno.EIO, "Input/output error"))
        False
        >>> is_exhausted(SyncFailed(errno.ENOMEM, "Cannot allocate memory"))
        False
    """
    return error.errno in EXHAUSTED and not isinstance(error, SyncFailed)


def exhaustion_hint(error: OSError) -> str:
    """What to do about an error for which :func:`is_exhausted` holds."""
    if error.errno == errno.ENOMEM:
        return "free some memory, or raise vm.max_map_count if there are very many files"
    return "raise the limit of open files (ulimit -n, or LimitNOFILE= of the service)"
