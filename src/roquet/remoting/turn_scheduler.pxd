"""C types of what ``turn_scheduler.py`` keeps."""

from libc.stdint cimport int64_t


cdef class TurnScheduler:
    cdef public object now_ns
    cdef public bint is_spent
    cdef public object _call_soon
    cdef public object _call_later
    cdef public object _rings
    cdef public object _queues
    cdef public object queued
    cdef public int64_t _pass_began_ns
    cdef public int64_t _spent_ns
    cdef public int64_t _requests
    cdef public bint _is_running
    cdef public bint _is_scheduled
    cdef public bint _is_watching

    cpdef spend(self, int64_t output_bytes)
    cpdef _begin_pass(self, int64_t now_ns)
    cpdef _spend(self, int64_t time_ns)
