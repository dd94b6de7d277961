"""C types of what ``linger.py`` keeps."""

from libc.stdint cimport int64_t


cdef class Linger:
    cdef public object _monotonic_ns
    cdef public int64_t _window_ns
    cdef public int64_t _awake_until_ns
    cdef public int64_t _turns_left
    cdef public int64_t _polls_since_ns
    cdef public int64_t _polled_ns
    cdef public int64_t _tried
    cdef public int64_t _rest
    cdef public bint is_awake
