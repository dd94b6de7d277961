"""C types of what ``clock.py`` keeps."""

from libc.stdint cimport int64_t


cdef class SystemClock:
    cpdef int64_t now_ms(self)
