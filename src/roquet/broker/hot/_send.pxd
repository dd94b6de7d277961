"""What ``_requests.pyx`` uses of plain sends."""

from libc.stdint cimport int32_t, int64_t

from roquet.broker.hot._counts cimport Counted
from roquet.format._record cimport Host, Message
from roquet.model._text cimport Text
from roquet.remoting._frame cimport Output, Template
from roquet.remoting._header cimport Fields, Request
from roquet.store._append cimport PlainAppender, Target, _Topic


cdef class Peer:
    cdef Host host
    cdef readonly object connection
    cdef public bint is_reader


cdef class _Approved(Counted):
    cdef bytes topic
    cdef str name
    cdef int32_t queues


cdef class Sends:
    cdef PlainAppender _appender
    cdef object _rules
    cdef Host _store_host
    cdef unsigned char _store_host_hex[16]
    cdef bytes _own_properties
    cdef Template _sent_json
    cdef Template _sent_binary
    cdef Template _batch_json
    cdef Template _batch_binary
    cdef dict _topics
    cdef _Approved _last
    cdef list _sent_to
    cdef unsigned char *_ids
    cdef Message *_batch
    cdef int64_t *_offsets
    cdef Output _out
    cdef Output held
    cdef Target _target
    cdef bint _is_open
    cdef int _may_send
    cdef bint _waits
    cdef Py_ssize_t messages
    cdef Py_ssize_t waiting_answers

    cdef void begin(self, int64_t now_ms, bint appends, bint dispatch, bint waits) noexcept
    cdef int end(self) except -1
    cdef bint take(
        self, const Request *request, Fields *fields, const unsigned char *body,
        Py_ssize_t body_bytes, Peer peer,
    ) except -1

    cdef _Approved _approved(self, const Text *topic)
    cdef _Topic _open(self, _Approved approved)
    cdef bint _send_one(
        self, const Request *request, const Message *message, _Topic topic, _Approved approved
    ) except -1
    cdef bint _send_batch(
        self, const Request *request, const Message *whole, _Topic topic, _Approved approved
    ) except -1
    cdef Template _sent(self, const Request *request, const Message *message)
    cdef int _reserve(
        self, const Request *request, const Message *message, Py_ssize_t count
    ) except -1
    cdef int _answer_send(
        self, const Request *request, const Message *message, int64_t queue_offset,
        const int64_t *physical_offsets, Py_ssize_t count,
    ) except -1
