"""Finds the files of a store and the end of its log.

Resolves a path to segments. It may be the directory of a store (of Roquet or of a Java broker), its
``commitlog``, or segment files. A broker may be running: the end of the log is fixed when a query
is planned, and nothing after it is read.

Where the log ends: a ConsumeQueue has entries of confirmed messages only, so no consumer can have
seen anything after the newest entry of all queues. While a broker runs, the log ends there.
Otherwise the whole records that follow, with a valid CRC, belong to it too: they were stored just
before a crash, or there are no queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from roquet.errors import NotAStore, StoreError
from roquet.format.commit_log import Blank, DispatchRequest, RecordRules
from roquet.format.derived import QueueKey
from roquet.format.record_layout import END_OF_SEGMENT_BYTES, PHYSICAL_OFFSET_AT, RECORD_BYTES_MIN
from roquet.format.segment_files import FILE_NAME_DIGITS, Segment, is_file_name
from roquet.runtime.files import Files
from roquet.runtime.held_stores import store_holder
from roquet.spark.log.decoder import ENDED, FULL, MORE, make_decoder
from roquet.spark.log.selection import Selection
from roquet.storefiles.damage import RULES, check_at, is_zero, next_record
from roquet.storefiles.layout import ABORT, COMMIT_LOG, CONSUME_QUEUE, read_segments
from roquet.storefiles.queues import QueueView, queues_below
from roquet.storefiles.window import Window, claimed_bytes


class LogFiles:
    """A read-only snapshot of a log.

    Args:
        files: Access to the disk.
        segments: Its files in order.
        root: The directory of the store; ``None`` for single files.

    Attributes:
        segments: As given.
        root: As given.
    """

    def __init__(self, files: Files, segments: Sequence[Segment], root: Path | None) -> None:
        self.files = files
        self.segments = tuple(segments)
        self.root = root

    @cached_property
    def queues(self) -> dict[QueueKey, QueueView]:
        """The ConsumeQueues; empty if there are none."""
        if self.root is None:
            return {}
        found = queues_below(self.files, (self.root / CONSUME_QUEUE).resolve())
        return {key: queue for key, queue in found.items() if queue.segments.files}

    @property
    def start_offset(self) -> int:
        """Physical offset of the oldest byte; 0 if the log is empty."""
        return self.segments[0].start if self.segments else 0

    @cached_property
    def end_offset(self) -> int:
        """Physical offset where the log ends; see the module docstring."""
        if not self.segments:
            return 0
        confirmed = self.queued_offset
        if confirmed == 0:
            return self._walk_to_end(self._newest_start(), is_searching=True)
        if self._is_running():
            return confirmed
        return self._walk_to_end(confirmed, is_searching=False)

    @cached_property
    def queued_offset(self) -> int:
        """Where the newest record with a ConsumeQueue entry ends; 0 if there is none."""
        first, last = self.start_offset, self.segments[-1].end if self.segments else 0
        ends = [queue.end_offset() for queue in self.queues.values()]
        return max((end for end in ends if first < end <= last), default=0)

    @property
    def has_whole_queues(self) -> bool:
        """Whether the queues are complete, which is not certain after a crash."""
        if self.root is None or self.queued_offset == 0:
            return False
        return self._is_running() or not self.files.exists(self.root / ABORT)

    def segment_of(self, physical_offset: int) -> Segment | None:
        """Return the segment that holds an offset."""
        for segment in self.segments:
            if segment.start <= physical_offset < segment.end:
                return segment
        return None

    def is_written_at(self, offset: int) -> bool:
        """Whether anything was ever written at a physical offset; a cheap check."""
        segment = self.segment_of(offset)
        if segment is None:
            return False
        with Window(self.files, segment, limit=offset) as window:
            return not is_zero(window, offset, min(offset + END_OF_SEGMENT_BYTES, segment.end))

    def record_at(self, physical_offset: int, rules: RecordRules = RULES) -> DispatchRequest | None:
        """Return the valid record at an offset; ``None`` if there is none."""
        segment = self.segment_of(physical_offset)
        if segment is None:
            return None
        with Window(self.files, segment, limit=physical_offset) as window:
            found = check_at(window, physical_offset, segment.end, rules)
        return found if isinstance(found, DispatchRequest) else None

    def _is_running(self) -> bool:
        return self.root is not None and store_holder(self.files, self.root) is not None

    def _newest_start(self) -> int:
        """Return the start of the newest segment with a record; the next is made ahead of need."""
        for segment in reversed(self.segments):
            with Window(self.files, segment, limit=segment.start) as window:
                if self._step(window, segment.start) is not None:
                    return segment.start
                if next_record(window, segment.start, segment.end) is not None:
                    return segment.start
        return self.segments[0].start

    def _walk_to_end(self, offset: int, *, is_searching: bool) -> int:
        """Return the end of the last valid record; a record, or nothing, starts at ``offset``.

        With ``is_searching``, the search continues after bad bytes.
        """
        for segment in self.segments:
            if segment.end <= offset:
                continue
            if segment.start > offset:
                break  # a file is missing
            with Window(self.files, segment) as window:
                offset, goes_on = self._walk_segment(window, offset, is_searching=is_searching)
            if not goes_on:
                break
        return offset

    def _walk_segment(self, window: Window, offset: int, *, is_searching: bool) -> tuple[int, bool]:
        """Walk one segment; return where its records end, and whether they reach its end."""
        end = window.segment.end
        steps = make_decoder((), Selection(), check_crc=True)
        reached = offset
        while offset < end:
            if not window.has(offset, 1):
                window.load(offset)
            base = window.base
            piece = steps.decode(window.view, offset - base, end - base, end - base, base)
            offset = base + piece.reached
            if piece.rows:
                reached = offset
            if piece.why == MORE:
                window.load(offset, claimed_bytes(window, offset))
            elif piece.why not in {ENDED, FULL}:
                if isinstance(self._step(window, offset), Blank):
                    return self._over_the_end(window.segment, reached), True
                following = next_record(window, offset + 1, end) if is_searching else None
                if following is None:
                    return reached, False
                offset = following
        return reached, True

    def _over_the_end(self, segment: Segment, reached: int) -> int:
        """Return the end of a full segment if a record follows it, otherwise ``reached``."""
        following = [each for each in self.segments if each.start == segment.end]
        if following:
            with Window(self.files, following[0], limit=segment.end) as window:
                if isinstance(self._step(window, segment.end), DispatchRequest):
                    return segment.end
        return reached

    def _step(self, window: Window, offset: int) -> DispatchRequest | Blank | None:
        """Return the record or blank at an offset, if it is valid."""
        found = check_at(window, offset, window.segment.end)
        if isinstance(found, Blank):
            return found if found.size_bytes == window.segment.end - offset else None
        return found if isinstance(found, DispatchRequest) else None


def open_log(files: Files, paths: Sequence[str]) -> LogFiles:
    """Open the log at some paths.

    Args:
        files: Access to the disk.
        paths: A store directory, its ``commitlog``, or segment files.

    Raises:
        NotAStore: There is no log.
        StoreError: It cannot be read.
    """
    if not paths:
        raise NotAStore(
            "No path is given.", hint="Name a store: .load(PATH), the directory with commitlog."
        )
    places = [_local(path) for path in paths]
    try:
        if len(places) == 1 and files.is_dir(places[0]):
            return _directory_log(files, places[0])
        return LogFiles(files, sorted((_single(files, each) for each in places), key=_start), None)
    except PermissionError as error:
        raise StoreError(
            f"{error.filename} cannot be read: {error.strerror}.",
            hint="Run as a user who may read the store.",
        ) from None


def _local(text: str) -> Path:
    scheme, separator, rest = text.partition(":")
    if separator and scheme == "file":
        text = "/" + rest.lstrip("/")
    elif separator and "/" not in scheme and rest.startswith("//"):
        raise NotAStore(
            f"{text} is not a path of this machine.",
            hint="Every executor reads the files of a store itself: mount them, and pass the path.",
        )
    return Path(text).resolve()


def _directory_log(files: Files, path: Path) -> LogFiles:
    log = (path / COMMIT_LOG).resolve()
    if files.is_dir(log):
        root = path
    elif path.name == COMMIT_LOG:
        log, root = path, path.parent
    else:
        raise _no_store(files, path)
    segments = read_segments(files, log).files
    for before, after in pairwise(segments):
        if after.start < before.end:
            raise NotAStore(
                f"The segments of {log} overlap.",
                detail=f"{before.path.name} has {before.size_bytes} bytes,"
                f" {after.path.name} follows",
                hint="A segment is named by the offset of its first byte: restore the names.",
            )
    if not segments and files.list_dir(log):
        raise NotAStore(
            f"{log} has no segments.",
            hint=f"They are files with names of {FILE_NAME_DIGITS} digits.",
        )
    return LogFiles(files, segments, root)


def _no_store(files: Files, path: Path) -> NotAStore:
    hint = "Give the store directory of a broker, the one with commitlog in it."
    if files.is_dir(path / "store" / COMMIT_LOG):
        hint = f"Did you mean {path / 'store'}?"
    elif files.is_dir(path.parent / COMMIT_LOG):
        hint = f"Did you mean {path.parent}?"
    elif any(name.startswith("dledger-") for name in files.list_dir(path)):
        hint = "The log of a DLedger broker has another format, which is not read."
    return NotAStore(f"{path} is not a message store: it has no commitlog.", hint=hint)


def _single(files: Files, path: Path) -> Segment:
    """A file as a segment: named by its offset, or else the first record knows it."""
    if files.is_dir(path):
        raise NotAStore(
            f"{path} is a directory among several paths.",
            hint="Pass one store, or segment files only.",
        )
    if not files.exists(path):
        raise NotAStore(f"{path} does not exist.", hint="Pass the path of a store directory.")
    size_bytes = files.size_bytes(path)
    if is_file_name(path.name):
        return Segment(path, int(path.name), size_bytes)
    with Window(files, Segment(path, 0, size_bytes), limit=0) as window:
        head = window.need(0, min(size_bytes, RECORD_BYTES_MIN))
        start = int.from_bytes(head[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big")
    segment = Segment(path, start, size_bytes)
    with Window(files, segment, limit=start) as window:
        found = check_at(window, start, segment.end)
    if not isinstance(found, DispatchRequest):
        raise NotAStore(
            f"{path} is not a segment of a commit log.",
            hint="A segment starts with a record, and is named by its offset in 20 digits.",
        )
    return segment


def _start(segment: Segment) -> int:
    return segment.start
