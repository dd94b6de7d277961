"""C types of what ``input.py`` keeps."""

from libc.stdint cimport int64_t

from roquet.remoting.endpoint cimport Endpoint
from roquet.remoting.frame cimport FrameDecoder
from roquet.remoting.output cimport Output


cdef class Input:
    cdef public object _connection
    cdef public Endpoint _endpoint
    cdef public Output _output
    cdef public object _dispatcher
    cdef public object _outgoing
    cdef public object _loop
    cdef public FrameDecoder _decoder
    cdef public object _transport
    cdef public bint _is_tls
    cdef public object hot_reader
    cdef public int64_t activity_ns
    cdef public int64_t _gap_ns
    cdef public bint is_counted
    cdef public bint _waits_for_turn
    cdef public bint _waits_to_read
    cdef public bint _peer_is_done
    cdef public int64_t _read_at
    cdef public int64_t _last_read_bytes
    cdef public bint _reading_paused
    cdef public bint _is_held_back
    cdef public int64_t _turn_began_ns
    cdef public int64_t _read_bytes
    cdef public object _frame_comes
    cdef public bint _hot_has_more
    cdef public bint _pulls_much

    cpdef bint _take_burst(self, read)
    cpdef int64_t _take_plain(self, data, int64_t position) except -1
    cpdef bint _must_wait(self)
    cpdef _respond(self)
    cpdef _handle_read(self)
