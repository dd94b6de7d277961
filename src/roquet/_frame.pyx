# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Bytes of the compiled lane of the wire: headers in both codecs, message properties, answers.

Owns the judgement of what is plain about the text of a request, and the writing of answers by
templates. A header is plain if it is JSON
without white space, or binary, and its members and ext fields are known, whole and not repeated.
Properties are plain if they are pairs of different names with values, in UTF-8, none of which may
mean more to a broker than to be stored. Whatever is not plain is left to the reference path.

Every length that comes from the wire is compared with the bytes that are left before it is used.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, strlen

from roquet._fast cimport Properties, Text


cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **data, Py_ssize_t size) except -1


cdef extern from "_text.h":
    size_t roquet_json_run(const unsigned char *at, size_t size, int *beyond) nogil
    size_t roquet_ascii_run(const unsigned char *at, size_t size) nogil


cdef extern from "_bytes.h":
    uint32_t roquet_get32(const unsigned char *at) nogil
    void roquet_put32(unsigned char *at, uint32_t value) nogil


cdef enum:
    PROPERTIES_MAX = 32
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

# The names of one letter, a to n, of SendMessageRequestHeaderV2.
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


# -- text ----------------------------------------------------------------------------------------


cdef inline bint starts_with(const Text *text, const char *other) noexcept nogil:
    cdef Py_ssize_t size = strlen(other)
    return text.size >= size and memcmp(text.at, other, size) == 0


cdef bint read_number(const Text *text, int64_t low, int64_t high, int64_t *out) noexcept nogil:
    """A number of digits and perhaps a minus, between two limits; false for anything else."""
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


cdef bint is_utf8(const unsigned char *at, Py_ssize_t size) noexcept nogil:
    """Whether a text is UTF-8 without surrogates or overlong forms, and has no NUL."""
    cdef const unsigned char *end = at + size
    cdef unsigned char first
    cdef uint32_t value, least
    cdef Py_ssize_t more
    while at < end:
        at += roquet_ascii_run(at, end - at)
        if at == end:
            break
        first = at[0]
        at += 1
        if first < 0x80:
            if first == 0:
                return False
            continue
        if first & 0xE0 == 0xC0:
            more, value, least = 1, first & 0x1F, 0x80
        elif first & 0xF0 == 0xE0:
            more, value, least = 2, first & 0x0F, 0x800
        elif first & 0xF8 == 0xF0:
            more, value, least = 3, first & 0x07, 0x10000
        else:
            return False
        if end - at < more:
            return False
        while more:
            if at[0] & 0xC0 != 0x80:
                return False
            value = value << 6 | (at[0] & 0x3F)
            at += 1
            more -= 1
        if value < least or value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
            return False
    return True


cdef bint is_simple(const Text *text) noexcept nogil:
    """Whether a text stands in JSON as it is."""
    cdef int beyond = False
    if <Py_ssize_t>roquet_json_run(text.at, text.size, &beyond) != text.size or beyond:
        return False
    return text.size == 0 or memchr(text.at, 0x7F, text.size) == NULL


# -- headers -------------------------------------------------------------------------------------


cdef bint read_string(Cursor *cursor, Text *out) noexcept nogil:
    """A JSON string; ``beyond_ascii`` is set if it has a byte that is."""
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
    """The rest of a string from its first escape on; the text goes to the scratch buffer."""
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
    """The object of ext fields; only the properties of a message may be more than ASCII."""
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
    """A JSON header as Java and Go write it; false for any other."""
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
    """A binary header without a remark; false for any other."""
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
    """A header of the kind that ``is_binary`` says, at most :data:`HEADER_MAX` bytes.

    Texts point into it or, if they had escapes, into ``scratch``, which is as long.
    """
    request.pairs = 0
    if request.is_binary:
        return read_binary_header(at, size, request)
    return read_json_header(at, size, scratch, request)


cdef bint bind(
    const Request *request, const char **names, Py_ssize_t count, Py_ssize_t needed, Fields *fields
) noexcept nogil:
    """Put ext fields in their places; false if one is not known, repeated or missing."""
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
    """As :func:`bind`, for the names of one letter."""
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


# -- properties ----------------------------------------------------------------------------------


cdef bint is_reserved(const Text *name) noexcept nogil:
    """Whether a property may ask for more than to be stored, or is the broker's to set."""
    cdef unsigned char first = name.at[0]
    if first == c"_":
        return not is_text(name, b"__SHARDINGKEY")
    if first == c"T":
        return starts_with(name, b"TIMER_") or starts_with(name, b"TRA")
    if first == c"M":
        return starts_with(name, b"MSG_") or starts_with(name, b"MIN_") or starts_with(name, b"MAX_")
    if first == c"D":
        return starts_with(name, b"DELAY") or starts_with(name, b"DLQ_")
    if first == c"R":
        return name.size > 1 and (name.at[1] == c"E")
    if first == c"P":
        return starts_with(name, b"P") and not c"a" <= name.at[name.size - 1] <= c"z"
    if first == c"I":
        return starts_with(name, b"INNER_")
    if first == c"C":
        return is_text(name, b"CLUSTER") or starts_with(name, b"CHECK_")
    return first == c"1" or is_text(name, b"ORIGIN_MESSAGE_ID")


cdef bint read_plain_properties(const Text *text, Properties *found) noexcept nogil:
    """The properties that dispatch needs; false if any is not plain, or the text not whole."""
    cdef const unsigned char *at = text.at
    cdef const unsigned char *end = at + text.size
    cdef const unsigned char *stop
    cdef Text names[PROPERTIES_MAX]
    cdef Text name, value
    cdef Py_ssize_t count = 0, other
    found.tags.size = found.keys.size = found.unique.size = 0
    found.is_plain = True
    if text.size and not is_utf8(at, text.size):
        return False
    while at < end:
        stop = <const unsigned char *>memchr(at, 1, end - at)
        if stop == NULL or stop == at or count == PROPERTIES_MAX:
            return False
        name.at, name.size = at, stop - at
        at = stop + 1
        stop = <const unsigned char *>memchr(at, 2, end - at)
        if stop == NULL or stop == at:
            return False
        value.at, value.size = at, stop - at
        at = stop + 1
        if memchr(name.at, 2, name.size) != NULL or memchr(value.at, 1, value.size) != NULL:
            return False
        for other in range(count):
            if names[other].size == name.size and memcmp(names[other].at, name.at, name.size) == 0:
                return False
        names[count] = name
        count += 1
        if is_text(&name, b"TAGS"):
            found.tags = value
        elif is_text(&name, b"KEYS"):
            found.keys = value
        elif is_text(&name, b"UNIQ_KEY"):
            found.unique = value
        elif is_text(&name, b"WAIT"):
            if not is_text(&value, b"true"):
                return False
        elif is_reserved(&name):
            return False
    return is_simple(&found.tags) and is_simple(&found.keys) and is_simple(&found.unique)


# -- answers -------------------------------------------------------------------------------------

SLOT_NAMES = {
    "opaque": SLOT_OPAQUE,
    "msgId": SLOT_MESSAGE_ID,
    "queueId": SLOT_QUEUE_ID,
    "queueOffset": SLOT_OFFSET,
    "transactionId": SLOT_TRANSACTION_ID,
    "nextBeginOffset": SLOT_OFFSET,
    "minOffset": SLOT_MIN_OFFSET,
    "maxOffset": SLOT_MAX_OFFSET,
}


cdef Py_ssize_t write_number(unsigned char *at, int64_t value) noexcept nogil:
    """Decimal digits; returns how many bytes, at most 20."""
    cdef unsigned char digits[DIGITS_MAX]
    cdef Py_ssize_t count = 0, size = 0
    cdef uint64_t rest = <uint64_t>value
    if value < 0:
        at[0] = c"-"
        size = 1
        rest = 0 - rest
    while True:
        digits[count] = <unsigned char>(c"0" + rest % 10)
        rest //= 10
        count += 1
        if rest == 0:
            break
    while count:
        count -= 1
        at[size] = digits[count]
        size += 1
    return size


cdef void write_hex(unsigned char *at, const unsigned char *data, Py_ssize_t size) noexcept nogil:
    cdef const char *digits = b"0123456789ABCDEF"
    cdef Py_ssize_t i
    for i in range(size):
        at[2 * i] = digits[data[i] >> 4]
        at[2 * i + 1] = digits[data[i] & 15]


cdef void set_number(Text *text, unsigned char *digits, int64_t value) noexcept nogil:
    text.at = digits
    text.size = write_number(digits, value)


cdef class Template:
    """An answer's header with places to fill in.

    Args:
        parts: Literals, each with the number of what follows it (:data:`SLOT_NAMES`, 0 for
            nothing).
        ext_size_at: Where a binary header has the length of its ext fields; -1 for JSON.
    """

    def __init__(self, list parts not None, Py_ssize_t ext_size_at):
        cdef bytes literal
        cdef int slot
        if len(parts) > PARTS_MAX:
            raise ValueError(f"{len(parts)} parts")
        self._parts = list(parts)
        self._count = self._literal_bytes = 0
        self._ext_size_at = ext_size_at
        for literal, slot in self._parts:
            if not 0 <= slot < SLOTS:
                raise ValueError(f"slot {slot}")
            self._literals[self._count].at = <const unsigned char *>PyBytes_AS_STRING(literal)
            self._literals[self._count].size = PyBytes_GET_SIZE(literal)
            self._slots[self._count] = slot
            self._literal_bytes += PyBytes_GET_SIZE(literal)
            self._count += 1


cdef class Output:
    """Answers, written straight into the bytes object that they leave in."""

    cdef unsigned char *need(self, Py_ssize_t size) except NULL:
        """Where the next bytes go, with room for so many."""
        cdef Py_ssize_t room
        cdef bytes fresh
        if self._data is None:
            room = 1 << 14
        else:
            room = PyBytes_GET_SIZE(self._data)
        if self._data is None or room - self.used < size:
            while room - self.used < size:
                room *= 2
            fresh = PyBytes_FromStringAndSize(NULL, room)
            if self.used:
                memcpy(PyBytes_AS_STRING(fresh), PyBytes_AS_STRING(self._data), self.used)
            self._data = fresh
        return <unsigned char *>PyBytes_AS_STRING(self._data) + self.used

    cdef bytes take(self):
        """All that was written; the next answers start anew."""
        cdef PyObject *data
        cdef bytes taken
        if self.used == 0:
            return b""
        taken, self._data = self._data, None
        Py_INCREF(taken)
        data = <PyObject *>taken
        taken = None
        _PyBytes_Resize(&data, self.used)
        self.used = 0
        taken = <bytes>data
        Py_DECREF(taken)
        return taken

    cdef int add(
        self, Template template, const Text *values, int32_t opaque, Py_ssize_t body_bytes
    ) except -1:
        """Write a frame up to its body, for which the caller needs room afterwards."""
        cdef Py_ssize_t size = FRAME_HEAD + template._literal_bytes
        cdef Py_ssize_t part, header_bytes
        cdef int slot
        cdef const Text *value
        cdef unsigned char *frame
        cdef unsigned char *at
        for part in range(template._count):
            size += 4 + values[template._slots[part]].size
        frame = self.need(size + body_bytes)
        at = frame + FRAME_HEAD
        for part in range(template._count):
            memcpy(at, template._literals[part].at, template._literals[part].size)
            at += template._literals[part].size
            slot = template._slots[part]
            if slot == SLOT_END:
                continue
            value = &values[slot]
            if template._ext_size_at >= 0:
                roquet_put32(at, <uint32_t>value.size)
                at += 4
            memcpy(at, value.at, value.size)
            at += value.size
        header_bytes = at - frame - FRAME_HEAD
        roquet_put32(frame, <uint32_t>(4 + header_bytes + body_bytes))
        roquet_put32(frame + 4, <uint32_t>header_bytes)
        if template._ext_size_at >= 0:
            frame[4] = 1
            at = frame + FRAME_HEAD
            roquet_put32(at + 5, <uint32_t>opaque)
            roquet_put32(at + template._ext_size_at,
                         <uint32_t>(header_bytes - template._ext_size_at - 4))
        self.used += FRAME_HEAD + header_bytes
        return 0
