"""Text in a buffer, and the scans of ``_text.h`` and ``_utf8.h``."""

from libc.stdint cimport uint32_t
from libc.string cimport memcmp, strlen


cdef extern from "roquet/model/_text.h":
    size_t roquet_json_run(const unsigned char *at, size_t size, int *beyond) nogil
    size_t roquet_ascii_run(const unsigned char *at, size_t size) nogil
    bint roquet_is_ascii(const unsigned char *at, size_t size) nogil
    const unsigned char *roquet_find(
        const unsigned char *at, const unsigned char *end, unsigned char byte
    ) nogil
    uint32_t roquet_java_hash(uint32_t start, const unsigned char *at, size_t size) nogil


cdef extern from "roquet/model/_utf8.h":
    bint roquet_is_utf8(const unsigned char *at, size_t size) nogil


cdef struct Text:
    const unsigned char *at
    Py_ssize_t size


cdef inline bint is_text(const Text *text, const char *other) noexcept nogil:
    return text.size == <Py_ssize_t>strlen(other) and memcmp(text.at, other, text.size) == 0


cdef inline bint has_byte(const Text *text, unsigned char byte) noexcept nogil:
    cdef const unsigned char *end = text.at + text.size
    return roquet_find(text.at, end, byte) != end


cdef inline bint is_ascii(const Text *text) noexcept nogil:
    return roquet_is_ascii(text.at, text.size)
