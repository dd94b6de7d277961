"""Walks the log from record to record, as far as they are valid.

Owns no state. Recovery finds the end of the log this way, truncation the newest record before an
offset. Every check is on; the compiled walk skips plain records, the rest is checked here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from roquet.errors import StoreError
from roquet.format import commit_log as fmt
from roquet.store.commit_log import CommitLog
from roquet.store.compiled import compiled_walk
from roquet.store.mapped_file import MappedFile
from roquet.store.recovery_progress import RecoveryProgress
from roquet.store.resident_records import check_in

_BRING_BYTES = 1 << 20
_AHEAD_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Result of walking the log."""

    offset: int
    records: int
    last_record_offset: int
    last_store_timestamp_ms: int
    fault: fmt.RecordFault | None


def record_at(
    commit_log: CommitLog, physical_offset: int
) -> fmt.DispatchRequest | fmt.Blank | fmt.RecordFault | None:
    """What is at an offset of the log, ``None`` if no segment has it."""
    segment = commit_log.queue.find(physical_offset)
    if segment is None:
        return None
    return check_in(
        segment,
        physical_offset - segment.start_offset,
        segment.size_bytes,
        rules=commit_log.rules,
    )


def walk_log(commit_log: CommitLog, start: int, progress: RecoveryProgress | None = None) -> LogEnd:
    """Walk from the segment start ``start`` to the first bytes that are not a valid record."""
    walker = _Walker(replace(commit_log.rules, check_torn=True))
    segments = [each for each in commit_log.queue.segments if each.start_offset >= start]
    if progress is not None and segments:
        progress.begin("checking the log", start, segments[-1].end_offset)
    for segment in segments:
        if not walker.pass_segment(segment):
            break
        if progress is not None:
            progress.reached(segment.end_offset)
    return LogEnd(
        max(walker.end_offset, start),
        walker.records,
        walker.last_record_offset,
        walker.last_store_timestamp_ms,
        walker.fault,
    )


class _Walker:
    """State of a walk."""

    def __init__(self, rules: fmt.RecordRules) -> None:
        self._rules = rules
        self._fast = compiled_walk()
        self.end_offset = 0
        self.records = 0
        self.last_record_offset = -1
        self.last_store_timestamp_ms = 0
        self.fault: fmt.RecordFault | None = None
        self._ready = self._doubtful = 0

    def pass_segment(self, segment: MappedFile) -> bool:
        """Walk one segment; return whether it ended properly, so that the next one follows.

        Raises:
            StoreError: A record cannot be read.
        """
        position = self._ready = self._doubtful = 0
        self.end_offset = segment.start_offset
        while position < segment.size_bytes:
            self._bring(segment, position)
            if self._fast is not None and not self._rules.force_property_crc:
                position = self._pass_plain(segment, position)
            offset = segment.start_offset + position
            found = self._check(segment, position)
            if isinstance(found, fmt.Blank):
                if found.size_bytes == segment.size_bytes - position:
                    break
                found = fmt.RecordFault(offset, "totalSize", f"end of segment says {found}")
            if isinstance(found, fmt.RecordFault):
                self.fault = found
                return False
            self._note(found.physical_offset, found.store_timestamp_ms, found.end_offset)
            position += found.size_bytes
        self.end_offset = segment.end_offset
        return True

    def _bring(self, segment: MappedFile, position: int) -> None:
        """Bring in the next part of a segment, unless some page of it cannot be read.

        Then its records are brought in one by one: the page may be behind the last of them.
        """
        if self._ready - position >= _AHEAD_BYTES or position < self._doubtful:
            return
        end = min(position + _BRING_BYTES, segment.size_bytes)
        if end <= self._ready:
            return
        try:
            if not segment.is_resident(position, end - position):
                segment.read(position, end - position)
        except StoreError:
            self._doubtful = end
        else:
            self._ready = end

    def _check(
        self, segment: MappedFile, position: int
    ) -> fmt.DispatchRequest | fmt.Blank | fmt.RecordFault:
        rest_bytes = self._ready - position
        if rest_bytes >= _AHEAD_BYTES or self._ready == segment.size_bytes:
            size_bytes = int.from_bytes(segment.view[position : position + 4], "big")
            if size_bytes <= rest_bytes:
                return fmt.check_record(
                    segment.view,
                    position,
                    segment.size_bytes,
                    physical_offset=segment.start_offset + position,
                    rules=self._rules,
                )
        return check_in(segment, position, segment.size_bytes, rules=self._rules)

    def _pass_plain(self, segment: MappedFile, position: int) -> int:
        assert self._fast is not None, "no compiled walk"
        if position >= self._ready:
            return position
        position, count, last, last_ms = self._fast(
            segment.view,
            position,
            self._ready,
            segment.start_offset,
            self._rules.check_crc,
        )
        if count:
            self.records += count - 1
            self._note(segment.start_offset + last, last_ms, segment.start_offset + position)
        return position

    def _note(self, offset: int, store_timestamp_ms: int, end_offset: int) -> None:
        self.records += 1
        self.last_record_offset = offset
        self.last_store_timestamp_ms = store_timestamp_ms
        self.end_offset = end_offset
