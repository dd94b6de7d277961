"""C types of what ``append_timing.py`` keeps."""

from libc.stdint cimport int64_t


cdef class AppendTiming:
    cdef object _monotonic_ns
    cdef object _config
    cdef int64_t _ended_ns
    cdef int64_t _took_ns
    cdef public int64_t began_ns

    cpdef int64_t begin(self)
    cpdef int64_t end(self, int64_t began_ns, int64_t size_bytes)
    cpdef bint is_os_page_cache_busy(self)
