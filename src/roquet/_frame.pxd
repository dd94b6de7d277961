"""What the compiled lane of the wire uses of the reading of requests and writing of answers."""

from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcmp, strlen

from roquet._fast cimport Properties, Text


cdef enum:
    HEADER_MAX = 1 << 16
    PAIRS_MAX = 24
    FIELDS_MAX = 14


# Places of ext fields: those of sends, pulls and commits, the needed ones first.
cdef enum:
    F_GROUP = 0
    F_TOPIC = 1
    F_QUEUE_ID = 2
    F_SYS_FLAG = 3

    F_SEND_FLAG = 4
    F_BORN = 5
    F_DEFAULT_QUEUES = 6
    F_DEFAULT_TOPIC = 7
    F_PROPERTIES = 8
    F_RECONSUME = 9
    F_UNIT_MODE = 10
    F_MAX_RECONSUME = 11
    F_BATCH = 12
    F_BROKER = 13

    F_OFFSET = 4
    F_MAX_MESSAGES = 5
    F_COMMIT_OFFSET = 6
    F_SUSPEND = 7
    F_VERSION = 8
    F_SUBSCRIPTION = 9
    F_EXPRESSION_TYPE = 10
    F_MAX_BYTES = 11

    F_COMMITTED = 3


cdef struct Request:
    bint is_binary
    int32_t code
    int32_t opaque
    int32_t flag
    Py_ssize_t pairs
    Text names[PAIRS_MAX]
    Text values[PAIRS_MAX]


cdef struct Fields:
    uint32_t seen
    Text values[FIELDS_MAX]


cdef inline bint is_text(const Text *text, const char *other) noexcept nogil:
    return text.size == <Py_ssize_t>strlen(other) and memcmp(text.at, other, text.size) == 0


cdef inline bint has(const Fields *fields, Py_ssize_t place) noexcept nogil:
    return fields.seen & (1u << place) != 0


cdef bint read_int(const Text *text, int32_t *out) noexcept nogil
cdef bint read_long(const Text *text, int64_t *out) noexcept nogil
cdef bint is_simple(const Text *text) noexcept nogil
cdef bint read_header(
    const unsigned char *at, Py_ssize_t size, unsigned char *scratch, Request *request
) noexcept nogil
cdef bint bind_letters(const Request *request, Fields *fields) noexcept nogil
cdef bint bind_send(const Request *request, Fields *fields) noexcept nogil
cdef bint bind_pull(const Request *request, Fields *fields) noexcept nogil
cdef bint bind_commit(const Request *request, Fields *fields) noexcept nogil
cdef bint read_plain_properties(const Text *text, Properties *found) noexcept nogil


# What stands at a place of an answer.
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
    cdef Py_ssize_t _literal_bytes
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
