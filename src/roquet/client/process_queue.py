"""The messages of one queue that a push consumer has pulled and not finished.

Owns :class:`ProcessQueue`: no I/O and no waiting, only the state of a queue. One is created when a
queue is assigned to a consumer, and marked as dropped when it is revoked; a queue that is assigned
again gets a new one.

Invariants:

* Nothing is committed past a message that is not finished: :meth:`ProcessQueue.finish` returns the
  smallest offset left, or if none is left the one after the last.
* An offset is counted once, however often it is put.
* Messages that are consumed in order are taken from the front; until they are committed they count
  as cached, and a rollback puts them back where they were.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from roquet.client.message import ReceivedMessage
from roquet.remoting.bodies.client import ProcessQueueInfo
from roquet.runtime.clock import Clock

__all__ = ["ProcessQueue"]

LOCK_LIVES_MS = 30_000
PULL_IDLE_MS_MAX = 120_000
_NS_PER_MS = 1_000_000
_MIB = 1024 * 1024


class ProcessQueue:
    """The state of one queue of a push consumer.

    Args:
        clock: The clock.

    Attributes:
        is_dropped: Whether the queue was revoked; then nothing of it is consumed or committed.
        cached_messages: The number of unfinished messages.
        cached_bytes: The size of their stored bodies.
        unlock_attempts: How often the lock was kept because a message was being consumed.
        on_less: Called when messages were removed; set by a caller that waits for room.

    Example:
        >>> from roquet.runtime.clock import ManualClock
        >>> queue = ProcessQueue(ManualClock())
        >>> first, second = (
        ...     ReceivedMessage(topic="T", raw_body=b"hi", queue_offset=at) for at in (7, 8))
        >>> queue.put([first, second])
        True
        >>> queue.finish([second]), queue.finish([first])
        (7, 9)
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.is_dropped = False
        self.cached_messages = 0
        self.cached_bytes = 0
        self.unlock_attempts = 0
        self.on_less: Callable[[], None] | None = None
        self._messages: dict[int, ReceivedMessage] = {}
        # The offsets in ascending order, including some finished ones: so both ends are found in
        # constant time, and finishing in any order costs nothing.
        self._order: deque[int] = deque()
        self._taken: dict[int, ReceivedMessage] = {}
        self._started_ns: dict[int, int] = {}
        self._max_offset = -1
        self._is_consuming = False
        self._is_locked = False
        now_ms, now_ns = clock.now_ms(), clock.monotonic_ns()
        self._locked_at_ms, self._locked_at_ns = now_ms, now_ns
        self._pulled_at_ms, self._pulled_at_ns = now_ms, now_ns
        self._consumed_at_ns = now_ns

    # --------------------------------------------------------------------------------- cache

    def put(self, messages: Sequence[ReceivedMessage]) -> bool:
        """Add pulled messages, in the order of offsets.

        Returns:
            Whether a run has to be started for orderly consumption: there are messages, and none
            is in progress.
        """
        known, order = self._messages, self._order
        for message in messages:
            offset = message.queue_offset
            if offset in known or offset in self._taken:
                continue
            known[offset] = message
            if order and order[-1] >= offset:
                order = self._order = deque(sorted(known))
            else:
                order.append(offset)
            self.cached_messages += 1
            self.cached_bytes += len(message.raw_body)
            self._max_offset = max(self._max_offset, offset)
        if not self._messages or self._is_consuming:
            return False
        self._is_consuming = True
        return True

    def __contains__(self, message: ReceivedMessage) -> bool:
        """Return whether a message is cached, and neither finished nor taken."""
        return message.queue_offset in self._messages

    @property
    def min_offset(self) -> int | None:
        """The smallest offset that is neither finished nor taken."""
        order = self._order
        while order and order[0] not in self._messages:
            order.popleft()
        return order[0] if order else None

    @property
    def max_offset(self) -> int | None:
        """The greatest offset that is neither finished nor taken."""
        order = self._order
        while order and order[-1] not in self._messages:
            order.pop()
        return order[-1] if order else None

    @property
    def span(self) -> int:
        """The distance from the smallest to the greatest offset."""
        first, last = self.min_offset, self.max_offset
        return 0 if first is None or last is None else last - first

    def clear(self) -> None:
        """Forget all messages."""
        self._messages.clear()
        self._taken.clear()
        self._order.clear()
        self._started_ns.clear()
        self.cached_messages = 0
        self.cached_bytes = 0
        self._max_offset = -1

    # --------------------------------------------------------------------- in any order

    def begin(self, messages: Iterable[ReceivedMessage], now_ns: int) -> None:
        """Record that the handler gets these messages now, on the monotonic clock."""
        for message in messages:
            self._started_ns[message.queue_offset] = now_ns

    def overdue(self, timeout_ms: int) -> ReceivedMessage | None:
        """Return the first message, if its handler has had it for longer than this.

        Only the first one holds back the committed offset.
        """
        offset = self.min_offset
        started_ns = None if offset is None else self._started_ns.get(offset)
        if offset is None or started_ns is None:
            return None
        if self._clock.monotonic_ns() - started_ns <= timeout_ms * _NS_PER_MS:
            return None
        return self._messages[offset]

    def finish(self, messages: Iterable[ReceivedMessage]) -> int | None:
        """Remove messages that need no more work.

        Returns:
            The offset to commit: all before it are finished. ``None`` if there was nothing.
        """
        self._consumed_at_ns = self._clock.monotonic_ns()
        known, order = self._messages, self._order
        if not known:
            return None
        for message in messages:
            offset = message.queue_offset
            self._started_ns.pop(offset, None)
            removed = known.pop(offset, None)
            if removed is not None:
                self.cached_messages -= 1
                self.cached_bytes -= len(removed.raw_body)
        if self.on_less is not None:
            self.on_less()
        while order and order[0] not in known:
            order.popleft()
        return order[0] if order else self._max_offset + 1

    # -------------------------------------------------------------------------- in order

    def take(self, count: int) -> list[ReceivedMessage]:
        """Take the next messages in order; an empty list ends the run."""
        self._consumed_at_ns = self._clock.monotonic_ns()
        taken: list[ReceivedMessage] = []
        while len(taken) < count and (offset := self.min_offset) is not None:
            self._order.popleft()
            message = self._messages.pop(offset)
            self._taken[offset] = message
            taken.append(message)
        if not taken:
            self._is_consuming = False
        return taken

    def commit(self) -> int | None:
        """Remove all taken messages.

        Returns:
            The offset to commit; ``None`` if nothing was taken.
        """
        if not self._taken:
            return None
        offset = max(self._taken) + 1
        self.cached_messages -= len(self._taken)
        self.cached_bytes -= sum(len(message.raw_body) for message in self._taken.values())
        self._taken.clear()
        if self.on_less is not None:
            self.on_less()
        return offset

    def rollback(self) -> None:
        """Put all taken messages back."""
        self.put_back(list(self._taken.values()))

    def put_back(self, messages: Iterable[ReceivedMessage]) -> None:
        """Put some of the taken messages back."""
        for message in messages:
            if self._taken.pop(message.queue_offset, None) is not None:
                self._messages[message.queue_offset] = message
        self._order = deque(sorted(self._messages))

    # ------------------------------------------------------------------------ locks, pulls

    @property
    def is_locked(self) -> bool:
        """Whether the broker has locked the queue for this client, recently enough."""
        age_ns = self._clock.monotonic_ns() - self._locked_at_ns
        return self._is_locked and age_ns <= LOCK_LIVES_MS * _NS_PER_MS

    def note_lock(self) -> None:
        """Record that the broker locked the queue for this client."""
        self._is_locked = True
        self._locked_at_ms = self._clock.now_ms()
        self._locked_at_ns = self._clock.monotonic_ns()

    def lose_lock(self) -> None:
        """Record that the broker did not lock the queue for this client."""
        self._is_locked = False

    def note_pull(self) -> None:
        """Record that a pull starts, or is deferred on purpose."""
        self._pulled_at_ms = self._clock.now_ms()
        self._pulled_at_ns = self._clock.monotonic_ns()

    @property
    def is_pull_overdue(self) -> bool:
        """Whether the last pull was so long ago that something must be broken."""
        age_ns = self._clock.monotonic_ns() - self._pulled_at_ns
        return age_ns > PULL_IDLE_MS_MAX * _NS_PER_MS

    def info(self, commit_offset: int) -> ProcessQueueInfo:
        """Return the state of the queue, for administrators.

        Args:
            commit_offset: The group's offset in this queue.
        """
        consumed_ns_ago = self._clock.monotonic_ns() - self._consumed_at_ns
        return ProcessQueueInfo(
            cached_msg_count=len(self._messages),
            cached_msg_min_offset=self.min_offset or 0,
            cached_msg_max_offset=self.max_offset or 0,
            cached_msg_size_in_mib=self.cached_bytes // _MIB,
            commit_offset=commit_offset,
            dropped=self.is_dropped,
            last_consume_timestamp_ms=self._clock.now_ms() - consumed_ns_ago // _NS_PER_MS,
            last_lock_timestamp_ms=self._locked_at_ms,
            last_pull_timestamp_ms=self._pulled_at_ms,
            locked=self._is_locked,
            transaction_msg_count=len(self._taken),
            transaction_msg_min_offset=min(self._taken, default=0),
            transaction_msg_max_offset=max(self._taken, default=0),
            try_unlock_times=self.unlock_attempts,
        )
