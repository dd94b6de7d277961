"""The lifecycle of a store, from opening its directory to closing it.

Owns the order of the steps: lock, load, recover, start; settle, close, unlock.
"""

from __future__ import annotations

import logging

from roquet.errors import NotAStore, StoreClosed, StoreDamaged
from roquet.format.config_files import TOPICS, topic_names
from roquet.runtime.exhaustion import is_exhausted
from roquet.store.index_mark import MARK_FILE
from roquet.store.io_errors import translated
from roquet.store.puts import Puts
from roquet.store.recovery import Recovery
from roquet.store.recovery_progress import RecoveryProgress
from roquet.store.results import RecoveryReport
from roquet.store.retention import Retention
from roquet.store.running_flags import RunningFlag
from roquet.store.store_components import CHECKPOINT_FILE, StoreComponents
from roquet.store.store_threads import StoreThreads

log = logging.getLogger(__name__)

CONFIG_DIR = "config"


class StoreLifecycle:
    """The lifecycle of one store."""

    def __init__(
        self, components: StoreComponents, puts: Puts, upkeep: StoreThreads, retention: Retention
    ) -> None:
        """Open and close ``components``; nothing is touched before :meth:`load`."""
        self._components = components
        self._puts = puts
        self._upkeep = upkeep
        self._retention = retention
        self.last_recovery: RecoveryReport | None = None

    @property
    def is_shut_down(self) -> bool:
        """Whether the store was shut down."""
        return self._components.flags.has(RunningFlag.SHUT_DOWN)

    def load(self) -> RecoveryReport:
        """Lock the store, open its files and recover them.

        Raises:
            NotAStore: There is none, and the settings require one; nothing was created.
            StoreLocked: Another process uses it.
            StoreDamaged: It cannot be opened without losing something; nothing was changed.
            StoreError: The disk failed.
        """
        with translated(f"opening {self._components.root}"):
            if self._components.config.must_exist:
                self._check_existence()
            return self._load()

    def _check_existence(self) -> None:
        """Refuse an empty directory: the disk of the store may not be mounted."""
        root, log_root = self._components.root, self._components.commit_log.queue.root
        if not self._components.files.exists(log_root):
            raise NotAStore(
                f"There is no store in {root}, and storeMustExist is set.",
                detail=f"{log_root} does not exist",
                hint="Mount the disk that holds the store. Only to create a new store, "
                "start once without storeMustExist and without --expect-store.",
            )

    def _load(self) -> RecoveryReport:
        self._components.store_lock.acquire()
        try:
            clean_exit = not self._components.store_lock.was_aborted
            self._components.checkpoint.load()
            self._components.manifest.load()
            self._components.commit_log.load()
            self._components.queues.load(is_torn=not clean_exit)
            recovery = Recovery(
                self._components,
                known_topics=self._known_topics(),
                progress=RecoveryProgress(self._components.clock),
            )
            recovery.check_clock(self._components.clock)
            self.last_recovery = recovery.run(
                clean_exit=clean_exit, before_rebuild=self._components.store_lock.mark_running
            )
        except BaseException:
            self.abandon()
            raise
        # Only now: what recovery removes was already gone when the manifest was written, and the
        # next start needs the manifest's queues to see what this one left undone.
        self._components.queues.before_removal = self._components.manifest.forget_queues
        self._components.acks.flushed_offset = self._components.commit_log.flushed_offset
        return self.last_recovery

    def abandon(self) -> None:
        """Release the files as they are; the next start recovers them."""
        self._close_files()
        self._components.store_lock.release()

    def _known_topics(self) -> set[str] | None:
        """The broker's topics from its table; ``None`` if that cannot be read."""
        path = self._components.root / CONFIG_DIR / TOPICS
        return (
            topic_names(self._components.files.read_file(path))
            if self._components.files.exists(path)
            else None
        )

    def start(self, *, threads: bool = True) -> None:
        """Mark the store as running, start its threads and accept puts.

        Without ``threads`` nothing happens in the background: the caller runs the rounds of the
        workers itself. Raises :class:`StoreError` if the disk fails.
        """
        with translated(f"starting {self._components.root}"):
            self._components.files.make_dirs(self._components.commit_log.queue.root)
            self._components.store_lock.mark_running()
            self._retention.check_disk()
        if threads:
            self._upkeep.start()
        self._puts.is_open = True

    def shutdown(self) -> None:
        """Stop responding, put everything on disk, and leave a clean store."""
        if self._components.flags.has(RunningFlag.SHUT_DOWN):
            return
        with self._components.lock:
            self._puts.finish_burst()
            self._components.flags.set(RunningFlag.SHUT_DOWN)
        self._upkeep.stop()
        with self._components.lock:
            is_clean = self._puts.is_open and self._settle()
        try:
            if self._close_files() and is_clean:
                self._components.store_lock.mark_stopped()
        except OSError:
            log.exception("the store is complete but cannot be marked as closed")
        finally:
            self._components.store_lock.release()

    def _settle(self) -> bool:
        """Dispatch and sync all that is left; return whether the next start may trust the files."""
        if self._components.flags.has(RunningFlag.FLUSH_FAILED):
            self._components.acks.fail()
            return False
        try:
            is_clean = self._settle_derived()
            if not is_clean:
                self._components.queues.give_up_descriptors()
                is_clean = self._settle_derived()
            is_clean = is_clean and self._components.dispatcher.is_settled(
                self._components.commit_log.wrote_offset
            )
            if is_clean:
                self._components.manifest.note_closed(
                    self._components.commit_log, self._components.queues, self._components.index
                )
        except (OSError, StoreDamaged) as error:
            log.critical("the next start has to recover queues and index: %s", error)
            return False
        finally:
            self._components.acks.flushed_offset = self._components.commit_log.flushed_offset
            self._components.acks.release()
            self._components.acks.fail()
        return is_clean

    def _settle_derived(self) -> bool:
        """Dispatch and sync what is left; false if there were too few descriptors or memory."""
        self._components.dispatcher.shortage = None
        try:
            self._components.dispatcher.run(self._components.confirm_offset)
            self._components.queues.finish_deletions()
            self._upkeep.flush_logics(thorough=True)
        except OSError as error:
            if not is_exhausted(error):
                raise
            log.warning("flushing queues and index has to wait: %s", error)
            return False
        return self._components.dispatcher.shortage is None

    def _close_files(self) -> bool:
        """Close what is open; return whether all of it could be put on disk."""
        parts = (self._components.commit_log, self._components.queues, self._components.index)
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
        if not self._components.flags.has(RunningFlag.SHUT_DOWN):
            raise StoreClosed("a running store cannot be destroyed", hint="shut it down first")
        self._components.store_lock.acquire()
        try:
            self._components.commit_log.load()
            self._components.queues.load()
            self._components.commit_log.queue.destroy()
            self._components.queues.destroy()
            if self._components.index is not None:
                self._components.index.load(last_exit_ok=True, index_msg_timestamp_ms=0)
                self._components.index.destroy()
            self._components.files.unlink(self._components.root / CHECKPOINT_FILE)
            self._components.manifest.remove()
            self._components.files.unlink(self._components.root / MARK_FILE)
            self._components.store_lock.mark_stopped()
        finally:
            self._components.store_lock.release()
