"""Queue locks: which client of a group may consume a queue in order.

Owns the locks of queues. A lock is a lease: it expires :data:`LEASE_MS` after the client last
requested it, which frees the queues of a client that died.

Invariants:

* At most one client of a group holds a queue at a time.
* Leases use the monotonic clock: changing the system clock neither ends nor extends a lease.
* There are at most :data:`LOCKS_MAX` locks; expired ones make room, then requests are denied.

``rebalance_lock_file.py`` keeps them across restarts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct

from roquet.model.message_queue import MessageQueue
from roquet.runtime.clock import Clock

__all__ = ["CLIENT_LEASE_MS", "LEASE_MS", "LOCKS_MAX", "Owners", "RebalanceLockManager"]

LEASE_MS = 60_000

CLIENT_LEASE_MS = 30_000
"""How long clients regard a lock as theirs after they last requested it."""

LOCKS_MAX = 200_000

_LEASE_NS = LEASE_MS * 1_000_000

Owners: TypeAlias = dict[str, dict[str, list[MessageQueue]]]
"""The queues that each client holds, by group and client."""


class _Lock(Struct):
    client_id: str
    update_ns: int


class RebalanceLockManager:
    """The locks.

    Args:
        clock: The time.

    Attributes:
        edits: How often a queue changed its owner or lost it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.edits = 0
        self._locks: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0

    def try_lock_batch(
        self, group: str, queues: Iterable[MessageQueue], client_id: str
    ) -> list[MessageQueue]:
        """Lock queues for a client, or extend its locks.

        Returns:
            The queues that the client holds now.
        """
        now_ns = self._clock.monotonic_ns()
        if self._count >= LOCKS_MAX:
            self.scan_expired()
        locks = self._locks.setdefault(group, {})
        held: dict[MessageQueue, None] = {}
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                if self._count >= LOCKS_MAX:
                    continue
                locks[queue] = _Lock(client_id, now_ns)
                self._count += 1
                self.edits += 1
            elif lock.client_id == client_id:
                lock.update_ns = now_ns
            elif _has_run_out(lock, now_ns):
                lock.client_id = client_id
                lock.update_ns = now_ns
                self.edits += 1
            else:
                continue
            held[queue] = None
        if not locks:
            del self._locks[group]
        return list(held)

    def unlock_batch(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Release those of the queues that the client holds."""
        locks = self._locks.get(group)
        if locks is None:
            return
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self._count -= 1
                self.edits += 1
        if not locks:
            del self._locks[group]

    def owners(self, locks_max: int) -> Owners:
        """Return which client holds which queue, for at most ``locks_max`` locks."""
        now_ns = self._clock.monotonic_ns()
        found: Owners = {}
        count = 0
        for group, locks in self._locks.items():
            for queue, lock in locks.items():
                if _has_run_out(lock, now_ns):
                    continue
                if count == locks_max:
                    return found
                count += 1
                found.setdefault(group, {}).setdefault(lock.client_id, []).append(queue)
        return found

    def restore(self, owners: Owners) -> None:
        """Restore the locks of an earlier run for as long as their owners may rely on them."""
        update_ns = self._clock.monotonic_ns() - (LEASE_MS - CLIENT_LEASE_MS) * 1_000_000
        for group, clients in owners.items():
            locks = self._locks.setdefault(group, {})
            for client_id, queues in clients.items():
                for queue in queues:
                    if queue not in locks and self._count < LOCKS_MAX:
                        locks[queue] = _Lock(client_id, update_ns)
                        self._count += 1

    def has_locks(self, group: str) -> bool:
        """Whether any queue of a group is held."""
        now_ns = self._clock.monotonic_ns()
        return any(not _has_run_out(lock, now_ns) for lock in self._locks.get(group, {}).values())

    def scan_expired(self) -> None:
        """Drop expired locks."""
        now_ns = self._clock.monotonic_ns()
        for group, locks in list(self._locks.items()):
            for queue in [queue for queue, lock in locks.items() if _has_run_out(lock, now_ns)]:
                del locks[queue]
                self._count -= 1
                self.edits += 1
            if not locks:
                del self._locks[group]


def _has_run_out(lock: _Lock, now_ns: int) -> bool:
    return now_ns - lock.update_ns > _LEASE_NS
