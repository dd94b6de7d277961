"""Decides what is deleted, and when.

Owns the rules of upstream's cleaning services: segments older than ``fileReservedTime`` are deleted
at the hours of ``deleteWhen``, when the disk is fuller than ``diskMaxUsedSpaceRatio``, or on
request; above ``diskSpaceCleanForciblyRatio`` the age no longer counts. Archived segments are
deleted after ``archivedFileReservedTime`` at any hour. Above ``diskSpaceWarningLevelRatio`` writes
are refused while reads continue. Queue and index files follow the log.

Invariants: the newest segment is never deleted, nor one with unflushed bytes or unflushed queue
entries: once the records are gone, only the entries show where a queue continues. Deletion
goes from the oldest on without a gap. Runs on the store's housekeeping thread; the lock is held
only while lists change, never during an unlink.
"""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Event, RLock

from roquet.errors import StoreError
from roquet.runtime.clock import Clock
from roquet.runtime.files import Files
from roquet.store.commit_log import CommitLog
from roquet.store.config import MessageStoreConfig
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.index import IndexService
from roquet.store.mapped_file import MappedFile
from roquet.store.running_flags import RunningFlag, RunningFlags

log = logging.getLogger(__name__)

_HOUR_MS = 3_600_000
_MANUAL_ROUNDS = 20


class Retention:
    """Cleans one store."""

    def __init__(
        self,
        files: Files,
        root: Path,
        config: MessageStoreConfig,
        clock: Clock,
        *,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        index: IndexService | None,
        flags: RunningFlags,
        lock: RLock,
    ) -> None:
        """Clean the files of these components below ``root``."""
        self._files = files
        self._root = root
        self._config = config
        self._clock = clock
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._flags = flags
        self._lock = lock
        self._manual_rounds = 0
        self._archived_offset = 0
        self._cleaned_offset = -1
        self._stopping = Event()

    def request_manual(self) -> None:
        """Let the next rounds delete what is old enough, whatever the hour."""
        self._manual_rounds = _MANUAL_ROUNDS

    def request_archived(self, archived_offset: int) -> None:
        """Let segments that end at or before a physical offset be deleted at any hour.

        Anybody may request this, so the age still counts: ``archivedFileReservedTime``.
        """
        self._archived_offset = max(self._archived_offset, archived_offset)

    def stop(self) -> None:
        """End a round that waits between two deletions."""
        self._stopping.set()

    def run_once(self) -> int:
        """One round; returns how many segments were deleted.

        A disk error ends the round; the next one continues where this one stopped.
        """
        deleted = 0
        try:
            deleted = self._clean_commit_log()
            self._clean_derived()
        except (OSError, StoreError):
            log.exception("cleaning was interrupted; the next round continues")
        return deleted

    def check_disk(self) -> float:
        """Set or clear the disk-full flag; return the used share of the disk in percent."""
        used_percent = self._files.disk_usage(self._root).used_ratio * 100
        if not self._has_blocks() or used_percent > self._config.disk_warning_percent:
            if not self._flags.has(RunningFlag.DISK_FULL):
                log.error(
                    "the disk is %.1f %% full, above diskSpaceWarningLevelRatio %d, or has no room "
                    "for a segment: writes are refused, reads go on",
                    used_percent,
                    self._config.disk_warning_percent,
                )
            self._flags.set(RunningFlag.DISK_FULL)
        elif used_percent > self._config.disk_clean_forcibly_percent:
            pass  # unchanged between the two levels, or the flag would flap
        elif self._flags.has(RunningFlag.DISK_FULL):
            log.warning("the disk is %.1f %% full; writes are accepted again", used_percent)
            self._flags.clear(RunningFlag.DISK_FULL)
        return used_percent

    def _has_blocks(self) -> bool:
        """Whether a write to the last segment cannot hit a full disk."""
        try:
            with self._lock:
                self._log.reserve()
        except OSError:
            return False
        return True

    def _clean_commit_log(self) -> int:
        used_percent = self.check_disk()
        is_manual = self._manual_rounds > 0
        is_forced = (
            self._config.clean_file_forcibly
            and used_percent > self._config.disk_clean_forcibly_percent
        )
        is_due = self._is_time_to_delete() or used_percent > self._config.disk_max_used_percent
        is_expired_due = is_manual or is_due or is_forced
        if not (is_expired_due or self._archived_offset > self._log.min_offset):
            return 0
        if is_manual:
            self._manual_rounds -= 1
        return self._delete_segments(forced=is_forced, archived_only=not is_expired_due)

    def _is_time_to_delete(self) -> bool:
        hours = {int(hour) for hour in self._config.delete_when.split(";")}
        return self._clock.local_hour() in hours

    def _delete_segments(self, *, forced: bool, archived_only: bool) -> int:
        deleted = 0
        while deleted < self._config.delete_file_batch_max:
            with self._lock:
                oldest = self._log.queue.first
                if oldest is None or not self._may_go(
                    oldest, forced=forced, archived_only=archived_only
                ):
                    break
                self._log.queue.drop_oldest(1)
            try:
                oldest.destroy()
            except OSError:
                with self._lock:
                    self._log.queue.put_back(oldest)
                raise
            # One by one: a crash must not bring back the older of two without the newer.
            self._files.sync_dir(self._log.queue.root)
            log.info("deleted %s", oldest.path.name)
            deleted += 1
            if self._stopping.wait(self._config.delete_commit_log_interval_ms / 1000):
                break
        return deleted

    def _may_go(self, segment: MappedFile, *, forced: bool, archived_only: bool) -> bool:
        if len(self._log.queue.segments) <= 1:
            return False
        if segment.end_offset > min(self._log.flushed_offset, self._queues.synced_offset):
            return False
        if forced:
            return True
        try:
            modified_ms = self._files.modified_ms(segment.path)
        except FileNotFoundError:
            return True  # deleted by hand; otherwise nothing after it would ever be deleted
        age_ms = max(self._clock.now_ms() - modified_ms, 0)
        is_archived = segment.end_offset <= self._archived_offset
        if is_archived and age_ms >= self._config.archived_reserved_hours * _HOUR_MS:
            return True
        return not archived_only and age_ms >= self._config.file_reserved_hours * _HOUR_MS

    def _clean_derived(self) -> None:
        """Clean queues and index after the log's oldest offset has moved."""
        min_offset = self._log.min_offset
        if min_offset <= self._cleaned_offset:
            return
        for queue in self._queues:
            queue.delete_expired(min_offset, lock=self._lock)
        if self._index is not None:
            self._index.delete_expired(min_offset)
        self._cleaned_offset = min_offset
