"""Truncates a store while it is open, as a slave must after following another master.

Owns the order of the steps. The checkpoint goes first: from then on it vouches for nothing after
the cut, so that recovery after a crash in any later step checks all of it. Then the log is erased,
on disk, newest segment first; then queue entries and index files of erased records are removed, and
what the files held of kept records is put again.

Runs under the store's lock while nothing is appended; the threads that sync log, queues and index
are paused, because they move the marks that this lowers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from roquet.errors import StoreError
from roquet.format import commit_log as fmt
from roquet.store.flush import FlushCommitLog
from roquet.store.log_walk import walk_log
from roquet.store.resident_records import check_in, first_store_timestamp_ms
from roquet.store.store_components import StoreComponents

log = logging.getLogger(__name__)


class Truncation:
    """Truncates one store."""

    def __init__(self, components: StoreComponents, flusher: FlushCommitLog) -> None:
        """Truncate a store whose log ``flusher`` syncs."""
        self._log = components.commit_log
        self._queues = components.queues
        self._index = components.index
        self._checkpoint = components.checkpoint
        self._flusher = flusher

    def is_aligned(self, physical_offset: int) -> bool:
        """Whether a record, or the end of a segment or of the log, begins at an offset."""
        if physical_offset == self._log.wrote_offset:
            return True
        segment = self._log.queue.find(physical_offset)
        if segment is None:
            return False
        position = physical_offset - segment.start_offset
        found = check_in(segment, position, segment.read_limit, rules=self._log.rules)
        return position == 0 or not isinstance(found, fmt.RecordFault)

    def check(self, physical_offset: int) -> None:
        """Put the log on disk, and raise if it cannot end at an offset.

        What stays must not be in a transient buffer: those of the last segments go.
        """
        self._flusher.flush_all()
        first, end = self._log.min_offset, self._log.wrote_offset
        if not first <= physical_offset <= end:
            raise StoreError(
                f"the log cannot be truncated to {physical_offset}",
                detail=f"it reaches from {first} to {end}",
                hint="choose an offset within the log",
            )
        if self._log.flushed_offset < physical_offset < end:
            raise StoreError(
                f"the log cannot be truncated to {physical_offset}",
                detail=f"only what is before {self._log.flushed_offset} could be put on disk",
                hint="free memory and retry; after a disk error, restart the broker",
            )
        if not self.is_aligned(physical_offset):
            raise StoreError(
                f"the log cannot be truncated to {physical_offset}",
                detail="no record begins there",
                hint="choose the beginning of a record",
            )

    def run(self, physical_offset: int) -> int:
        """Erase everything from an offset on; raises ``OSError`` half-way.

        Returns:
            Store time of the last remaining record, 0 if there is none. The marks must not
            continue from a later one: records that follow from another master may be older.
        """
        log.warning("truncating the log from %d to %d", self._log.wrote_offset, physical_offset)
        with self._flusher.quiet():
            self._lower_marks(physical_offset)
            self._log.allocator.discard()
            self._log.truncate(physical_offset)
            kept_ms = self._last_kept_ms(physical_offset)
            self._log.store_timestamp_ms = kept_ms
            self._flusher.go_back_to(kept_ms)
            self._log.reserve()
            self._queues.recover(physical_offset, erase=True)
            self._queues.correct_min_offsets(self._log.min_offset)
            self._truncate_index(physical_offset)
            self._queues.sync(least_pages=0)
            self._queues.synced_offset = min(self._queues.synced_offset, physical_offset)
        return kept_ms

    def _last_kept_ms(self, physical_offset: int) -> int:
        """Store time of the last record of a log truncated at an offset, 0 if there is none."""
        segment = self._log.queue.find(physical_offset - 1)
        if segment is None:
            return 0
        return walk_log(self._log, segment.start_offset).last_store_timestamp_ms

    def _lower_marks(self, physical_offset: int) -> None:
        """Let the checkpoint vouch for nothing after the cut.

        The last kept record is not older than the first of its segment, whose time is known.
        """
        segment = self._log.queue.find(max(physical_offset - 1, self._log.min_offset))
        kept_ms = None
        if segment is not None and physical_offset > segment.start_offset:
            kept_ms = first_store_timestamp_ms(segment)
        limit_ms = kept_ms or 0
        marks = self._checkpoint.marks
        self._checkpoint.reset(
            marks._replace(
                physic_msg_timestamp_ms=min(marks.physic_msg_timestamp_ms, limit_ms),
                logics_msg_timestamp_ms=min(marks.logics_msg_timestamp_ms, limit_ms),
                index_msg_timestamp_ms=min(marks.index_msg_timestamp_ms, limit_ms),
                confirm_physical_offset=min(marks.confirm_physical_offset, physical_offset),
            )
        )
        self._checkpoint.flush()

    def _truncate_index(self, physical_offset: int) -> None:
        """Drop index files with erased records and put the kept records again."""
        if self._index is None:
            return
        doubtful = self._index.doubtful_from(physical_offset)
        if doubtful is not None:
            for request in self._records(doubtful, physical_offset):
                self._index.build(request)
            self._index.flush(thorough=True)

    def _records(self, begin: int, end: int) -> Iterator[fmt.DispatchRequest]:
        """Valid records from the segment that holds ``begin`` to ``end``."""
        for segment in self._log.queue.segments:
            if segment.end_offset <= begin or segment.start_offset >= end:
                continue
            position = 0
            while segment.start_offset + position < end:
                found = check_in(segment, position, segment.read_limit, rules=self._log.rules)
                if not isinstance(found, fmt.DispatchRequest):
                    break
                yield found
                position += found.size_bytes
