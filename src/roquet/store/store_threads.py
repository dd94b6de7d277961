"""The background threads of a store: flushing and housekeeping.

Owns the threads: the flusher of the log, the flusher of queues and index, the housekeeper. Their
results reach the owner's side through :meth:`StoreComponents.run_owned`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from roquet.format.index_file import IndexHeader
from roquet.runtime.exhaustion import is_exhausted
from roquet.runtime.worker import Worker
from roquet.store.flush import FlushCommitLog
from roquet.store.index_file import IndexFile
from roquet.store.retention import Retention
from roquet.store.running_flags import RunningFlag
from roquet.store.store_components import StoreComponents

log = logging.getLogger(__name__)

_THOROUGH_BYTES = 2 << 30
"""After this much log, queues, index and marks are synced early: recovery reads the rest."""


class StoreThreads:
    """The threads of one store.

    Attributes:
        flusher: Puts the log on disk.
        last_thorough_ns: When all of queues and index was last on disk.
    """

    def __init__(
        self,
        components: StoreComponents,
        retention: Retention,
        on_fatal: Callable[[OSError], None] | None = None,
    ) -> None:
        """Create the threads; nothing runs before :meth:`start`."""
        self._components = components
        self._retention = retention
        self._on_fatal = on_fatal
        config = components.config
        self.flusher = FlushCommitLog(
            components.commit_log,
            config,
            components.clock,
            components.checkpoint,
            on_progress=self._progressed,
            on_failure=self._failed,
        )
        self._logics_flusher = Worker(
            "flush-consumequeue",
            self.flush_logics_round,
            interval_ms=lambda: config.flush_consume_queue_interval_ms,
        )
        self._housekeeper = Worker(
            "clean-store",
            self.housekeeping_round,
            interval_ms=lambda: min(config.clean_resource_interval_ms, 1000),
        )
        self.last_thorough_ns = components.clock.monotonic_ns()
        self._last_clean_ns = components.clock.monotonic_ns()

    def start(self) -> None:
        """Start the threads."""
        self._components.commit_log.allocator.start()
        self._components.read_ahead.start()
        self.flusher.start()
        self._logics_flusher.start()
        self._housekeeper.start()

    def stop(self) -> None:
        """Stop the threads, and put the log on disk."""
        self._retention.stop()
        self._components.read_ahead.stop()
        for worker in (self._housekeeper, self._logics_flusher):
            worker.stop()
        self.flusher.stop()
        self.flusher.flush_all()

    def _progressed(self) -> None:
        """After a sync or commit of the log: show it to readers, then release waiting responses."""
        self._components.run_owned(self._release)

    def _release(self) -> None:
        if self._components.flags.has(RunningFlag.SHUT_DOWN):
            return
        if self._components.dispatcher.dispatched_offset < self._components.confirm_offset:
            self._components.catch_up()
        self._components.acks.flushed_offset = self._components.commit_log.flushed_offset
        self._components.acks.release()
        if self._components.grown is not None:
            self._components.grown()

    def _failed(self, error: OSError) -> None:
        self._components.flags.set(RunningFlag.FLUSH_FAILED)
        self._components.run_owned(self._components.acks.fail)
        if self._on_fatal is not None:
            self._on_fatal(error)

    def flush_logics_round(self) -> None:
        """Sync queues, index and checkpoint; all of them if it is time."""
        waited_ms = (self._components.clock.monotonic_ns() - self.last_thorough_ns) // 1_000_000
        thorough = (
            waited_ms >= self._components.config.flush_consume_queue_thorough_interval_ms
            or (
                self._components.dispatcher.written_offset - self._components.queues.synced_offset
                >= _THOROUGH_BYTES
            )
        )
        if self._components.flags.has(RunningFlag.FLUSH_FAILED):
            return
        try:
            self.flush_logics(thorough=thorough)
        except OSError as error:
            if is_exhausted(error):
                # Nothing was lost: no sync has failed, and the next round repeats what is left.
                log.warning("consume queues, index and checkpoint are synced later: %s", error)
                self._components.run_owned(self._components.queues.give_up_descriptors)
                return
            log.critical("consume queues or index cannot be put on disk: %s", error)
            self._failed(error)

    def flush_logics(self, *, thorough: bool) -> None:
        """Sync queues, index and checkpoint; a mark moves only after what it covers is synced."""
        pages = 0 if thorough else self._components.config.flush_consume_queue_least_pages
        newest = self._newest_index_header() if thorough else None
        with self._components.logics_lock:
            dispatched_ms = self._components.dispatcher.written_timestamp_ms
            dispatched_offset = self._components.dispatcher.written_offset
            self._components.queues.sync(least_pages=pages)
            index_ms = (
                self._components.index.flush(thorough=thorough)
                if self._components.index is not None
                else 0
            )
            self._components.checkpoint.advance(
                logics_ms=dispatched_ms if thorough else 0, index_ms=index_ms
            )
            self._components.checkpoint.flush()
            if self._components.index is not None and newest is not None:
                self._components.index.keep_mark(*newest)
            if thorough:
                self._components.queues.synced_offset = max(
                    self._components.queues.synced_offset, dispatched_offset
                )
                self.last_thorough_ns = self._components.clock.monotonic_ns()

    def _newest_index_header(self) -> tuple[IndexFile, IndexHeader] | None:
        """The newest index file and header, if its records are whole in it and in the log on disk.

        Entries of records that were lost in a power cut would cost the whole file.
        """
        if self._components.index is None:
            return None
        with self._components.lock:
            newest = self._components.index.newest_header()
            is_whole = not self._components.flags.has(RunningFlag.INDEX_FILE_ERROR)
        if newest is None or not is_whole:
            return None
        end_offset = newest[1].end_physical_offset
        if self._components.commit_log.flushed_offset <= end_offset:
            self.flusher.flush_all()
        return newest if self._components.commit_log.flushed_offset > end_offset else None

    def housekeeping_round(self) -> None:
        """Expire waiting puts, retry what failed, and clean if it is time."""
        self._components.stats.sample()
        if self._components.acks.is_needed:
            self._components.run_owned(self._components.acks.expire)
        if self._components.dispatcher.shortage is not None:
            self._components.run_owned(self._retry_dispatch)
        waited_ms = (self._components.clock.monotonic_ns() - self._last_clean_ns) // 1_000_000
        if waited_ms >= self._components.config.clean_resource_interval_ms:
            self._last_clean_ns = self._components.clock.monotonic_ns()
            self._retention.run_once()
            self._components.run_owned(self._retry_dispatch)

    def _retry_dispatch(self) -> None:
        """Retry what failed for lack of space, descriptors or memory, to accept writes again."""
        if self._components.dispatcher.shortage is not None:
            self._components.dispatcher.shortage = None
            self._components.queues.give_up_descriptors()
        if self._components.flags.has(
            RunningFlag.LOGICS_QUEUE_ERROR | RunningFlag.INDEX_FILE_ERROR
        ):
            self._components.catch_up()
