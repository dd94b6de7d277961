"""The log as bytes, for master and slave.

Owns the two operations besides puts that change the log: appending replicated bytes, and
truncation. Both take the store's lock.
"""

from __future__ import annotations

from roquet.errors import StoreClosed, StoreError
from roquet.store.flush import FlushCommitLog
from roquet.store.puts import Puts
from roquet.store.running_flags import RunningFlag
from roquet.store.store_components import StoreComponents
from roquet.store.truncate import Truncation


class ReplicatedLog:
    """The log of one store, as its replicas see it."""

    def __init__(self, components: StoreComponents, flusher: FlushCommitLog, puts: Puts) -> None:
        """Read, append to and truncate the log of ``components`` while no put is under way."""
        self._components = components
        self._flusher = flusher
        self._puts = puts
        self._log = components.commit_log
        self._ha_master_address = ""

    @property
    def confirm_offset(self) -> int:
        """End of what readers may see."""
        return self._components.confirm_offset

    @property
    def max_physical_offset(self) -> int:
        """End of the readable log."""
        return self._log.max_offset

    @property
    def min_physical_offset(self) -> int:
        """The oldest byte of the log."""
        return self._log.min_offset

    def set_confirm_offset(self, physical_offset: int | None) -> None:
        """Hide everything from an offset on from readers; ``None`` lifts that."""
        with self._components.lock:
            self._components.confirm_limit = physical_offset
            if physical_offset is not None:
                self._components.checkpoint.advance(confirm=physical_offset)
            self._components.dispatch_confirmed()

    def commit_log_data(self, physical_offset: int) -> memoryview | None:
        """The log from an offset to at most the end of its segment."""
        self._components.check_readable()
        return self._log.data_from(physical_offset, self._log.queue.size_bytes)

    def bulk_commit_log_data(self, physical_offset: int, size_bytes: int) -> list[memoryview]:
        """The log from an offset on, across as many segments as necessary."""
        self._components.check_readable()
        parts: list[memoryview] = []
        end = physical_offset + size_bytes
        while physical_offset < end:
            part = self._log.data_from(physical_offset, end - physical_offset)
            if part is None:
                break
            parts.append(part)
            physical_offset += len(part)
        return parts

    def append_to_commit_log(self, physical_offset: int, data: bytes | memoryview) -> bool:
        """Append bytes of a master's log; false if that is not where the log ends.

        Raises:
            StoreClosed: The store accepts no writes.
            OSError: A segment could not be created; what was appended before it stays.
        """
        with self._components.lock:
            if not self._components.flags.is_writeable:
                reasons = ", ".join(self._components.flags.reasons())
                raise StoreClosed(
                    f"{self._components.root} accepts no replicated data", detail=reasons
                )
            if not self._begin_at(physical_offset):
                return False
            if not self._log.append_data(physical_offset, data):
                return False
            segment = self._log.queue.last
            if segment is not None:
                self._log.allocator.populate_ahead(segment)
            self._components.dispatcher.run(self._components.confirm_offset)
            # A later master continues from the newest record's time; the flusher needs it too.
            self._log.store_timestamp_ms = max(
                self._log.store_timestamp_ms, self._components.dispatcher.store_timestamp_ms
            )
            if self._components.config.is_sync_flush:
                self._flusher.request()
            if self._components.grown is not None:
                self._components.grown()
            return True

    def _begin_at(self, physical_offset: int) -> bool:
        """Let a log without a byte begin at an offset; false if the log cannot go on there."""
        log = self._log
        if log.wrote_offset == physical_offset and log.queue.segments:
            return True
        if log.wrote_offset != log.min_offset or not log.begin_at(physical_offset):
            return False
        self._components.dispatcher.dispatched_offset = physical_offset
        return True

    def update_ha_master_address(self, address: str) -> None:
        """Set the master that a slave replicates from."""
        self._ha_master_address = address

    @property
    def ha_master_address(self) -> str:
        """The master that a slave replicates from, empty if there is none."""
        return self._ha_master_address

    def slave_behind_bytes(self) -> int:
        """How much of the log the most advanced slave still lacks."""
        return max(self._log.max_offset - self._components.acks.slave_offset, 0)

    def is_offset_aligned(self, physical_offset: int) -> bool:
        """Whether a record, or the end of a segment or of the log, begins at an offset."""
        return self._truncation().is_aligned(physical_offset)

    def truncate_to(self, physical_offset: int) -> None:
        """Erase the log, and what is derived from it, from an offset on, durably.

        Only while no put is under way: the caller has finished its burst and released the
        responses that wait for the disk or a slave.

        Raises:
            StoreError: The log cannot end at this offset, or puts are under way.
            OSError: The disk failed; the store must be recovered before it is used again.
        """
        with self._components.lock:
            if self._components.flags.has(RunningFlag.SHUT_DOWN | RunningFlag.FLUSH_FAILED):
                reasons = ", ".join(self._components.flags.reasons())
                raise StoreClosed(f"{self._components.root} cannot be truncated", detail=reasons)
            if self._puts.is_under_way:
                raise StoreError(
                    f"the log cannot be truncated to {physical_offset}",
                    detail="puts are under way",
                    hint="finish the burst and release waiting responses first",
                )
            truncation = self._truncation()
            truncation.check(physical_offset)
            if physical_offset == self._log.wrote_offset:
                return
            self._components.store_lock.mark_running()
            self._components.manifest.forget_end(physical_offset)
            dispatcher, acks = self._components.dispatcher, self._components.acks
            with self._components.logics_lock:
                dispatcher.go_back_to(physical_offset, truncation.run(physical_offset))
            acks.flushed_offset = min(acks.flushed_offset, physical_offset)
            acks.replicated_offset = min(acks.replicated_offset, physical_offset)
            acks.slave_offset = min(acks.slave_offset, physical_offset)
            self._components.dispatch_confirmed()

    def reset_write_offset(self, physical_offset: int) -> None:
        """Make the next append go to an offset: start an empty log there, or truncate.

        Raises:
            StoreError: As for :meth:`truncate_to`, or no segment begins at the offset.
        """
        with self._components.lock:
            if self._log.queue.segments:
                self.truncate_to(physical_offset)
                return
            if not self._log.begin_at(physical_offset):
                raise StoreError(
                    f"the log cannot begin at {physical_offset}",
                    detail=f"segments have {self._log.queue.size_bytes} bytes",
                    hint="an empty log begins where a segment begins",
                )
            self._components.dispatcher.dispatched_offset = physical_offset

    def _truncation(self) -> Truncation:
        return Truncation(self._components, self._flusher)
