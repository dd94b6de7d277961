"""What must exist: compares the log with everything else that refers to it.

Recovery compares the log with the manifest, the checkpoint, the queues and the index at every
start; ``roquet store verify`` and Spark's ``audit`` repeat that. Nothing here changes a file.

=============== ============================================= ==============================
witness         what it says                                  when it counts
=============== ============================================= ==============================
manifest        log_end, and the CRC of the bytes before it   always: they were synced
manifest        log_start                                     if nobody but Roquet ran since
checkpoint      physicMsgTimestamp: a record of that time     always: it was synced
                was on disk
queue entry     starts exactly where the log ends             after a clean exit of Roquet's, or
                                                              if a segment ends there
index header    endPhyOffset at or after the end of the log   after a clean exit
=============== ============================================= ==============================

A queue entry somewhere beyond the end proves nothing: a Java broker that truncates its log leaves
such entries in the files, after a power cut also one at the end itself. That one counts where a
segment ends, because a lost segment looks the same. After an unclean exit, entries and index may
be ahead of the log, because the kernel writes pages in any order.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from roquet.errors import StoreDamaged
from roquet.format.checkpoint import Checkpoint
from roquet.format.segment_files import file_name
from roquet.storefiles.layout import MANIFEST_FILE
from roquet.storefiles.manifest import Manifest

_NAMED_MAX = 3
_CURE = (
    "nothing was changed; mount what is missing or restore the files, and run 'roquet store "
    "verify' for the whole list; 'roquet store rebuild --accept-loss' gives them up; if a "
    f"version of Roquet without {MANIFEST_FILE} had the store since, remove that file"
)


class LogFacts(NamedTuple):
    """What was found in a log.

    Attributes:
        start: Physical offset of the oldest segment.
        end: Physical offset after the last valid record.
        segment_bytes: Size of a segment.
        has_segments: Whether there is any file.
        has_records: Whether any valid record was found.
        newest_ms: Store time of the last record, or a later one if some record has it.
        read: Reads bytes of the log; fewer if some do not exist.
    """

    start: int
    end: int
    segment_bytes: int
    has_segments: bool
    has_records: bool
    newest_ms: int
    read: Callable[[int, int], bytes]


class Loss(NamedTuple):
    """Something that is missing: the file that proves it, its field, and the facts."""

    file: str
    field: str
    detail: str

    def __str__(self) -> str:
        return f"{self.file}: {self.field}: {self.detail}"


class Witnesses(NamedTuple):
    """What can vouch for records of the log.

    Attributes:
        manifest: From Roquet's last clean shutdown.
        marks: The checkpoint.
        is_clean: Whether the last process closed the store.
        is_ours: Whether that was Roquet, so that the manifest is exact.
        queue_names: Finds a queue with an entry for the record at exactly this offset.
        index_end: Physical offset of the newest record in the index, -1 if there is none.
        newest_entry: Start of the newest record that has a queue entry, -1 if none has.
    """

    manifest: Manifest | None
    marks: Checkpoint
    is_clean: bool
    is_ours: bool
    queue_names: Callable[[int], str | None]
    index_end: int
    newest_entry: int


def losses(witnesses: Witnesses, log: LogFacts) -> Iterator[Loss]:
    """Yield everything in the log that is vouched for but missing."""
    if not log.has_segments:
        yield from _of_an_empty_log(witnesses)
        return
    if witnesses.manifest is not None:
        yield from _by_manifest(witnesses.manifest, log, is_exact=witnesses.is_ours)
    yield from _by_checkpoint(witnesses.marks, log)
    if witnesses.is_clean:
        yield from _by_derived(witnesses, log)


def refuse(found: list[Loss], log: LogFacts) -> None:
    """Raise :class:`StoreDamaged` if anything is missing."""
    if not found:
        return
    listed = "; ".join(map(str, found))
    message = f"the log ends at {log.end}, and records after that are missing"
    if not log.has_segments:
        message = "the log is missing, its directory has no segment"
    elif all(loss.field == "logStart" for loss in found):
        message = f"the log begins at {log.start}, and segments before that are missing"
    raise StoreDamaged(message, detail=listed, hint=_CURE)


def _of_an_empty_log(witnesses: Witnesses) -> Iterator[Loss]:
    manifest, marks = witnesses.manifest, witnesses.marks
    if manifest is not None and manifest.log_end > manifest.log_start:
        yield Loss(MANIFEST_FILE, "logEnd", _segments(manifest))
    if marks.physic_msg_timestamp_ms > 0:
        detail = f"a record of {marks.physic_msg_timestamp_ms} ms was on disk"
        yield Loss("checkpoint", "physicMsgTimestamp", detail)
    if witnesses.newest_entry >= 0:
        detail = f"entries point to records up to {witnesses.newest_entry}"
        yield Loss("consumequeue", "physicalOffset", detail)
    if witnesses.index_end > 0:
        yield Loss("index", "endPhyOffset", f"it has a record at {witnesses.index_end}")


def _segments(manifest: Manifest) -> str:
    return f"the log reached from {manifest.log_start} to {manifest.log_end}"


def _by_manifest(manifest: Manifest, log: LogFacts, *, is_exact: bool) -> Iterator[Loss]:
    if log.end < manifest.log_end:
        missing = _missing(log.end, manifest.log_end, log.segment_bytes)
        yield Loss(MANIFEST_FILE, "logEnd", f"{_segments(manifest)}; {missing}")
    elif manifest.tail is not None and manifest.tail.offset >= log.start:
        tail = manifest.tail
        if zlib.crc32(log.read(tail.offset, tail.size_bytes)) != tail.crc32:
            detail = f"different bytes from {tail.offset} to {tail.offset + tail.size_bytes}"
            yield Loss(MANIFEST_FILE, "tail", f"{detail}; this may be the log of another store")
    if is_exact and log.start > manifest.log_start:
        missing = _missing(manifest.log_start, log.start, log.segment_bytes)
        yield Loss(MANIFEST_FILE, "logStart", f"{_segments(manifest)}; {missing}")


def _missing(start: int, end: int, segment_bytes: int) -> str:
    """The segments from one offset to another, by name."""
    first = start - start % segment_bytes
    starts = list(range(first, end, segment_bytes))
    names = ", ".join(file_name(each) for each in starts[:_NAMED_MAX])
    more = f" and {len(starts) - _NAMED_MAX} more" if len(starts) > _NAMED_MAX else ""
    return f"missing or cut short: {names}{more}"


def _by_checkpoint(marks: Checkpoint, log: LogFacts) -> Iterator[Loss]:
    # If there are no records, those that the mark refers to may have expired.
    may_tell = log.has_records or log.start == 0
    if may_tell and log.newest_ms < marks.physic_msg_timestamp_ms:
        yield Loss(
            "checkpoint",
            "physicMsgTimestamp",
            f"a record of {marks.physic_msg_timestamp_ms} ms was on disk, the newest one left is "
            f"of {log.newest_ms} ms",
        )


def _by_derived(witnesses: Witnesses, log: LogFacts) -> Iterator[Loss]:
    may_tell = witnesses.is_ours or log.end % log.segment_bytes == 0
    has_more = may_tell and witnesses.newest_entry >= log.end
    name = witnesses.queue_names(log.end) if has_more else None
    if name is not None:
        yield Loss(name, "physicalOffset", f"it has an entry for the record at {log.end}")
    if witnesses.index_end >= log.end > log.start:
        yield Loss("index", "endPhyOffset", f"it has a record at {witnesses.index_end}")
