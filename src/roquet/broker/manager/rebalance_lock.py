"""Which client of a group may consume a queue in order.

Owns the locks of queues. A lock is a lease: it holds for :data:`LEASE_MS` after the client last
asked for it, so that the queues of a client that died come free.

Invariants:

* At one time at most one client of a group holds a queue.
* Time is the monotonic clock: setting the machine's clock neither ends nor prolongs a lease.
* There are at most :data:`LOCKS_MAX` locks; those that ran out make room, then none is given.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from roquet.model.message_queue import MessageQueue
from roquet.runtime.clock import Clock

__all__ = ["LEASE_MS", "LOCKS_MAX", "RebalanceLockManager"]

LEASE_MS = 60_000
LOCKS_MAX = 200_000

_LEASE_NS = LEASE_MS * 1_000_000


class _Lock(Struct):
    client_id: str
    update_ns: int


class RebalanceLockManager:
    """The locks.

    Args:
        clock: The time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._locks: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0

    def try_lock_batch(
        self, group: str, queues: Iterable[MessageQueue], client_id: str
    ) -> list[MessageQueue]:
        """Lock queues for a client, or prolong its locks.

        Returns:
            Those of the queues that the client holds now.
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
            elif lock.client_id == client_id or _has_run_out(lock, now_ns):
                lock.client_id = client_id
                lock.update_ns = now_ns
            else:
                continue
            held[queue] = None
        if not locks:
            del self._locks[group]
        return list(held)

    def unlock_batch(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Free those of the queues that the client holds."""
        locks = self._locks.get(group)
        if locks is None:
            return
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            del self._locks[group]

    def is_locked_by(self, group: str, queue: MessageQueue, client_id: str) -> bool:
        """Whether a client holds a queue."""
        return self._holder(group, queue) == client_id

    def is_locked(self, group: str, queue: MessageQueue) -> bool:
        """Whether any client holds a queue."""
        return self._holder(group, queue) is not None

    def has_locks(self, group: str) -> bool:
        """Whether any queue of a group is held."""
        now_ns = self._clock.monotonic_ns()
        return any(not _has_run_out(lock, now_ns) for lock in self._locks.get(group, {}).values())

    def scan_expired(self) -> None:
        """Drop the locks that ran out."""
        now_ns = self._clock.monotonic_ns()
        for group, locks in list(self._locks.items()):
            for queue in [queue for queue, lock in locks.items() if _has_run_out(lock, now_ns)]:
                del locks[queue]
                self._count -= 1
            if not locks:
                del self._locks[group]

    def _holder(self, group: str, queue: MessageQueue) -> str | None:
        lock = self._locks.get(group, {}).get(queue)
        if lock is None or _has_run_out(lock, self._clock.monotonic_ns()):
            return None
        return lock.client_id


def _has_run_out(lock: _Lock, now_ns: int) -> bool:
    return now_ns - lock.update_ns > _LEASE_NS
