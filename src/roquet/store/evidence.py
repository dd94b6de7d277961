"""Cross-checks the log with the rest of the store before recovery changes anything.

Consults manifest, checkpoint, queues and index, and refuses a log that lacks what they vouch for
(:mod:`roquet.storefiles.vouching`), or that has valid records after the first bad one. That is
damage, not a torn end, and truncating there would delete acknowledged messages.
"""

from __future__ import annotations

from functools import cached_property

from roquet.errors import StoreDamaged
from roquet.format import commit_log as fmt
from roquet.format.consume_queue import CqUnit
from roquet.store.log_walk import LogEnd, record_at
from roquet.store.resident_records import check_in
from roquet.store.store_components import StoreComponents
from roquet.storefiles.vouching import LogFacts, Witnesses, losses, refuse

_LOOK_BYTES = 1 << 20


class Evidence:
    """Evidence about the log of a store that is loaded but not recovered."""

    def __init__(self, components: StoreComponents) -> None:
        """Consult the components of a store."""
        self._log = components.commit_log
        self._queues = components.queues
        self._index = components.index
        self._checkpoint = components.checkpoint
        self._manifest = components.manifest.saved
        self._is_ours = components.store_lock.was_ours

    @cached_property
    def newest_entry(self) -> int:
        """Start of the newest record that has a queue entry, before recovery; -1 if none has."""
        return max((queue.entries.peek_newest_offset() for queue in self._queues), default=-1)

    def refuse_damage(self, end: LogEnd, *, clean_exit: bool) -> None:
        """Raise if records that were surely on disk are lost or come after the end."""
        facts = self._facts(end)
        found = list(losses(self._witnesses(clean_exit=clean_exit), facts))
        if found and end.fault is not None and not self._is_zero_from(end.offset):
            raise _damaged(end, "; ".join(map(str, found)))
        refuse(found, facts)
        if end.fault is None:
            return
        if clean_exit and self.newest_entry < end.offset:
            return  # there is nothing to find, and no torn entry that could hide others
        for queue in self._queues:
            for unit in queue.entries.sample_from(end.offset):
                if self._is_surely_flushed(unit, clean_exit=clean_exit):
                    place = f"{queue.topic}-{queue.queue_id} at {unit.physical_offset}"
                    raise _damaged(end, f"good records follow, such as {place}")

    def _facts(self, end: LogEnd) -> LogFacts:
        newest_ms = end.last_store_timestamp_ms
        mark_ms = self._checkpoint.marks.physic_msg_timestamp_ms
        if newest_ms < mark_ms:
            newest_ms = max(newest_ms, self._newest_ms(end.offset, mark_ms))
        return LogFacts(
            start=self._log.min_offset,
            end=end.offset,
            segment_bytes=self._log.queue.size_bytes,
            has_segments=bool(self._log.queue.segments),
            has_records=end.records > 0,
            newest_ms=newest_ms,
            read=self._bytes_at,
        )

    def _witnesses(self, *, clean_exit: bool) -> Witnesses:
        needs_queues = clean_exit or not self._log.queue.segments
        return Witnesses(
            manifest=self._manifest,
            marks=self._checkpoint.marks,
            is_clean=clean_exit,
            is_ours=clean_exit and self._is_ours,
            queue_names=self._queue_with_entry,
            index_end=self._index.peek_end_offset() if self._index is not None else -1,
            newest_entry=self.newest_entry if needs_queues else -1,
        )

    def _newest_ms(self, end: int, enough_ms: int) -> int:
        """Newest store time of any record, or the first that is new enough.

        A Java broker whose clock was set back continues with times before its checkpoint's.
        """
        newest_ms = 0
        for segment in reversed(self._log.queue.segments):
            position = 0
            while segment.start_offset + position < end and newest_ms < enough_ms:
                found = record_at(self._log, segment.start_offset + position)
                if not isinstance(found, fmt.DispatchRequest):
                    break
                newest_ms = max(newest_ms, found.store_timestamp_ms)
                position += found.size_bytes
        return newest_ms

    def _bytes_at(self, physical_offset: int, size_bytes: int) -> bytes:
        segment = self._log.queue.find(physical_offset)
        if segment is None:
            return b""
        position = physical_offset - segment.start_offset
        return segment.read(position, min(size_bytes, segment.size_bytes - position))

    def _queue_with_entry(self, physical_offset: int) -> str | None:
        """A queue with an entry for a record that starts exactly at an offset."""
        for queue in self._queues:
            unit = next(queue.entries.sample_from(physical_offset), None)
            if unit is not None and unit.physical_offset == physical_offset:
                return f"consumequeue/{queue.topic}/{queue.queue_id}"
        return None

    def lacks_index_files(self) -> bool:
        """Whether index files are missing that existed when the store was closed.

        While it runs, retention deletes them without updating the manifest.
        """
        if self._index is None or self._manifest is None or not self._is_ours:
            return False
        return not set(self._manifest.index_files) <= set(self._index.file_names())

    def _is_surely_flushed(self, unit: CqUnit, *, clean_exit: bool) -> bool:
        """Whether an entry's record is valid and was on disk before the store stopped."""
        segment = self._log.queue.find(unit.physical_offset)
        if segment is None:
            return False
        position = unit.physical_offset - segment.start_offset
        limit = min(position + unit.size_bytes, segment.read_limit)
        found = check_in(segment, position, limit, rules=self._log.rules)
        if not isinstance(found, fmt.DispatchRequest):
            return False
        flushed_ms = self._checkpoint.marks.physic_msg_timestamp_ms
        return clean_exit or found.store_timestamp_ms < flushed_ms

    def _is_zero_from(self, offset: int) -> bool:
        """Whether the log holds nothing but zeros from an offset on."""
        zeros = bytes(_LOOK_BYTES)
        for segment in self._log.queue.segments:
            for position in range(
                max(offset - segment.start_offset, 0), segment.size_bytes, _LOOK_BYTES
            ):
                piece = segment.read(position, min(_LOOK_BYTES, segment.size_bytes - position))
                if piece != zeros[: len(piece)]:
                    return False
        return True


def _damaged(end: LogEnd, why: str) -> StoreDamaged:
    assert end.fault is not None, "a log that ends well is not damaged"
    return StoreDamaged(
        f"the log is damaged at {end.offset}",
        detail=f"{end.fault.field}: {end.fault.detail}; {why}",
        hint=(
            "nothing was changed; run 'roquet store verify' for the whole list and restore the "
            "segment from a replica or a backup"
        ),
    )
