"""The conditions of a selection, which ``_decoder.pyx`` checks before it writes a row."""

from libc.stdint cimport int64_t
from libc.string cimport memcmp

from roquet.format._record cimport Layout
from roquet.model._text cimport Text


cdef enum:
    PAIRS_MAX = 64
    NUMBERS = 3


cdef struct Pair:
    Text name
    Text value


cdef struct NumberTest:
    bint wanted
    int64_t low
    int64_t high
    bint is_range


cdef inline bint is_name(const Text *name, const char *word, Py_ssize_t size) noexcept nogil:
    return name.size == size and memcmp(name.at, word, size) == 0


cdef int split_pairs(const Text *properties, Pair *pairs) noexcept nogil
cdef Py_ssize_t put_hex(const unsigned char *at, int size, unsigned char *out) noexcept nogil


cdef class Conditions:
    cdef NumberTest _numbers[NUMBERS]
    cdef bint _has_numbers
    cdef tuple _takes_number
    cdef list _texts

    cdef bint takes_numbers(self, const unsigned char *at) except -1
    cdef bint takes_texts(self, const unsigned char *at, const Layout *record) except -1
    cdef bint _takes_slowly(self, const unsigned char *at, const Layout *record) except -1
