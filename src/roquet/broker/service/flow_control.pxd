"""C types of what ``flow_control.py`` keeps."""

from libc.stdint cimport int64_t


cdef class FlowControl:
    cdef public int64_t sends_waiting
    cdef public object _clock
    cdef public object _monotonic_ns
    cdef public object _is_page_cache_busy
    cdef public object _is_transient_pool_deficient
    cdef public object _executor
    cdef public object _send_capacity
    cdef public int64_t _send_wait_ns
    cdef public object _is_fast_failing
    cdef public int64_t _burst_began_ns
    cdef public bint _burst_found_busy
    cdef public int64_t _slow_burst_ended_ns
    cdef public object _queues

    cpdef refusal_of_send(self)
