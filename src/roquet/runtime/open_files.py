"""How many files and sockets this process may have open, and how the limit is split.

Owns the limit (RLIMIT_NOFILE) and its split. A connection takes a descriptor, and so does almost
everything the store does: a new segment, a queue file, a sync of a directory. There are many
connections, and they come from outside, so they get what the store and the process leave:

=================== ========================================================================
the process         64: standard streams, event loop, listening sockets, connections to name
                    servers, files that are opened for a moment
queue files         an eighth of the limit, at least 16 and at most 4,096, kept open
                    (``maxOpenConsumeQueueFiles`` says otherwise)
log and index       what each segment and index file takes, those made ahead included
connections         the rest
=================== ========================================================================
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from typing import NamedTuple

__all__ = [
    "DESCRIPTORS_A_MAPPING",
    "DescriptorBudget",
    "OpenFilesLimit",
    "open_files_limit",
    "queue_files_share",
    "raise_open_files_limit",
]

PROCESS_SHARE = 64
_QUEUE_FILES_PART = 8
_QUEUE_FILES_MIN = 16
_QUEUE_FILES_MAX = 4_096

DESCRIPTORS_A_MAPPING = 1 if sys.version_info >= (3, 13) else 2
"""Descriptors of a mapped file: its own, and before Python 3.13 a duplicate that ``mmap`` keeps."""


class OpenFilesLimit(NamedTuple):
    """The limit of open files.

    Attributes:
        soft: The limit in force.
        hard: What the process may raise it to.
    """

    soft: int
    hard: int


def open_files_limit() -> OpenFilesLimit:
    """The limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OpenFilesLimit(_finite(soft), _finite(hard))


def raise_open_files_limit() -> OpenFilesLimit:
    """Let this process open as many files and sockets as the system allows.

    Returns:
        The limit in force.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # some systems report an infinite limit but do not grant it
            return OpenFilesLimit(_finite(soft), _finite(hard))
    return open_files_limit()


def _finite(limit: int) -> int:
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def queue_files_share(limit: int) -> int:
    """How many queue files a store keeps open under a limit, unless a setting says otherwise.

    Example:
        >>> [queue_files_share(limit) for limit in (64, 1_024, 20_000, 1_048_576)]
        [16, 128, 2500, 4096]
    """
    return min(max(limit // _QUEUE_FILES_PART, _QUEUE_FILES_MIN), _QUEUE_FILES_MAX)


class DescriptorBudget:
    """What the limit leaves for connections.

    Args:
        store_files: Returns how many files the store may have open; called for every connection,
            since a log grows. By default 0.
        limit: Returns the limit of open files, called for every connection too.

    Example:
        >>> budget = DescriptorBudget(lambda: 136, limit=lambda: OpenFilesLimit(1_024, 4_096))
        >>> budget.connections_max
        824
    """

    def __init__(
        self,
        store_files: Callable[[], int] = lambda: 0,
        *,
        limit: Callable[[], OpenFilesLimit] = open_files_limit,
    ) -> None:
        self._store_files = store_files
        self._limit = limit

    @property
    def limit(self) -> int:
        """How many descriptors the process may have."""
        return self._limit().soft

    @property
    def connections_max(self) -> int:
        """How many connections may be open now; at least one, so that an operator can connect."""
        return max(self.limit - PROCESS_SHARE - self._store_files(), 1)

    def has_room(self, connections: int, descriptor: int) -> bool:
        """Whether a new connection may stay, besides a number of others.

        Its descriptor counts as well as their number: the kernel assigns the lowest free one, so a
        high one shows that others, such as a second server in this process, use descriptors too.
        """
        room = self.limit - PROCESS_SHARE
        return connections == 0 or (descriptor < room and connections < room - self._store_files())
