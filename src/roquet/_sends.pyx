# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled lane of the client: the frames of plain sends, and their answers.

A send is plain if its message has a body, perhaps a tag and keys of printable ASCII, and nothing
else; an answer is plain if it says that a message is stored, and where, and nothing else. Whatever
is not plain is left to the reference path, whose bytes and results are the same.

Every length that comes from the wire is compared with the bytes that are left before it is used.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcpy

from roquet._fast cimport Text
from roquet._frame cimport (
    DIGITS_MAX,
    FRAME_HEAD,
    HEADER_MAX,
    Request,
    is_simple,
    is_text,
    read_header,
    read_int,
    read_long,
    set_number,
)


cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


cdef extern from "_bytes.h":
    uint32_t roquet_get32(const unsigned char *at) nogil
    void roquet_put32(unsigned char *at, uint32_t value) nogil


cdef enum:
    LITERALS = 5
    TEXT_MAX = 1 << 13  # two texts of this length stay far below what properties may have
    SEPARATOR_BYTES = 6  # as JSON has them


cdef inline unsigned char *put(unsigned char *at, const void *data, Py_ssize_t size) noexcept:
    memcpy(at, data, size)
    return at + size


cdef inline unsigned char *put_property(
    unsigned char *at, const char *name, Py_ssize_t name_bytes, const Text *value
) noexcept:
    at = put(at, name, name_bytes)
    at = put(at, b"\\u0001", 6)
    at = put(at, value.at, value.size)
    return put(at, b"\\u0002", 6)


cdef inline Py_ssize_t property_bytes(Py_ssize_t name_bytes, const Text *value) noexcept:
    return name_bytes + SEPARATOR_BYTES + value.size + SEPARATOR_BYTES


cdef bint plain_text(object value, Text *out) except -1:
    """Whether a text stands in JSON as it is; nothing and an empty text do."""
    out.size = 0
    if value is None:
        return True
    if type(value) is not str or not (<str>value).isascii():
        return False
    out.at = <const unsigned char *>PyUnicode_AsUTF8AndSize(value, &out.size)
    return out.size <= TEXT_MAX and is_simple(out)


cdef class SendTemplate:
    """The JSON header of sends to one queue, in five parts.

    Between them are: when the message was made, the user's flag, the properties with their quotes,
    and the opaque.

    Args:
        literals: The parts.
    """

    cdef list _data
    cdef Text _literals[LITERALS]
    cdef Py_ssize_t _size

    def __init__(self, list literals not None):
        cdef Py_ssize_t index = 0
        cdef bytes literal
        if len(literals) != LITERALS:
            raise ValueError(f"{len(literals)} parts")
        self._data = list(literals)
        self._size = 0
        for literal in self._data:
            self._literals[index].at = <const unsigned char *>PyBytes_AS_STRING(literal)
            self._literals[index].size = PyBytes_GET_SIZE(literal)
            self._size += self._literals[index].size
            index += 1

    cdef inline unsigned char *literal(self, unsigned char *at, Py_ssize_t index) noexcept:
        return put(at, self._literals[index].at, self._literals[index].size)

    def frame(
        self,
        object tags,
        object keys,
        str unique_id not None,
        object flag,
        int64_t born_ms,
        int32_t opaque,
        bytes body not None,
    ):
        """The frame of a send; ``None`` if the message is not plain."""
        cdef Text tag, key, unique, wait, born, number, mark
        cdef unsigned char born_digits[DIGITS_MAX]
        cdef unsigned char flag_digits[DIGITS_MAX]
        cdef unsigned char mark_digits[DIGITS_MAX]
        cdef Py_ssize_t header_bytes, body_bytes = PyBytes_GET_SIZE(body)
        cdef bytes made
        cdef unsigned char *at
        if type(flag) is not int or not -0x80000000 <= flag <= 0x7FFFFFFF:
            return None
        if not (plain_text(tags, &tag) and plain_text(keys, &key)):
            return None
        if not plain_text(unique_id, &unique):
            return None
        wait.at, wait.size = b"true", 4
        set_number(&born, born_digits, born_ms)
        set_number(&number, flag_digits, flag)
        set_number(&mark, mark_digits, opaque)
        header_bytes = self._size + born.size + number.size + mark.size + 2
        header_bytes += property_bytes(4, &wait) + property_bytes(8, &unique)
        if key.size:
            header_bytes += property_bytes(4, &key)
        if tag.size:
            header_bytes += property_bytes(4, &tag)
        made = PyBytes_FromStringAndSize(NULL, FRAME_HEAD + header_bytes + body_bytes)
        at = <unsigned char *>PyBytes_AS_STRING(made)
        roquet_put32(at, <uint32_t>(4 + header_bytes + body_bytes))
        roquet_put32(at + 4, <uint32_t>header_bytes)
        at = self.literal(at + FRAME_HEAD, 0)
        at = put(at, born.at, born.size)
        at = self.literal(at, 1)
        at = put(at, number.at, number.size)
        at = self.literal(at, 2)
        at = put(at, b'"', 1)
        if key.size:
            at = put_property(at, b"KEYS", 4, &key)
        if tag.size:
            at = put_property(at, b"TAGS", 4, &tag)
        at = put_property(at, b"WAIT", 4, &wait)
        at = put_property(at, b"UNIQ_KEY", 8, &unique)
        at = put(at, b'"', 1)
        at = self.literal(at, 3)
        at = put(at, mark.at, mark.size)
        at = self.literal(at, 4)
        put(at, PyBytes_AS_STRING(body), body_bytes)
        return made


cdef class AnswerLane:
    """Takes plain answers to sends from what a connection read.

    Args:
        waiting: By opaque: who waits for an answer.
        due: By opaque: until when.
        plain: The opaques of those who take a tuple for an answer: the id of the place where the
            message is stored, its queue, its offset in it, the id of its transaction or ``None``,
            the region or ``None``, and whether traces are wanted.
    """

    cdef dict _waiting
    cdef dict _due
    cdef set _plain
    cdef bytes _scratch

    def __init__(self, dict waiting not None, dict due not None, set plain not None):
        self._waiting = waiting
        self._due = due
        self._plain = plain
        self._scratch = PyBytes_FromStringAndSize(NULL, HEADER_MAX)

    def take(self, object data, Py_ssize_t position):
        """Take answers from ``position`` on; where the first frame is that is left."""
        cdef Py_buffer view
        if self._plain:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
            try:
                position = self.take_from(<const unsigned char *>view.buf, view.len, position)
            finally:
                PyBuffer_Release(&view)
        return position, 0, b""

    cdef Py_ssize_t take_from(
        self, const unsigned char *data, Py_ssize_t size, Py_ssize_t position
    ) except -1:
        cdef Request request
        cdef uint32_t length, header_bytes
        cdef object opaque, answer, future
        request.is_binary = False
        while size - position >= FRAME_HEAD:
            length = roquet_get32(data + position)
            header_bytes = roquet_get32(data + position + 4)
            # A body, or another kind of header, is not plain; nor is a length that makes no sense.
            if header_bytes > HEADER_MAX or length != header_bytes + 4:
                break
            if size - position < 4 + <Py_ssize_t>length:
                break
            if not read_header(
                data + position + FRAME_HEAD, header_bytes,
                <unsigned char *>PyBytes_AS_STRING(self._scratch), &request,
            ):
                break
            if request.code != 0 or request.flag != 1:
                break
            opaque = request.opaque
            if opaque not in self._plain:
                break
            answer = stored_at(&request)
            if answer is None:
                break
            future = self._waiting.get(opaque)
            if future is None or future.done():
                break
            del self._waiting[opaque]
            self._due.pop(opaque, None)
            self._plain.discard(opaque)
            future.set_result(answer)
            position += 4 + <Py_ssize_t>length
        return position


cdef tuple stored_at(const Request *request):
    """What an answer says; ``None`` if it says something else, or not all that it must."""
    cdef const Text *name
    cdef const Text *value
    cdef Py_ssize_t pair
    cdef int32_t queue_id = -1
    cdef int64_t queue_offset = -1
    cdef str message_id = None, transaction_id = None, region = None
    cdef bint trace_on = True
    for pair in range(request.pairs):
        name = &request.names[pair]
        value = &request.values[pair]
        if is_text(name, b"msgId"):
            message_id = text_of(value)
        elif is_text(name, b"queueId"):
            if not read_int(value, &queue_id):
                return None
        elif is_text(name, b"queueOffset"):
            if not read_long(value, &queue_offset):
                return None
        elif is_text(name, b"transactionId"):
            transaction_id = text_of(value)
        elif is_text(name, b"MSG_REGION"):
            region = text_of(value)
        elif is_text(name, b"TRACE_ON"):
            trace_on = not is_text(value, b"false")
        else:
            return None
    if message_id is None or queue_id < 0 or queue_offset < 0:
        return None
    return message_id, queue_id, queue_offset, transaction_id, region, trace_on


cdef inline str text_of(const Text *text):
    return PyUnicode_DecodeASCII(<const char *>text.at, text.size, NULL)
