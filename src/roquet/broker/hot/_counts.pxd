"""What plain sends and pulls count with."""

from libc.stdint cimport int32_t, int64_t


cdef struct QueueCounts:
    # Requests since the last look; how far the last pull was behind the end of the log; the queue
    # offsets between which a pull has no need to call the read-ahead.
    int64_t requests
    int64_t fall_bytes
    int64_t fall_ms
    int64_t ahead_start
    int64_t ahead_due


cdef class Counted:
    cdef QueueCounts *by_queue
    cdef Py_ssize_t _room
    cdef int64_t _messages
    cdef int64_t _bytes
    cdef bint _is_listed

    cdef int reserve(self, list moved, int32_t queue_id) except -1
    cdef void count(self, int32_t queue_id, int64_t messages, int64_t size_bytes) noexcept
    cdef tuple take(self)
