"""C types of what ``clock.py`` keeps."""

cimport cython
from libc.stdint cimport int64_t


cdef class SystemClock:
    @cython.locals(now_ns=int64_t)
    cpdef int64_t now_ms(self)
