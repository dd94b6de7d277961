"""Frames of responses, compiled: a header is a template whose slots are filled in."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from roquet.model._bytes cimport roquet_put32


cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **data, Py_ssize_t size) except -1


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
    """Write a number in decimal; returns how many bytes that took, at most 20."""
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
    """A response header with slots to fill in.

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
        self._count = self.literal_bytes = 0
        self._ext_size_at = ext_size_at
        for literal, slot in self._parts:
            if not 0 <= slot < SLOTS:
                raise ValueError(f"slot {slot}")
            self._literals[self._count].at = <const unsigned char *>PyBytes_AS_STRING(literal)
            self._literals[self._count].size = PyBytes_GET_SIZE(literal)
            self._slots[self._count] = slot
            self.literal_bytes += PyBytes_GET_SIZE(literal)
            self._count += 1


cdef class Output:
    """Responses, written straight into the bytes object in which they are sent."""

    cdef unsigned char *need(self, Py_ssize_t size) except NULL:
        """Return where the next bytes go, with room for ``size`` of them."""
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
        """Return everything written so far, and start over."""
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
        """Write a frame up to its body; the caller then makes room for the body."""
        cdef Py_ssize_t size = FRAME_HEAD + template.literal_bytes
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
