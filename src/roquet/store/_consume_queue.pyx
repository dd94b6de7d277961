"""Entries of ConsumeQueues: collected during a burst, and written to their files at its end."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from roquet.format._layout cimport (
    UNIT_BYTES, UNIT_PHYSICAL_OFFSET_AT, UNIT_SIZE_AT, UNIT_TAGS_CODE_AT,
)
from roquet.model._bytes cimport roquet_put32, roquet_put64
from roquet.store.consume_queue cimport ConsumeQueue
from roquet.store.entry_files cimport EntryFiles


cdef extern from "<unistd.h>":
    Py_ssize_t pwrite(int fd, const void *data, size_t size, int64_t position)


cdef class BurstQueue:
    """A ConsumeQueue during a burst: its numbers and the entries collected for it."""

    def __dealloc__(self):
        free(self.units)

    cdef bint load(self, int64_t burst, bint dispatch) except -1:
        """Load the queue's numbers; false if its next entry is not that of the next append."""
        cdef bytearray pending
        self.next_offset = self.queue.next_queue_offset
        self.max_physical_offset = self.queue.max_physical_offset
        if dispatch:
            pending = self.queue.pending
            if <int64_t>self.queue.max_queue_offset + len(pending) // UNIT_BYTES != self.next_offset:
                return False
        self.used = 0
        self.burst = burst
        return True

    cdef int reserve(self, Py_ssize_t count) except -1:
        """Make room for ``count`` more entries."""
        cdef Py_ssize_t room = self.room if self.room else 64 * UNIT_BYTES
        cdef void *grown
        while room < self.used + count * UNIT_BYTES:
            room *= 2
        if room > self.room:
            grown = realloc(self.units, room)
            if grown == NULL:
                raise MemoryError
            self.units = <unsigned char *>grown
            self.room = room
        return 0

    cdef void add(self, int64_t physical_offset, uint32_t size, int64_t tags_code) noexcept:
        """Collect one entry, for which there is room."""
        cdef unsigned char *unit = self.units + self.used
        roquet_put64(unit + UNIT_PHYSICAL_OFFSET_AT, <uint64_t>physical_offset)
        roquet_put32(unit + UNIT_SIZE_AT, size)
        roquet_put64(unit + UNIT_TAGS_CODE_AT, <uint64_t>tags_code)
        self.used += UNIT_BYTES
        self.max_physical_offset = physical_offset + size

    cdef int store(self, list touched) except -1:
        """Pass numbers and entries to the ConsumeQueue."""
        cdef bytearray pending
        cdef Py_ssize_t before
        self.burst = 0
        self.queue.next_queue_offset = self.next_offset
        if self.used:
            pending = self.queue.pending
            before = PyByteArray_GET_SIZE(pending)
            if before == 0:
                touched.append(self.queue)
            PyByteArray_Resize(pending, before + self.used)
            memcpy(PyByteArray_AS_STRING(pending) + before, self.units, self.used)
            self.queue.max_physical_offset = self.max_physical_offset
            self.used = 0
        return 0


def write_pending(list touched not None, list grown not None, *, before=None):
    """ConsumeQueueStore.write_pending for queues whose tail file is open and has room.

    ``before`` is the write_hook of Files, called before each write; it may raise ``OSError``.

    Moves queues from the end of ``touched`` to ``grown`` until one is left to the reference path.
    That also gets a queue whose write failed: repeating the write gives the same bytes, or the
    error.
    """
    while touched and write_entries(touched[len(touched) - 1], before):
        grown.append(touched.pop())


cdef bint write_entries(ConsumeQueue queue, object before) except -1:
    """ConsumeQueue.write_pending for the ordinary case."""
    cdef bytearray pending = queue.pending
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(pending)
    cdef EntryFiles entries = queue.entries
    cdef object tail = entries.tail
    cdef int64_t max_offset = queue.max_queue_offset
    cdef int64_t position = max_offset * UNIT_BYTES - <int64_t>entries.tail_start
    cdef int fd
    if size == 0 or tail is None or position + size > <int64_t>entries.file_bytes:
        return False
    fd = tail.fd
    if fd < 0 or (before is not None and is_refused(before, fd, pending, position)):
        return False
    if pwrite(fd, PyByteArray_AS_STRING(pending), size, position) != size:
        return False
    tail.is_used = True
    entries.dirty_bytes += size
    queue.max_queue_offset = max_offset + size // UNIT_BYTES
    PyByteArray_Resize(pending, 0)
    return True


cdef bint is_refused(object before, int fd, bytearray data, int64_t position) except -1:
    """Call the hook before a write; if it raises, that counts as the error of the write."""
    try:
        before(fd, bytes(data), position)
    except OSError:
        return True
    return False
