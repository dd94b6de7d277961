"""C types of what ``endpoint.py`` keeps."""

from libc.stdint cimport int64_t

from roquet.remoting.read_budget cimport ReadBudget
from roquet.remoting.turn_scheduler cimport TurnScheduler


cdef class Endpoint:
    cdef public object registry
    cdef public object limits
    cdef public object hooks
    cdef public object clock
    cdef public object now_ns
    cdef public object language
    cdef public object serialize_type
    cdef public object reads_while_unwritten
    cdef public object read_buffer
    cdef public object statistics
    cdef public object log_limiter
    cdef public ReadBudget reads
    cdef public TurnScheduler turns
    cdef public object connections
    cdef public list burst_listeners
    cdef public list response_listeners
    cdef public object hot_path
    cdef public list close_listeners
    cdef public bint stopping
    cdef public object handshakes
    cdef public int64_t in_flight
    cdef public int64_t in_flight_bytes
    cdef public int64_t _next_connection_id
    cdef public object running
    cdef public object _blocked
    cdef public int64_t held_bytes
    cdef public int64_t _freed_bytes
    cdef public object _reclaimable
    cdef public bint _is_counting
    cdef public object _watch

    cpdef burst_ended(self)
    cpdef responded(self, int64_t gap_ns)
