"""The store: log, queues and index as one thing with a beginning and an end.

Owns the life cycle (lock, load, recover, start, shutdown), the way of a put from check to answer,
and the threads that keep the files in order. The parts do the work; this module orders it.

Files of a store, below its root:

=================== ==========================================================================
commitlog/          segments of the log
consumequeue/       <topic>/<queueId>/ entries that point into it
consumequeue_ext/   the same, with filter bitmaps, when enableConsumeQueueExt is on
index/              hash files from key to offset
checkpoint          how far each of these is on disk
lock                held while a process uses the store (record lock on byte 0)
abort               there while it runs; found at start it means the last exit was not clean
=================== ==========================================================================

One owner: puts, bursts and the end of waiting happen on the owner's side, guarded by one lock
that nobody contends on an event loop. Background threads hand results over through ``post``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from roquet.errors import StoreClosed, StoreDamaged
from roquet.model.message import BatchMessage, BrokerMessage
from roquet.model.topic import topic_fault
from roquet.runtime.clock import Clock, SystemClock
from roquet.runtime.files import Files
from roquet.runtime.worker import Worker
from roquet.store.checkpoint import StoreCheckpoint
from roquet.store.commit_log import Appended, CommitLog
from roquet.store.config import BrokerRole, MessageStoreConfig
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.dispatch import Dispatcher
from roquet.store.flush import AckQueue, FlushCommitLog, Post
from roquet.store.index import IndexService
from roquet.store.io_errors import translated
from roquet.store.lane import BurstResult, append_alone, append_burst, make_lane
from roquet.store.message_store import PutDone
from roquet.store.plain_append import make_plain_append
from roquet.store.reader import MessageReader
from roquet.store.recovery import Recovery, RecoveryReport
from roquet.store.results import AppendResult, PutMessageResult, PutMessageStatus
from roquet.store.retention import Retention
from roquet.store.running_flags import RunningFlag, RunningFlags
from roquet.store.stats import StoreStatsService
from roquet.store.store_lock import StoreLock
from roquet.store.store_views import StoreViews

log = logging.getLogger(__name__)

_T = TypeVar("_T")
PlainPuts = Callable[[int, bool], int]
INDEX_DIR = "index"
CHECKPOINT_FILE = "checkpoint"


class DefaultMessageStore(StoreViews):
    """A message store on a directory."""

    def __init__(
        self,
        root: Path,
        config: MessageStoreConfig | None = None,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        post: Post | None = None,
        on_fatal: Callable[[OSError], None] | None = None,
    ) -> None:
        """Prepare a store in ``root``; nothing is touched before :meth:`load`.

        Args:
            root: The store's directory.
            config: Settings; upstream's defaults without.
            files: The file system.
            clock: The time.
            post: Runs a function on the owner's side; on an event loop its
                ``call_soon_threadsafe``. Without one, functions run on the thread that has them.
            on_fatal: Told once when the log can no longer be put on disk; the owner should exit.
        """
        super().__init__()
        self.root = root
        self.config = config or MessageStoreConfig()
        self._files = files or Files()
        self.clock = clock or SystemClock()
        self._post = post or (lambda function: function())
        self._on_fatal = on_fatal
        self._lock = threading.RLock()
        self._store_lock = StoreLock(self._files, root)
        self.flags = RunningFlags()
        self.stats = StoreStatsService(self.clock)
        self.checkpoint = StoreCheckpoint(self._files, root / CHECKPOINT_FILE)
        self.commit_log = CommitLog(self._files, root, self.config, self.clock)
        self.queues = ConsumeQueueStore(self._files, root, self.config)
        self.index = self._make_index()
        self.dispatcher = Dispatcher(
            self.commit_log,
            self.queues,
            self.index,
            self.flags,
            is_replica=self.config.broker_role is BrokerRole.SLAVE,
        )
        self.lane = make_lane(
            self.config, self.commit_log, self.queues, self.index, self.dispatcher
        )
        self.dispatcher.lane = self.lane
        self.plain = make_plain_append(
            self.config, self.commit_log, self.queues, self.index, self.dispatcher
        )
        self.reader = MessageReader(
            self.commit_log, self.queues, self.index, self.config, self.stats
        )
        self.acks = AckQueue(self.config, self.clock)
        self.flusher = FlushCommitLog(
            self.commit_log,
            self.config,
            self.clock,
            self.checkpoint,
            on_progress=self._progressed,
            on_failure=self._failed,
        )
        self.retention = Retention(
            self._files,
            root,
            self.config,
            self.clock,
            commit_log=self.commit_log,
            queues=self.queues,
            index=self.index,
            flags=self.flags,
            lock=self._lock,
        )
        self._logics_flusher = Worker(
            "flush-consumequeue",
            self._flush_logics_round,
            interval_ms=lambda: self.config.flush_consume_queue_interval_ms,
        )
        self._housekeeper = Worker(
            "clean-store",
            self._housekeeping_round,
            interval_ms=lambda: min(self.config.clean_resource_interval_ms, 1000),
        )
        self._last_thorough_ns = self.clock.monotonic_ns()
        self._last_clean_ns = self.clock.monotonic_ns()
        self._burst: list[tuple[PutMessageResult, PutDone | None, bool]] = []
        self._append_began_ns = 0
        self._append_took_ns = (0, 0)
        self._is_started = False
        self.last_recovery: RecoveryReport | None = None

    def _make_index(self) -> IndexService | None:
        if not self.config.message_index:
            return None
        return IndexService(
            self._files,
            self.root / INDEX_DIR,
            slots=self.config.index_slots,
            entries=self.config.index_entries,
            clock=self.clock,
        )

    # -- life cycle ---------------------------------------------------------------------------

    def load(self) -> RecoveryReport:
        """Take the store, open its files and recover them.

        Raises:
            StoreLocked: Another process has it.
            StoreDamaged: It cannot be opened without losing something; nothing was changed.
            StoreError: The disk refused.
        """
        with translated(f"opening {self.root}"):
            return self._load()

    def _load(self) -> RecoveryReport:
        self._store_lock.acquire()
        try:
            clean_exit = not self._store_lock.was_aborted
            self.checkpoint.load()
            self.commit_log.load()
            self.queues.load(is_torn=not clean_exit)
            recovery = Recovery(
                self.commit_log, self.queues, self.index, self.dispatcher, self.checkpoint
            )
            recovery.check_clock(self.clock)
            self.last_recovery = recovery.run(
                clean_exit=clean_exit, before_rebuild=self._store_lock.mark_running
            )
        except BaseException:
            self._close_files()
            self._store_lock.release()
            raise
        self.acks.flushed_offset = self.commit_log.flushed_offset
        return self.last_recovery

    def start(self, *, threads: bool = True) -> None:
        """Mark the store as running and start its threads; puts are taken from here on.

        Without ``threads`` nothing happens in the background: whoever asks for that runs the
        rounds of the workers by hand. When the disk refuses, :class:`StoreError` is raised.
        """
        with translated(f"starting {self.root}"):
            self._files.make_dirs(self.commit_log.queue.root)
            self._store_lock.mark_running()
            self.retention.check_disk()
        if threads:
            self.commit_log.allocator.start()
            self.flusher.start()
            self._logics_flusher.start()
            self._housekeeper.start()
        self._is_started = True

    def shutdown(self) -> None:
        """Answer nobody any more, put everything on disk, leave a clean store behind."""
        if self.flags.has(RunningFlag.SHUT_DOWN):
            return
        with self._lock:
            self.finish_burst()
            self.flags.set(RunningFlag.SHUT_DOWN)
        self.retention.stop()
        for worker in (self._housekeeper, self._logics_flusher):
            worker.stop()
        self.flusher.stop()
        self.flusher.flush_all()
        with self._lock:
            is_clean = self._is_started and self._settle()
        try:
            if self._close_files() and is_clean:
                self._store_lock.mark_stopped()
        except OSError:
            log.exception("the store is whole but cannot be marked so")
        finally:
            self._store_lock.release()

    def _settle(self) -> bool:
        """Dispatch and sync all that is left; whether the next start may trust the files."""
        if self.flags.has(RunningFlag.FLUSH_FAILED):
            self.acks.fail()
            return False
        try:
            self.dispatcher.run(self.confirm_offset)
            self._flush_logics(thorough=True)
        except (OSError, StoreDamaged) as error:
            log.critical("the next start has to recover queues and index: %s", error)
            return False
        finally:
            self.acks.flushed_offset = self.commit_log.flushed_offset
            self.acks.release()
            self.acks.fail()
        return self.dispatcher.is_settled(self.commit_log.wrote_offset)

    def _close_files(self) -> bool:
        """Close what is open; whether all of it could be put on disk."""
        parts = (self.commit_log, self.queues, self.index)
        is_clean = True
        for part in parts:
            try:
                if part is not None:
                    part.close()
            except OSError as error:
                log.critical("%s cannot be closed cleanly: %s", type(part).__name__, error)
                is_clean = False
        return is_clean

    def destroy(self) -> None:
        """Delete every file of a store that is shut down."""
        if not self.flags.has(RunningFlag.SHUT_DOWN):
            raise StoreClosed("a running store cannot be destroyed", hint="shut it down first")
        self._store_lock.acquire()
        try:
            self.commit_log.load()
            self.queues.load()
            self.commit_log.queue.destroy()
            self.queues.destroy()
            if self.index is not None:
                self.index.load(last_exit_ok=True, index_msg_timestamp_ms=0)
                self.index.destroy()
            self._files.unlink(self.root / CHECKPOINT_FILE)
            self._store_lock.mark_stopped()
        finally:
            self._store_lock.release()

    # -- putting ------------------------------------------------------------------------------

    def submit(self, message: BrokerMessage | BatchMessage, done: PutDone | None = None) -> None:
        """Append a message as part of a burst; :meth:`finish_burst` must follow.

        ``done`` gets the answer: at once when the message is refused, otherwise when the burst is
        finished and, if the message has to wait for the disk or a slave, when that has happened.
        """
        with self._lock:
            began_ns = self._append_began_ns = self.clock.monotonic_ns()
            try:
                result = self._append(message)
            finally:
                ended_ns = self.clock.monotonic_ns()
                self._append_began_ns = 0
            appended = result.append
            if appended is None:
                self.stats.put_failed += 1
                if done is not None:
                    done(result)
                return
            took_ns = ended_ns - began_ns
            self._append_took_ns = (ended_ns, took_ns)
            self.stats.count_put(
                is_ok=True,
                messages=len(appended.physical_offsets),
                size_bytes=appended.wrote_bytes,
                took_ns=took_ns,
            )
            self._burst.append((result, done, message.wait_store_ok))

    def finish_burst(self) -> None:
        """Dispatch what was appended, then answer, or let the answers wait for the disk."""
        if not self._burst:
            return
        with self._lock:
            burst, self._burst = self._burst, []
            if not burst:
                return
            self._dispatch_burst()
            may_wait = self.acks.is_needed
            for result, done, must_wait in burst:
                if done is None:
                    continue
                if may_wait and must_wait:
                    self._wait(result, done)
                else:
                    done(result)
            if self.config.is_sync_flush:
                self.flusher.request()

    def put_burst(self, messages: Sequence[BrokerMessage]) -> BurstResult:
        """Append and dispatch many messages at once, plain ones by the compiled lane.

        Does not wait for the disk: ``acks.wait(result.end_offset, ...)`` does.
        """
        with self._lock:
            may_use_lane = self._may_use_lane()
            began_ns = self._append_began_ns = self.clock.monotonic_ns()
            began_offset = self.commit_log.wrote_offset
            try:
                result = append_burst(
                    messages,
                    lane=self.lane if may_use_lane else None,
                    commit_log=self.commit_log,
                    dispatcher=self.dispatcher,
                    is_confirmed=self.is_confirmed_at_once,
                    append_one=self._append,
                )
                self._dispatch_burst()
            finally:
                size_bytes = self.commit_log.wrote_offset - began_offset
                took_ns = self._note_append(began_ns, size_bytes)
            self.stats.put_failed += len(result.refused)
            self.stats.count_put(
                is_ok=True,
                messages=len(messages) - len(result.refused),
                size_bytes=size_bytes,
                took_ns=took_ns,
            )
            if self.config.is_sync_flush:
                self.flusher.request()
            return result

    def put_plain(self, append: PlainPuts, done: PutDone | None = None) -> None:
        """Let the lane of the wire append as part of a burst; :meth:`finish_burst` must follow.

        ``append`` gets the store timestamp, -1 if nothing may be appended, and whether it has to
        dispatch what it appends. It returns how many messages it has appended. ``done`` gets one
        answer for all of them, if there are any, as with :meth:`submit`.
        """
        with self._lock:
            if not self._may_use_lane():
                append(-1, False)
                return
            began_ns = self._append_began_ns = self.clock.monotonic_ns()
            began_offset = self.commit_log.wrote_offset
            dispatch = (
                self.is_confirmed_at_once
                and self.dispatcher.is_plain
                and self.dispatcher.dispatched_offset == began_offset
            )
            now_ms = self.commit_log.next_store_timestamp()
            count = 0
            try:
                count = append(now_ms, dispatch)
            finally:
                size_bytes = self.commit_log.wrote_offset - began_offset
                took_ns = self._note_append(began_ns, size_bytes)
                if size_bytes:
                    self.stats.count_put(
                        is_ok=True, messages=count, size_bytes=size_bytes, took_ns=took_ns
                    )
                    appended = AppendResult(began_offset, size_bytes, now_ms, 0, ())
                    result = PutMessageResult(PutMessageStatus.PUT_OK, appended)
                    self._burst.append((result, done, True))

    def read_plain(self, read: Callable[[int], _T]) -> _T:
        """Let the lane of the wire read; ``read`` gets the time. No segment goes meanwhile."""
        with self._lock:
            return read(self.clock.now_ms())

    def _may_use_lane(self) -> bool:
        return (
            self._is_started
            and self.flags.is_writeable
            and not self.put_hooks
            and not self.is_os_page_cache_busy()
        )

    def _note_append(self, began_ns: int, size_bytes: int) -> int:
        """Take note of the end of an append; how long it took. A refusal is none."""
        ended_ns = self.clock.monotonic_ns()
        self._append_began_ns = 0
        if size_bytes:
            self._append_took_ns = (ended_ns, ended_ns - began_ns)
        return ended_ns - began_ns

    def _dispatch_burst(self) -> None:
        segment = self.commit_log.queue.last
        if segment is not None and segment.write_buffer is None:
            self.commit_log.allocator.populate_ahead(segment)
        if self.dispatcher.dispatched_offset < self.confirm_offset:
            self.dispatcher.run(self.confirm_offset)
        else:
            self.dispatcher.finish()

    def put_message(self, message: BrokerMessage | BatchMessage) -> PutMessageResult:
        """Append one message or batch and wait for the answer; not on an event loop."""
        answered = threading.Event()
        answers: list[PutMessageResult] = []

        def done(result: PutMessageResult) -> None:
            answers.append(result)
            answered.set()

        self.submit(message, done)
        self.finish_burst()
        answered.wait()
        return answers[0]

    def _append(self, message: BrokerMessage | BatchMessage) -> PutMessageResult:
        if not self.flags.is_writeable or not self._is_started:
            reasons = ", ".join(self.flags.reasons()) or "not started"
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, detail=reasons)
        if self.is_os_page_cache_busy():
            return PutMessageResult(PutMessageStatus.OS_PAGE_CACHE_BUSY)
        for hook in self.put_hooks:
            refused = hook(message)
            if refused is not None:
                return refused
        if isinstance(message, BrokerMessage):
            appended = self._append_plain(message)
            if appended is not None:
                return PutMessageResult(PutMessageStatus.PUT_OK, appended)
        queue = self.queues.find(message.topic, message.queue_id)
        if queue is None:
            fault = topic_fault(message.topic)
            if fault is None and message.queue_id < 0:
                fault = f"queue id {message.queue_id}"
            if fault is not None:
                return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, detail=fault)
            queue = self.queues.find_or_create(message.topic, message.queue_id)
        return self._append_to(message, queue)

    def _append_plain(self, message: BrokerMessage) -> AppendResult | None:
        """Append a message by one of the quick ways, ``None`` when it is not ordinary."""
        is_confirmed = self.is_confirmed_at_once
        if self.lane is not None:
            return append_alone(
                message,
                self.lane,
                commit_log=self.commit_log,
                dispatcher=self.dispatcher,
                is_confirmed=is_confirmed,
            )
        if self.plain is not None:
            now_ms = self.commit_log.next_store_timestamp()
            return self.plain.append(message, now_ms, is_confirmed=is_confirmed)
        return None

    def _append_to(
        self, message: BrokerMessage | BatchMessage, queue: ConsumeQueue
    ) -> PutMessageResult:
        if isinstance(message, BatchMessage):
            appended = self.commit_log.append_batch(message, queue)
        else:
            appended = self.commit_log.append(message, queue)
        if isinstance(appended, PutMessageResult):
            if appended.status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED:
                log.error("no new segment: %s", appended.detail)
            return appended
        self._dispatch_now(appended)
        return PutMessageResult(PutMessageStatus.PUT_OK, appended.result)

    def _dispatch_now(self, appended: Appended) -> None:
        """Dispatch in the same burst what is confirmed by being appended."""
        if self.confirm_offset >= appended.result.end_offset:
            self.dispatcher.dispatch(appended.requests)

    def _wait(self, result: PutMessageResult, done: PutDone) -> None:
        """Answer when the disk or a slave has a message."""
        appended = result.append
        assert appended is not None, "what was refused does not wait"
        self.acks.wait(appended.end_offset, lambda status: done(PutMessageResult(status, appended)))

    # -- threads --------------------------------------------------------------------------------

    def _owned(self, function: Callable[[], None]) -> None:
        """Run a function on the owner's side, under the lock."""

        def locked() -> None:
            with self._lock:
                function()

        self._post(locked)

    def _progressed(self) -> None:
        """The log was synced or committed: show it to readers, then answer those who wait."""
        self._owned(self._release)

    def _release(self) -> None:
        if self.flags.has(RunningFlag.SHUT_DOWN):
            return
        if self.dispatcher.dispatched_offset < self.confirm_offset:
            self._catch_up()
        self.acks.flushed_offset = self.commit_log.flushed_offset
        self.acks.release()

    def _failed(self, error: OSError) -> None:
        self.flags.set(RunningFlag.FLUSH_FAILED)
        self._owned(self.acks.fail)
        if self._on_fatal is not None:
            self._on_fatal(error)

    def _flush_logics_round(self) -> None:
        waited_ms = (self.clock.monotonic_ns() - self._last_thorough_ns) // 1_000_000
        thorough = waited_ms >= self.config.flush_consume_queue_thorough_interval_ms
        if self.flags.has(RunningFlag.FLUSH_FAILED):
            return
        try:
            self._flush_logics(thorough=thorough)
        except OSError as error:
            log.critical("consume queues or index cannot be put on disk: %s", error)
            self._failed(error)

    def _flush_logics(self, *, thorough: bool) -> None:
        """Sync queues, index and checkpoint; a mark moves only after what it speaks of."""
        pages = 0 if thorough else self.config.flush_consume_queue_least_pages
        with self._logics_lock:
            dispatched_ms = self.dispatcher.written_timestamp_ms
            dispatched_offset = self.dispatcher.written_offset
            self.queues.sync(least_pages=pages)
            index_ms = self.index.flush(thorough=thorough) if self.index is not None else 0
            self.checkpoint.advance(logics_ms=dispatched_ms if thorough else 0, index_ms=index_ms)
            self.checkpoint.flush()
            if thorough:
                self.queues.synced_offset = max(self.queues.synced_offset, dispatched_offset)
                self._last_thorough_ns = self.clock.monotonic_ns()

    def _housekeeping_round(self) -> None:
        self.stats.sample()
        if self.acks.is_needed:
            self._owned(self.acks.expire)
        waited_ms = (self.clock.monotonic_ns() - self._last_clean_ns) // 1_000_000
        if waited_ms >= self.config.clean_resource_interval_ms:
            self._last_clean_ns = self.clock.monotonic_ns()
            self.retention.run_once()
            self._owned(self._retry_dispatch)
