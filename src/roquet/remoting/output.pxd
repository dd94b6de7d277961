"""C types of what ``output.py`` keeps."""

from libc.stdint cimport int64_t

from roquet.remoting.endpoint cimport Endpoint


cdef class Progress:
    cdef public object _seen
    cdef public int64_t _since_ns


cdef class Output:
    cdef public object _connection
    cdef public Endpoint _endpoint
    cdef public object _limits
    cdef public object _loop
    cdef public object _transport
    cdef public bint _is_tls
    cdef public list _parts
    cdef public int64_t _waiting_bytes
    cdef public int64_t _last_write_bytes
    cdef public object _peer_reads
    cdef public bint in_burst
    cdef public bint is_scheduled
    cdef public object blocked
    cdef public int64_t _written_bytes
    cdef public int64_t activity_ns

    cpdef write(self, data)
    cpdef _after_write(self)
    cpdef flush(self)
