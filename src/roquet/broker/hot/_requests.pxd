"""The plain requests of a broker, for the hot path."""

from libc.stdint cimport int64_t

from roquet.broker.hot._pull cimport Pulls
from roquet.broker.hot._send cimport Peer, Sends
from roquet.remoting._frame cimport Output, Template
from roquet.remoting._header cimport Fields, Request


cdef class PlainRequests:
    cdef object _rules
    cdef readonly Sends sends
    cdef readonly Pulls pulls
    cdef Template _committed_json
    cdef Template _committed_binary
    cdef unsigned char *_scratch
    cdef Output _out

    cpdef tuple take(
        self, const unsigned char[::1] data, Py_ssize_t position, Peer peer,
        int64_t now_ms, bint appends, bint dispatch, bint waits, bint pulls,
        Py_ssize_t max_output,
    )
    cdef bint _guarded(
        self, const Request *request, const unsigned char *frame, Py_ssize_t size,
        Py_ssize_t header_bytes, Peer peer, bint pulls,
    ) except -1
    cdef bint _handle(
        self, const Request *request, const unsigned char *frame, Py_ssize_t size,
        Py_ssize_t header_bytes, Peer peer, bint pulls,
    ) except -1
    cdef bint _commit(self, const Request *request, Fields *fields) except -1
