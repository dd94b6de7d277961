"""Cutting the end of a store off while it is open, as a slave must that followed another master.

Owns the order of the steps. The checkpoint goes first: from then on it vouches for nothing behind
the cut, so that a crash in any later step leads to a recovery that looks at all of it. Then the
log is erased, on disk, newest segment first; then queue entries and index files that speak of
erased records go, and what they said of kept ones is put again.

Runs under the store's lock while nothing is appended; the threads that sync log, queues and
index are held still, because they move the marks that this takes back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from roquet.errors import StoreError
from roquet.format import commit_log as fmt
from roquet.store.checkpoint import StoreCheckpoint
from roquet.store.commit_log import CommitLog
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.flush import FlushCommitLog
from roquet.store.index import IndexService

log = logging.getLogger(__name__)


class Truncation:
    """Cuts one store."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        index: IndexService | None,
        checkpoint: StoreCheckpoint,
        flusher: FlushCommitLog,
    ) -> None:
        """Cut what these own."""
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._flusher = flusher

    def is_aligned(self, physical_offset: int) -> bool:
        """Whether a record, or the end of a segment or of the log, begins at an offset."""
        if physical_offset == self._log.wrote_offset:
            return True
        segment = self._log.queue.find(physical_offset)
        if segment is None:
            return False
        position = physical_offset - segment.start_offset
        found = fmt.check_record(
            segment.view,
            position,
            segment.read_limit,
            physical_offset=physical_offset,
            rules=self._log.rules,
        )
        return position == 0 or not isinstance(found, fmt.RecordFault)

    def check(self, physical_offset: int) -> None:
        """Refuse an offset that the log cannot end at."""
        first, end = self._log.min_offset, self._log.wrote_offset
        if not first <= physical_offset <= end:
            raise StoreError(
                f"the log cannot be truncated to {physical_offset}",
                detail=f"it reaches from {first} to {end}",
                hint="what is gone at its head or was never there cannot be its end",
            )
        if not self.is_aligned(physical_offset):
            raise StoreError(
                f"the log cannot be truncated to {physical_offset}",
                detail="no record begins there",
                hint="choose the beginning of a record",
            )

    def run(self, physical_offset: int) -> None:
        """Erase everything from an offset on; raises ``OSError`` half-way."""
        log.warning("truncating the log from %d to %d", self._log.wrote_offset, physical_offset)
        self._flusher.flush_all()
        with self._flusher.quiet():
            self._lower_marks(physical_offset)
            self._log.allocator.discard()
            self._log.truncate(physical_offset)
            self._log.reserve()
            self._queues.recover(physical_offset, erase=True)
            self._queues.correct_min_offsets(self._log.min_offset)
            self._truncate_index(physical_offset)
            self._queues.sync(least_pages=0)
            self._queues.synced_offset = min(self._queues.synced_offset, physical_offset)

    def _lower_marks(self, physical_offset: int) -> None:
        """Let the checkpoint vouch for nothing behind the cut.

        The last kept record is not older than the first of its segment, whose time is at hand.
        """
        segment = self._log.queue.find(max(physical_offset - 1, self._log.min_offset))
        kept_ms = None
        if segment is not None and physical_offset > segment.start_offset:
            kept_ms = fmt.peek_store_timestamp_ms(segment.view, 0, segment.read_limit)
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
        """Drop index files that know of erased records and put the kept records again."""
        if self._index is None:
            return
        doubtful = self._index.doubtful_from(physical_offset)
        if doubtful is not None:
            for request in self._records(doubtful, physical_offset):
                self._index.build(request)
            self._index.flush(thorough=True)

    def _records(self, begin: int, end: int) -> Iterator[fmt.DispatchRequest]:
        """Good records from the segment that holds ``begin`` to ``end``."""
        for segment in self._log.queue.segments:
            if segment.end_offset <= begin or segment.start_offset >= end:
                continue
            position = 0
            while segment.start_offset + position < end:
                found = fmt.check_record(
                    segment.view,
                    position,
                    segment.read_limit,
                    physical_offset=segment.start_offset + position,
                    rules=self._log.rules,
                )
                if not isinstance(found, fmt.DispatchRequest):
                    break
                yield found
                position += found.size_bytes
