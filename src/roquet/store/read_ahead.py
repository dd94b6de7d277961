"""Reading ahead of consumers that are far behind.

Owns the table of streams and two threads. A stream is a sequence of reads of one queue, each of
which continues where the one before it ended. Readers at the same offsets share a stream, whatever
group they belong to; readers further apart have one each.

.. code-block:: text

    start           due             end
      │── has been ──│── brought in ─│
      │    read      │   or pending  │
      └─ a read that begins in here belongs to the stream

When a reader gets past ``due``, into the window that was brought in last, the next one is
requested: it begins at ``end`` and is twice as long. A window is a part of the log, and of the
queue whose entries point into it; a thread reads the entries and asks the kernel for the pages,
with the interpreter's lock released. If the records of a queue are far apart, only their own pages
are brought in. A window that is found in memory needs no thread, which would compete with the
reader for the interpreter's lock.

Invariants:

* The first read of a stream brings in nothing: reads at random offsets cost nothing here.
* A stream has at most one window pending, and windows are brought in in the order of requests, so
  a stream waits for at most one window of every other.
* All streams together are at most ``AHEAD_BYTES_MAX`` ahead of their readers, two windows each:
  the more streams there are, the shorter the windows. The stream that was idle longest is forgotten
  first, of its queue if that has :data:`STREAMS_A_QUEUE_MAX`; a window of a forgotten stream is not
  brought in.
* Nothing here is needed for correctness. A reader that gets to a page first waits for it in its
  own thread, and meets the error of a page that cannot be read.

Any thread may call :meth:`ReadAhead.advance`.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import cycle
from typing import NamedTuple

from roquet.errors import StoreError
from roquet.format.consume_queue import UNIT
from roquet.runtime.clock import Clock
from roquet.runtime.memory import physical_memory_bytes
from roquet.runtime.worker import Worker
from roquet.store.commit_log import CommitLog
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.mapped_file import MappedFile

log = logging.getLogger(__name__)

RECENT_BYTES = 32 << 20
"""What this process appended this close to the end of the log counts as in memory."""

WINDOW_BYTES_MIN = 256 << 10
WINDOW_BYTES_MAX = 8 << 20
AHEAD_BYTES_MAX = 256 << 20
"""How much is brought in ahead of all readers together, but no more than a sixteenth of memory."""

STREAMS_A_QUEUE_MAX = 16
"""A reader that jumps about in one queue makes the table forget streams of that queue only."""

IDLE_NS_MAX = 10_000_000_000
"""A stream is forgotten if it was not read for this long."""

SPARSE_BYTES = 128 << 10
"""If the records of a queue are further apart than this, those between them are not brought in."""

_THREADS = 2
_IDLE_MS = 60_000
_RECORD_BYTES_MIN = 128
_ENTRIES_MAX = 1 << 15
_APART_MAX = 256
_NO_LIMIT = (1 << 63) - 1


class _Stream:
    """Reads of a queue in order; the offsets are queue offsets."""

    __slots__ = (
        "due",
        "end",
        "is_pending",
        "queue",
        "reached",
        "start",
        "stride_bytes",
        "used_ns",
        "window_bytes",
    )

    def __init__(self, queue: ConsumeQueue, start: int, end: int) -> None:
        self.queue = queue
        self.start = start
        self.due = self.end = self.reached = end
        self.window_bytes = 0
        self.stride_bytes = 0
        self.is_pending = False
        self.used_ns = 0

    def has(self, offset: int) -> bool:
        """Whether a read that begins at an offset belongs to the stream.

        Readers may get ahead of a pending window, whose end is not known yet.
        """
        ahead = _entries_of(self.window_bytes) if self.is_pending else 0
        return self.start <= offset <= self.end + ahead


class _Window(NamedTuple):
    """What a thread has to bring in."""

    stream: _Stream
    begin: int
    size_bytes: int


def _entries_of(window_bytes: int) -> int:
    """How many entries of a queue a window covers at most."""
    return min(window_bytes // _RECORD_BYTES_MIN, _ENTRIES_MAX)


class ReadAhead:
    """Reads ahead in one store.

    Args:
        commit_log: The log.
        clock: Time.
        ahead_bytes_max: How much is brought in ahead of all readers together.
    """

    def __init__(
        self, commit_log: CommitLog, clock: Clock, *, ahead_bytes_max: int | None = None
    ) -> None:
        self._log = commit_log
        self._clock = clock
        self._ahead_bytes_max = ahead_bytes_max or min(
            AHEAD_BYTES_MAX, physical_memory_bytes() // 16
        )
        self._streams_max = max(self._ahead_bytes_max // (2 * WINDOW_BYTES_MIN), 1)
        self._streams_ahead = 0
        self._lock = threading.Lock()
        self._streams: OrderedDict[_Stream, None] = OrderedDict()
        self._by_queue: dict[ConsumeQueue, list[_Stream]] = {}
        self._wanted: deque[_Window] = deque()
        self._is_running = False
        self._workers = [
            Worker(f"read-ahead-{number}", self.bring_wanted, interval_ms=lambda: _IDLE_MS)
            for number in range(_THREADS)
        ]
        self._turns = cycle(self._workers)

    def start(self) -> None:
        """Start the threads; before that, nothing is read ahead."""
        for worker in self._workers:
            worker.start()
        self._is_running = True

    def stop(self) -> None:
        """End the threads, after the windows that they are bringing in."""
        self._is_running = False
        self._wanted.clear()
        for worker in self._workers:
            worker.stop()

    def advance(self, queue: ConsumeQueue, first_offset: int, next_offset: int) -> tuple[int, int]:
        """Note that a queue was read from one offset up to another; request what comes next.

        Returns:
            A range of queue offsets. As long as the reader begins inside it and does not read
            beyond it, it need not call again.
        """
        if not self._is_running:
            return 0, _NO_LIMIT
        with self._lock:
            stream = self._find(queue, first_offset)
            if stream is None:
                stream = self._add(queue, first_offset, next_offset)
            elif next_offset > stream.due:
                stream.reached = max(stream.reached, next_offset)
                if not stream.is_pending:
                    self._request(stream, first_offset)
            return stream.start, stream.due

    def _find(self, queue: ConsumeQueue, offset: int) -> _Stream | None:
        for stream in self._by_queue.get(queue, ()):
            if stream.has(offset):
                self._streams.move_to_end(stream)
                stream.used_ns = self._clock.monotonic_ns()
                return stream
        return None

    def _add(self, queue: ConsumeQueue, first_offset: int, next_offset: int) -> _Stream:
        of_queue = self._by_queue.get(queue, ())
        if len(of_queue) >= STREAMS_A_QUEUE_MAX:
            self._forget(min(of_queue, key=lambda each: each.used_ns))
        elif len(self._streams) >= self._streams_max:
            self._forget(next(iter(self._streams)))
        stream = _Stream(queue, first_offset, next_offset)
        stream.used_ns = self._clock.monotonic_ns()
        self._streams[stream] = None
        self._by_queue.setdefault(queue, []).append(stream)
        return stream

    def _forget(self, stream: _Stream) -> None:
        del self._streams[stream]
        self._streams_ahead -= stream.window_bytes > 0
        of_queue = self._by_queue[stream.queue]
        of_queue.remove(stream)
        if not of_queue:
            del self._by_queue[stream.queue]

    def _request(self, stream: _Stream, first_offset: int) -> None:
        """Request the next window of a stream; it begins where the last one ends."""
        idle_since_ns = stream.used_ns - IDLE_NS_MAX
        while (oldest := next(iter(self._streams))).used_ns < idle_since_ns:
            self._forget(oldest)
        self._streams_ahead += stream.window_bytes == 0
        share_bytes = max(self._ahead_bytes_max // (2 * self._streams_ahead), WINDOW_BYTES_MIN)
        grown_bytes = max(stream.window_bytes * 2, WINDOW_BYTES_MIN)
        stream.window_bytes = min(grown_bytes, WINDOW_BYTES_MAX, share_bytes)
        stream.start = min(stream.due, first_offset)
        stream.due = stream.end = max(stream.end, stream.reached)
        resident_end = self._resident_end(stream)
        if resident_end:
            stream.end = resident_end
            return
        stream.is_pending = True
        self._wanted.append(_Window(stream, stream.end, stream.window_bytes))
        next(self._turns).wake()

    def _resident_end(self, stream: _Stream) -> int:
        """The queue offset after the next window if that is in memory; otherwise 0.

        How many entries point into it is known from the window before it, roughly.
        """
        queue, begin = stream.queue, stream.end
        count = stream.window_bytes // stream.stride_bytes if stream.stride_bytes else 0
        if not 0 < count <= _ENTRIES_MAX or queue.unit_bytes != UNIT.size:
            return 0
        units = queue.read_cached_units(begin, count)
        if units is None or len(units) < count * UNIT.size:
            return 0
        first_physical, _, _ = UNIT.unpack_from(units)
        physical, size_bytes, _ = UNIT.unpack_from(units, (count - 1) * UNIT.size)
        end_offset = physical + min(size_bytes, WINDOW_BYTES_MAX)
        if end_offset - first_physical > 2 * stream.window_bytes:
            return 0
        parts = self._parts(first_physical, end_offset)
        is_resident = all(segment.is_resident(position, size) for segment, position, size in parts)
        return begin + count if is_resident else 0

    # -- in a thread --------------------------------------------------------------------------

    def bring_wanted(self) -> None:
        """Bring in the windows that were requested."""
        while True:
            try:
                window = self._wanted.popleft()
            except IndexError:
                return
            if window.stream not in self._streams:
                continue  # nobody reads there any more
            end = window.begin
            try:
                end = self._bring_window(window)
            except (OSError, StoreError) as error:
                log.debug("reading ahead of %s: %s", window.stream.queue.root, error)
            finally:
                with self._lock:
                    window.stream.end = max(end, window.stream.reached)
                    window.stream.stride_bytes = window.size_bytes // max(end - window.begin, 1)
                    window.stream.is_pending = False

    def _bring_window(self, window: _Window) -> int:
        """Bring in records and their entries; return the queue offset after the last of them."""
        queue, begin = window.stream.queue, window.begin
        unit_bytes = queue.unit_bytes
        units = queue.read_units(begin, _entries_of(window.size_bytes))
        count = len(units) // unit_bytes
        if not count:
            return begin
        first_physical, _, _ = UNIT.unpack_from(units)
        count_inside = bisect_left(
            range(count),
            first_physical + window.size_bytes,
            key=lambda number: UNIT.unpack_from(units, number * unit_bytes)[0],
        )
        if count_inside == count or count_inside * SPARSE_BYTES >= window.size_bytes:
            taken = count_inside
            physical, size_bytes, _ = UNIT.unpack_from(units, (taken - 1) * unit_bytes)
            end_offset = physical + min(size_bytes, WINDOW_BYTES_MAX)
            for segment, position, part_bytes in self._parts(first_physical, end_offset):
                segment.make_resident(position, part_bytes)
        else:
            taken = self._bring_apart(units, unit_bytes, window.size_bytes)
        last = units[(taken - 1) * unit_bytes : taken * unit_bytes]
        _, queue_offset, messages = next(queue.unpack_entries(last, begin + taken - 1))
        return queue_offset + messages

    def _bring_apart(self, units: bytes, unit_bytes: int, size_bytes: int) -> int:
        """Bring in some records one by one, about a window of them; return how many.

        All are requested before the first is waited for, so that the disk gets them at once. The
        kernel does not add pages around a record that was requested like this.
        """
        parts: list[tuple[MappedFile, int, int]] = []
        taken = wanted_bytes = 0
        for number in range(min(len(units) // unit_bytes, _APART_MAX)):
            physical, record_bytes, _ = UNIT.unpack_from(units, number * unit_bytes)
            parts += self._parts(physical, physical + min(record_bytes, WINDOW_BYTES_MAX))
            taken += 1
            wanted_bytes += record_bytes
            if wanted_bytes >= size_bytes:
                break
        for segment, position, part_bytes in parts:
            segment.will_need(position, part_bytes)
        for segment, position, part_bytes in parts:
            segment.make_resident(position, part_bytes)
        return taken

    def _parts(
        self, physical_offset: int, end_offset: int
    ) -> Iterator[tuple[MappedFile, int, int]]:
        """A part of the log by segment, position and length, as far as it still exists."""
        while physical_offset < end_offset:
            segment = self._log.queue.find(physical_offset)
            if segment is None:
                return
            position = physical_offset - segment.start_offset
            size_bytes = min(end_offset - physical_offset, segment.read_limit - position)
            if size_bytes <= 0:
                return
            yield segment, position, size_bytes
            physical_offset += size_bytes
