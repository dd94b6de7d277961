"""Allocates segments and faults in pages ahead of the writer.

Owns one thread. Creating and allocating a segment, warming it and touching its pages for the
first time may all block; here that happens before the writer gets there. Two segments are kept
ready: the next one and the one after it.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path

from roquet.format.segment_files import file_name
from roquet.runtime import memory
from roquet.runtime.clock import Clock
from roquet.runtime.files import Files
from roquet.runtime.worker import Worker
from roquet.store.mapped_file import MappedFile

AHEAD_BYTES_MIN = 2 << 20
AHEAD_BYTES_MAX = 64 << 20
ROUND_MIN_NS = 20_000_000
"""Fault in pages for at least this much writing: each round interrupts the writer's thread."""
ROUND_MAX_NS = 100_000_000
"""And for at most this much: a flush would write a slow writer's pages before it gets there."""
SEGMENTS_AHEAD = 3
"""The next segment and two after it."""
_IDLE_MS = 60_000


class AllocateMappedFile:
    """Creates segments on its thread, in order of their offsets."""

    def __init__(
        self, files: Files, root: Path, clock: Clock, *, size_bytes: int, warm: bool
    ) -> None:
        """Create segments of ``size_bytes`` in ``root``; ``warm`` touches and locks every page."""
        self._files = files
        self._clock = clock
        self._root = root
        self._size_bytes = size_bytes
        self._warm = warm
        self._lock = threading.Lock()
        self._ready: dict[int, Future[MappedFile]] = {}
        self._wanted: list[int] = []
        self._populate: MappedFile | None = None
        self._ahead_bytes = AHEAD_BYTES_MIN
        self._populated_ns = 0
        self._worker = Worker("allocate-mapped-file", self._round, interval_ms=lambda: _IDLE_MS)

    def start(self) -> None:
        """Start the thread."""
        self._worker.start()

    def take(self, start_offset: int) -> MappedFile:
        """The segment at ``start_offset``; waits if it is not ready. Raises ``OSError``.

        The next call retries a failed creation, since space may have been freed meanwhile.
        """
        if not self._worker.is_alive:
            return self._make(start_offset)
        future = self._want(start_offset)
        try:
            return future.result()
        finally:
            with self._lock:
                self._ready.pop(start_offset, None)

    def populate_ahead(self, segment: MappedFile) -> None:
        """Request pages after the writer's position, if they are running short."""
        if self._populate is None and self._is_short(segment):
            self._populate = segment
            self._worker.wake()

    def _is_short(self, segment: MappedFile) -> bool:
        left = segment.populated - segment.wrote
        return left < self._ahead_bytes // 2 and segment.populated < segment.size_bytes

    def discard(self) -> None:
        """Remove segments that were not taken; none is being created when this returns.

        Newest first, because a crash in between must leave a log without a gap.
        """
        with self._lock:
            self._wanted.clear()
            ready, self._ready = self._ready, {}
        for start_offset in sorted(ready, reverse=True):
            future = ready[start_offset]
            if not future.cancel() and future.exception() is None:
                future.result().destroy()
                self._files.sync_dir(self._root)

    def stop(self) -> None:
        """End the thread and remove segments that were not taken."""
        self._worker.stop()
        self.discard()

    def _want(self, start_offset: int) -> Future[MappedFile]:
        """Request a segment and those after it, all at once: if one fails, so do later ones."""
        with self._lock:
            for ahead in range(SEGMENTS_AHEAD):
                wanted = start_offset + ahead * self._size_bytes
                if wanted not in self._ready:
                    self._ready[wanted] = Future()
                    self._wanted.append(wanted)
            future = self._ready[start_offset]
        self._worker.wake()
        return future

    def _round(self) -> None:
        while True:
            self._populate_some()
            with self._lock:
                if not self._wanted:
                    return
                start_offset = self._wanted.pop(0)
                future = self._ready.get(start_offset)
            if future is None or not future.set_running_or_notify_cancel():
                continue
            try:
                segment = self._make(start_offset)
            except Exception as error:  # noqa: BLE001 - the writer waits for it
                self._give_up()
                future.set_exception(error)
            else:
                future.set_result(segment)

    def _give_up(self) -> None:
        """Create no later segment either: without its predecessor, there would be a gap on disk."""
        with self._lock:
            for start_offset in self._wanted:
                self._ready.pop(start_offset).cancel()
            self._wanted.clear()
            self._ready = {start: future for start, future in self._ready.items() if future.done()}

    def _populate_some(self) -> None:
        """Fault in pages until the writer has enough ahead of it.

        How much is enough depends on its speed: a writer that has used most of the rest when this
        thread runs, or that asks again soon, needs more; one that has not asked for long needs
        less.
        """
        segment = self._populate
        while segment is not None and self._is_short(segment):
            left = segment.populated - segment.wrote
            now_ns = self._clock.monotonic_ns()
            since_ns, self._populated_ns = now_ns - self._populated_ns, now_ns
            if left < self._ahead_bytes // 4 or since_ns < ROUND_MIN_NS:
                self._ahead_bytes = min(self._ahead_bytes * 2, AHEAD_BYTES_MAX)
            elif since_ns > ROUND_MAX_NS:
                self._ahead_bytes = max(self._ahead_bytes // 2, AHEAD_BYTES_MIN)
            segment.populate(segment.wrote + self._ahead_bytes)
        self._populate = None

    def _make(self, start_offset: int) -> MappedFile:
        path = self._files.inside(self._root, file_name(start_offset))
        segment = MappedFile.create(
            self._files, path, start_offset=start_offset, size_bytes=self._size_bytes
        )
        if self._warm:
            segment.populate(self._size_bytes)
            memory.lock(segment.address, self._size_bytes)
        else:
            segment.populate(AHEAD_BYTES_MIN)
        return segment
