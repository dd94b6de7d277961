"""What ``_requests.pyx`` uses of plain pulls."""

from libc.stdint cimport int32_t, int64_t

from roquet.broker.hot._counts cimport Counted, QueueCounts
from roquet.remoting._frame cimport Output, Template
from roquet.remoting._header cimport Fields, Request
from roquet.store.commit_log cimport CommitLog
from roquet.store.consume_queue cimport ConsumeQueue
from roquet.store.entry_files cimport EntryFiles
from roquet.store.mapped_file cimport MappedFile


cdef enum:
    UNITS_MAX = 2048
    CODES_MAX = 16


cdef struct Pulled:
    # What a pull returns: entries by their number among those read, and where their records are.
    int64_t first_offset
    int64_t next_offset
    int64_t min_offset
    int64_t max_offset
    int64_t fall_bytes
    Py_ssize_t count
    int64_t total_bytes
    Py_ssize_t chosen[UNITS_MAX]
    const unsigned char *records[UNITS_MAX]


cdef struct Part:
    # The part of a mapped segment that is readable, and how far the kernel says it is in memory.
    int64_t start
    int64_t limit
    const unsigned char *base
    const unsigned char *resident


cdef class Plan(Counted):
    cdef readonly str group
    cdef readonly str topic
    cdef readonly str key
    cdef bytes _topic
    cdef int32_t _queues
    cdef object _is_wanted
    cdef bint _has_codes
    cdef Py_ssize_t _code_count
    cdef int32_t _codes[CODES_MAX]
    cdef tuple _near
    cdef tuple _far

    cdef bint _has_code(self, int64_t tags_code) noexcept


cdef class Pulls:
    cdef CommitLog _log
    cdef object _rules
    cdef object _read_ahead
    cdef dict _table
    cdef dict _plans
    cdef bytes _last_key
    cdef Plan _last_plan
    cdef dict _resets
    cdef dict _pulled_offsets
    cdef list _pulled_by
    cdef unsigned char *_key
    cdef unsigned char *_units
    cdef Output _out
    cdef int64_t _now_ms
    cdef int64_t _memory_bytes
    cdef int64_t _recent_bytes
    cdef bint _by_distance
    cdef Py_ssize_t _scanned_bytes
    cdef Py_ssize_t _transfer_bytes[2]
    cdef Py_ssize_t _transfer_count[2]
    cdef Py_ssize_t _pull_max
    cdef bint _asks_kernel
    cdef bint _reads_files
    cdef object _before_read
    cdef MappedFile _segment
    cdef Part _part
    cdef Py_ssize_t gets
    cdef Py_ssize_t got_messages
    cdef Py_ssize_t effort

    cdef void begin(self, int64_t now_ms) noexcept
    cdef bint take(
        self, const Request *request, Fields *fields, const unsigned char *frame,
        Py_ssize_t size, object connection,
    ) except -1

    cdef Plan _plan(self, const Request *request, Fields *fields, int32_t sys_flag,
                    const unsigned char *frame, Py_ssize_t size, object connection)
    cdef bint _choose(
        self, Plan plan, ConsumeQueue queue, Py_ssize_t max_messages, Pulled *pulled
    ) except -1
    cdef int _find(
        self, int64_t physical, Py_ssize_t size, const unsigned char **record
    ) except -1
    cdef bint _is_resident(self, const unsigned char *record, Py_ssize_t size) except -1
    cdef Py_ssize_t _read_units(self, ConsumeQueue queue, int64_t offset, Py_ssize_t count) except -1
    cdef int _descriptor(self, EntryFiles entries, int64_t start) except -2
    cdef bint _gather(
        self, const Request *request, Plan plan, int32_t queue_id, const Pulled *pulled
    ) except -1
    cdef void _note_fall(self, QueueCounts *queue, const Pulled *pulled) noexcept
    cdef int _read_on(self, ConsumeQueue queue, QueueCounts *counts, const Pulled *pulled) except -1
