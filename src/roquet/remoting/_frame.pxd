"""Frames of responses, written by templates."""

from libc.stdint cimport int32_t, int64_t

from roquet.model._text cimport Text


# The variable parts of a response.
cdef enum:
    SLOT_END
    SLOT_OPAQUE
    SLOT_MESSAGE_ID
    SLOT_QUEUE_ID
    SLOT_OFFSET
    SLOT_TRANSACTION_ID
    SLOT_MIN_OFFSET
    SLOT_MAX_OFFSET
    SLOTS


cdef enum:
    FRAME_HEAD = 8
    DIGITS_MAX = 20
    PARTS_MAX = 16


cdef void set_number(Text *text, unsigned char *digits, int64_t value) noexcept nogil
cdef void write_hex(unsigned char *at, const unsigned char *data, Py_ssize_t size) noexcept nogil


cdef class Template:
    cdef list _parts
    cdef Py_ssize_t _ext_size_at
    cdef Py_ssize_t _count
    cdef Py_ssize_t literal_bytes
    cdef Text _literals[PARTS_MAX]
    cdef int _slots[PARTS_MAX]


cdef class Output:
    cdef bytes _data
    cdef Py_ssize_t used

    cdef unsigned char *need(self, Py_ssize_t size) except NULL
    cdef bytes take(self)
    cdef int add(
        self, Template template, const Text *values, int32_t opaque, Py_ssize_t body_bytes
    ) except -1
