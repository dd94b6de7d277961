"""Headers of requests in both codecs, compiled.

A header is plain if it is JSON without white space, or binary, and its members and ext fields are
known, whole and not repeated. Any other is left to the reference, ``json_header.py`` and
``binary_header.py``. Every length that comes from the wire is compared with the bytes that are left
before it is used.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from roquet.model._bytes cimport roquet_get32
from roquet.model._text cimport has_byte, is_text, roquet_json_run


cdef enum:
    SEND_NEEDS = 8
    SEND_COUNT = 14
    PULL_NEEDS = 9
    PULL_COUNT = 14
    COMMIT_NEEDS = 4
    COMMIT_COUNT = 6


cdef const char *SEND_NAMES[FIELDS_MAX]
cdef const char *PULL_NAMES[FIELDS_MAX]
cdef const char *COMMIT_NAMES[FIELDS_MAX]
SEND_NAMES[:] = [
    b"producerGroup", b"topic", b"queueId", b"sysFlag", b"flag", b"bornTimestamp",
    b"defaultTopicQueueNums", b"defaultTopic", b"properties", b"reconsumeTimes", b"unitMode",
    b"maxReconsumeTimes", b"batch", b"bname",
]
PULL_NAMES[:] = [
    b"consumerGroup", b"topic", b"queueId", b"sysFlag", b"queueOffset", b"maxMsgNums",
    b"commitOffset", b"suspendTimeoutMillis", b"subVersion", b"subscription", b"expressionType",
    b"maxMsgBytes", b"bname", b"brokerName",
]
COMMIT_NAMES[0] = b"consumerGroup"
COMMIT_NAMES[1] = b"topic"
COMMIT_NAMES[2] = b"queueId"
COMMIT_NAMES[3] = b"commitOffset"
COMMIT_NAMES[4] = b"bname"
COMMIT_NAMES[5] = b"brokerName"

# The one-letter names, a to n, of SendMessageRequestHeaderV2.
cdef unsigned char LETTERS[FIELDS_MAX]
LETTERS[:] = [
    F_GROUP, F_TOPIC, F_DEFAULT_TOPIC, F_DEFAULT_QUEUES, F_QUEUE_ID, F_SYS_FLAG, F_BORN,
    F_SEND_FLAG, F_PROPERTIES, F_RECONSUME, F_UNIT_MODE, F_MAX_RECONSUME, F_BATCH, F_BROKER,
]


cdef struct Cursor:
    const unsigned char *at
    const unsigned char *end
    unsigned char *scratch
    int beyond_ascii


cdef bint read_number(const Text *text, int64_t low, int64_t high, int64_t *out) noexcept nogil:
    """Read digits with an optional minus, within two limits; false for anything else."""
    cdef const unsigned char *at = text.at
    cdef const unsigned char *end = at + text.size
    cdef uint64_t value = 0
    cdef bint is_negative = text.size > 0 and at[0] == c"-"
    if is_negative:
        at += 1
    if not 0 < end - at <= 18:
        return False
    while at < end:
        if not c"0" <= at[0] <= c"9":
            return False
        value = value * 10 + (at[0] - c"0")
        at += 1
    out[0] = -<int64_t>value if is_negative else <int64_t>value
    return low <= out[0] <= high


cdef bint read_int(const Text *text, int32_t *out) noexcept nogil:
    cdef int64_t value
    if not read_number(text, -0x80000000LL, 0x7FFFFFFF, &value):
        return False
    out[0] = <int32_t>value
    return True


cdef bint read_long(const Text *text, int64_t *out) noexcept nogil:
    return read_number(text, -0x7FFFFFFFFFFFFFFFLL, 0x7FFFFFFFFFFFFFFFLL, out)


cdef bint is_simple(const Text *text) noexcept nogil:
    """Whether JSON needs no escapes for a text."""
    cdef int beyond = False
    if <Py_ssize_t>roquet_json_run(text.at, text.size, &beyond) != text.size or beyond:
        return False
    return not has_byte(text, 0x7F)


cdef bint read_string(Cursor *cursor, Text *out) noexcept nogil:
    """Read a JSON string; sets ``beyond_ascii`` if it has a non-ASCII byte."""
    cdef const unsigned char *at = cursor.at
    if at >= cursor.end or at[0] != c'"':
        return False
    at += 1
    out.at = at
    at += roquet_json_run(at, cursor.end - at, &cursor.beyond_ascii)
    if at >= cursor.end:
        return False
    if at[0] == c'"':
        out.size = at - out.at
        cursor.at = at + 1
        return True
    return at[0] == c"\\" and read_escaped(cursor, at, out)


cdef bint read_escaped(Cursor *cursor, const unsigned char *at, Text *out) noexcept nogil:
    """Read a string from its first escape on, into the scratch buffer."""
    cdef unsigned char *into = cursor.scratch
    cdef unsigned char byte
    cdef int high, low
    cdef size_t run
    memcpy(into, out.at, at - out.at)
    into += at - out.at
    out.at = cursor.scratch
    while at < cursor.end and at[0] == c"\\":
        if cursor.end - at < 2:
            return False
        byte = at[1]
        at += 2
        if byte == c"u":
            if cursor.end - at < 4 or at[0] != c"0" or at[1] != c"0":
                return False
            high = hex_digit(at[2])
            low = hex_digit(at[3])
            if not 0 <= high < 8 or low < 0 or high + low == 0:
                return False
            byte = <unsigned char>(high << 4 | low)
            at += 4
        elif byte == c"n":
            byte = c"\n"
        elif byte == c"t":
            byte = c"\t"
        elif byte == c"r":
            byte = c"\r"
        elif byte == c"b":
            byte = 8
        elif byte == c"f":
            byte = 12
        elif byte != c'"' and byte != c"\\" and byte != c"/":
            return False
        into[0] = byte
        into += 1
        run = roquet_json_run(at, cursor.end - at, &cursor.beyond_ascii)
        memcpy(into, at, run)
        into += run
        at += run
    if at >= cursor.end or at[0] != c'"':
        return False
    out.size = into - out.at
    cursor.at = at + 1
    cursor.scratch = into
    return True


cdef inline int hex_digit(unsigned char byte) noexcept nogil:
    if c"0" <= byte <= c"9":
        return byte - c"0"
    byte |= 0x20
    if c"a" <= byte <= c"f":
        return byte - c"a" + 10
    return -1


cdef bint read_json_int(Cursor *cursor, int32_t *out) noexcept nogil:
    cdef Text text
    text.at = cursor.at
    while cursor.at < cursor.end and (cursor.at[0] == c"-" or c"0" <= cursor.at[0] <= c"9"):
        cursor.at += 1
    text.size = cursor.at - text.at
    if text.size > 1 and (text.at[0] == c"0" or (text.at[0] == c"-" and text.at[1] == c"0")):
        return False
    return read_int(&text, out)


cdef inline bint skip(Cursor *cursor, unsigned char byte) noexcept nogil:
    if cursor.at < cursor.end and cursor.at[0] == byte:
        cursor.at += 1
        return True
    return False


cdef bint read_ext_fields(Cursor *cursor, Request *request) noexcept nogil:
    """Read the ext fields; only message properties may be non-ASCII."""
    cdef Text *name
    if not skip(cursor, c"{"):
        return False
    if skip(cursor, c"}"):
        return True
    while request.pairs < PAIRS_MAX:
        name = &request.names[request.pairs]
        if not (read_string(cursor, name) and skip(cursor, c":")) or cursor.beyond_ascii:
            return False
        if not read_string(cursor, &request.values[request.pairs]):
            return False
        if cursor.beyond_ascii:
            if not (is_text(name, b"i") or is_text(name, b"properties")):
                return False
            cursor.beyond_ascii = False
        request.pairs += 1
        if skip(cursor, c"}"):
            return True
        if not skip(cursor, c","):
            return False
    return False


cdef bint read_json_header(
    const unsigned char *at, Py_ssize_t size, unsigned char *scratch, Request *request
) noexcept nogil:
    """Read a JSON header as Java and Go write it; false for any other."""
    cdef Cursor cursor
    cdef Text name, text
    cdef uint32_t seen = 0, bit
    cdef int32_t ignored
    cdef bint is_read
    cursor.at, cursor.end, cursor.scratch, cursor.beyond_ascii = at, at + size, scratch, 0
    request.code = request.flag = request.opaque = 0
    if not skip(&cursor, c"{"):
        return False
    while True:
        if not (read_string(&cursor, &name) and skip(&cursor, c":")):
            return False
        if is_text(&name, b"code"):
            bit, is_read = 1, read_json_int(&cursor, &request.code)
        elif is_text(&name, b"extFields"):
            bit, is_read = 2, read_ext_fields(&cursor, request)
        elif is_text(&name, b"flag"):
            bit, is_read = 4, read_json_int(&cursor, &request.flag)
        elif is_text(&name, b"language"):
            bit, is_read = 8, read_string(&cursor, &text)
        elif is_text(&name, b"opaque"):
            bit, is_read = 16, read_json_int(&cursor, &request.opaque)
        elif is_text(&name, b"serializeTypeCurrentRPC"):
            bit, is_read = 32, read_string(&cursor, &text)
        elif is_text(&name, b"version"):
            bit, is_read = 64, read_json_int(&cursor, &ignored)
        elif is_text(&name, b"remark"):
            bit, is_read = 128, read_string(&cursor, &text)
        else:
            return False
        if not is_read or cursor.beyond_ascii or seen & bit:
            return False
        seen |= bit
        if skip(&cursor, c"}"):
            return cursor.at == cursor.end
        if not skip(&cursor, c","):
            return False


cdef bint read_binary_header(
    const unsigned char *at, Py_ssize_t size, Request *request
) noexcept nogil:
    """Read a binary header without a remark; false for any other."""
    cdef const unsigned char *end = at + size
    cdef Text *text
    if size < 21 or roquet_get32(at + 13) != 0 or roquet_get32(at + 17) != <uint32_t>(size - 21):
        return False
    request.code = at[0] << 8 | at[1]
    request.opaque = <int32_t>roquet_get32(at + 5)
    request.flag = <int32_t>roquet_get32(at + 9)
    at += 21
    while at < end:
        if request.pairs == PAIRS_MAX or end - at < 2:
            return False
        text = &request.names[request.pairs]
        text.size = at[0] << 8 | at[1]
        text.at = at + 2
        at += 2
        if end - at < text.size + 4:
            return False
        at += text.size
        text = &request.values[request.pairs]
        text.size = roquet_get32(at)
        text.at = at + 4
        at += 4
        if end - at < text.size:
            return False
        at += text.size
        request.pairs += 1
    return True


cdef bint read_header(
    const unsigned char *at, Py_ssize_t size, unsigned char *scratch, Request *request
) noexcept nogil:
    """Read a header, JSON or binary as ``is_binary`` says, of at most :data:`HEADER_MAX` bytes.

    Texts point into it or, if they had escapes, into ``scratch``, which is as long.
    """
    request.pairs = 0
    if request.is_binary:
        return read_binary_header(at, size, request)
    return read_json_header(at, size, scratch, request)


cdef bint bind(
    const Request *request, const char **names, Py_ssize_t count, Py_ssize_t needed, Fields *fields
) noexcept nogil:
    """Sort ext fields by index; false if one is unknown, repeated or missing."""
    cdef Py_ssize_t pair, place
    fields.seen = 0
    for pair in range(request.pairs):
        for place in range(count):
            if is_text(&request.names[pair], names[place]):
                break
        else:
            return False
        if fields.seen & (1u << place):
            return False
        fields.seen |= 1u << place
        fields.values[place] = request.values[pair]
    return fields.seen & ((1u << needed) - 1) == (1u << needed) - 1


cdef bint bind_letters(const Request *request, Fields *fields) noexcept nogil:
    """Like :func:`bind`, for one-letter names."""
    cdef Py_ssize_t pair
    cdef uint32_t place
    fields.seen = 0
    for pair in range(request.pairs):
        if request.names[pair].size != 1 or not c"a" <= request.names[pair].at[0] <= c"n":
            return False
        place = LETTERS[request.names[pair].at[0] - c"a"]
        if fields.seen & (1u << place):
            return False
        fields.seen |= 1u << place
        fields.values[place] = request.values[pair]
    return fields.seen & ((1u << SEND_NEEDS) - 1) == (1u << SEND_NEEDS) - 1


cdef bint bind_send(const Request *request, Fields *fields) noexcept nogil:
    return bind(request, SEND_NAMES, SEND_COUNT, SEND_NEEDS, fields)


cdef bint bind_pull(const Request *request, Fields *fields) noexcept nogil:
    return bind(request, PULL_NAMES, PULL_COUNT, PULL_NEEDS, fields)


cdef bint bind_commit(const Request *request, Fields *fields) noexcept nogil:
    return bind(request, COMMIT_NAMES, COMMIT_COUNT, COMMIT_NEEDS, fields)
