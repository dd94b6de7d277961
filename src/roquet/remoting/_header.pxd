"""Headers of requests in both codecs, and their fields."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from roquet.model._text cimport Text


cdef enum:
    HEADER_MAX = 1 << 16
    PAIRS_MAX = 24
    FIELDS_MAX = 14


# Indexes of ext fields, those of sends, pulls and commits; required ones come first.
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
