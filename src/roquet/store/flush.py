"""Flushes the log, and releases the responses that wait for it.

Owns the flush thread of the log, the commit thread of the transient pool, and the queue of waiting
responses. One sync releases everything appended before it started (group commit).

=================== =====================================================================
ASYNC_FLUSH         every flushIntervalCommitLog, when flushCommitLogLeastPages are dirty,
                    or flushCommitLogThoroughInterval has passed since the last sync
ASYNC_FLUSH + pool  every commitIntervalCommitLog the buffer goes to the file, then as above
SYNC_FLUSH          at once; the response waits up to syncFlushTimeout
=================== =====================================================================

Invariants: a failed sync is fatal. Linux marks the pages clean after the failure, so a second sync
would succeed without the data: from then on the store refuses writes, waiting responses fail, and
the owner is notified so that it exits. If a write from a transient buffer failed only for lack of
memory, nothing is lost: the next round repeats it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from roquet.runtime.clock import Clock
from roquet.runtime.exhaustion import is_exhausted
from roquet.runtime.memory import PAGE_BYTES
from roquet.runtime.worker import Worker
from roquet.store.checkpoint import StoreCheckpoint
from roquet.store.commit_log import CommitLog
from roquet.store.config import BrokerRole, MessageStoreConfig
from roquet.store.results import PutMessageStatus

log = logging.getLogger(__name__)

_SYNC_IDLE_MS = 1000
_BEYOND_EVERY_LOG = (1 << 63) - 1
_SHORTAGE_PAUSES_S = (0.0, 0.01, 0.1, 1.0)
"""How long :meth:`FlushCommitLog.flush_all` waits for memory after each attempt."""

Done = Callable[[PutMessageStatus], None]
Post = Callable[[Callable[[], None]], None]


class _Waiting(NamedTuple):
    end_offset: int
    deadline_ns: int
    done: Done
    waits_for_replica: bool


class AckQueue:
    """Responses in order of the offsets they wait for; used by the store's owner only.

    Attributes:
        flushed_offset: The end of what is on disk.
        replicated_offset: The end of what enough replicas have.
        slave_offset: The end of what the most advanced slave has.
        has_slaves: Whether enough slaves are there to wait for; without them a message is stored
            and its response says SLAVE_NOT_AVAILABLE.
        accepts_puts: Whether there are as many replicas as ``minInSyncReplicas``.
    """

    def __init__(self, config: MessageStoreConfig, clock: Clock) -> None:
        """Wait for what the flush type and the role require."""
        self._clock = clock
        self._needs_flush = config.is_sync_flush
        self._needs_replica = config.broker_role is BrokerRole.SYNC_MASTER
        self._timeout_ms = max(
            config.sync_flush_timeout_ms if self._needs_flush else 0,
            config.slave_timeout_ms if self._needs_replica else 0,
        )
        self._waiting: deque[_Waiting] = deque()
        self.flushed_offset = 0
        self.replicated_offset = 0
        self.slave_offset = 0
        self.has_slaves = True
        self.accepts_puts = True

    def __len__(self) -> int:
        """How many responses wait."""
        return len(self._waiting)

    @property
    def oldest_end_offset(self) -> int:
        """The end of the oldest message that waits; beyond every log if none does."""
        return self._waiting[0].end_offset if self._waiting else _BEYOND_EVERY_LOG

    @property
    def is_needed(self) -> bool:
        """Whether a plain send has to wait for anything."""
        return self._needs_flush or self._needs_replica

    def wait(self, end_offset: int, done: Done) -> None:
        """Call ``done`` once everything before ``end_offset`` is safe, or after the timeout."""
        deadline_ns = self._clock.monotonic_ns() + self._timeout_ms * 1_000_000
        waits_for_replica = self._needs_replica and self.has_slaves
        self._waiting.append(_Waiting(end_offset, deadline_ns, done, waits_for_replica))
        self.release()

    def release(self) -> None:
        """Release the responses whose offset every required mark has reached."""
        while self._waiting and self._is_safe(self._waiting[0]):
            waiting = self._waiting.popleft()
            if self._needs_replica and not waiting.waits_for_replica:
                waiting.done(PutMessageStatus.SLAVE_NOT_AVAILABLE)
            else:
                waiting.done(PutMessageStatus.PUT_OK)

    def expire(self) -> None:
        """Release the responses that timed out: stored, but not known to be safe."""
        now_ns = self._clock.monotonic_ns()
        while self._waiting and self._waiting[0].deadline_ns <= now_ns:
            late = self._waiting.popleft()
            if self._needs_flush and self.flushed_offset < late.end_offset:
                late.done(PutMessageStatus.FLUSH_DISK_TIMEOUT)
            else:
                late.done(PutMessageStatus.FLUSH_SLAVE_TIMEOUT)

    def fail(self) -> None:
        """Release all responses with an unknown outcome."""
        while self._waiting:
            self._waiting.popleft().done(PutMessageStatus.UNKNOWN_ERROR)

    def _is_safe(self, waiting: _Waiting) -> bool:
        if self._needs_flush and self.flushed_offset < waiting.end_offset:
            return False
        return not waiting.waits_for_replica or self.replicated_offset >= waiting.end_offset


class FlushCommitLog:
    """The threads that sync, and commit, the log."""

    def __init__(
        self,
        commit_log: CommitLog,
        config: MessageStoreConfig,
        clock: Clock,
        checkpoint: StoreCheckpoint,
        *,
        on_progress: Callable[[], None],
        on_failure: Callable[[OSError], None],
    ) -> None:
        """Call ``on_progress`` after each sync or commit, ``on_failure`` after a failed one."""
        self._log = commit_log
        self._config = config
        self._clock = clock
        self._checkpoint = checkpoint
        self._on_progress = on_progress
        self._on_failure = on_failure
        self._last_sync_ns = clock.monotonic_ns()
        self._last_commit_ns = clock.monotonic_ns()
        self._committed_timestamp_ms = 0
        self._failed = False
        self._pause = threading.Event()
        self._busy = threading.Lock()
        interval_ms = _SYNC_IDLE_MS if config.is_sync_flush else config.flush_commit_log_interval_ms
        self._flusher = Worker(
            "flush-commitlog", self._flush_round, interval_ms=lambda: interval_ms
        )
        self._committer: Worker | None = None
        if commit_log.pool is not None:
            self._committer = Worker(
                "commit-commitlog",
                self._commit_round,
                interval_ms=lambda: config.commit_interval_ms,
            )

    def start(self) -> None:
        """Start the threads."""
        self._flusher.start()
        if self._committer is not None:
            self._committer.start()

    def stop(self) -> None:
        """Stop the threads; :meth:`flush_all` handles what is left."""
        if self._committer is not None:
            self._committer.stop()
        self._flusher.stop()

    def request(self) -> None:
        """Request a sync now."""
        self._flusher.wake()

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Block syncs and commits, so that positions may be moved back."""
        with self._busy:
            yield

    def go_back_to(self, store_timestamp_ms: int) -> None:
        """Lower the committed timestamp to this one; while :meth:`quiet` is held."""
        self._committed_timestamp_ms = min(self._committed_timestamp_ms, store_timestamp_ms)

    def flush_all(self) -> None:
        """Commit and sync everything appended so far, on the caller's thread."""
        for pause_s in _SHORTAGE_PAUSES_S:
            if self._commit(least_pages=0):
                break
            self._pause.wait(pause_s)
        self._flush(least_pages=0)

    def _flush_round(self) -> None:
        least_pages = 0
        if not self._config.is_sync_flush:
            least_pages = self._config.flush_commit_log_least_pages
            waited_ms = (self._clock.monotonic_ns() - self._last_sync_ns) // 1_000_000
            if waited_ms >= self._config.flush_commit_log_thorough_interval_ms:
                least_pages = 0
        self._flush(least_pages=least_pages)

    def _flush(self, *, least_pages: int) -> None:
        self._do(self._sync, least_pages)

    def _commit(self, *, least_pages: int) -> bool:
        return self._do(self._write_out, least_pages)

    def _do(self, work: Callable[[int], bool], least_pages: int) -> bool:
        """Work, then call back: callbacks may need locks whose holders wait for :meth:`quiet`.

        Returns:
            False if there was not enough memory, so that the work has to be repeated.
        """
        error: OSError | None = None
        moved = is_short = False
        with self._busy:
            try:
                moved = work(least_pages)
            except OSError as caught:
                error = caught
                is_short = is_exhausted(caught)
                self._failed = not is_short
        if is_short:
            log.warning("flushing the log waits for memory: %s", error)
        elif error is not None:
            log.critical("the log cannot be put on disk; writes are stopped for good: %s", error)
            self._on_failure(error)
        elif moved:
            self._on_progress()
        return not is_short

    def _sync(self, least_pages: int) -> bool:
        """Sync everything readable if there is enough; return whether the mark moved."""
        if self._failed:
            return False
        # In this order: the offset covers the record the timestamp belongs to, and the segments
        # cover the offset, whatever the writer does meanwhile.
        timestamp_ms = self._log.store_timestamp_ms
        if self._log.pool is not None:
            timestamp_ms = self._committed_timestamp_ms
        end = self._log.max_offset
        segments = self._log.queue.segments
        start = self._log.flushed_offset
        if end <= start or end - start < least_pages * PAGE_BYTES:
            return False
        for segment in segments:
            if segment.end_offset > start and segment.start_offset < end:
                position = min(segment.read_limit, end - segment.start_offset)
                segment.sync()
                segment.flushed = max(segment.flushed, position)
        self._last_sync_ns = self._clock.monotonic_ns()
        self._log.flushed_offset = end
        self._checkpoint.advance(physic_ms=timestamp_ms)
        return True

    def _commit_round(self) -> None:
        least_pages = self._config.commit_least_pages
        waited_ms = (self._clock.monotonic_ns() - self._last_commit_ns) // 1_000_000
        if waited_ms >= self._config.commit_thorough_interval_ms:
            least_pages = 0
        self._commit(least_pages=least_pages)

    def _write_out(self, least_pages: int) -> bool:
        """Write the transient buffers to their files, oldest first; return whether a mark moved."""
        pool = self._log.pool
        if pool is None or self._failed:
            return False
        timestamp_ms = self._log.store_timestamp_ms
        moved = False
        for segment in self._log.queue.segments:
            end = segment.wrote
            if segment.write_buffer is None:
                continue
            is_done = end == segment.size_bytes
            if end - segment.committed < least_pages * PAGE_BYTES and not is_done:
                timestamp_ms = 0
                continue
            segment.commit_range(segment.committed, end)
            moved = moved or end > segment.committed
            segment.committed = end
            if is_done:
                buffer, segment.write_buffer = segment.write_buffer, None
                pool.give_back(buffer)
        self._committed_timestamp_ms = max(self._committed_timestamp_ms, timestamp_ms)
        if moved:
            self._last_commit_ns = self._clock.monotonic_ns()
        return moved
