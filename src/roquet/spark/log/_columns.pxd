"""The columns of a batch, which ``_decoder.pyx`` fills."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from roquet.model._text cimport Text


cdef enum:
    F_QUEUE_ID = 0
    F_STORE_SIZE
    F_RECONSUME
    F_SYS_FLAG
    F_FLAG
    F_BODY_CRC
    F_QUEUE_OFFSET
    F_PHYSICAL
    F_PREPARED
    F_BORN
    F_STORE
    FIXED
    V_TOPIC = 0
    V_BODY
    V_TAGS
    V_KEYS
    V_MSG_ID
    V_OFFSET_ID
    V_BORN_HOST
    V_STORE_HOST
    V_NAMES
    V_VALUES
    VARYING


cdef struct Fixed:
    # Four bytes a row up to F_BODY_CRC, eight after it.
    bint wanted
    unsigned char *at
    uint8_t *valid
    int64_t nulls


cdef struct Varying:
    bint wanted
    int32_t *offsets
    Py_ssize_t offsets_room
    unsigned char *at
    size_t used
    size_t room
    Py_ssize_t count
    uint8_t *valid
    int64_t nulls


cdef void *take(size_t size) except NULL


cdef class Columns:
    cdef Fixed fixed[FIXED]
    cdef Varying varying[VARYING]
    cdef int32_t *map_offsets
    cdef bint wants_map
    cdef Py_ssize_t rows_room
    cdef Py_ssize_t rows
    cdef list compressed

    cdef void clear(self)
    cdef int put32(self, int column, int32_t value) except -1
    cdef int put64(self, int column, int64_t value) except -1
    cdef int put_ms(self, int column, int64_t value) except -1
    cdef int put_text(self, int column, const unsigned char *at, Py_ssize_t size) except -1
    cdef int put_found(self, int column, const Text *found) except -1
    cdef int put_object(self, int column, object text) except -1


cdef class Block:
    cdef Columns columns
    cdef list free
