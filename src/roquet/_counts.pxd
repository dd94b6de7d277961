"""What the compiled lane of the wire (``_wire.pyx``) counts with."""

from libc.stdint cimport int32_t, int64_t


cdef struct QueueCounts:
    # Requests since the last look; how far the last pull was behind the end of the log.
    int64_t requests
    int64_t fall_bytes
    int64_t fall_ms


cdef class Counted:
    cdef QueueCounts *_by_queue
    cdef Py_ssize_t _room
    cdef int64_t _messages
    cdef int64_t _bytes
    cdef bint _is_listed

    cdef int reserve(self, list moved, int32_t queue_id) except -1
    cdef void count(self, int32_t queue_id, int64_t messages, int64_t size_bytes) noexcept
    cdef tuple take(self)
