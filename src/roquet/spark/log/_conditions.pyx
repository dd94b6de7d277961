"""Checks the conditions of a query on a record; compiled twin of ``Selection.takes_values``.

Owns the split of a property string into pairs too. Text that is not plain (not UTF-8, a property
named twice) goes to the functions of the reference, so both always agree.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memchr, memcmp

from roquet.format._layout cimport *
from roquet.format._record cimport Layout
from roquet.model._bytes cimport roquet_get32, roquet_get64
from roquet.model._constants cimport *
from roquet.model._text cimport Text, roquet_is_utf8

from roquet.model.properties import decode_properties


cdef extern from "<string.h>":
    void *memmem(const void *where, size_t size, const void *what, size_t what_size) nogil


cdef enum:
    N_QUEUE_ID = 0
    N_QUEUE_OFFSET = 1
    N_PHYSICAL = 2

NUMBER_NAMES = ("queueId", "queueOffset", "physicalOffset")
TEXT_NAMES = ("tags", "keys", "msgId")


cdef int split_pairs(const Text *properties, Pair *pairs) noexcept nogil:
    """Return the number of pairs in a property string, or -1 if they need the reference path."""
    cdef const unsigned char *at = properties.at
    cdef const unsigned char *end = at + properties.size
    cdef const unsigned char *stop
    cdef const unsigned char *middle
    cdef int count = 0
    cdef int i
    if not roquet_is_utf8(at, properties.size):
        return -1
    while at < end:
        stop = <const unsigned char *>memchr(at, 2, end - at)
        if stop == NULL:
            stop = end
        middle = <const unsigned char *>memchr(at, 1, stop - at)
        if middle != NULL and middle > at and middle + 1 < stop:
            if count == PAIRS_MAX:
                return -1
            pairs[count].name.at = at
            pairs[count].name.size = middle - at
            pairs[count].value.at = middle + 1
            pairs[count].value.size = stop - middle - 1
            for i in range(count):
                if is_name(&pairs[i].name, <const char *>at, middle - at):
                    return -1
            count += 1
        at = stop + 1
    return count


cdef Py_ssize_t put_hex(const unsigned char *at, int size, unsigned char *out) noexcept nogil:
    cdef const char *digits = b"0123456789ABCDEF"
    cdef int i
    for i in range(size):
        out[2 * i] = digits[at[i] >> 4]
        out[2 * i + 1] = digits[at[i] & 15]
    return 2 * size


cdef class TextTest:
    """A condition on the text of a column, with what it takes to check it quickly."""

    cdef int column
    cdef tuple words
    cdef bytes single
    cdef object takes
    cdef frozenset offsets

    def __init__(self, int column, condition):
        self.column = column
        self.words = condition.words()
        self.single = condition.single
        self.takes = condition.takes
        # A message without an id of its own has that of the broker, which is not in its bytes.
        self.offsets = offsets_of(self.words) if TEXT_NAMES[column] == "msgId" else frozenset()

    cdef bint may_take(self, const unsigned char *at, const Text *properties) except -1:
        """Whether a record may satisfy the condition; a quick check."""
        cdef bytes word
        if self.words is None:
            return True
        for word in self.words:
            if memmem(properties.at, properties.size, <const char *>word, len(word)) != NULL:
                return True
        return bool(self.offsets) and (
            <int64_t>roquet_get64(at + RECORD_PHYSICAL_OFFSET_AT) in self.offsets
        )

    cdef bint takes_text(self, const unsigned char *at, Py_ssize_t size) except -1:
        if self.single is not None:
            return len(self.single) == size and memcmp(<const char *>self.single, at, size) == 0
        return self.takes(PyBytes_FromStringAndSize(<const char *>at, size))


def offsets_of(words):
    """Return the physical offsets that ids of a broker end with."""
    found = set()
    for word in words or ():
        if len(word) in (2 * (IPV4_HOST_BYTES + 8), 2 * (IPV6_HOST_BYTES + 8)):
            try:
                found.add(int.from_bytes(bytes.fromhex(word[len(word) - 16 :].decode()), "big"))
            except ValueError:
                continue
    return frozenset(found)


cdef class Conditions:
    """The conditions of a selection on numbers, and on texts other than the topic."""

    def __init__(self, selection):
        cdef int i
        self._has_numbers = bool(selection.numbers)
        for i, name in enumerate(NUMBER_NAMES):
            condition = selection.numbers.get(name)
            self._numbers[i].wanted = condition is not None
            if condition is not None:
                self._numbers[i].low = condition.low
                self._numbers[i].high = condition.high
                self._numbers[i].is_range = condition.is_range
        self._takes_number = tuple(
            getattr(selection.numbers.get(name), "takes", None) for name in NUMBER_NAMES
        )
        self._texts = [
            TextTest(TEXT_NAMES.index(name), condition)
            for name, condition in selection.texts.items() if name != "topic"
        ]

    cdef bint takes_numbers(self, const unsigned char *at) except -1:
        cdef int64_t values[NUMBERS]
        cdef int i
        if not self._has_numbers:
            return True
        values[N_QUEUE_ID] = <int32_t>roquet_get32(at + RECORD_QUEUE_ID_AT)
        values[N_QUEUE_OFFSET] = <int64_t>roquet_get64(at + RECORD_QUEUE_OFFSET_AT)
        values[N_PHYSICAL] = <int64_t>roquet_get64(at + RECORD_PHYSICAL_OFFSET_AT)
        for i in range(NUMBERS):
            if not self._numbers[i].wanted:
                continue
            if not self._numbers[i].low <= values[i] <= self._numbers[i].high:
                return False
            if not self._numbers[i].is_range and not self._takes_number[i](values[i]):
                return False
        return True

    cdef bint takes_texts(self, const unsigned char *at, const Layout *record) except -1:
        cdef Pair pairs[PAIRS_MAX]
        cdef const Text *found[3]
        cdef unsigned char offset_id[56]
        cdef Text own_id
        cdef TextTest test
        cdef int count, i
        if not self._texts:
            return True
        for test in self._texts:
            if not test.may_take(at, &record.properties):
                return False
        count = split_pairs(&record.properties, pairs)
        if count < 0:
            return self._takes_slowly(at, record)
        own_id.at = offset_id
        own_id.size = put_hex(record.store_host, record.store_host_bytes, offset_id)
        own_id.size += put_hex(at + RECORD_PHYSICAL_OFFSET_AT, 8, offset_id + own_id.size)
        found[0] = found[1] = NULL
        found[2] = &own_id
        for i in range(count):
            if is_name(&pairs[i].name, b"TAGS", 4):
                found[0] = &pairs[i].value
            elif is_name(&pairs[i].name, b"KEYS", 4):
                found[1] = &pairs[i].value
            elif is_name(&pairs[i].name, b"UNIQ_KEY", 8):
                found[2] = &pairs[i].value
        for test in self._texts:
            if found[test.column] == NULL:
                return False
            if not test.takes_text(found[test.column].at, found[test.column].size):
                return False
        return True

    cdef bint _takes_slowly(self, const unsigned char *at, const Layout *record) except -1:
        """Do the same with the functions of the reference."""
        cdef unsigned char offset_id[56]
        cdef Py_ssize_t size
        cdef TextTest test
        cdef dict properties = decode_properties(
            PyBytes_FromStringAndSize(<const char *>record.properties.at, record.properties.size)
        )
        size = put_hex(record.store_host, record.store_host_bytes, offset_id)
        size += put_hex(at + RECORD_PHYSICAL_OFFSET_AT, 8, offset_id + size)
        own_id = PyBytes_FromStringAndSize(<const char *>offset_id, size).decode()
        values = (
            properties.get("TAGS"), properties.get("KEYS"), properties.get("UNIQ_KEY", own_id)
        )
        for test in self._texts:
            value = values[test.column]
            if value is None or not test.takes(value.encode()):
                return False
        return True
