"""The part of ConsumeQueues that ``_append.pyx`` uses."""

from libc.stdint cimport int64_t, uint32_t

from roquet.store.consume_queue cimport ConsumeQueue


cdef class BurstQueue:
    cdef ConsumeQueue queue
    cdef int64_t burst
    cdef int64_t next_offset
    cdef int64_t max_physical_offset
    cdef unsigned char *units
    cdef Py_ssize_t used
    cdef Py_ssize_t room

    cdef bint load(self, int64_t burst, bint dispatch) except -1
    cdef int reserve(self, Py_ssize_t count) except -1
    cdef void add(self, int64_t physical_offset, uint32_t size, int64_t tags_code) noexcept
    cdef int store(self, list touched) except -1
